"""Sessions as one file: `session.json`, what was said, what happened, the ledger, the files, as a tar that is gzipped.

Reading one trusts nothing in it: names, sizes and digests are checked before anything is kept, everything is bounded,
and what is kept is a new session in which nothing is under way.
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

from paddock.agents.agents import DefaultModel
from paddock.agents.files import Files, create, on_disk
from paddock.agents.imports import Importer
from paddock.agents.tarballs import Limits, Packer, unpack
from paddock.config.schema import Config
from paddock.config.units import format_size
from paddock.errors import PaddockError, TooLarge
from paddock.events.log import EventLog
from paddock.fleet.requests import new_id
from paddock.model.exchanges import Filters
from paddock.model.sessions import Message, Session
from paddock.store.database import Store
from paddock.store.events import Happening
from paddock.store.session_bundles import BundleStore
from paddock.store.session_stream import stream_of
from paddock.store.sessions import SessionStore

if TYPE_CHECKING:
    from paddock.agents.engines.registry import Engines
    from paddock.llm.archive.archive import Archive

T = TypeVar("T")
VERSION = 1
SESSION = "session.json"
EXCHANGES = "exchanges.jsonl"
PARTS = (SESSION, "messages.jsonl", "events.jsonl", "calls.jsonl", "approvals.jsonl", EXCHANGES)
LARGEST_UPLOAD = 2 * 2**30
LARGEST_PART = 2**30
LARGEST = 4 * 2**30
"""Bytes of a whole bundle once it is unpacked."""
MOST_FILES = 20_000
_UNFINISHED = ".import-"
_SPOOL = ".export-"
_PAGE = 200
_LETTERS = 500_000
_PIECE = 256 * 1024
_PATIENCE = 5.0
"""Seconds that the archive has to write what waits."""
log = structlog.get_logger()


class Bundles:
    """Writes sessions into bundles and reads them back."""

    def __init__(
        self,
        config: Config,
        store: Store,
        events: EventLog,
        engines: Engines,
        files: Files,
        archive: Archive,
        default_model: DefaultModel,
    ) -> None:
        self._default_model = default_model
        self._config = config
        self._store = store
        self._events = events
        self._engines = engines
        self._files = files
        self._archive = archive
        self._book = SessionStore(store)
        self._rows = BundleStore(store)

    async def write(self, session: Session) -> AsyncGenerator[bytes, None]:
        """A session as a bundle, piece by piece."""
        packer = Packer()
        with suppress(PaddockError, TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._archive.flush()
        head = {"version": VERSION, "session": session.model_dump(mode="json")}
        yield packer.whole(SESSION, _line(head))
        parts: dict[str, AsyncIterator[bytes]] = {
            "messages.jsonl": self._messages(session.id),
            "events.jsonl": self._happened(session.id),
            "calls.jsonl": self._calls(session.id),
            "approvals.jsonl": self._approvals(session.id),
            EXCHANGES: self._exchanges(session),
        }
        await on_disk(self._files.root.mkdir, 0o700, True, True)
        for name, lines in parts.items():
            # How long a part is stands before it, so it is written down first.
            spool = self._files.root / f"{_SPOOL}{secrets.token_hex(8)}"
            try:
                with await on_disk(create, spool) as file:
                    async for line in lines:
                        await on_disk(file.write, line)
                async with aclosing(_packed(packer, name, spool)) as pieces:
                    async for piece in pieces:
                        yield piece
            finally:
                spool.unlink(missing_ok=True)
        for sha in await self._files.names(session.id):
            async with aclosing(_packed(packer, f"files/{sha}", self._files.path(session.id, sha))) as pieces:
                async for piece in pieces:
                    yield piece
        # What was deleted meanwhile is not whole, and must not look as if it were.
        await self._book.get(session.id)
        yield packer.end()

    async def read(self, tenant: str, chunks: AsyncIterator[bytes], by: str | None) -> Session:
        """Keep a bundle as a new session of a tenant.

        Raises `InvalidInput` for what is no bundle or a hostile one, `TooLarge`, `QuotaExceeded`, `HostFull`.
        """
        session_id = new_id("ses")
        async with self.making(session_id) as place:
            upload = place / "upload"
            await _spool(upload, chunks)
            limits = Limits(parts=PARTS, part=LARGEST_PART, file=self._files.largest, files=MOST_FILES, whole=LARGEST)
            await on_disk(unpack, upload, place, limits)
            await on_disk(upload.unlink)
            model = await self._default_model()
            importer = Importer(self._config, self._engines.names, session_id, tenant, by, model)
            return await self._keep(importer, place)

    @asynccontextmanager
    async def making(self, session_id: str) -> AsyncIterator[Path]:
        """A session is made of many pieces, in a directory for that; if it does not come to its end, none of it stays.

        Whoever makes one writes the session itself last, because until then nobody can see any of it.
        """
        place = self._files.root / f"{_UNFINISHED}{session_id}"
        whole = False
        try:
            await on_disk(place.mkdir, 0o700, True, False)
            yield place
            whole = True
        finally:
            await asyncio.shield(self._tidy(session_id, keep=whole))

    async def copy(self, messages: Sequence[Message], session: Session) -> None:
        """Keep messages as those of a session that is made."""
        copies = iter([message.model_copy(update={"session": session.id}) for message in messages])
        while batch := _some(copies):
            await self._store.write(self._rows.keeping(session.tenant, batch))

    async def sweep(self) -> None:
        """Forget what a server has died over."""
        await on_disk(_remove_spools, self._files.root)
        for name in await on_disk(_unfinished, self._files.root):
            log.info("a copy of a session was not finished and is forgotten", session=name)
            await self._tidy(name, keep=False)

    async def _keep(self, importer: Importer, place: Path) -> Session:
        session = await on_disk(importer.session, place / SESSION)
        with_rows = importer.read(place)
        while batch := await on_disk(_some, with_rows):
            await self._events.together(
                self._rows.keeping(session.tenant, [each for each in batch if not isinstance(each, Happening)]),
                _telling([each for each in batch if isinstance(each, Happening)]),
            )
        await on_disk(self._move_files, session.id, place)
        found, _ = await self._store.write(
            lambda connection: SessionStore.begin(
                connection, importer.finished(session), None, self._config.chat.sessions
            )
        )
        return found

    def _move_files(self, session_id: str, place: Path) -> None:
        home = self._home(session_id)
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (place / "files").is_dir():
            os.replace(place / "files", home / "files")
        if (place / EXCHANGES).exists():
            # What models were asked elsewhere is no exchange of this server, but goes along with the session.
            os.replace(place / EXCHANGES, home / EXCHANGES)

    async def _tidy(self, session_id: str, *, keep: bool) -> None:
        if not keep:
            await self._store.write(lambda connection: BundleStore.forget(connection, session_id))
            await self._files.remove(session_id)
        await on_disk(shutil.rmtree, self._files.root / f"{_UNFINISHED}{session_id}", True)

    def _home(self, session_id: str) -> Path:
        return self._files.root / session_id

    async def _messages(self, session_id: str) -> AsyncIterator[bytes]:
        after = 0
        while page := await self._book.messages(session_id, after=after, limit=_PAGE):
            for message in page:
                yield _line(message)
            after = page[-1].number

    async def _happened(self, session_id: str) -> AsyncIterator[bytes]:
        after = 0
        while page := await self._events.read(stream_of(session_id), after, _PAGE):
            for event in page:
                yield _line(event.model_dump(mode="json", include={"number", "type", "at", "data"}))
            after = page[-1].number

    async def _calls(self, session_id: str) -> AsyncIterator[bytes]:
        after = ""
        while page := await self._rows.calls(session_id, after, _PAGE):
            for record in page:
                yield _line(record)
            after = page[-1].call.id

    async def _approvals(self, session_id: str) -> AsyncIterator[bytes]:
        after = ""
        while page := await self._rows.approvals(session_id, after, _PAGE):
            for approval in page:
                yield _line(approval)
            after = page[-1].id

    async def _exchanges(self, session: Session) -> AsyncIterator[bytes]:
        earlier = self._home(session.id) / EXCHANGES
        if await on_disk(earlier.exists):
            with await on_disk(open, earlier, "rb") as file:
                while piece := await on_disk(file.read, _PIECE):
                    yield piece
        async for line in self._archive.export(session.tenant, Filters(session=session.id), unanswered=True):
            yield line


async def _packed(packer: Packer, name: str, path: Path) -> AsyncGenerator[bytes, None]:
    with await on_disk(open, path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        yield packer.begin(name, size)
        left = size
        while left and (piece := await on_disk(file.read, min(left, _PIECE))):
            left -= len(piece)
            yield await asyncio.to_thread(packer.add, piece)
        yield packer.pad()


async def _spool(path: Path, chunks: AsyncIterator[bytes]) -> None:
    size = 0
    with await on_disk(create, path) as file:
        async for chunk in chunks:
            size += len(chunk)
            if size > LARGEST_UPLOAD:
                raise TooLarge(f"a bundle may have {format_size(LARGEST_UPLOAD)}")
            await on_disk(file.write, chunk)


def _unfinished(root: Path) -> list[str]:
    return [path.name.removeprefix(_UNFINISHED) for path in root.glob(f"{_UNFINISHED}*")]


def _remove_spools(root: Path) -> None:
    for path in root.glob(f"{_SPOOL}*"):
        path.unlink(missing_ok=True)


def _some(rows: Iterator[T]) -> list[T]:
    """As many as can be written at once without anybody having to wait for it."""
    batch: list[T] = []
    letters = 0
    while len(batch) < _PAGE and letters < _LETTERS and (row := next(rows, None)) is not None:
        batch.append(row)
        letters += len(row.text) if isinstance(row, Message) else 0
    return batch


def _telling(happenings: Sequence[Happening]) -> Callable[[None], Sequence[Happening]]:
    return lambda _: happenings


def _line(value: BaseModel | dict[str, Any]) -> bytes:
    data = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode(errors="replace") + b"\n"
