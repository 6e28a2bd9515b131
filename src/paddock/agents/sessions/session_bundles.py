"""Session bundles: `session.json`, messages, events, calls, approvals and files in a gzipped tar.

An import trusts nothing in the bundle: names, sizes and digests are checked before anything is stored, everything is
bounded, and the result is a new, idle session.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import structlog
from pydantic import BaseModel

from paddock.agents.session_files import SessionFiles, create_private_file, run_disk_io
from paddock.agents.sessions.agent_choice import AvailableModels
from paddock.agents.sessions.bundle_archive import SessionArchiveLimits, SessionArchiveWriter, unpack_session_archive
from paddock.agents.sessions.bundle_import import SessionBundleImporter
from paddock.config.schema import Config
from paddock.config.units import format_size
from paddock.errors import PaddockError, TooLarge
from paddock.events.event_log import EventLog
from paddock.fleet.fleet_requests import new_id
from paddock.model.exchanges import ExchangeFilters
from paddock.model.sessions import Session, SessionMessage
from paddock.store.chat_sessions.session_bundle_store import SessionBundleStore
from paddock.store.chat_sessions.session_log_entries import session_stream_name
from paddock.store.chat_sessions.session_store import SessionStore
from paddock.store.database import Store
from paddock.store.event_store import NewEvent

if TYPE_CHECKING:
    from paddock.agents.engines.registry import EngineRegistry
    from paddock.llm.archive.archive import ExchangeArchive

T = TypeVar("T")
BUNDLE_VERSION = 1
SESSION_PART = "session.json"
EXCHANGES_PART = "exchanges.jsonl"
PART_NAMES = (SESSION_PART, "messages.jsonl", "events.jsonl", "calls.jsonl", "approvals.jsonl", EXCHANGES_PART)
MAX_UPLOAD_BYTES = 2 * 2**30
MAX_PART_BYTES = 2**30
MAX_BUNDLE_BYTES = 4 * 2**30
"""Maximum bytes of an unpacked bundle."""
MAX_FILES = 20_000
_STAGING_PREFIX = ".import-"
_SPOOL_PREFIX = ".export-"
_PAGE_SIZE = 200
_MAX_BATCH_CHARACTERS = 500_000
_CHUNK_SIZE = 256 * 1024
_FLUSH_TIMEOUT = 5.0
"""Seconds that the archive has to write pending exchanges."""
log = structlog.get_logger()


class SessionBundles:
    """Exports sessions as bundles, and imports bundles as new sessions."""

    def __init__(
        self,
        config: Config,
        store: Store,
        events: EventLog,
        engines: EngineRegistry,
        files: SessionFiles,
        archive: ExchangeArchive,
        models: AvailableModels,
    ) -> None:
        self._models = models
        self._config = config
        self._store = store
        self._events = events
        self._engines = engines
        self._files = files
        self._archive = archive
        self._session_store = SessionStore(store)
        self._bundle_store = SessionBundleStore(store)

    async def export_session(self, session: Session) -> AsyncGenerator[bytes, None]:
        """Yield a session as a bundle, in chunks."""
        writer = SessionArchiveWriter()
        with suppress(PaddockError, TimeoutError):
            async with asyncio.timeout(_FLUSH_TIMEOUT):
                await self._archive.flush()
        session_part = {"version": BUNDLE_VERSION, "session": session.model_dump(mode="json")}
        yield writer.add_file(SESSION_PART, _json_line(session_part))
        parts: dict[str, AsyncIterator[bytes]] = {
            "messages.jsonl": self._message_lines(session.id),
            "events.jsonl": self._event_lines(session.id),
            "calls.jsonl": self._call_lines(session.id),
            "approvals.jsonl": self._approval_lines(session.id),
            EXCHANGES_PART: self._exchange_lines(session),
        }
        await run_disk_io(self._files.root.mkdir, 0o700, True, True)
        for name, lines in parts.items():
            # The size of a part precedes it, so the part is written to a file first.
            spool_path = self._files.root / f"{_SPOOL_PREFIX}{secrets.token_hex(8)}"
            try:
                with await run_disk_io(create_private_file, spool_path) as file:
                    async for line in lines:
                        await run_disk_io(file.write, line)
                async with aclosing(_compress_file(writer, name, spool_path)) as pieces:
                    async for piece in pieces:
                        yield piece
            finally:
                spool_path.unlink(missing_ok=True)
        for sha in await self._files.list_digests(session.id):
            async with aclosing(
                _compress_file(writer, f"files/{sha}", self._files.file_path(session.id, sha))
            ) as pieces:
                async for piece in pieces:
                    yield piece
        # The bundle of a session deleted meanwhile is incomplete, and must not look complete.
        await self._session_store.get(session.id)
        yield writer.finish()

    async def import_session(self, tenant: str, chunks: AsyncIterator[bytes], by: str | None) -> Session:
        """Import a bundle as a new session of a tenant.

        Raises `InvalidInput` for invalid or hostile bundles, `TooLarge`, `QuotaExceeded`, `HostFull`.
        """
        session_id = new_id("ses")
        async with self.staging_directory(session_id) as staging:
            upload = staging / "upload"
            await _save_upload(upload, chunks)
            limits = SessionArchiveLimits(
                part_names=PART_NAMES,
                part_size=MAX_PART_BYTES,
                file_size=self._files.max_size,
                file_count=MAX_FILES,
                total_size=MAX_BUNDLE_BYTES,
            )
            await run_disk_io(unpack_session_archive, upload, staging, limits)
            await run_disk_io(upload.unlink)
            default = await self._models.default()
            importer = SessionBundleImporter(
                self._config, self._engines.names, self._models, session_id, tenant, by, default
            )
            return await self._store_session(importer, staging)

    @asynccontextmanager
    async def staging_directory(self, session_id: str) -> AsyncIterator[Path]:
        """Provide a staging directory for a session that is created in steps; on failure, remove all of it.

        The caller stores the session row last, because until then the session is invisible.
        """
        staging = self._files.root / f"{_STAGING_PREFIX}{session_id}"
        is_complete = False
        try:
            await run_disk_io(staging.mkdir, 0o700, True, False)
            yield staging
            is_complete = True
        finally:
            await asyncio.shield(self._clean_up(session_id, keep=is_complete))

    async def copy_messages(self, messages: Sequence[SessionMessage], session: Session) -> None:
        """Store copies of messages in a session that is being created."""
        copies = iter([message.model_copy(update={"session": session.id}) for message in messages])
        while batch := _take_batch(copies):
            await self._store.write(self._bundle_store.insert_rows_work(session.tenant, batch))

    async def remove_unfinished(self) -> None:
        """Remove unfinished imports and exports of an earlier server."""
        await run_disk_io(_remove_spools, self._files.root)
        for name in await run_disk_io(_list_unfinished, self._files.root):
            log.info("removing unfinished copy of session", session=name)
            await self._clean_up(name, keep=False)

    async def _store_session(self, importer: SessionBundleImporter, staging: Path) -> Session:
        session = await run_disk_io(importer.read_session, staging / SESSION_PART)
        records = importer.read_records(staging)
        while batch := await run_disk_io(_take_batch, records):
            await self._events.write_with_events(
                self._bundle_store.insert_rows_work(
                    session.tenant, [each for each in batch if not isinstance(each, NewEvent)]
                ),
                _return_events([each for each in batch if isinstance(each, NewEvent)]),
            )
        await run_disk_io(self._move_files, session.id, staging)
        stored, _ = await self._store.write(
            lambda connection: SessionStore.insert_session(
                connection, importer.complete_session(session), None, self._config.chat.sessions
            )
        )
        return stored

    def _move_files(self, session_id: str, staging: Path) -> None:
        directory = self._session_directory(session_id)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (staging / "files").is_dir():
            os.replace(staging / "files", directory / "files")
        if (staging / EXCHANGES_PART).exists():
            # Exchanges of another server are not added to this server's archive, but stay with the session.
            os.replace(staging / EXCHANGES_PART, directory / EXCHANGES_PART)

    async def _clean_up(self, session_id: str, *, keep: bool) -> None:
        if not keep:
            await self._store.write(lambda connection: SessionBundleStore.delete_import(connection, session_id))
            await self._files.remove_files(session_id)
        await run_disk_io(shutil.rmtree, self._files.root / f"{_STAGING_PREFIX}{session_id}", True)

    def _session_directory(self, session_id: str) -> Path:
        return self._files.root / session_id

    async def _message_lines(self, session_id: str) -> AsyncIterator[bytes]:
        after = 0
        while page := await self._session_store.list_messages(session_id, after=after, limit=_PAGE_SIZE):
            for message in page:
                yield _json_line(message)
            after = page[-1].number

    async def _event_lines(self, session_id: str) -> AsyncIterator[bytes]:
        after = 0
        while page := await self._events.read(session_stream_name(session_id), after, _PAGE_SIZE):
            for event in page:
                yield _json_line(event.model_dump(mode="json", include={"number", "type", "at", "data"}))
            after = page[-1].number

    async def _call_lines(self, session_id: str) -> AsyncIterator[bytes]:
        after = ""
        while page := await self._bundle_store.list_calls(session_id, after, _PAGE_SIZE):
            for record in page:
                yield _json_line(record)
            after = page[-1].call.id

    async def _approval_lines(self, session_id: str) -> AsyncIterator[bytes]:
        after = ""
        while page := await self._bundle_store.list_approvals(session_id, after, _PAGE_SIZE):
            for approval in page:
                yield _json_line(approval)
            after = page[-1].id

    async def _exchange_lines(self, session: Session) -> AsyncIterator[bytes]:
        earlier = self._session_directory(session.id) / EXCHANGES_PART
        if await run_disk_io(earlier.exists):
            with await run_disk_io(open, earlier, "rb") as file:
                while piece := await run_disk_io(file.read, _CHUNK_SIZE):
                    yield piece
        async for line in self._archive.export_conversations(
            session.tenant, ExchangeFilters(session=session.id), unanswered=True
        ):
            yield line


async def _compress_file(writer: SessionArchiveWriter, name: str, path: Path) -> AsyncGenerator[bytes, None]:
    with await run_disk_io(open, path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        yield writer.begin_file(name, size)
        left = size
        while left and (piece := await run_disk_io(file.read, min(left, _CHUNK_SIZE))):
            left -= len(piece)
            yield await asyncio.to_thread(writer.compress, piece)
        yield writer.end_file()


async def _save_upload(path: Path, chunks: AsyncIterator[bytes]) -> None:
    size = 0
    with await run_disk_io(create_private_file, path) as file:
        async for chunk in chunks:
            size += len(chunk)
            if size > MAX_UPLOAD_BYTES:
                raise TooLarge(f"a bundle may have {format_size(MAX_UPLOAD_BYTES)}")
            await run_disk_io(file.write, chunk)


def _list_unfinished(root: Path) -> list[str]:
    return [path.name.removeprefix(_STAGING_PREFIX) for path in root.glob(f"{_STAGING_PREFIX}*")]


def _remove_spools(root: Path) -> None:
    for path in root.glob(f"{_SPOOL_PREFIX}*"):
        path.unlink(missing_ok=True)


def _take_batch(rows: Iterator[T]) -> list[T]:
    """Take as many rows as can be written without blocking other writers for long."""
    batch: list[T] = []
    characters = 0
    while len(batch) < _PAGE_SIZE and characters < _MAX_BATCH_CHARACTERS and (row := next(rows, None)) is not None:
        batch.append(row)
        characters += len(row.text) if isinstance(row, SessionMessage) else 0
    return batch


def _return_events(events: Sequence[NewEvent]) -> Callable[[None], Sequence[NewEvent]]:
    return lambda _: events


def _json_line(value: BaseModel | dict[str, Any]) -> bytes:
    data = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode(errors="replace") + b"\n"
