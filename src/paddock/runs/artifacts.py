"""Where deliverables go besides the run's own folder: a bucket, a share, anything that fsspec knows an address for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import structlog

from paddock.errors import ConfigError
from paddock.runs.folder import RunFolder, without_password

T = TypeVar("T")
TRIES = 4
FIRST_PAUSE = 0.5
"""Seconds before the second try; twice as long before each other one."""
log = structlog.get_logger()


@dataclass(frozen=True)
class Published:
    """What was copied. The run's folder has all of it in any case."""

    address: str
    """Where it is, without passwords."""
    files: int = 0
    size: int = 0
    problem: str | None = None
    """Why not everything was copied, if it was not."""


class Artifacts:
    """Copies what runs deliver to an address. Without one the run's folder is all there is."""

    def __init__(self, address: str | None, *, tries: int = TRIES, first_pause: float = FIRST_PAUSE) -> None:
        self._address = address.rstrip("/") if address else None
        self._tries = tries
        self._first_pause = first_pause

    def check(self) -> None:
        """Raise `ConfigError` if nothing is installed that understands the address."""
        if self._address is not None:
            self._file_system()

    async def publish(self, folder: RunFolder) -> Published | None:
        """Copy deliverables and result to RUN_ID/ below the address; none if there is no address.

        They take the place of what was there. The result comes last: where it is, everything is. Never raises for what
        goes wrong on the way; it is tried again, and then told.
        """
        if self._address is None:
            return None
        address = f"{without_password(self._address)}/{folder.run_id}"
        files = size = 0
        try:
            file_system, root = await self._trying(self._file_system)
            base = f"{root}/{folder.run_id}"
            for path in await asyncio.to_thread(_files_of, folder):
                place = f"{base}/{path.relative_to(folder.path).as_posix()}"
                await self._trying(_copy, file_system, path, place)
                files += 1
                size += path.stat().st_size
            await self._trying(_remove_others, file_system, folder, base)
        except Exception as error:  # Each file system has errors of its own.
            problem = f"{type(error).__name__}: {str(error)[:300]}".replace(self._address, address)
            log.warning("deliverables were not copied", run=folder.run_id, address=address, error=problem)
            return Published(address, files, size, f"{problem}; the run's folder on the server has everything")
        return Published(address, files, size)

    async def remove(self, run_id: str) -> None:
        """Remove what was copied of a run; what is not there is fine."""
        if self._address is None:
            return
        file_system, root = await asyncio.to_thread(self._file_system)

        def remove() -> None:
            if file_system.exists(f"{root}/{run_id}"):
                file_system.rm(f"{root}/{run_id}", recursive=True)

        await self._trying(remove)

    def _file_system(self) -> tuple[Any, str]:
        assert self._address is not None
        # It takes a while to load, and most servers have no such address.
        from fsspec.core import url_to_fs

        try:
            file_system, root = url_to_fs(self._address)
        except ImportError as error:
            raise ConfigError(f"runs.artifacts: {error}") from None
        except ValueError as error:
            raise ConfigError(f"runs.artifacts: {without_password(self._address)} is no address: {error}") from None
        return file_system, str(root).rstrip("/")

    async def _trying(self, work: Callable[..., T], *arguments: Any) -> T:
        pause = self._first_pause
        for left in range(self._tries - 1, -1, -1):
            try:
                return await asyncio.to_thread(work, *arguments)
            except ConfigError:
                raise
            except Exception as error:
                if not left:
                    raise
                log.debug("copying deliverables is tried again", error=str(error)[:300])
            await asyncio.sleep(pause)
            pause *= 2
        raise AssertionError("unreachable")


def _files_of(folder: RunFolder) -> list[Path]:
    found = sorted(path for path in folder.deliverables.rglob("*") if path.is_file() and not path.is_symlink())
    return [*found, folder.result] if folder.result.exists() else found


def _copy(file_system: Any, path: Path, place: str) -> None:
    file_system.makedirs(place.rpartition("/")[0], exist_ok=True)
    file_system.put_file(str(path), place)


def _remove_others(file_system: Any, folder: RunFolder, base: str) -> None:
    """What an earlier collection has left there."""
    top = f"{base}/deliverables"
    if not file_system.exists(top):
        return
    known = {f"{base}/{path.relative_to(folder.path).as_posix()}" for path in _files_of(folder)}
    for place in file_system.find(top):
        if place not in known:
            file_system.rm_file(place)
