"""Find the binding of a request, and the headers that it sets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from paddock.config.wildcards import wildcard_source
from paddock.model.credential_vault import CredentialAuthType, CredentialBinding, CredentialVault
from paddock.network.vault.vault_changes import port_for_scheme

_SCHEME_PREFIXES = {CredentialAuthType.BEARER: "Bearer ", CredentialAuthType.BASIC: "Basic "}
_ENCODED_SEPARATOR = re.compile(r"%(2f|5c|00)", re.IGNORECASE)


@dataclass(frozen=True)
class CompiledBinding:
    """A binding prepared for requests."""

    name: str
    ports: Mapping[str, frozenset[int]]
    """Ports by scheme."""
    hosts: frozenset[str]
    wildcards: frozenset[str]
    """Domains whose names with one more label match."""
    methods: frozenset[str]
    paths: tuple[re.Pattern[str], ...]
    headers: tuple[tuple[str, str], ...]

    def matches_host(self, scheme: str, host: str, port: int) -> bool:
        if port not in self.ports.get(scheme, ()):
            return False
        return host in self.hosts or host.partition(".")[2] in self.wildcards

    def matches_request(self, method: str, path: str) -> bool:
        if self.methods and method not in self.methods:
            return False
        if not self.paths:
            return True
        return not is_ambiguous_path(path) and any(pattern.fullmatch(path) for pattern in self.paths)


def compile_bindings(vault: CredentialVault) -> tuple[CompiledBinding, ...]:
    values = {credential.name: credential.value for credential in vault.credentials}
    return tuple(_compile_binding(binding, values) for binding in vault.bindings)


def _compile_binding(binding: CredentialBinding, values: Mapping[str, str]) -> CompiledBinding:
    match, auth = binding.match, binding.auth
    prefix = _SCHEME_PREFIXES.get(auth.type, "")
    return CompiledBinding(
        name=binding.name,
        ports={scheme: port_for_scheme(match, scheme) for scheme in match.schemes},
        hosts=frozenset(host for host in match.hosts if not host.startswith("*.")),
        wildcards=frozenset(host[2:] for host in match.hosts if host.startswith("*.")),
        methods=frozenset(match.methods),
        paths=tuple(re.compile(wildcard_source(path), re.DOTALL) for path in match.paths),
        headers=tuple((each.name, prefix + values[each.credential]) for each in auth.header_credentials()),
    )


def find_bindings(
    bindings: Sequence[CompiledBinding], scheme: str, host: str, port: int, method: str, path: str
) -> list[CompiledBinding]:
    """Return all bindings that match; a request may get credentials only if there is exactly one."""
    return [
        binding
        for binding in bindings
        if binding.matches_host(scheme, host, port) and binding.matches_request(method, path)
    ]


def is_ambiguous_path(path: str) -> bool:
    """Return whether servers may read another path from this one, such as `/v1/../admin` or `/v1/%2e%2e/admin`."""
    if _ENCODED_SEPARATOR.search(path) or "\\" in path or "//" in path:
        return True
    # Parameters (`..;x`) are cut off by some servers before they resolve dots.
    return any(unquote(part).partition(";")[0] in (".", "..") for part in path.split("/"))
