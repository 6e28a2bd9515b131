"""Moves files, directories and screenshots from one sandbox to another.

The bytes are streamed through this process and never touch the host's disk. Both sandboxes are treated as hostile:
size and time are bounded, the data is not interpreted, and the destination's daemon writes all or nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import PurePosixPath
from typing import Any, Literal
from weakref import WeakValueDictionary

from paddock.errors import Conflict, InvalidInput, NotFound, PaddockError, SandboxGone, SandboxTimeout, TooLarge
from paddock.fleet.fleet import Fleet
from paddock.model.events import EventType, sandbox_event_stream
from paddock.model.sandbox import FrozenModel
from paddock.sandbox.daemon.client import DaemonClient

MAX_CONCURRENT_MOVES = 8
"""Concurrent moves per tenant; further ones wait."""
STALL_TIMEOUT = 60.0
"""Seconds without progress after which a move fails."""
MAX_MOVE_TIME = 3600.0
"""Seconds for a whole move, so that a sandbox cannot keep one open by trickling data."""
READ_AHEAD = 2
"""Chunks that are read ahead of sending."""
PLAIN_MODE = 644
DRIVE_PATH = re.compile(r"([A-Za-z]):[\\/](.*)", re.DOTALL)

ProgressCallback = Callable[[int, int | None], None]
"""Called with the bytes transferred so far, and the total if known."""


class SandboxFileLocation(FrozenModel):
    """A path in a sandbox."""

    sandbox: str
    path: str

    def __str__(self) -> str:
        return f"{self.sandbox}:{self.path}"


class FileMoveResult(FrozenModel):
    """Result of a move: source, destination, size and digest."""

    source: str
    source_path: str | None
    """None for a screenshot."""
    destination: str
    destination_path: str
    type: Literal["file", "directory", "screenshot"]
    size: int
    """Bytes transferred; directories are transferred as tar streams."""
    sha256: str
    """Digest of these bytes."""
    kept: bool
    """Whether the source still exists."""


class FileMover:
    """Moves data between sandboxes of the same tenant."""

    def __init__(self, fleet: Fleet, *, stall_timeout: float = STALL_TIMEOUT, max_time: float = MAX_MOVE_TIME) -> None:
        self._fleet = fleet
        self._stall = stall_timeout
        self._longest = max_time
        self._move_slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def move(
        self,
        tenant: str,
        source: SandboxFileLocation,
        destination: SandboxFileLocation,
        *,
        max_size: int | None = None,
        keep: bool = True,
        on_progress: ProgressCallback = lambda count, total: None,
    ) -> FileMoveResult:
        """Copy a file or directory to another sandbox, and remove the source unless `keep` is set.

        A destination that is a directory, or ends with a slash, gets the source inside it; `DIR/.` stands for a
        directory's content. Raises `TooLarge` past `max_size` or the configured bound, `NotFound`, `InvalidInput` and
        `Conflict` for invalid moves, `SandboxGone` and `SandboxTimeout` when a sandbox fails; then nothing is written.
        """
        requested_source, requested_destination = source, destination
        source, destination = await self._to_linux_path(tenant, source), await self._to_linux_path(tenant, destination)
        limit = self._limit(max_size)
        source_client, destination_client = await self._clients(tenant, source.sandbox, destination.sandbox)
        async with self._move_slot(tenant):
            info = await _file_info(source_client, source.path)
            if info is None:
                raise NotFound(f"there is no {source}")
            kind = await _file_type(source_client, source.path, info)
            target = await self._destination_path(destination_client, source.path, destination.path, kind)
            _check_not_nested(source, SandboxFileLocation(sandbox=destination.sandbox, path=target), kind)
            transfer = FileTransfer(limit, on_progress, self._stall, self._longest)
            if kind == "directory":
                stream = source_client.get_archive(source.path)
                await transfer.copy_stream(stream, lambda chunks: destination_client.put_archive(target, chunks))
            else:
                size, mode = _read_number(info, "size"), _read_number(info, "mode")
                if info.get("type") == "file":
                    transfer.check_total(size)
                mode = mode % 1000 if info.get("type") == "file" else PLAIN_MODE
                stream = _read_file(source_client, source.path)
                await transfer.copy_stream(
                    stream, lambda chunks: destination_client.write_file(target, chunks, mode=mode)
                )
            result = FileMoveResult(
                source=source.sandbox,
                source_path=_in_request_notation(requested_source, source.path),
                destination=destination.sandbox,
                destination_path=_in_request_notation(requested_destination, target),
                type=kind,
                size=transfer.size,
                sha256=transfer.digest(),
                kept=keep,
            )
            if not keep:
                result = await self._remove(source_client, source.path, info, result)
        await self._publish_move(tenant, result)
        return result

    async def save_screenshot(
        self,
        tenant: str,
        sandbox_id: str,
        destination: SandboxFileLocation,
        *,
        format: Literal["png", "jpeg"] = "png",
        max_size: int | None = None,
    ) -> FileMoveResult:
        """Write a screenshot to a file in the same or another sandbox."""
        requested_destination, destination = destination, await self._to_linux_path(tenant, destination)
        limit = self._limit(max_size)
        source_client, destination_client = await self._clients(tenant, sandbox_id, destination.sandbox)
        async with self._move_slot(tenant):
            shot = await source_client.screenshot({"format": format})
            if shot is None:
                raise SandboxGone("the sandbox returned no screenshot")
            if len(shot.data) > limit:
                raise TooLarge(f"the picture has {len(shot.data)} bytes; at most {limit} may be moved")
            name = f"screenshot.{'jpg' if format == 'jpeg' else format}"
            target = await self._destination_path(destination_client, f"/{name}", destination.path, "file")
            async with asyncio.timeout(self._stall):
                await destination_client.write_file(target, shot.data)
        result = FileMoveResult(
            source=sandbox_id,
            source_path=None,
            destination=destination.sandbox,
            destination_path=_in_request_notation(requested_destination, target),
            type="screenshot",
            size=len(shot.data),
            sha256=hashlib.sha256(shot.data).hexdigest(),
            kept=True,
        )
        await self._publish_move(tenant, result)
        return result

    async def _to_linux_path(self, tenant: str, location: SandboxFileLocation) -> SandboxFileLocation:
        """Return the location with a Linux path, translating Windows paths such as `C:\\x` in Wine sandboxes."""
        sandbox = await self._fleet.get(tenant, location.sandbox)
        drive = DRIVE_PATH.fullmatch(location.path)
        if drive is not None:
            prefix = (await asyncio.to_thread(self._fleet.images.resolve, sandbox.image)).env.get("WINEPREFIX")
            if prefix is not None:
                rest = drive[2].replace("\\", "/")
                location = SandboxFileLocation(
                    sandbox=location.sandbox, path=f"{prefix}/dosdevices/{drive[1].lower()}:/{rest}"
                )
        _check_path(location.path)
        return location

    def _limit(self, requested: int | None) -> int:
        bound = self._fleet.config.sandboxes.max_move
        if requested is not None and requested > bound:
            raise InvalidInput(f"maxSize may be at most {bound} (sandboxes.max_move)")
        return bound if requested is None else requested

    def _move_slot(self, tenant: str) -> asyncio.Semaphore:
        return self._move_slots.setdefault(tenant, asyncio.Semaphore(MAX_CONCURRENT_MOVES))

    async def _clients(
        self, tenant: str, source_client: str, destination_client: str
    ) -> tuple[DaemonClient, DaemonClient]:
        return await self._fleet.running_client(tenant, source_client), await self._fleet.running_client(
            tenant, destination_client
        )

    async def _destination_path(self, destination_client: DaemonClient, source: str, wanted: str, kind: str) -> str:
        """Return the exact target path, depending on what exists at the destination."""
        info = await _file_info(destination_client, wanted)
        present = None if info is None else await _file_type(destination_client, wanted, info)
        if kind == "directory" and present == "file":
            raise InvalidInput(f"{wanted} is a file at the destination; a directory cannot replace it")
        contents = kind == "directory" and source.endswith(("/.", "/.."))
        into = (present == "directory" or wanted.endswith("/")) and not contents
        if into and kind == "directory" and present is None:
            into = False  # As with cp: a missing directory becomes the copy itself.
        name = PurePosixPath(source).name
        if into and not name:
            raise InvalidInput("a whole sandbox cannot be moved; name a directory in it")
        return str(PurePosixPath(wanted) / name) if into else str(PurePosixPath(wanted))

    async def _remove(
        self, source_client: DaemonClient, path: str, info: Mapping[str, Any], result: FileMoveResult
    ) -> FileMoveResult:
        """Remove the source. A failure is reported as `kept`, not raised: the copy has arrived."""
        remove = source_client.remove_directory if info.get("type") == "directory" else source_client.remove_file
        try:
            await remove(str(PurePosixPath(path)))
        except PaddockError:
            return result.model_copy(update={"kept": True})
        return result

    async def _publish_move(self, tenant: str, result: FileMoveResult) -> None:
        for sandbox_id in dict.fromkeys((result.source, result.destination)):
            await self._fleet.events.append(
                sandbox_event_stream(sandbox_id), EventType.FILE_MOVED, result.model_dump(), tenant=tenant
            )


class FileTransfer:
    """One data stream: counts and hashes the bytes, and fails when they stop coming."""

    def __init__(self, limit: int, on_progress: ProgressCallback, stall: float, longest: float) -> None:
        self.size = 0
        self._sha256 = hashlib.sha256()
        self._limit = limit
        self._on_progress = on_progress
        self._total: int | None = None
        self._stall = stall
        self._longest = longest
        self._failure: PaddockError | None = None
        self._fully_read = False
        self._queue: asyncio.Queue[bytes] = asyncio.Queue(READ_AHEAD)

    def digest(self) -> str:
        return self._sha256.hexdigest()

    def check_total(self, total: int) -> None:
        """Raise `TooLarge` for a known size above the limit, before anything is sent."""
        if total > self._limit:
            raise TooLarge(f"the source has {total} bytes; at most {self._limit} may be moved")
        self._total = total

    async def copy_stream(
        self, stream: AsyncGenerator[bytes, None], take: Callable[[AsyncIterator[bytes]], Awaitable[None]]
    ) -> None:
        """Stream chunks from the source to `take`; raise the first error of either side."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._longest
        try:
            async with asyncio.timeout_at(min(end, loop.time() + self._stall)) as deadline:
                # A separate task reads, so that the source is closed however the destination ends.
                reading = asyncio.create_task(
                    self._read(stream, lambda: deadline.reschedule(min(end, loop.time() + self._stall)))
                )
                try:
                    await take(self._chunks())
                finally:
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)
        except TimeoutError:
            raise SandboxTimeout(
                "no data was transferred for too long; one of the sandboxes is stuck"
            ) from self._failure
        except PaddockError as error:
            # To the sender, a broken source looks like a lost destination: raise the source's error.
            if self._failure is not None:
                raise self._failure from error
            raise
        if not self._fully_read:
            raise self._failure or SandboxGone("the destination reported success without reading all data")

    async def _read(self, stream: AsyncGenerator[bytes, None], on_chunk: Callable[[], None]) -> None:
        try:
            async with aclosing(stream) as chunks:
                async for chunk in chunks:
                    self.size += len(chunk)
                    if self.size > self._limit:
                        raise TooLarge(
                            f"the source is larger than the {self._limit} bytes that may be moved; nothing was written"
                        )
                    self._sha256.update(chunk)
                    await self._queue.put(chunk)
                    self._on_progress(self.size, self._total)
                    on_chunk()
        except PaddockError as error:
            self._failure = error
        await self._queue.put(b"")

    async def _chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self._queue.get():
            yield chunk
        if self._failure is not None:
            raise self._failure
        self._fully_read = True


