"""Which directories a sandbox may see, and where they are on the host."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from paddock.errors import Forbidden, InvalidInput, NotFound
from paddock.fleet.requests import VolumeRequest
from paddock.model.sandbox import Mount, VolumeUse
from paddock.sandbox.local.launch import open_in
from paddock.sandbox.local.layout import disk_used, remove_tree

CLAIM = re.compile(r"[a-z0-9]([-a-z0-9]{0,251}[a-z0-9])?")
RESERVED = ("/proc", "/dev", "/sys", "/run/paddock", "/opt/paddock")
NEEDED = (*RESERVED, "/usr/bin/python3", "/usr/lib/python3", "/bin/sh", "/lib/python3", "/lib64/ld-linux.so")
"""Paths the sandbox's daemon runs on. A mount must not hide the directories they are in."""


@dataclass(frozen=True)
class Granted:
    """The mounts of one sandbox, and what it may do with the named volumes among them."""

    mounts: tuple[Mount, ...]
    volumes: Mapping[str, VolumeUse] = field(default_factory=dict)


class Volumes:
    """Named volumes of every tenant, and the host directories that may be mounted."""

    def __init__(self, directory: Path, allowed: Sequence[Path]) -> None:
        self._directory = directory
        self._allowed = [path.resolve() for path in allowed]

    def grant(self, tenant: str, requests: Iterable[VolumeRequest]) -> Granted:
        """Check what is asked for and make the named volumes that do not exist yet."""
        mounts: list[Mount] = []
        volumes: dict[str, VolumeUse] = {}
        targets: set[str] = set()
        for request in requests:
            target = _target(request.target)
            if target in targets:
                raise InvalidInput(f"two volumes are to be mounted at {target}")
            targets.add(target)
            if request.host_path is not None:
                source, sub_path = self._host(request.host_path)
                sub_path = "/".join(part for part in (sub_path, _sub_path(request.sub_path)) if part)
            elif request.claim is not None:
                source, made = self._named(tenant, request)
                sub_path = _sub_path(request.sub_path)
                own = VolumeUse.OWN if made and request.delete_with_sandbox else VolumeUse.WRITE
                use = VolumeUse.READ if request.read_only else own
                volumes[request.claim] = max(use, volumes.get(request.claim, use), key=list(VolumeUse).index)
            else:
                raise InvalidInput(f"volume {request.name} names neither a host path nor a claim")
            _check_sub_path(source, sub_path, request.sub_path)
            mounts.append(Mount(source=source, target=target, read_only=request.read_only, sub_path=sub_path or None))
        return Granted(tuple(mounts), volumes)

    def take_along(self, tenant: str, volumes: Mapping[str, VolumeUse]) -> None:
        """Delete the volumes that go with their sandbox."""
        for claim, use in volumes.items():
            if use is VolumeUse.OWN:
                remove_tree(self._directory / tenant / claim)

    def claims(self, tenant: str, prefix: str = "") -> Sequence[str]:
        """Names of a tenant's volumes that begin so."""
        place = self._directory / tenant
        return sorted(path.name for path in place.iterdir() if path.name.startswith(prefix)) if place.is_dir() else []

    def remove(self, tenant: str, claim: str) -> None:
        """Delete a named volume, if it is there. No sandbox may have it mounted."""
        if CLAIM.fullmatch(claim):
            remove_tree(self._directory / tenant / claim)

    def tenants(self) -> Sequence[str]:
        return [path.name for path in self._directory.iterdir()] if self._directory.is_dir() else []

    def used(self, tenant: str) -> int:
        """Bytes in all volumes of a tenant."""
        return disk_used(self._directory / tenant)

    def _host(self, path: str) -> tuple[Path, str]:
        """The allowed directory a host path lies below, and the rest of the way, which is walked without leaving it."""
        wanted = Path(os.path.realpath(path))
        for allowed in self._allowed:
            if wanted == allowed or allowed in wanted.parents:
                if not wanted.exists():
                    raise InvalidInput(f"{path} does not exist on the host")
                return allowed, "" if wanted == allowed else str(wanted.relative_to(allowed))
        listed = ", ".join(map(str, self._allowed)) or "none"
        raise Forbidden(f"{path} may not be mounted; sandboxes.allowed_host_paths has: {listed}")

    def _named(self, tenant: str, request: VolumeRequest) -> tuple[Path, bool]:
        assert request.claim is not None
        if not CLAIM.fullmatch(request.claim):
            raise InvalidInput(f"{request.claim!r} is no name for a volume: use lower-case letters, digits and dashes")
        path = self._directory / tenant / request.claim
        if path.is_dir():
            return path, False
        if not request.create:
            raise NotFound(f"there is no volume {request.claim}, and createIfNotExists is false")
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(parents=True, mode=0o755)
        return path, True


def _target(path: str) -> str:
    if "\0" in path or not path.startswith("/"):
        raise InvalidInput(f"{path!r} is no place for a volume: give an absolute path")
    target = os.path.normpath("/" + path.lstrip("/"))
    if target == "/" or any(target == taken or target.startswith(taken + "/") for taken in RESERVED):
        raise InvalidInput(f"nothing can be mounted at {target}")
    if any(needed.startswith(f"{target}/") or needed == target for needed in NEEDED):
        raise InvalidInput(f"nothing can be mounted at {target}: it would hide what the sandbox itself runs on")
    return target


def _check_sub_path(volume: Path, sub_path: str, asked: str | None) -> None:
    """Raise `InvalidInput` for a path at which the sandbox could not be started. Starting it checks again."""
    if not sub_path:
        return
    root = os.open(volume, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(open_in(root, sub_path, os.O_PATH))
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise InvalidInput(f"subPath {asked!r} is not in its volume, or is a link out of it: {why}") from None
    finally:
        os.close(root)


def _sub_path(path: str | None) -> str:
    if not path:
        return ""
    if "\0" in path or path.startswith("/") or ".." in PurePosixPath(path).parts:
        raise InvalidInput(f"subPath {path!r} must stay below its volume")
    return os.path.normpath(path).removeprefix(".")
