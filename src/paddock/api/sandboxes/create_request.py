"""The body that creates a sandbox, and its conversion into a request to the fleet."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError

from paddock.api.http.body_models import RequestBody
from paddock.api.http.visibility_change import VisibilityField
from paddock.api.sandboxes.opensandbox_policy import NetworkPolicyRequest, rules_from_policy
from paddock.config.network_policy import NetworkRules
from paddock.config.units import parse_cpu, parse_size
from paddock.errors import InvalidInput, Unsupported
from paddock.fleet.fleet_requests import SandboxRequest, VolumeRequest
from paddock.live import android_devices
from paddock.llm.gateway.llm_extension_names import LLM_EXTENSIONS
from paddock.model.sandbox import KIND_EXTENSION, USER_EXTENSION, VAULT_EXTENSION, SandboxLimits

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
LABEL_PATTERN = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
DOMAIN_PATTERN = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*")
RESERVED_PREFIX = "opensandbox.io/"
PADDOCK_PREFIX = "paddock."
"""Prefix of Paddock's own extensions; the fleet keeps internal state in them."""
LONGEST_STRING = 128 * 1024 - 1
"""The kernel passes no longer argument or variable to a program."""
MAX_LIMITS = {"cpu": 1024, "memory": 2**50, "disk": 2**60, "pids": 4_194_304, "files": 1_048_576}
PUBLIC_EXTENSIONS = LLM_EXTENSIONS | {KIND_EXTENSION, USER_EXTENSION, VAULT_EXTENSION, android_devices.EXTENSION}
"""Paddock's extensions that clients may set and see."""
POOL_EXTENSION = "poolRef"
REQUEST_KEY_EXTENSION = "requestKey"


class ImageAuth(RequestBody):
    username: str
    password: str


class ImageSpec(RequestBody):
    uri: str = Field(min_length=1, max_length=1024, examples=["code"])
    auth: ImageAuth | None = None


class PlatformSpec(RequestBody):
    os: str
    arch: str


class HostVolume(RequestBody):
    path: str = Field(pattern="^/", max_length=4096)


class ClaimVolume(RequestBody):
    claim_name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=253)
    create_if_not_exists: bool = True
    delete_on_sandbox_termination: bool = False
    storage_class: str | None = None
    storage: str | None = None
    access_modes: list[str] | None = None


class Volume(RequestBody):
    """A volume; exactly one of `host` and `pvc` is given."""

    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)
    host: HostVolume | None = None
    pvc: ClaimVolume | None = None
    ossfs: dict[str, Any] | None = None
    mount_path: str = Field(pattern="^/", max_length=4096)
    read_only: bool = False
    sub_path: str | None = Field(default=None, max_length=4096)


class CredentialProxy(RequestBody):
    enabled: bool = False


class CreateSandboxRequest(RequestBody):
    """Give one of `image`, `snapshotId` and `extensions.poolRef`; with none, the configured image is used."""

    image: ImageSpec | None = None
    snapshot_id: str | None = Field(default=None, max_length=100)
    template_id: str | None = Field(default=None, max_length=100)
    platform: PlatformSpec | None = None
    timeout: int | None = Field(default=None, ge=1, examples=[600])
    """Lifetime in seconds; `null` means until deleted, omitted means the configured default."""
    resource_limits: dict[str, str | int | float] | None = Field(
        default=None, examples=[{"cpu": "500m", "memory": "512Mi"}]
    )
    resource_requests: dict[str, str | int | float] | None = None
    env: dict[str, str | None] | None = None
    name: str | None = Field(default=None, examples=["desk"])
    """A name unique among the tenant's live sandboxes, stored as the metadata entry `name`. A name set only in
    `metadata` need not be unique."""
    metadata: dict[str, str] | None = Field(default=None, examples=[{"team": "search"}])
    lifecycle: dict[str, Any] | None = None
    entrypoint: list[str] | None = Field(default=None, min_length=1, max_length=10_000)
    network: NetworkRules | None = Field(default=None, examples=["packages", ["allow *.example.com:443"]])
    """Network policy: `none`, a preset (`open`, `web`, `packages`, `git`), a rule, or a list of rules; omitted means
    that of the kind, or else the setting `network.default`."""
    user: Literal["root"] | None = None
    """User of the programs: `root` of the sandbox, who can install packages, change owners and be other users; omitted
    means the image's user. The same as the extension `paddock.user`."""
    network_policy: NetworkPolicyRequest | None = None
    """Network policy in OpenSandbox's format, instead of `network`."""
    credential_proxy: CredentialProxy | None = None
    """Whether the sandbox has a credential vault. The same as the extension `paddock.vault`."""
    secure_access: bool = False
    volumes: list[Volume] | None = Field(default=None, max_length=100)
    extensions: dict[str, str] | None = None
    visibility: VisibilityField | None = None
    """`private`: visible to the owner only. `tenant`: to every key of the tenant."""


