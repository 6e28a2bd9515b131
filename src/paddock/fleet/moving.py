"""Moves files and directories from one sandbox to another.

The bytes go from box to box through this process and never touch the host's disk. Both boxes are taken for hostile:
what comes is bounded in size and time, it is only passed on, and the daemon at the destination keeps all or nothing.
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

from paddock.errors import BoxGone, BoxTimeout, Conflict, InvalidInput, NotFound, PaddockError, TooLarge
from paddock.fleet.fleet import Fleet
from paddock.model.events import EventType, sandbox_stream
from paddock.model.sandbox import Frozen
from paddock.sandbox.client import Inside

AT_ONCE = 8
"""Moves of one tenant at a time; others wait."""
STALL = 60.0
"""How long nothing may pass before a move is given up."""
LONGEST = 3600.0
"""How long a move may take in all, so that a box cannot hold one open by trickling."""
AHEAD = 2
"""Pieces that are read before they are sent on."""
PLAIN_MODE = 644
DRIVE = re.compile(r"([A-Za-z]):[\\/](.*)", re.DOTALL)

Report = Callable[[int, int | None], None]
"""Told how many bytes have passed, and of how many if that is known."""


class Place(Frozen):
    """A path in a sandbox."""

    sandbox: str
    path: str

    def __str__(self) -> str:
        return f"{self.sandbox}:{self.path}"


class Moved(Frozen):
    """What has arrived, and where."""

    source: str
    source_path: str | None
    """None when it was a picture of the screen."""
    destination: str
    destination_path: str
    type: Literal["file", "directory", "screenshot"]
    size: int
    """Bytes that passed; a directory passes as a tar stream."""
    sha256: str
    """Digest of these bytes."""
    kept: bool
    """Whether the source is still there."""


class Mover:
    """Moves data between the sandboxes of one tenant."""

    def __init__(self, fleet: Fleet, *, stall: float = STALL, longest: float = LONGEST) -> None:
        self._fleet = fleet
        self._stall = stall
        self._longest = longest
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def move(
        self,
        tenant: str,
        source: Place,
        destination: Place,
        *,
        max_size: int | None = None,
        keep: bool = True,
        report: Report = lambda count, total: None,
    ) -> Moved:
        """Copy a file or directory to another sandbox, and remove the source unless it is to be kept.

        A destination that is a directory, or ends with a slash, gets the source inside it; `DIR/.` stands for a
        directory's content. Raises `TooLarge` past `max_size` or the configured bound, `NotFound`, `InvalidInput` and
        `Conflict` for what cannot be, `BoxGone` and `BoxTimeout` when a box fails; then nothing has arrived.
        """
        from_there, to_there = source, destination
        source, destination = await self._plain(tenant, source), await self._plain(tenant, destination)
        limit = self._limit(max_size)
        giver, taker = await self._boxes(tenant, source.sandbox, destination.sandbox)
        async with self._turn(tenant):
            about = await _about(giver, source.path)
            if about is None:
                raise NotFound(f"there is no {source}")
            kind = await _kind(giver, source.path, about)
            goal = await self._goal(taker, source.path, destination.path, kind)
            _check_apart(source, Place(sandbox=destination.sandbox, path=goal), kind)
            passing = Passing(limit, report, self._stall, self._longest)
            if kind == "directory":
                stream = giver.get_archive(source.path)
                await passing.carry(stream, lambda pieces: taker.put_archive(goal, pieces))
            else:
                size, mode = _number(about, "size"), _number(about, "mode")
                if about.get("type") == "file":
                    passing.expect(size)
                mode = mode % 1000 if about.get("type") == "file" else PLAIN_MODE
                stream = _file(giver, source.path)
                await passing.carry(stream, lambda pieces: taker.write_file(goal, pieces, mode=mode))
            moved = Moved(
                source=source.sandbox,
                source_path=_as_written(from_there, source.path),
                destination=destination.sandbox,
                destination_path=_as_written(to_there, goal),
                type=kind,
                size=passing.size,
                sha256=passing.digest(),
                kept=keep,
            )
            if not keep:
                moved = await self._remove(giver, source.path, about, moved)
        await self._tell(tenant, moved)
        return moved

    async def screenshot(
        self,
        tenant: str,
        sandbox_id: str,
        destination: Place,
        *,
        form: Literal["png", "jpeg"] = "png",
        max_size: int | None = None,
    ) -> Moved:
        """Write a picture of a sandbox's screen to a file of the same or another sandbox."""
        to_there, destination = destination, await self._plain(tenant, destination)
        limit = self._limit(max_size)
        giver, taker = await self._boxes(tenant, sandbox_id, destination.sandbox)
        async with self._turn(tenant):
            shot = await giver.screenshot({"format": form})
            if shot is None:
                raise BoxGone("the box shows no picture of its screen")
            if len(shot.data) > limit:
                raise TooLarge(f"the picture has {len(shot.data)} bytes; at most {limit} may be moved")
            name = f"screenshot.{'jpg' if form == 'jpeg' else form}"
            goal = await self._goal(taker, f"/{name}", destination.path, "file")
            async with asyncio.timeout(self._stall):
                await taker.write_file(goal, shot.data)
        moved = Moved(
            source=sandbox_id,
            source_path=None,
            destination=destination.sandbox,
            destination_path=_as_written(to_there, goal),
            type="screenshot",
            size=len(shot.data),
            sha256=hashlib.sha256(shot.data).hexdigest(),
            kept=True,
        )
        await self._tell(tenant, moved)
        return moved

    async def _plain(self, tenant: str, place: Place) -> Place:
        """The place with its path as Linux has it, also where Windows programs run and it is written `C:\\x`."""
        sandbox = await self._fleet.get(tenant, place.sandbox)
        drive = DRIVE.fullmatch(place.path)
        if drive is not None:
            prefix = (await asyncio.to_thread(self._fleet.images.resolve, sandbox.image)).env.get("WINEPREFIX")
            if prefix is not None:
                rest = drive[2].replace("\\", "/")
                place = Place(sandbox=place.sandbox, path=f"{prefix}/dosdevices/{drive[1].lower()}:/{rest}")
        _check_path(place.path)
        return place

    def _limit(self, asked: int | None) -> int:
        bound = self._fleet.config.sandboxes.max_move
        if asked is not None and asked > bound:
            raise InvalidInput(f"maxSize may be at most {bound} (sandboxes.max_move)")
        return bound if asked is None else asked

    def _turn(self, tenant: str) -> asyncio.Semaphore:
        return self._turns.setdefault(tenant, asyncio.Semaphore(AT_ONCE))

    async def _boxes(self, tenant: str, giver: str, taker: str) -> tuple[Inside, Inside]:
        return await self._fleet.inside(tenant, giver), await self._fleet.inside(tenant, taker)

    async def _goal(self, taker: Inside, source: str, wanted: str, kind: str) -> str:
        """Where exactly something arrives, given what is there now."""
        about = await _about(taker, wanted)
        present = None if about is None else await _kind(taker, wanted, about)
        if kind == "directory" and present == "file":
            raise InvalidInput(f"{wanted} is a file at the destination; a directory cannot go there")
        contents = kind == "directory" and source.endswith(("/.", "/.."))
        into = (present == "directory" or wanted.endswith("/")) and not contents
        if into and kind == "directory" and present is None:
            into = False  # As with cp: a directory that is not there yet becomes the copy itself.
        name = PurePosixPath(source).name
        if into and not name:
            raise InvalidInput("the whole of a box cannot be moved; name a directory in it")
        return str(PurePosixPath(wanted) / name) if into else str(PurePosixPath(wanted))

    async def _remove(self, giver: Inside, path: str, about: Mapping[str, Any], moved: Moved) -> Moved:
        """Remove the source. What has arrived stays arrived, so a source that resists is told of and no error."""
        remove = giver.remove_directory if about.get("type") == "directory" else giver.remove_file
        try:
            await remove(str(PurePosixPath(path)))
        except PaddockError:
            return moved.model_copy(update={"kept": True})
        return moved

    async def _tell(self, tenant: str, moved: Moved) -> None:
        for sandbox_id in dict.fromkeys((moved.source, moved.destination)):
            await self._fleet.events.append(
                sandbox_stream(sandbox_id), EventType.FILE_MOVED, moved.model_dump(), tenant=tenant
            )


