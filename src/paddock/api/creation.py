"""A request for a sandbox: what may be asked, and what the fleet makes of it."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError

from paddock.api import egress
from paddock.api.wire import Asked, Shared
from paddock.config.units import parse_cpu, parse_size
from paddock.errors import InvalidInput, Unsupported
from paddock.fleet.requests import CreateSandbox, VolumeRequest
from paddock.live import devices
from paddock.llm.extensions import EXTENSIONS as LLM_EXTENSIONS
from paddock.model.sandbox import KIND_EXTENSION, Limits

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*")
RESERVED_PREFIX = "opensandbox.io/"
OUR_PREFIX = "paddock."
"""Extensions in which the fleet keeps its own notes of a sandbox."""
LONGEST_STRING = 128 * 1024 - 1
"""More than this the kernel does not pass to a program in one piece."""
LARGEST = {"cpu": 1024, "memory": 2**50, "disk": 2**60, "pids": 4_194_304, "files": 1_048_576}
EXTENSIONS = LLM_EXTENSIONS | {KIND_EXTENSION, devices.EXTENSION}
"""Those of ours that anybody may set, and see."""
POOL = "poolRef"
REQUEST_KEY = "requestKey"


class ImageAuth(Asked):
    username: str
    password: str


class ImageSpec(Asked):
    uri: str = Field(min_length=1, max_length=1024, examples=["code"])
    auth: ImageAuth | None = None


class PlatformSpec(Asked):
    os: str
    arch: str


class HostVolume(Asked):
    path: str = Field(pattern="^/", max_length=4096)


class ClaimVolume(Asked):
    claim_name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=253)
    create_if_not_exists: bool = True
    delete_on_sandbox_termination: bool = False
    storage_class: str | None = None
    storage: str | None = None
    access_modes: list[str] | None = None


class Volume(Asked):
    """Exactly one of `host` and `pvc` is given."""

    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)
    host: HostVolume | None = None
    pvc: ClaimVolume | None = None
    ossfs: dict[str, Any] | None = None
    mount_path: str = Field(pattern="^/", max_length=4096)
    read_only: bool = False
    sub_path: str | None = Field(default=None, max_length=4096)


class CredentialProxy(Asked):
    enabled: bool = False


class CreateBody(Asked):
    """Give one of `image`, `snapshotId` and `extensions.poolRef`; with none, the configured image is used."""

    image: ImageSpec | None = None
    snapshot_id: str | None = Field(default=None, max_length=100)
    template_id: str | None = Field(default=None, max_length=100)
    platform: PlatformSpec | None = None
    timeout: int | None = Field(default=None, ge=1, examples=[600])
    """Seconds to live; `null` lives until it is deleted, left out means the configured default."""
    resource_limits: dict[str, str | int | float] | None = Field(
        default=None, examples=[{"cpu": "500m", "memory": "512Mi"}]
    )
    resource_requests: dict[str, str | int | float] | None = None
    env: dict[str, str | None] | None = None
    name: str | None = Field(default=None, examples=["desk"])
    """A name that no other live sandbox of the tenant has; it is kept as the metadata entry `name`. An entry that is
    given as metadata alone need not be unique."""
    metadata: dict[str, str] | None = Field(default=None, examples=[{"team": "search"}])
    lifecycle: dict[str, Any] | None = None
    entrypoint: list[str] | None = Field(default=None, min_length=1, max_length=10_000)
    network_policy: egress.PolicyBody | None = None
    credential_proxy: CredentialProxy | None = None
    secure_access: bool = False
    volumes: list[Volume] | None = Field(default=None, max_length=100)
    extensions: dict[str, str] | None = None
    visibility: Shared | None = None
    """`private` for its owner alone, `tenant` for every key of the tenant."""


def to_request(body: CreateBody, idempotency_key: str | None) -> CreateSandbox:
    """What the fleet is asked for. Raises `InvalidInput`, and `Unsupported` for what a local sandbox cannot have."""
    _refuse_unsupported(body)
    extensions = dict(body.extensions or {})
    if any(name.startswith(OUR_PREFIX) and name not in EXTENSIONS for name in extensions):
        raise InvalidInput(
            f"extensions: names that begin with {OUR_PREFIX} are reserved, except {', '.join(sorted(EXTENSIONS))}"
        )
    pool = extensions.get(POOL, "").strip() or None
    kind = extensions.pop(KIND_EXTENSION, "").strip() or None
    timeout: float | Literal["default"] | None = body.timeout if "timeout" in body.model_fields_set else "default"
    return CreateSandbox(
        # OpenSandbox's SDK names an image even with a pool, whose own image is the one that counts.
        image=body.image.uri.strip() if body.image and pool is None else None,
        kind=kind,
        snapshot=(body.snapshot_id or "").strip() or None,
        pool=pool,
        timeout=timeout,
        entrypoint=_entrypoint(body.entrypoint),
        env=_environment(body.env or {}),
        name=body.name or None,
        metadata=_metadata(body),
        extensions=extensions,
        limits=to_limits(body.resource_limits or {}),
        volumes=tuple(_volume(volume) for volume in body.volumes or ()),
        holes=devices.holes_for(extensions),
        network_default="deny" if body.network_policy else None,
        visibility=body.visibility,
        request_key=_request_key(idempotency_key, extensions.get(REQUEST_KEY)),
    )


def _metadata(body: CreateBody) -> dict[str, str]:
    metadata = dict(body.metadata or {})
    if body.name and metadata.setdefault("name", body.name) != body.name:
        raise InvalidInput("name and metadata.name differ; give one of them")
    return checked_metadata(metadata)


def to_limits(asked: Mapping[str, str | int | float]) -> Limits:
    """Limits as Kubernetes writes them, and ours. Raises `InvalidInput` naming what is wrong."""
    readers: dict[str, tuple[str, Callable[[object], float]]] = {
        "cpu": ("cpu", parse_cpu),
        "memory": ("memory", parse_size),
        "disk": ("disk", parse_size),
        "ephemeral-storage": ("disk", parse_size),
        "pids": ("pids", _whole),
        "files": ("files", _whole),
    }
    values: dict[str, float] = {}
    for name, value in asked.items():
        if name.lower().endswith("gpu"):
            raise Unsupported("local sandboxes have no GPU; leave resourceLimits.gpu out")
        if name not in readers:
            raise InvalidInput(f"resourceLimits: there is no {name!r}; known are {', '.join(readers)}")
        field, read = readers[name]
        try:
            amount = read(value)
        except ValueError as error:
            raise InvalidInput(f"resourceLimits.{name}: {error}") from None
        if amount > LARGEST[field]:
            raise InvalidInput(f"resourceLimits.{name}: {value} is more than any machine has")
        if values.get(field, amount) != amount:
            raise InvalidInput("resourceLimits: disk and ephemeral-storage mean the same; give one of them")
        values[field] = amount
    try:
        return Limits.model_validate(values)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        message = f"{problem['msg'][:1].lower()}{problem['msg'][1:]}"
        raise InvalidInput(f"resourceLimits.{problem['loc'][0]}: {message}") from None


def checked_metadata(metadata: Mapping[str, str | None]) -> dict[str, str]:
    """Metadata whose keys and values could be Kubernetes labels, as OpenSandbox wants. Raises `InvalidInput`."""
    for key, value in metadata.items():
        check_metadata_key(key)
        if value and not LABEL.fullmatch(value):
            raise InvalidInput(
                f"metadata.{key}: {value[:80]!r} is no label; use up to 63 letters, digits, '-', '_' and '.', "
                "with a letter or digit at both ends"
            )
    return {key: value for key, value in metadata.items() if value is not None}


def check_metadata_key(key: str) -> None:
    prefix, slash, name = key.rpartition("/")
    if key.startswith(RESERVED_PREFIX):
        raise InvalidInput(f"metadata: keys that begin with {RESERVED_PREFIX} are reserved")
    if len(prefix) > 253 or not LABEL.fullmatch(name) or (slash and not DOMAIN.fullmatch(prefix)):
        raise InvalidInput(
            f"metadata: {key[:80]!r} is no key; use up to 63 letters, digits, '-', '_' and '.', "
            "perhaps after a domain name and a slash"
        )


def _refuse_unsupported(body: CreateBody) -> None:
    if body.template_id is not None and body.template_id.strip():
        raise Unsupported("there are no templates here; use image or snapshotId")
    if body.resource_requests:
        raise Unsupported("local sandboxes reserve nothing; use resourceLimits and leave resourceRequests out")
    if body.secure_access:
        raise Unsupported("secureAccess needs an ingress gateway; every way into a local sandbox needs a key anyway")
    if body.credential_proxy and body.credential_proxy.enabled:
        raise Unsupported("local sandboxes have no network, so there is nothing for credentialProxy to do")
    if any(body.lifecycle.values() if body.lifecycle else ()):
        raise Unsupported("lifecycle hooks are not supported; run the commands after creating, or in the entrypoint")
    if body.network_policy:
        egress.check(body.network_policy)
    if body.platform:
        here = ARCHITECTURES.get(platform.machine(), platform.machine())
        if (body.platform.os.lower(), body.platform.arch.lower()) != ("linux", here):
            raise Unsupported(f"this machine runs linux/{here} only; leave platform out or ask for that")


def _volume(volume: Volume) -> VolumeRequest:
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


def _environment(variables: Mapping[str, str | None]) -> dict[str, str]:
    for name, value in variables.items():
        if not name or "=" in name:
            raise InvalidInput(f"env: {name[:80]!r} is no name for a variable")
        if len(name.encode()) + len((value or "").encode()) + 1 > LONGEST_STRING:
            raise InvalidInput(f"env.{name[:80]}: longer than {LONGEST_STRING} bytes, which no program can be given")
    if sum(len(name) + len(value or "") for name, value in variables.items()) > 2**20:
        raise InvalidInput("env: all variables together may have a million characters")
    return {name: value for name, value in variables.items() if value is not None}


def _entrypoint(words: list[str] | None) -> tuple[str, ...] | None:
    if not words:
        return None
    if not words[0].strip():
        raise InvalidInput("entrypoint: the first word names the program and cannot be empty")
    if any(len(word.encode()) > LONGEST_STRING for word in words) or sum(map(len, words)) > 2**20:
        raise InvalidInput(f"entrypoint: a word may have {LONGEST_STRING} bytes, and all together a million")
    return tuple(words)


def _request_key(header: str | None, extension: str | None) -> str | None:
    if header and extension and header != extension:
        raise InvalidInput("the header Idempotency-Key and extensions.requestKey differ; give one of them")
    key = header or extension or None
    if key is not None and not (len(key) <= 255 and key.isprintable()):
        raise InvalidInput("a request key has up to 255 printable characters")
    return key


def _whole(value: object) -> int:
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 20:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ValueError(f"{value!r} is not a whole number")
