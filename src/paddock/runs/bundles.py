"""What runs are given to work on: tar archives that were uploaded before."""

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
from paddock.runs.tars import TarCheck

P = ParamSpec("P")
T = TypeVar("T")
BATCH = 2**20
_ID = re.compile(r"[0-9a-f]{64}")
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_PARTIAL = ".partial-"
_END = ".tar"
log = structlog.get_logger()


class Bundles:
    """Archives by what is in them: the same one is kept once, however often a tenant uploads it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def open(self) -> None:
        """Make the directory, and remove uploads that a server has died over."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for partial in self._directory.glob(f"*/{_PARTIAL}*"):
            partial.unlink(missing_ok=True)

    async def put(self, tenant: str, pieces: AsyncIterable[bytes], limit: int) -> str:
        """Keep an archive and return its id. It is looked through while it comes.

        Raises `InvalidInput` for what is no tar or has unsafe members, `TooLarge` above `limit` bytes, and `HostFull`.
        """
        directory = self._of(tenant)
        partial = directory / f"{_PARTIAL}{secrets.token_hex(8)}"
        try:
            with await _on_disk(_begin, partial) as file:
                upload = _Upload(file, limit)
                async for batch in _batches(pieces):
                    await _on_disk(upload.take, batch)
                bundle_id = await _on_disk(upload.finish)
            await _on_disk(_settle, partial, directory / f"{bundle_id}{_END}")
        finally:
            partial.unlink(missing_ok=True)
        return bundle_id

    def path(self, tenant: str, bundle_id: str) -> Path:
        """Where an archive is. Counts as a use of it. Raises `NotFound`."""
        path = self._of(tenant) / f"{bundle_id}{_END}"
        if _ID.fullmatch(bundle_id):
            try:
                os.utime(path)
                return path
            except FileNotFoundError:
                pass
        raise NotFound(f"There is no bundle {bundle_id[:80]!r}; upload the inputs again.")

    def forget(self, tenant: str, bundle_id: str) -> None:
        """Remove an archive that no run needs any more; one that is not there is fine."""
        if _ID.fullmatch(bundle_id):
            (self._of(tenant) / f"{bundle_id}{_END}").unlink(missing_ok=True)

    def sweep(self, used: Collection[tuple[str, str]], unused_for: float) -> int:
        """Remove archives that were uploaded for nothing, and return how many those were: not among `used`, which are
        pairs of tenant and id, and not asked for or uploaded within so many seconds."""
        kept = set(used)
        latest = time.time() - unused_for
        removed = 0
        for path in self._directory.glob(f"*/*{_END}"):
            try:
                if (path.parent.name, path.stem) not in kept and path.stat().st_mtime < latest:
                    path.unlink()
                    removed += 1
            except FileNotFoundError:
                continue
        if removed:
            log.info("unused bundles were removed", count=removed)
        return removed

    def _of(self, tenant: str) -> Path:
        if not _TENANT.fullmatch(tenant):
            raise InvalidInput(f"{tenant[:80]!r} is no name of a tenant")
        return self._directory / tenant


class _Upload:
    """One that is under way."""

    def __init__(self, file: BinaryIO, limit: int) -> None:
        self._file = file
        self._limit = limit
        self._size = 0
        self._digest = hashlib.sha256()
        self._check = TarCheck()

    def take(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            self._size += len(piece)
            if self._size > self._limit:
                raise TooLarge(f"the archive has more than {self._limit} bytes, which is the most that is taken")
            self._check.feed(piece)
            self._digest.update(piece)
            view = memoryview(piece)
            while view:
                view = view[self._file.write(view) :]

    def finish(self) -> str:
        self._check.close()
        os.fsync(self._file.fileno())
        return self._digest.hexdigest()


async def _on_disk(work: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T:
    """Do what may wait for the disk, and tell what is wrong with that."""
    try:
        return await asyncio.to_thread(work, *arguments, **more)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise HostFull("the disk of this machine is too full for the upload") from error
        raise Unavailable(f"the upload cannot be kept: {error.strerror}") from error


def _begin(partial: Path) -> BinaryIO:
    partial.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return open(partial, "xb", buffering=0, opener=lambda name, flags: os.open(name, flags, 0o600))


def _settle(partial: Path, target: Path) -> None:
    """Give an upload its name; one that was there before is used again instead."""
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
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    yield batch