def sandbox_request_from_body(body: CreateSandboxRequest, idempotency_key: str | None) -> SandboxRequest:
    """Convert the body into a fleet request.

    Raises `InvalidInput`, and `Unsupported` for features that local sandboxes lack.
    """
    _reject_unsupported(body)
    extensions = dict(body.extensions or {})
    if any(name.startswith(PADDOCK_PREFIX) and name not in PUBLIC_EXTENSIONS for name in extensions):
        raise InvalidInput(
            f"extensions: names that begin with {PADDOCK_PREFIX} are reserved, except "
            f"{', '.join(sorted(PUBLIC_EXTENSIONS))}"
        )
    pool = extensions.get(POOL_EXTENSION, "").strip() or None
    kind = extensions.pop(KIND_EXTENSION, "").strip() or None
    user = _choose_user(body.user, extensions.pop(USER_EXTENSION, "").strip() or None)
    credential_vault = _chooses_vault(body.credential_proxy, extensions.pop(VAULT_EXTENSION, "").strip())
    timeout: float | Literal["default"] | None = body.timeout if "timeout" in body.model_fields_set else "default"
    return SandboxRequest(
        # OpenSandbox's SDK sends an image even with a pool; the pool's own image is used.
        image=body.image.uri.strip() if body.image and pool is None else None,
        kind=kind,
        snapshot=(body.snapshot_id or "").strip() or None,
        pool=pool,
        timeout=timeout,
        entrypoint=_validate_entrypoint(body.entrypoint),
        env=_validate_environment(body.env or {}),
        name=body.name or None,
        metadata=_merge_metadata(body),
        extensions=extensions,
        limits=parse_sandbox_limits(body.resource_limits or {}),
        volumes=tuple(_parse_volume(volume) for volume in body.volumes or ()),
        uplink_services=android_devices.device_uplink_services(extensions),
        credential_vault=credential_vault,
        network=_choose_network(body),
        user=user,
        visibility=body.visibility,
        request_key=_choose_request_key(idempotency_key, extensions.get(REQUEST_KEY_EXTENSION)),
    )


def _choose_user(field: Literal["root"] | None, extension: str | None) -> Literal["root"] | None:
    if extension not in (None, "root"):
        raise InvalidInput(f"extensions.{USER_EXTENSION}: only root can be chosen; leave it out for the image's user")
    return field or ("root" if extension else None)


def _chooses_vault(field: CredentialProxy | None, extension: str) -> bool:
    if extension not in ("", "enabled"):
        raise InvalidInput(f"extensions.{VAULT_EXTENSION}: can only be enabled; leave it out for no credential vault")
    if extension and field is not None and not field.enabled:
        raise InvalidInput(f"credentialProxy and extensions.{VAULT_EXTENSION} differ; give one of them")
    return extension == "enabled" or (field is not None and field.enabled)


def _choose_network(body: CreateSandboxRequest) -> tuple[str, ...] | None:
    if body.network is not None and body.network_policy is not None:
        raise InvalidInput("network and networkPolicy say the same; give one of them")
    return body.network if body.network_policy is None else rules_from_policy(body.network_policy)


def _merge_metadata(body: CreateSandboxRequest) -> dict[str, str]:
    metadata = dict(body.metadata or {})
    if body.name and metadata.setdefault("name", body.name) != body.name:
        raise InvalidInput("name and metadata.name differ; give one of them")
    return validate_sandbox_metadata(metadata)


def parse_sandbox_limits(requested: Mapping[str, str | int | float]) -> SandboxLimits:
    """Parse Kubernetes-style resource limits and Paddock's own. Raises `InvalidInput` naming the wrong entry."""
    readers: dict[str, tuple[str, Callable[[object], float]]] = {
        "cpu": ("cpu", parse_cpu),
        "memory": ("memory", parse_size),
        "disk": ("disk", parse_size),
        "ephemeral-storage": ("disk", parse_size),
        "pids": ("pids", _parse_whole_number),
        "files": ("files", _parse_whole_number),
    }
    values: dict[str, float] = {}
    for name, value in requested.items():
        if name.lower().endswith("gpu"):
            raise Unsupported("local sandboxes have no GPU; leave resourceLimits.gpu out")
        if name not in readers:
            raise InvalidInput(f"resourceLimits: there is no {name!r}; known are {', '.join(readers)}")
        field, read = readers[name]
        try:
            amount = read(value)
        except ValueError as error:
            raise InvalidInput(f"resourceLimits.{name}: {error}") from None
        if amount > MAX_LIMITS[field]:
            raise InvalidInput(f"resourceLimits.{name}: {value} is larger than any machine offers")
        if values.get(field, amount) != amount:
            raise InvalidInput("resourceLimits: disk and ephemeral-storage mean the same; give one of them")
        values[field] = amount
    try:
        return SandboxLimits.model_validate(values)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        message = f"{problem['msg'][:1].lower()}{problem['msg'][1:]}"
        raise InvalidInput(f"resourceLimits.{problem['loc'][0]}: {message}") from None


