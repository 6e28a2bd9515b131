"""Volumes: named volumes of tenants, and host directories that sandboxes may mount."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from paddock.errors import Forbidden, InvalidInput, NotFound
from paddock.fleet.fleet_requests import VolumeRequest
from paddock.model.sandbox import SandboxMount, VolumeAccess
from paddock.sandbox.local.kernel_calls import open_within_root
from paddock.sandbox.local.sandbox_files import disk_bytes_used, remove_sandbox_tree

VOLUME_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,251}[a-z0-9])?")
RESERVED_PATHS = ("/proc", "/dev", "/sys", "/run/paddock", "/opt/paddock")
DAEMON_PATHS = (
    *RESERVED_PATHS,
    "/usr/bin/python3",
    "/usr/lib/python3",
    "/bin/sh",
    "/lib/python3",
    "/lib64/ld-linux.so",
)
"""Paths the sandbox's daemon runs on. A mount must not hide the directories they are in."""
LIBRARY_PATH = re.compile(r"(/usr)?/lib/(python3[^/]*|[^/]+-linux-[^/]+)(/.*)?")
"""Libraries of the daemon's interpreter. A mount must not hide any of them."""
WRITABLE_PATHS = ("/var", "/var/tmp")  # noqa: S108 - in the sandbox
"""Directories that programs of every sandbox write to."""


@dataclass(frozen=True)
class GrantedVolumes:
    """The mounts of one sandbox, and its access to the named volumes among them."""

    mounts: tuple[SandboxMount, ...]
    volumes: Mapping[str, VolumeAccess] = field(default_factory=dict)


class VolumeRegistry:
    """Named volumes of every tenant, and the host directories that may be mounted."""

    def __init__(self, directory: Path, allowed: Sequence[Path]) -> None:
        self._directory = directory
        self._allowed = [path.resolve() for path in allowed]

    def grant_volumes(self, tenant: str, requests: Iterable[VolumeRequest]) -> GrantedVolumes:
        """Validate volume requests and create missing named volumes."""
        mounts: list[SandboxMount] = []
        volumes: dict[str, VolumeAccess] = {}
        targets: set[str] = set()
        for request in requests:
            target = _target(request.target, request.read_only)
            if target in targets:
                raise InvalidInput(f"two volumes are to be mounted at {target}")
            targets.add(target)
            if request.host_path is not None:
                source, sub_path = self._resolve_host_path(request.host_path)
                sub_path = "/".join(part for part in (sub_path, _sub_path(request.sub_path)) if part)
            elif request.claim is not None:
                source, made = self._open_named_volume(tenant, request)
                sub_path = _sub_path(request.sub_path)
                own = VolumeAccess.OWN if made and request.delete_with_sandbox else VolumeAccess.WRITE
                use = VolumeAccess.READ if request.read_only else own
                volumes[request.claim] = max(use, volumes.get(request.claim, use), key=list(VolumeAccess).index)
            else:
                raise InvalidInput(f"volume {request.name} names neither a host path nor a claim")
            _check_sub_path(source, sub_path, request.sub_path)
            mounts.append(
                SandboxMount(source=source, target=target, read_only=request.read_only, sub_path=sub_path or None)
            )
        return GrantedVolumes(tuple(mounts), volumes)

    def remove_owned_volumes(self, tenant: str, volumes: Mapping[str, VolumeAccess]) -> None:
        """Delete the volumes that are deleted with their sandbox."""
        for claim, use in volumes.items():
            if use is VolumeAccess.OWN:
                remove_sandbox_tree(self._directory / tenant / claim)

    def list_volume_names(self, tenant: str, prefix: str = "") -> Sequence[str]:
        """List names of a tenant's volumes, optionally by prefix."""
        volumes_directory = self._directory / tenant
        return (
            sorted(path.name for path in volumes_directory.iterdir() if path.name.startswith(prefix))
            if volumes_directory.is_dir()
            else []
        )

    def remove_volume(self, tenant: str, claim: str) -> None:
        """Delete a named volume if it exists. No sandbox may have it mounted."""
        if VOLUME_NAME.fullmatch(claim):
            remove_sandbox_tree(self._directory / tenant / claim)

    def list_tenants(self) -> Sequence[str]:
        return [path.name for path in self._directory.iterdir()] if self._directory.is_dir() else []

    def used_bytes(self, tenant: str) -> int:
        """Return the bytes in all volumes of a tenant."""
        return disk_bytes_used(self._directory / tenant)

    def _resolve_host_path(self, path: str) -> tuple[Path, str]:
        """Return the allowed directory that contains a host path, and the path relative to it."""
        wanted = Path(os.path.realpath(path))
        for allowed in self._allowed:
            if wanted == allowed or allowed in wanted.parents:
                if not wanted.exists():
                    raise InvalidInput(f"{path} does not exist on the host")
                return allowed, "" if wanted == allowed else str(wanted.relative_to(allowed))
        listed = ", ".join(map(str, self._allowed)) or "none"
        raise Forbidden(f"{path} may not be mounted; sandboxes.allowed_host_paths has: {listed}")

    def _open_named_volume(self, tenant: str, request: VolumeRequest) -> tuple[Path, bool]:
        assert request.claim is not None
        if not VOLUME_NAME.fullmatch(request.claim):
            raise InvalidInput(
                f"{request.claim!r} is not a valid volume name: use lower-case letters, digits and dashes"
            )
        path = self._directory / tenant / request.claim
        if path.is_dir():
            return path, False
        if not request.create:
            raise NotFound(f"there is no volume {request.claim}, and createIfNotExists is false")
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(parents=True, mode=0o755)
        return path, True


def _target(path: str, read_only: bool) -> str:
    if "\0" in path or not path.startswith("/"):
        raise InvalidInput(f"{path!r} is no place for a volume: give an absolute path")
    target = os.path.normpath("/" + path.lstrip("/"))
    if target == "/" or any(target == taken or target.startswith(taken + "/") for taken in RESERVED_PATHS):
        raise InvalidInput(f"nothing can be mounted at {target}")
    hides = any(needed.startswith(f"{target}/") or needed == target for needed in DAEMON_PATHS)
    if hides or LIBRARY_PATH.fullmatch(target):
        raise InvalidInput(f"nothing can be mounted at {target}: it would hide what the sandbox itself runs on")
    if read_only and target in WRITABLE_PATHS:
        raise InvalidInput(f"nothing can be mounted at {target} for reading only: programs write there")
    return target


def _check_sub_path(volume: Path, sub_path: str, requested: str | None) -> None:
    """Raise `InvalidInput` for a path at which the sandbox could not be started. Starting it checks again."""
    if not sub_path:
        return
    root = os.open(volume, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(open_within_root(root, sub_path, os.O_PATH))
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise InvalidInput(f"subPath {requested!r} is not in its volume, or is a link out of it: {reason}") from None
    finally:
        os.close(root)


def _sub_path(path: str | None) -> str:
    if not path:
        return ""
    if "\0" in path or path.startswith("/") or ".." in PurePosixPath(path).parts:
        raise InvalidInput(f"subPath {path!r} must stay below its volume")
    return os.path.normpath(path).removeprefix(".")