def _in_request_notation(location: SandboxFileLocation, path: str) -> str:
    """Return a path in the notation of the request: with drive and backslashes if the request used them."""
    drive = DRIVE_PATH.fullmatch(location.path)
    _, device, rest = path.partition(f"/dosdevices/{drive[1].lower()}:") if drive is not None else ("", "", "")
    if drive is None or not device:
        return path
    return f"{drive[1]}:" + (rest or "/").replace("/", "\\")


async def _read_file(source_client: DaemonClient, path: str) -> AsyncGenerator[bytes, None]:
    async with source_client.open_file(path) as chunks:
        async for chunk in chunks:
            yield chunk


async def _file_info(sandbox: DaemonClient, path: str) -> Mapping[str, Any] | None:
    """Return the sandbox's information on a path without following links; None if it does not exist."""
    try:
        return await sandbox.about(str(PurePosixPath(path)))
    except NotFound:
        return None


async def _file_type(sandbox: DaemonClient, path: str, info: Mapping[str, Any]) -> Literal["file", "directory"]:
    """Return the type of a path, following links. Raises `InvalidInput` for devices and the like."""
    file_type = info.get("type")
    if file_type in ("file", "directory"):
        return "file" if file_type == "file" else "directory"
    if file_type == "symlink":
        # `DIR/.` exists for directories only, also through links.
        return "directory" if await _links_to_directory(sandbox, path) else "file"
    raise InvalidInput(f"{path} is neither a file nor a directory")


async def _links_to_directory(sandbox: DaemonClient, path: str) -> bool:
    try:
        await sandbox.about(f"{path.rstrip('/')}/.")
    except (NotFound, InvalidInput):
        return False
    return True


def _check_path(path: str) -> None:
    if not path.startswith("/") or "\0" in path:
        raise InvalidInput(f"{path[:80]!r}: a path in a sandbox is absolute, as /workspace/file")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{path[:80]!r}: names that are not Unicode cannot be moved by name") from None


def _check_not_nested(source: SandboxFileLocation, target: SandboxFileLocation, kind: str) -> None:
    """Raise `Conflict` when source and target are the same path, or the target is inside the source."""
    if source.sandbox != target.sandbox:
        return
    source_path, target_path = PurePosixPath(source.path), PurePosixPath(target.path)
    if source_path == target_path:
        raise Conflict(f"{source} and the destination are the same")
    if kind == "directory" and source_path in target_path.parents:
        raise Conflict(f"{target} is inside {source}; a directory cannot go into itself")


def _read_number(info: Mapping[str, Any], name: str) -> int:
    value = info.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise SandboxGone("the sandbox returned invalid file information")
    return value
