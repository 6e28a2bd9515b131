"""Storage of uploaded input archives."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import re
import secrets
import time
from collections.abc import AsyncIterable, Callable, Collection
from pathlib import Path
from typing import BinaryIO, ParamSpec, TypeVar

import structlog

from paddock.errors import HostFull, InvalidInput, NotFound, TooLarge, Unavailable
from paddock.runs.inputs.tar_validation import TarValidator

P = ParamSpec("P")
T = TypeVar("T")
BATCH_BYTES = 2**20
_BUNDLE_ID_PATTERN = re.compile(r"[0-9a-f]{64}")
_TENANT_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_PARTIAL_PREFIX = ".partial-"
_BUNDLE_SUFFIX = ".tar"
log = structlog.get_logger()


class InputBundleStore:
    """Content-addressed archives: identical uploads of a tenant are stored once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def open(self) -> None:
        """Create the directory and remove interrupted uploads."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for partial in self._directory.glob(f"*/{_PARTIAL_PREFIX}*"):
            partial.unlink(missing_ok=True)

    async def save(self, tenant: str, pieces: AsyncIterable[bytes], limit: int) -> str:
        """Validate and store an archive while it is received. Return its id.

        Raises `InvalidInput` for invalid or unsafe archives, `TooLarge` above `limit` bytes, and `HostFull`.
        """
        directory = self._tenant_directory(tenant)
        partial = directory / f"{_PARTIAL_PREFIX}{secrets.token_hex(8)}"
        try:
            with await _run_disk_operation(_open_partial, partial) as file:
                upload = _Upload(file, limit)
                async for batch in _batches(pieces):
                    await _run_disk_operation(upload.write, batch)
                bundle_id = await _run_disk_operation(upload.finish)
            await _run_disk_operation(_publish_upload, partial, directory / f"{bundle_id}{_BUNDLE_SUFFIX}")
        finally:
            partial.unlink(missing_ok=True)
        return bundle_id

    def bundle_path(self, tenant: str, bundle_id: str) -> Path:
        """Return the path of an archive and mark it as used. Raises `NotFound`."""
        path = self._tenant_directory(tenant) / f"{bundle_id}{_BUNDLE_SUFFIX}"
        if _BUNDLE_ID_PATTERN.fullmatch(bundle_id):
            try:
                os.utime(path)
                return path
            except FileNotFoundError:
                pass
        raise NotFound(f"There is no bundle {bundle_id[:80]!r}; upload the inputs again.")

    def remove(self, tenant: str, bundle_id: str) -> None:
        """Remove an archive that no run needs. Idempotent."""
        if _BUNDLE_ID_PATTERN.fullmatch(bundle_id):
            (self._tenant_directory(tenant) / f"{bundle_id}{_BUNDLE_SUFFIX}").unlink(missing_ok=True)

    def remove_unused(self, used: Collection[tuple[str, str]], unused_for: float) -> int:
        """Remove unused archives and return their number: not among `used`, which holds
        pairs of tenant and id, and not uploaded or used within `unused_for` seconds."""
        kept = set(used)
        latest = time.time() - unused_for
        removed = 0
        for path in self._directory.glob(f"*/*{_BUNDLE_SUFFIX}"):
            try:
                if (path.parent.name, path.stem) not in kept and path.stat().st_mtime < latest:
                    path.unlink()
                    removed += 1
            except FileNotFoundError:
                continue
        if removed:
            log.info("removed unused bundles", count=removed)
        return removed

    def _tenant_directory(self, tenant: str) -> Path:
        if not _TENANT_PATTERN.fullmatch(tenant):
            raise InvalidInput(f"{tenant[:80]!r} is not a tenant name")
        return self._directory / tenant


class _Upload:
    """Upload in progress."""

    def __init__(self, file: BinaryIO, limit: int) -> None:
        self._file = file
        self._limit = limit
        self._size = 0
        self._digest = hashlib.sha256()
        self._check = TarValidator()

    def write(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            self._size += len(piece)
            if self._size > self._limit:
                raise TooLarge(f"the archive has more than {self._limit} bytes, the maximum size")
            self._check.feed(piece)
            self._digest.update(piece)
            view = memoryview(piece)
            while view:
                view = view[self._file.write(view) :]

    def finish(self) -> str:
        self._check.close()
        os.fsync(self._file.fileno())
        return self._digest.hexdigest()


async def _run_disk_operation(work: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T:
    """Run a blocking disk operation in a thread and translate its errors."""
    try:
        return await asyncio.to_thread(work, *arguments, **more)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise HostFull("the disk of this machine is too full for the upload") from error
        raise Unavailable(f"could not store the upload: {error.strerror}") from error


def _open_partial(partial: Path) -> BinaryIO:
    partial.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return open(partial, "xb", buffering=0, opener=lambda name, flags: os.open(name, flags, 0o600))


def _publish_upload(partial: Path, target: Path) -> None:
    """Move an upload to its final name, or reuse an identical one."""
    try:
        os.utime(target)
    except FileNotFoundError:
        partial.rename(target)
        directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


async def _batches(pieces: AsyncIterable[bytes]) -> AsyncIterable[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    async for piece in pieces:
        batch.append(piece)
        size += len(piece)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    yield batch
