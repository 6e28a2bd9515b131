"""Recordings of screens: begun, stopped, kept, looked into, and given away as films."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import structlog

from paddock.config.live import LiveConfig
from paddock.errors import (
    BoxTimeout,
    Conflict,
    HostFull,
    InvalidInput,
    NotFound,
    PaddockError,
    QuotaExceeded,
    SandboxNotFound,
    Unavailable,
)
from paddock.fleet.fleet import Fleet
from paddock.live import films, padrec
from paddock.live.padrec import Entry, Writer
from paddock.live.screens import Reader
from paddock.live.shelf import Shelf
from paddock.model.events import EventType
from paddock.model.owners import bounded_to, may_see
from paddock.model.recordings import Recording, RecordingState, RecordingWish
from paddock.model.sandbox import Sandbox, SandboxState
from paddock.model.screens import Frame

FIRST_WITHIN = 20.0
"""Seconds until a screen that is to be recorded has shown something."""
WAIT_FOR_FILM = 20.0
LARGEST_PICTURE = 16 * 2**20
FILMS = ".films"
log = structlog.get_logger()


class _Session:
    """A recording under way."""

    def __init__(self, recording: Recording, sandbox: Sandbox, writer: Writer, work: asyncio.Task[str]) -> None:
        self.recording = recording
        self.sandbox = sandbox
        self.writer = writer
        self.work = work
        self.finished: asyncio.Task[Recording] | None = None

    def now(self) -> Recording:
        """As it is at this moment."""
        writer = self.writer
        counted = {"frames": writer.frames, "size": writer.size, "width": writer.width, "height": writer.height}
        return self.recording.model_copy(update=counted)


class Recordings:
    """The recordings of all tenants, each in files of its own below one directory.

    They outlive their sandboxes. Raises `NotFound` for recordings that there are not, or that are another tenant's.
    """

    def __init__(self, fleet: Fleet, root: Path, config: LiveConfig) -> None:
        self._fleet = fleet
        self._root = root
        self._shelf = Shelf(root)
        self._config = config
        self._sessions: dict[str, _Session] = {}
        self._filming = asyncio.Semaphore(1)
        self._starting: set[str] = set()

    async def open(self) -> None:
        """Close what an earlier server has left open."""
        await asyncio.to_thread(shutil.rmtree, self._root / FILMS, ignore_errors=True)
        for recording in await asyncio.to_thread(self._shelf.repair):
            await self._tell_stopped(recording)

    async def start(self, tenant: str, sandbox_id: str, wish: RecordingWish) -> Recording:
        """Begin to record a screen. It has its first picture when this returns."""
        sandbox = await self._fleet.get(tenant, sandbox_id)
        if sandbox.state is not SandboxState.RUNNING:
            raise Conflict(f"sandbox {sandbox_id} is {sandbox.state}, not {SandboxState.RUNNING}")
        await self._admit(tenant, sandbox_id, wish)
        self._starting.add(sandbox_id)
        try:
            return await self._begin(sandbox, wish)
        finally:
            self._starting.discard(sandbox_id)

    async def stop(self, tenant: str, sandbox_id: str, recording_id: str) -> Recording:
        """Stop a recording. One that has stopped stays as it is."""
        session = self._sessions.get(recording_id)
        await self.get(tenant, sandbox_id, recording_id)
        if session is None:
            return await self.get(tenant, sandbox_id, recording_id)
        return await self._finish(session, "stopped")

    async def list(self, tenant: str, sandbox_id: str | None = None) -> Sequence[Recording]:
        """Recordings of a tenant, or of one sandbox, newest first."""
        found = [
            self._current(each)
            for each in await asyncio.to_thread(self._shelf.all, tenant)
            if sandbox_id in (None, each.sandbox_id) and await self._is_visible(tenant, each)
        ]
        if not found and sandbox_id is not None:
            await self._fleet.get(tenant, sandbox_id)
        return sorted(found, key=lambda each: each.started_at, reverse=True)

    async def get(self, tenant: str, sandbox_id: str, recording_id: str) -> Recording:
        recording = await asyncio.to_thread(self._shelf.read, tenant, recording_id)
        if recording.sandbox_id != sandbox_id or not await self._is_visible(tenant, recording):
            raise NotFound(f"sandbox {sandbox_id} has no recording {recording_id}")
        return self._current(recording)

    async def _is_visible(self, tenant: str, recording: Recording) -> bool:
        """Whether a view has a recording in it: as its sandbox, or once that is gone, as it was when it began."""
        if bounded_to(tenant) in (None, recording.subject):
            return True
        try:
            await self._fleet.get(tenant, recording.sandbox_id)
        except SandboxNotFound:
            try:
                await self._fleet.get(str(tenant), recording.sandbox_id)
            except SandboxNotFound:
                return may_see(tenant, recording.tenant, recording.subject, recording.visibility)
            return False
        return True

    async def file(self, tenant: str, sandbox_id: str, recording_id: str) -> Path:
        """Where its pictures are."""
        await self.get(tenant, sandbox_id, recording_id)
        return self._shelf.path(tenant, recording_id)

    async def picture(self, tenant: str, sandbox_id: str, recording_id: str, number: int) -> tuple[Entry, bytes]:
        """One picture of a recording, counted from 0."""
        path = await self.file(tenant, sandbox_id, recording_id)
        place = await asyncio.to_thread(padrec.entry, path, number)
        return place, await asyncio.to_thread(padrec.picture, path, place)

    async def index(self, tenant: str, sandbox_id: str, recording_id: str) -> Sequence[Entry]:
        """When each picture was there, and how large it is."""
        return await asyncio.to_thread(padrec.entries, await self.file(tenant, sandbox_id, recording_id))

    async def delete(self, tenant: str, sandbox_id: str, recording_id: str) -> None:
        """Forget a recording; one that is under way is stopped first."""
        await self.get(tenant, sandbox_id, recording_id)
        session = self._sessions.get(recording_id)
        if session is not None:
            await self._finish(session, "deleted")
        await asyncio.to_thread(self._shelf.remove, tenant, recording_id)

    @asynccontextmanager
    async def film(self, tenant: str, sandbox_id: str, recording_id: str, form: films.Form) -> AsyncIterator[Path]:
        """A recording as a film, in a file that is there until the end of the context."""
        recording = await self.get(tenant, sandbox_id, recording_id)
        until = recording.stopped_at.timestamp() if recording.stopped_at is not None else time.time()
        directory = self._root / FILMS
        film = directory / f"{secrets.token_hex(8)}.{form}"
        try:
            async with asyncio.timeout(WAIT_FOR_FILM):
                await self._filming.acquire()
        except TimeoutError:
            raise Unavailable("another recording is being turned into a film; try again in a while") from None
        try:
            try:
                self._check_disk()
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                await films.make(self._shelf.path(tenant, recording_id), until, form, film, self._config.export_time)
            finally:
                self._filming.release()
            yield film
        finally:
            film.unlink(missing_ok=True)

    async def close(self) -> None:
        """Stop every recording. They stay."""
        sessions = list(self._sessions.values())
        await asyncio.gather(*(self._finish(each, "server") for each in sessions), return_exceptions=True)

    async def _admit(self, tenant: str, sandbox_id: str, wish: RecordingWish) -> None:
        config = self._config
        if wish.fps > config.recording_rate:
            raise InvalidInput(f"fps: at most {config.recording_rate:g} (live.recording_rate)")
        if wish.max_time is not None and wish.max_time > config.recording_time:
            raise InvalidInput(f"maxMinutes: at most {config.recording_time / 60:g} (live.recording_time)")
        if wish.max_size is not None and wish.max_size > config.recording_size:
            raise InvalidInput(f"maxSize: at most {config.recording_size} (live.recording_size)")
        going = [each.recording for each in self._sessions.values() if each.recording.tenant == tenant]
        for each in going:
            if each.sandbox_id == sandbox_id:
                raise Conflict(f"sandbox {sandbox_id} is being recorded already, as {each.id}; stop that first")
        if sandbox_id in self._starting:
            raise Conflict(f"sandbox {sandbox_id} is being recorded already")
        if len(going) >= config.recordings_at_once:
            raise QuotaExceeded(f"tenant {tenant} has its {config.recordings_at_once} recordings under way; stop one")
        total = sum(each.size for each in await self.list(str(tenant)))
        if total >= config.recordings_total:
            raise QuotaExceeded(f"tenant {tenant} has its {config.recordings_total} bytes of recordings; delete some")
        self._check_disk()

    def _check_disk(self) -> None:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._has_room():
            raise HostFull("the host's disk is too full to record; see sandboxes.min_free_disk")

    def _has_room(self) -> bool:
        free = os.statvfs(self._root)
        return free.f_bavail * free.f_frsize >= self._fleet.config.sandboxes.min_free_disk

    async def _begin(self, sandbox: Sandbox, wish: RecordingWish) -> Recording:
        reader = Reader(self._fleet, sandbox, 0, wish.fps, quality=wish.quality, largest=LARGEST_PICTURE)
        frames = reader.follow(1.0 / wish.fps)
        recording: Recording | None = None
        writer: Writer | None = None
        try:
            async with asyncio.timeout(FIRST_WITHIN):
                first = await anext(frames)
            now = datetime.now(UTC)
            recording = Recording(
                id=f"rec-{secrets.token_hex(8)}",
                tenant=sandbox.tenant,
                sandbox_id=sandbox.id,
                subject=sandbox.subject,
                visibility=sandbox.visibility,
                state=RecordingState.RECORDING,
                started_at=now,
                fps=wish.fps,
                quality=wish.quality,
            )
            writer = await asyncio.to_thread(self._shelf.create, recording)
            await self._keep(writer, first)
            await self._fleet.tell(sandbox, EventType.RECORDING_STARTED, recording_id=recording.id)
        except BaseException as error:
            await frames.aclose()
            await reader.close()
            if writer is not None:
                await asyncio.to_thread(writer.close)
            if recording is not None:
                await asyncio.to_thread(self._shelf.remove, sandbox.tenant, recording.id)
            if isinstance(error, TimeoutError):
                raise BoxTimeout("the screen shows nothing; try again when the desktop is up") from None
            if isinstance(error, OSError):
                raise HostFull(f"the recording cannot be written: {error.strerror}") from error
            raise
        work = asyncio.create_task(self._record(writer, reader, frames, wish), name=f"recording {recording.id}")
        session = self._sessions[recording.id] = _Session(recording, sandbox, writer, work)
        work.add_done_callback(lambda _: self._ended(session))
        return session.now()

    async def _record(
        self, writer: Writer, reader: Reader, frames: AsyncGenerator[Frame, None], wish: RecordingWish
    ) -> str:
        """Keep pictures until something ends it, and say what."""
        most = min(wish.max_size or self._config.recording_size, self._config.recording_size)
        try:
            async with asyncio.timeout(min(wish.max_time or self._config.recording_time, self._config.recording_time)):
                async with aclosing(frames) as following:
                    async for frame in following:
                        if writer.size + len(frame.data) > most:
                            return "size"
                        if not self._has_room():
                            return "disk"
                        await self._keep(writer, frame)
        except TimeoutError:
            return "time"
        except OSError as error:
            log.warning("a recording cannot be written", error=str(error))
            return "disk"
        except PaddockError:
            pass
        finally:
            await reader.close()
        return "sandbox"

    async def _keep(self, writer: Writer, frame: Frame) -> None:
        # By this machine's clock: a box says what it likes.
        kept = frame.model_copy(update={"at": time.time()})
        adding = asyncio.ensure_future(asyncio.to_thread(writer.add, kept))
        try:
            await asyncio.shield(adding)
        except asyncio.CancelledError:
            # Not to be left half done: who cancels us closes the file next.
            await asyncio.wait((adding,))
            raise

    def _ended(self, session: _Session) -> None:
        if session.finished is None:
            reason = "server" if session.work.cancelled() or session.work.exception() else session.work.result()
            self._fleet.spawn(self._finish(session, reason))

    async def _finish(self, session: _Session, reason: str) -> Recording:
        if session.finished is None:
            session.finished = asyncio.create_task(self._close(session, reason))
        return await asyncio.shield(session.finished)

    async def _close(self, session: _Session, reason: str) -> Recording:
        session.work.cancel()
        await asyncio.gather(session.work, return_exceptions=True)
        stopped = session.now().model_copy(
            update={"state": RecordingState.STOPPED, "stopped_at": datetime.now(UTC), "reason": reason}
        )
        try:
            await asyncio.to_thread(session.writer.close)
            await asyncio.to_thread(self._shelf.write, stopped)
        except OSError as error:
            log.error("a recording could not be closed", recording=stopped.id, error=str(error))
        finally:
            self._sessions.pop(stopped.id, None)
        await self._tell_stopped(stopped)
        return stopped

    async def _tell_stopped(self, recording: Recording) -> None:
        try:
            sandbox = await self._fleet.get(recording.tenant, recording.sandbox_id)
            if sandbox.state.alive and sandbox.state is not SandboxState.STOPPING:  # Nothing follows a sandbox's end.
                await self._fleet.tell(
                    sandbox,
                    EventType.RECORDING_STOPPED,
                    recording_id=recording.id,
                    frames=recording.frames,
                    size=recording.size,
                    reason=recording.reason,
                )
        except SandboxNotFound:
            pass
        except PaddockError as error:
            log.warning("that a recording stopped could not be told", recording=recording.id, error=error.message)

    def _current(self, recording: Recording) -> Recording:
        session = self._sessions.get(recording.id)
        return recording if session is None else session.now()
