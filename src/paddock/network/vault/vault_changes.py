"""Change a credential vault: check credentials and bindings, count revisions."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from paddock.config.network_policy import encode_host_name
from paddock.errors import Conflict, InvalidInput, NotFound
from paddock.model.credential_vault import (
    CredentialAuth,
    CredentialAuthType,
    CredentialBinding,
    CredentialMatch,
    CredentialVault,
    VaultContent,
    VaultCredential,
)
from paddock.network.addresses import parse_address

MAX_CREDENTIALS = 100
MAX_BINDINGS = 200
MAX_VALUE = 8192
MIN_VALUE = 8
"""Shorter values could not be masked in responses without masking other text."""
MAX_RETIRED = 100
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_METHOD = re.compile(r"[A-Z][A-Z-]{0,30}")
_PATH = re.compile(r"[/*][\x21-\x7e]{0,1000}")
_SCHEMES = ("https", "http")
_STANDARD_PORTS = (80, 443)
_FRAMING_HEADERS = frozenset(
    (
        *("host", "connection", "content-length", "content-encoding", "transfer-encoding", "accept-encoding", "te"),
        *("trailer", "upgrade", "expect", "keep-alive", "proxy-authorization", "proxy-connection"),
        "sec-websocket-extensions",
    )
)
"""Headers that the proxy itself sets or removes."""
Named = TypeVar("Named", bound=VaultCredential | CredentialBinding)


@dataclass(frozen=True)
class NewCredential:
    """A credential to write."""

    name: str
    value: str = field(repr=False)


@dataclass(frozen=True)
class NewBinding:
    """A binding to write."""

    name: str
    match: CredentialMatch
    auth: CredentialAuth


@dataclass(frozen=True)
class VaultPatch:
    """Changes of a vault that happen together or not at all."""

    expected_revision: int | None = None
    """Revision that the vault must have."""
    add_credentials: Sequence[NewCredential] = ()
    replace_credentials: Sequence[NewCredential] = ()
    delete_credentials: Sequence[str] = ()
    add_bindings: Sequence[NewBinding] = ()
    replace_bindings: Sequence[NewBinding] = ()
    delete_bindings: Sequence[str] = ()
    put_credentials: Sequence[NewCredential] = ()
    """Credentials to add or replace."""
    put_bindings: Sequence[NewBinding] = ()
    """Bindings to add or replace."""


def create_vault(
    content: VaultContent, credentials: Sequence[NewCredential], bindings: Sequence[NewBinding]
) -> VaultContent:
    """Return the content with a new vault. Raises `Conflict` if there is one, and `InvalidInput`."""
    if content.vault is not None:
        raise Conflict(
            f"the sandbox has a credential vault already, with revision {content.vault.revision}; change it with PATCH"
        )
    return patch_vault(with_vault(content), VaultPatch(add_credentials=credentials, add_bindings=bindings))


def with_vault(content: VaultContent) -> VaultContent:
    """Return the content with an empty vault if there is none."""
    if content.vault is not None:
        return content
    return content.model_copy(update={"vault": CredentialVault(revision=content.last_revision)})


def patch_vault(content: VaultContent, patch: VaultPatch) -> VaultContent:
    """Return the content with a changed vault.

    Raises `NotFound` without a vault, `Conflict` for another revision than the expected one, and `InvalidInput`.
    """
    vault = require_vault(content)
    if patch.expected_revision is not None and patch.expected_revision != vault.revision:
        raise Conflict(
            f"the credential vault has revision {vault.revision}, not {patch.expected_revision}; "
            "read it again and repeat the change"
        )
    revision = vault.revision + 1
    credentials = _change_named(
        "credentials",
        vault.credentials,
        [_checked_credential(each, revision) for each in patch.add_credentials],
        [_checked_credential(each, revision) for each in patch.replace_credentials],
        patch.delete_credentials,
        [_checked_credential(each, revision) for each in patch.put_credentials],
    )
    bindings = _change_named(
        "bindings",
        vault.bindings,
        [_checked_binding(each, revision) for each in patch.add_bindings],
        [_checked_binding(each, revision) for each in patch.replace_bindings],
        patch.delete_bindings,
        [_checked_binding(each, revision) for each in patch.put_bindings],
    )
    if len(credentials) > MAX_CREDENTIALS or len(bindings) > MAX_BINDINGS:
        raise InvalidInput(f"a vault may have {MAX_CREDENTIALS} credentials and {MAX_BINDINGS} bindings")
    _check_references({each.name: each for each in credentials}, bindings)
    changed = CredentialVault(revision=revision, credentials=credentials, bindings=bindings)
    return content.model_copy(
        update={
            "vault": changed,
            "last_revision": revision,
            "retired_values": _retire_values(content, {each.value for each in credentials}),
        }
    )


def delete_vault(content: VaultContent) -> VaultContent:
    """Return the content without its vault. Raises `NotFound` if there is none."""
    require_vault(content)
    return content.model_copy(update={"vault": None, "retired_values": _retire_values(content, set())})


def require_vault(content: VaultContent) -> CredentialVault:
    """Return the vault. Raises `NotFound` if no credentials were written."""
    if content.vault is None:
        raise NotFound("the sandbox has no credential vault yet; create it with POST")
    return content.vault


def _retire_values(content: VaultContent, kept: set[str]) -> tuple[str, ...]:
    before = [each.value for each in content.vault.credentials] if content.vault else []
    retired = dict.fromkeys((*content.retired_values, *before))
    return tuple(value for value in retired if value not in kept)[-MAX_RETIRED:]


def _change_named(
    what: str,
    current: Iterable[Named],
    added: Sequence[Named],
    replaced: Sequence[Named],
    deleted: Sequence[str],
    put: Sequence[Named],
) -> tuple[Named, ...]:
    """Delete, replace and add by name. Raises `InvalidInput` for names that are missing, taken or given twice."""
    names = [*deleted, *(each.name for each in (*replaced, *added, *put))]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(f"{what}: {name[:100]!r} is changed more than once")
    found: dict[str, Named] = {each.name: each for each in current}
    for name in (*deleted, *(each.name for each in replaced)):
        if name not in found:
            raise InvalidInput(f"{what}: there is no {name[:100]!r}")
    for name in deleted:
        del found[name]
    for each in added:
        if each.name in found:
            raise InvalidInput(f"{what}: {each.name!r} exists already; replace it")
    written: list[Named] = [*replaced, *added, *put]
    for changed in written:
        found[changed.name] = changed
    return tuple(found.values())


def _checked_credential(credential: NewCredential, revision: int) -> VaultCredential:
    """Check a credential; messages never show the value."""
    _check_name("credentials", credential.name)
    where = f"credentials.{credential.name}"
    if not MIN_VALUE <= len(credential.value) <= MAX_VALUE:
        raise InvalidInput(f"{where}: the value must have {MIN_VALUE} to {MAX_VALUE} characters")
    if not _HEADER_VALUE.fullmatch(credential.value):
        raise InvalidInput(
            f"{where}: the value must be printable ASCII without spaces at its ends; is there a line break at its end?"
        )
    return VaultCredential(name=credential.name, value=credential.value, revision=revision)


def _checked_binding(binding: NewBinding, revision: int) -> CredentialBinding:
    _check_name("bindings", binding.name)
    where = f"bindings.{binding.name}"
    return CredentialBinding(
        name=binding.name,
        match=_checked_match(f"{where}.match", binding.match),
        auth=_checked_auth(f"{where}.auth", binding.auth),
        revision=revision,
    )


def _check_name(what: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"{what}: {name[:100]!r} is no name; use up to 100 letters, digits, '-', '_' and '.'")


def _checked_match(where: str, match: CredentialMatch) -> CredentialMatch:
    if not match.hosts:
        raise InvalidInput(f"{where}.hosts: name at least one host")
    schemes = match.schemes or ("https",)
    checks: Mapping[str, tuple[Iterable[object], Callable[[object], bool], str]] = {
        "schemes": (schemes, lambda scheme: scheme in _SCHEMES, "use https or http"),
        "ports": (match.ports, lambda port: isinstance(port, int) and 0 < port < 65536, "use 1 to 65535"),
        "methods": (match.methods, lambda method: bool(_METHOD.fullmatch(str(method).upper())), "use names like GET"),
        "paths": (
            match.paths,
            lambda path: bool(_PATH.fullmatch(str(path))) and not set("?#") & set(str(path)),
            "begin with / and leave the query out; `*` stands for any characters",
        ),
    }
    for name, (values, is_valid, advice) in checks.items():
        for value in values:
            if not is_valid(value):
                raise InvalidInput(f"{where}.{name}: {str(value)[:100]!r} is invalid; {advice}")
    return CredentialMatch(
        schemes=tuple(dict.fromkeys(schemes)),
        ports=tuple(dict.fromkeys(match.ports)),
        hosts=tuple(dict.fromkeys(_checked_host(where, host) for host in match.hosts)),
        methods=tuple(dict.fromkeys(method.upper() for method in match.methods)),
        paths=tuple(dict.fromkeys(match.paths)),
    )


def _checked_host(where: str, host: str) -> str:
    wildcard, name = ("*.", host[2:]) if host.startswith("*.") else ("", host)
    encoded = encode_host_name(name) if "*" not in name and parse_address(name) is None else None
    if encoded is None or (wildcard and "." not in encoded):
        raise InvalidInput(
            f"{where}.hosts: {host[:100]!r} is invalid; use a host name, or *. and a domain of at least two labels"
        )
    return wildcard + encoded


def _checked_auth(where: str, auth: CredentialAuth) -> CredentialAuth:
    is_custom = auth.type is CredentialAuthType.CUSTOM_HEADERS
    if is_custom != bool(auth.headers) or is_custom == bool(auth.credential):
        wanted = "headers and no credential" if is_custom else "a credential and no headers"
        raise InvalidInput(f"{where}: the type {auth.type} needs {wanted}")
    if (auth.type is CredentialAuthType.API_KEY) != bool(auth.name):
        needs = "needs the name of a header" if auth.type is CredentialAuthType.API_KEY else "takes no name"
        raise InvalidInput(f"{where}.name: the type {auth.type} {needs}")
    names = [each.name for each in auth.header_credentials()]
    for name in names:
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _FRAMING_HEADERS:
            raise InvalidInput(f"{where}: {name[:100]!r} cannot be a header with a credential")
    if len({name.lower() for name in names}) < len(names):
        raise InvalidInput(f"{where}.headers: a header is named twice")
    return auth


def _check_references(credentials: Mapping[str, VaultCredential], bindings: Iterable[CredentialBinding]) -> None:
    for binding in bindings:
        for each in binding.auth.header_credentials():
            credential = credentials.get(each.credential)
            if credential is None:
                raise InvalidInput(
                    f"bindings.{binding.name}: there is no credential {each.credential[:100]!r}; add it, or delete the "
                    "binding in the same change"
                )
            if binding.auth.type is CredentialAuthType.BASIC and decode_basic_value(credential.value) is None:
                raise InvalidInput(
                    f"bindings.{binding.name}: the value of {credential.name} must be base64 of USER:PASSWORD"
                )


def decode_basic_value(value: str) -> str | None:
    """Return USER:PASSWORD of a value for Basic authentication; `None` if it is none."""
    try:
        decoded = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return decoded if ":" in decoded else None


def port_for_scheme(match: CredentialMatch, scheme: str) -> frozenset[int]:
    """Return the ports of a match for one of its schemes."""
    others = {port for port in match.ports if port not in _STANDARD_PORTS}
    if not match.ports or len(others) < len(match.ports):
        others.add(443 if scheme == "https" else 80)
    return frozenset(others)