def validate_sandbox_metadata(metadata: Mapping[str, str | None]) -> dict[str, str]:
    """Check that keys and values are valid Kubernetes labels, as OpenSandbox requires. Raises `InvalidInput`."""
    for key, value in metadata.items():
        validate_sandbox_metadata_key(key)
        if value and not LABEL_PATTERN.fullmatch(value):
            raise InvalidInput(
                f"metadata.{key}: {value[:80]!r} is no label; use up to 63 letters, digits, '-', '_' and '.', "
                "with a letter or digit at both ends"
            )
    return {key: value for key, value in metadata.items() if value is not None}


def validate_sandbox_metadata_key(key: str) -> None:
    prefix, slash, name = key.rpartition("/")
    if key.startswith(RESERVED_PREFIX):
        raise InvalidInput(f"metadata: keys that begin with {RESERVED_PREFIX} are reserved")
    if len(prefix) > 253 or not LABEL_PATTERN.fullmatch(name) or (slash and not DOMAIN_PATTERN.fullmatch(prefix)):
        raise InvalidInput(
            f"metadata: {key[:80]!r} is no key; use up to 63 letters, digits, '-', '_' and '.', "
            "perhaps after a domain name and a slash"
        )


def _reject_unsupported(body: CreateSandboxRequest) -> None:
    if body.template_id is not None and body.template_id.strip():
        raise Unsupported("there are no templates here; use image or snapshotId")
    if body.resource_requests:
        raise Unsupported("local sandboxes reserve nothing; use resourceLimits and leave resourceRequests out")
    if body.secure_access:
        raise Unsupported("secureAccess needs an ingress gateway; every way into a local sandbox needs a key anyway")
    if any(body.lifecycle.values() if body.lifecycle else ()):
        raise Unsupported("lifecycle hooks are not supported; run the commands after creating, or in the entrypoint")
    if body.platform:
        architecture = ARCHITECTURES.get(platform.machine(), platform.machine())
        if (body.platform.os.lower(), body.platform.arch.lower()) != ("linux", architecture):
            raise Unsupported(
                f"this machine runs linux/{architecture} only; omit platform or request linux/{architecture}"
            )


def _parse_volume(volume: Volume) -> VolumeRequest:
    if volume.ossfs is not None:
        raise Unsupported(f"volume {volume.name}: ossfs is not supported; use host or pvc")
    if (volume.host is None) == (volume.pvc is None):
        raise InvalidInput(f"volume {volume.name}: give exactly one of host and pvc")
    claim = volume.pvc
    return VolumeRequest(
        name=volume.name,
        host_path=volume.host.path if volume.host else None,
        claim=claim.claim_name if claim else None,
        create=claim.create_if_not_exists if claim else True,
        delete_with_sandbox=claim.delete_on_sandbox_termination if claim else False,
        target=volume.mount_path,
        read_only=volume.read_only,
        sub_path=volume.sub_path,
    )


def _validate_environment(variables: Mapping[str, str | None]) -> dict[str, str]:
    for name, value in variables.items():
        if not name or "=" in name:
            raise InvalidInput(f"env: {name[:80]!r} is not a valid variable name")
        if len(name.encode()) + len((value or "").encode()) + 1 > LONGEST_STRING:
            raise InvalidInput(f"env.{name[:80]}: longer than {LONGEST_STRING} bytes, the most a program can be given")
    if sum(len(name) + len(value or "") for name, value in variables.items()) > 2**20:
        raise InvalidInput("env: all variables together may have a million characters")
    return {name: value for name, value in variables.items() if value is not None}


def _validate_entrypoint(words: list[str] | None) -> tuple[str, ...] | None:
    if not words:
        return None
    if not words[0].strip():
        raise InvalidInput("entrypoint: the first word names the program and cannot be empty")
    if any(len(word.encode()) > LONGEST_STRING for word in words) or sum(map(len, words)) > 2**20:
        raise InvalidInput(f"entrypoint: a word may have {LONGEST_STRING} bytes, and all words together a million")
    return tuple(words)


def _choose_request_key(header: str | None, extension: str | None) -> str | None:
    if header and extension and header != extension:
        raise InvalidInput("the header Idempotency-Key and extensions.requestKey differ; give one of them")
    key = header or extension or None
    if key is not None and not (len(key) <= 255 and key.isprintable()):
        raise InvalidInput("a request key has up to 255 printable characters")
    return key


def _parse_whole_number(value: object) -> int:
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 20:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ValueError(f"{value!r} is not a whole number")
