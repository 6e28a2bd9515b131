"""Starts, stops, lists, reads, exports and deletes recordings of screens."""

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

from paddock.config.live_view import LiveViewConfig
from paddock.errors import (
    Conflict,
    HostFull,
    InvalidInput,
    NotFound,
    PaddockError,
    QuotaExceeded,
    SandboxNotFound,
    SandboxTimeout,
    Unavailable,
)
from paddock.fleet.fleet import Fleet
from paddock.live.desktop.screen_streams import ScreenReader
from paddock.live.recording import padrec_file, video_export
from paddock.live.recording.padrec_file import PadrecWriter, PictureIndexEntry
from paddock.live.recording.recording_files import RecordingFiles
from paddock.model.events import EventType
from paddock.model.owners import is_visible_to_view, private_subject_of_view
from paddock.model.recordings import Recording, RecordingOptions, RecordingState
from paddock.model.sandbox import Sandbox, SandboxState
from paddock.model.screens import ScreenFrame

FIRST_PICTURE_TIMEOUT = 20.0
"""Seconds to wait for the first picture of a recording."""
EXPORT_QUEUE_TIMEOUT = 20.0
LARGEST_PICTURE = 16 * 2**20
EXPORT_DIRECTORY = ".films"
log = structlog.get_logger()


class _ActiveRecording:
    """A recording in progress."""

    def __init__(self, recording: Recording, sandbox: Sandbox, writer: PadrecWriter, work: asyncio.Task[str]) -> None:
        self.recording = recording
        self.sandbox = sandbox
        self.writer = writer
        self.work = work
        self.finished: asyncio.Task[Recording] | None = None

    def now(self) -> Recording:
        """Return the recording with its current counts."""
        writer = self.writer
        counted = {"frames": writer.frames, "size": writer.size, "width": writer.width, "height": writer.height}
        return self.recording.model_copy(update=counted)