class Passing:
    """Bytes on their way: counted, digested, and watched so that they keep coming."""

    def __init__(self, limit: int, report: Report, stall: float, longest: float) -> None:
        self.size = 0
        self._sha256 = hashlib.sha256()
        self._limit = limit
        self._report = report
        self._total: int | None = None
        self._stall = stall
        self._longest = longest
        self._failure: PaddockError | None = None
        self._handed_over = False
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue(AHEAD)

    def digest(self) -> str:
        return self._sha256.hexdigest()

    def expect(self, total: int) -> None:
        """Refuse what is known to be too much before any of it is sent."""
        if total > self._limit:
            raise TooLarge(f"it has {total} bytes; at most {self._limit} may be moved")
        self._total = total

    async def carry(
        self, stream: AsyncGenerator[bytes, None], take: Callable[[AsyncIterator[bytes]], Awaitable[None]]
    ) -> None:
        """Hand a stream to whoever takes it; what went wrong first is what is raised."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._longest
        try:
            async with asyncio.timeout_at(min(end, loop.time() + self._stall)) as deadline:
                # A task of our own reads, so that the source is let go of however the destination ends.
                reading = asyncio.create_task(
                    self._read(stream, lambda: deadline.reschedule(min(end, loop.time() + self._stall)))
                )
                try:
                    await take(self._given())
                finally:
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)
        except TimeoutError:
            raise BoxTimeout("nothing has passed for too long; one of the boxes is stuck") from self._failure
        except PaddockError as error:
            # A stream that breaks off looks to the one who sends it on as if the destination had gone.
            if self._failure is not None:
                raise self._failure from error
            raise
        if not self._handed_over:
            raise self._failure or BoxGone("the destination says that it has all, and has not read it")

    async def _read(self, stream: AsyncGenerator[bytes, None], passed: Callable[[], None]) -> None:
        try:
            async with aclosing(stream) as pieces:
                async for piece in pieces:
                    self.size += len(piece)
                    if self.size > self._limit:
                        raise TooLarge(f"it is larger than the {self._limit} bytes that may be moved; nothing arrived")
                    self._sha256.update(piece)
                    await self._waiting.put(piece)
                    self._report(self.size, self._total)
                    passed()
        except PaddockError as error:
            self._failure = error
        await self._waiting.put(b"")

    async def _given(self) -> AsyncIterator[bytes]:
        while piece := await self._waiting.get():
            yield piece
        if self._failure is not None:
            raise self._failure
        self._handed_over = True


def _as_written(place: Place, path: str) -> str:
    """A path of a sandbox for whoever has written `place`: with a drive and backslashes if they did."""
    drive = DRIVE.fullmatch(place.path)
    _, device, rest = path.partition(f"/dosdevices/{drive[1].lower()}:") if drive is not None else ("", "", "")
    if drive is None or not device:
        return path
    return f"{drive[1]}:" + (rest or "/").replace("/", "\\")


async def _file(giver: Inside, path: str) -> AsyncGenerator[bytes, None]:
    async with giver.open_file(path) as pieces:
        async for piece in pieces:
            yield piece


async def _about(box: Inside, path: str) -> Mapping[str, Any] | None:
    """What a box says of a path, links not followed; None when there is nothing."""
    try:
        return await box.about(str(PurePosixPath(path)))
    except NotFound:
        return None


async def _kind(box: Inside, path: str, about: Mapping[str, Any]) -> Literal["file", "directory"]:
    """What a path is once links are followed. Raises `InvalidInput` for devices and the like."""
    said = about.get("type")
    if said in ("file", "directory"):
        return "file" if said == "file" else "directory"
    if said == "symlink":
        # `DIR/.` exists for directories alone, however they are reached.
        return "directory" if await _about_link(box, path) else "file"
    raise InvalidInput(f"{path} is neither a file nor a directory")


async def _about_link(box: Inside, path: str) -> bool:
    try:
        await box.about(f"{path.rstrip('/')}/.")
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


def _check_apart(source: Place, goal: Place, kind: str) -> None:
    """Within one box nothing is written over itself, nor into itself, which would never end."""
    if source.sandbox != goal.sandbox:
        return
    here, there = PurePosixPath(source.path), PurePosixPath(goal.path)
    if here == there:
        raise Conflict(f"{source} and the destination are the same")
    if kind == "directory" and here in there.parents:
        raise Conflict(f"{goal} is inside {source}; a directory cannot go into itself")


def _number(about: Mapping[str, Any], name: str) -> int:
    value = about.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BoxGone("the box answers nonsense")
    return value
