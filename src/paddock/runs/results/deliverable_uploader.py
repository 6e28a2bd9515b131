"""Upload deliverables to storage outside the run folder: a bucket, a share or any fsspec URL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import structlog

from paddock.errors import ConfigError
from paddock.runs.results.run_folder import RunFolder, strip_url_credentials

T = TypeVar("T")
MAX_TRIES = 4
FIRST_RETRY_SECONDS = 0.5
"""Seconds before the first retry, doubled for each next one."""
log = structlog.get_logger()


@dataclass(frozen=True)
class UploadedDeliverables:
    """Result of an upload. The run folder always has all files."""

    address: str
    """Address without passwords."""
    files: int = 0
    size: int = 0
    problem: str | None = None
    """Error of an incomplete copy."""


class DeliverableUploader:
    """Uploader of deliverables to an address. Without an address, they stay in the run folder."""

    def __init__(
        self, address: str | None, *, tries: int = MAX_TRIES, first_delay: float = FIRST_RETRY_SECONDS
    ) -> None:
        self._address = address.rstrip("/") if address else None
        self._tries = tries
        self._first_delay = first_delay

    def check_address(self) -> None:
        """Raise `ConfigError` if no installed package supports the address."""
        if self._address is not None:
            self._file_system()

    async def upload(self, folder: RunFolder) -> UploadedDeliverables | None:
        """Upload deliverables and result to RUN_ID/ below the address. Return None without an address.

        Existing files are replaced. The result is written last and marks a complete copy. Errors are retried,
        then returned, not raised.
        """
        if self._address is None:
            return None
        address = f"{strip_url_credentials(self._address)}/{folder.run_id}"
        files = size = 0
        try:
            file_system, root = await self._call_with_retries(self._file_system)
            base = f"{root}/{folder.run_id}"
            for path in await asyncio.to_thread(_files_of, folder):
                target = f"{base}/{path.relative_to(folder.path).as_posix()}"
                await self._call_with_retries(_copy, file_system, path, target)
                files += 1
                size += path.stat().st_size
            await self._call_with_retries(_remove_stale_files, file_system, folder, base)
        except Exception as error:  # Each file system has its own errors.
            problem = f"{type(error).__name__}: {str(error)[:300]}".replace(self._address, address)
            log.warning("could not copy deliverables", run=folder.run_id, address=address, error=problem)
            return UploadedDeliverables(
                address, files, size, f"{problem}; the run's folder on the server has everything"
            )
        return UploadedDeliverables(address, files, size)

    async def remove(self, run_id: str) -> None:
        """Remove the copy of a run. Idempotent."""
        if self._address is None:
            return
        file_system, root = await asyncio.to_thread(self._file_system)

        def remove() -> None:
            if file_system.exists(f"{root}/{run_id}"):
                file_system.rm(f"{root}/{run_id}", recursive=True)

        await self._call_with_retries(remove)

    def _file_system(self) -> tuple[Any, str]:
        assert self._address is not None
        # Slow import that most servers do not need.
        from fsspec.core import url_to_fs

        try:
            file_system, root = url_to_fs(self._address)
        except ImportError as error:
            raise ConfigError(f"runs.artifacts: {error}") from None
        except ValueError as error:
            raise ConfigError(
                f"runs.artifacts: {strip_url_credentials(self._address)} is not a valid address: {error}"
            ) from None
        return file_system, str(root).rstrip("/")

    async def _call_with_retries(self, operation: Callable[..., T], *arguments: Any) -> T:
        delay = self._first_delay
        for left in range(self._tries - 1, -1, -1):
            try:
                return await asyncio.to_thread(operation, *arguments)
            except ConfigError:
                raise
            except Exception as error:
                if not left:
                    raise
                log.debug("copying deliverables failed; will retry", error=str(error)[:300])
            await asyncio.sleep(delay)
            delay *= 2
        raise AssertionError("unreachable")


def _files_of(folder: RunFolder) -> list[Path]:
    found = sorted(path for path in folder.deliverables.rglob("*") if path.is_file() and not path.is_symlink())
    return [*found, folder.result] if folder.result.exists() else found


def _copy(file_system: Any, path: Path, target: str) -> None:
    file_system.makedirs(target.rpartition("/")[0], exist_ok=True)
    file_system.put_file(str(path), target)


def _remove_stale_files(file_system: Any, folder: RunFolder, base: str) -> None:
    """Remove files of an earlier collection."""
    top = f"{base}/deliverables"
    if not file_system.exists(top):
        return
    known = {f"{base}/{path.relative_to(folder.path).as_posix()}" for path in _files_of(folder)}
    for target in file_system.find(top):
        if target not in known:
            file_system.rm_file(target)