class RecordingManager:
    """Manages the recordings of all tenants, stored below one directory.

    Recordings outlive their sandboxes. Raises `NotFound` for unknown recordings and those of other tenants.
    """

    def __init__(self, fleet: Fleet, root: Path, config: LiveViewConfig) -> None:
        self._fleet = fleet
        self._root = root
        self._files = RecordingFiles(root)
        self._config = config
        self._sessions: dict[str, _ActiveRecording] = {}
        self._export_slot = asyncio.Semaphore(1)
        self._starting: set[str] = set()

    async def open(self) -> None:
        """Close recordings that an earlier server left open."""
        await asyncio.to_thread(shutil.rmtree, self._root / EXPORT_DIRECTORY, ignore_errors=True)
        for recording in await asyncio.to_thread(self._files.close_interrupted):
            await self._publish_stopped(recording)

    async def start(self, tenant: str, sandbox_id: str, options: RecordingOptions) -> Recording:
        """Start recording a screen; the recording has its first picture on return."""
        sandbox = await self._fleet.get(tenant, sandbox_id)
        if sandbox.state is not SandboxState.RUNNING:
            raise Conflict(f"sandbox {sandbox_id} is {sandbox.state}, not {SandboxState.RUNNING}")
        await self._check_admission(tenant, sandbox_id, options)
        self._starting.add(sandbox_id)
        try:
            return await self._start_recording(sandbox, options)
        finally:
            self._starting.discard(sandbox_id)

    async def stop(self, tenant: str, sandbox_id: str, recording_id: str) -> Recording:
        """Stop a recording. Does nothing if it has already stopped."""
        session = self._sessions.get(recording_id)
        await self.get(tenant, sandbox_id, recording_id)
        if session is None:
            return await self.get(tenant, sandbox_id, recording_id)
        return await self._finish(session, "stopped")

    async def list(self, tenant: str, sandbox_id: str | None = None) -> Sequence[Recording]:
        """List recordings of a tenant, or of one sandbox, newest first."""
        found = [
            self._with_progress(each)
            for each in await asyncio.to_thread(self._files.list_recordings, tenant)
            if sandbox_id in (None, each.sandbox_id) and await self._is_visible(tenant, each)
        ]
        if not found and sandbox_id is not None:
            await self._fleet.get(tenant, sandbox_id)
        return sorted(found, key=lambda each: each.started_at, reverse=True)

    async def get(self, tenant: str, sandbox_id: str, recording_id: str) -> Recording:
        recording = await asyncio.to_thread(self._files.read_metadata, tenant, recording_id)
        if recording.sandbox_id != sandbox_id or not await self._is_visible(tenant, recording):
            raise NotFound(f"sandbox {sandbox_id} has no recording {recording_id}")
        return self._with_progress(recording)

    async def _is_visible(self, tenant: str, recording: Recording) -> bool:
        """Tell whether the caller may see a recording: by its sandbox, or once deleted, by its own owner."""
        if private_subject_of_view(tenant) in (None, recording.subject):
            return True
        try:
            await self._fleet.get(tenant, recording.sandbox_id)
        except SandboxNotFound:
            try:
                await self._fleet.get(str(tenant), recording.sandbox_id)
            except SandboxNotFound:
                return is_visible_to_view(tenant, recording.tenant, recording.subject, recording.visibility)
            return False
        return True

    async def recording_path(self, tenant: str, sandbox_id: str, recording_id: str) -> Path:
        """Return the path of a recording's picture file."""
        await self.get(tenant, sandbox_id, recording_id)
        return self._files.picture_path(tenant, recording_id)

    async def read_picture(
        self, tenant: str, sandbox_id: str, recording_id: str, number: int
    ) -> tuple[PictureIndexEntry, bytes]:
        """Return one picture of a recording, counted from 0."""
        path = await self.recording_path(tenant, sandbox_id, recording_id)
        entry = await asyncio.to_thread(padrec_file.read_index_entry, path, number)
        return entry, await asyncio.to_thread(padrec_file.read_picture, path, entry)

    async def read_index(self, tenant: str, sandbox_id: str, recording_id: str) -> Sequence[PictureIndexEntry]:
        """Return time and size of every picture."""
        return await asyncio.to_thread(
            padrec_file.read_index_entries, await self.recording_path(tenant, sandbox_id, recording_id)
        )

    async def delete(self, tenant: str, sandbox_id: str, recording_id: str) -> None:
        """Delete a recording, stopping it first if needed."""
        await self.get(tenant, sandbox_id, recording_id)
        session = self._sessions.get(recording_id)
        if session is not None:
            await self._finish(session, "deleted")
        await asyncio.to_thread(self._files.remove_files, tenant, recording_id)

    @asynccontextmanager
    async def exported_video(
        self, tenant: str, sandbox_id: str, recording_id: str, format: video_export.VideoFormat
    ) -> AsyncIterator[Path]:
        """Export a recording to a temporary video file that is removed on exit."""
        recording = await self.get(tenant, sandbox_id, recording_id)
        until = recording.stopped_at.timestamp() if recording.stopped_at is not None else time.time()
        directory = self._root / EXPORT_DIRECTORY
        video = directory / f"{secrets.token_hex(8)}.{format}"
        try:
            async with asyncio.timeout(EXPORT_QUEUE_TIMEOUT):
                await self._export_slot.acquire()
        except TimeoutError:
            raise Unavailable("another recording is being exported; try again later") from None
        try:
            try:
                self._check_disk()
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                await video_export.export_video(
                    self._files.picture_path(tenant, recording_id), until, format, video, self._config.export_time
                )
            finally:
                self._export_slot.release()
            yield video
        finally:
            video.unlink(missing_ok=True)

    async def close(self) -> None:
        """Stop all recordings and keep them."""
        sessions = list(self._sessions.values())
        await asyncio.gather(*(self._finish(each, "server") for each in sessions), return_exceptions=True)

    async def _check_admission(self, tenant: str, sandbox_id: str, options: RecordingOptions) -> None:
        config = self._config
        if options.fps > config.recording_rate:
            raise InvalidInput(f"fps: at most {config.recording_rate:g} (live.recording_rate)")
        if options.max_time is not None and options.max_time > config.recording_time:
            raise InvalidInput(f"maxMinutes: at most {config.recording_time / 60:g} (live.recording_time)")
        if options.max_size is not None and options.max_size > config.recording_size:
            raise InvalidInput(f"maxSize: at most {config.recording_size} (live.recording_size)")
        active = [each.recording for each in self._sessions.values() if each.recording.tenant == tenant]
        for each in active:
            if each.sandbox_id == sandbox_id:
                raise Conflict(f"sandbox {sandbox_id} is being recorded already, as {each.id}; stop that first")
        if sandbox_id in self._starting:
            raise Conflict(f"sandbox {sandbox_id} is being recorded already")
        if len(active) >= config.recordings_at_once:
            raise QuotaExceeded(f"tenant {tenant} has its {config.recordings_at_once} recordings in progress; stop one")
        total = sum(each.size for each in await self.list(str(tenant)))
        if total >= config.recordings_total:
            raise QuotaExceeded(f"tenant {tenant} has its {config.recordings_total} bytes of recordings; delete some")
        self._check_disk()

    def _check_disk(self) -> None:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._has_disk_space():
            raise HostFull("not enough free disk space to record; see sandboxes.min_free_disk")

    def _has_disk_space(self) -> bool:
        free = os.statvfs(self._root)
        return free.f_bavail * free.f_frsize >= self._fleet.config.sandboxes.min_free_disk

    async def _start_recording(self, sandbox: Sandbox, options: RecordingOptions) -> Recording:
        reader = ScreenReader(self._fleet, sandbox, 0, options.fps, quality=options.quality, largest=LARGEST_PICTURE)
        frames = reader.follow_frames(1.0 / options.fps)
        recording: Recording | None = None
        writer: PadrecWriter | None = None
        try:
            async with asyncio.timeout(FIRST_PICTURE_TIMEOUT):
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
                fps=options.fps,
                quality=options.quality,
            )
            writer = await asyncio.to_thread(self._files.create_files, recording)
            await self._append_frame(writer, first)
            await self._fleet.publish_event(sandbox, EventType.RECORDING_STARTED, recording_id=recording.id)
        except BaseException as error:
            await frames.aclose()
            await reader.close()
            if writer is not None:
                await asyncio.to_thread(writer.close)
            if recording is not None:
                await asyncio.to_thread(self._files.remove_files, sandbox.tenant, recording.id)
            if isinstance(error, TimeoutError):
                raise SandboxTimeout("the screen shows nothing; try again when the desktop is up") from None
            if isinstance(error, OSError):
                raise HostFull(f"the recording cannot be written: {error.strerror}") from error
            raise
        work = asyncio.create_task(self._record(writer, reader, frames, options), name=f"recording {recording.id}")
        session = self._sessions[recording.id] = _ActiveRecording(recording, sandbox, writer, work)
        work.add_done_callback(lambda _: self._on_recording_done(session))
        return session.now()

    async def _record(
        self,
        writer: PadrecWriter,
        reader: ScreenReader,
        frames: AsyncGenerator[ScreenFrame, None],
        options: RecordingOptions,
    ) -> str:
        """Record pictures until the recording ends; return the reason."""
        most = min(options.max_size or self._config.recording_size, self._config.recording_size)
        try:
            async with asyncio.timeout(
                min(options.max_time or self._config.recording_time, self._config.recording_time)
            ):
                async with aclosing(frames) as following:
                    async for frame in following:
                        if writer.size + len(frame.data) > most:
                            return "size"
                        if not self._has_disk_space():
                            return "disk"
                        await self._append_frame(writer, frame)
        except TimeoutError:
            return "time"
        except OSError as error:
            log.warning("cannot write recording", error=str(error))
            return "disk"
        except PaddockError:
            pass
        finally:
            await reader.close()
        return "sandbox"

    async def _append_frame(self, writer: PadrecWriter, frame: ScreenFrame) -> None:
        # Use the server's clock: the sandbox's time is not trusted.
        stamped_frame = frame.model_copy(update={"at": time.time()})
        appending = asyncio.ensure_future(asyncio.to_thread(writer.append_picture, stamped_frame))
        try:
            await asyncio.shield(appending)
        except asyncio.CancelledError:
            # Let the append finish: the file is closed after the cancellation.
            await asyncio.wait((appending,))
            raise

    def _on_recording_done(self, session: _ActiveRecording) -> None:
        if session.finished is None:
            reason = "server" if session.work.cancelled() or session.work.exception() else session.work.result()
            self._fleet.spawn(self._finish(session, reason))

    async def _finish(self, session: _ActiveRecording, reason: str) -> Recording:
        if session.finished is None:
            session.finished = asyncio.create_task(self._close_recording(session, reason))
        return await asyncio.shield(session.finished)

    async def _close_recording(self, session: _ActiveRecording, reason: str) -> Recording:
        session.work.cancel()
        await asyncio.gather(session.work, return_exceptions=True)
        stopped = session.now().model_copy(
            update={"state": RecordingState.STOPPED, "stopped_at": datetime.now(UTC), "reason": reason}
        )
        try:
            await asyncio.to_thread(session.writer.close)
            await asyncio.to_thread(self._files.write_metadata, stopped)
        except OSError as error:
            log.error("cannot close recording", recording=stopped.id, error=str(error))
        finally:
            self._sessions.pop(stopped.id, None)
        await self._publish_stopped(stopped)
        return stopped

    async def _publish_stopped(self, recording: Recording) -> None:
        try:
            sandbox = await self._fleet.get(recording.tenant, recording.sandbox_id)
            if (
                sandbox.state.alive and sandbox.state is not SandboxState.STOPPING
            ):  # No event may follow a sandbox's end.
                await self._fleet.publish_event(
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
            log.warning("cannot publish end of recording", recording=recording.id, error=error.message)

    def _with_progress(self, recording: Recording) -> Recording:
        session = self._sessions.get(recording.id)
        return recording if session is None else session.now()
