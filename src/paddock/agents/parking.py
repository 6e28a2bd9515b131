"""Agents wait while a person has mouse and keyboard of one of their sandboxes, and then are told what was done."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from weakref import WeakValueDictionary

import structlog

from paddock.agents.calls import Aside
from paddock.agents.files import Files
from paddock.errors import NotFound, PaddockError, SessionNotFound
from paddock.events.log import EventLog
from paddock.live.deeds import Stint
from paddock.live.hands import View
from paddock.live.live import Live
from paddock.model.events import EventType
from paddock.model.sandbox import SESSION
from paddock.model.screens import Holder, TextPart
from paddock.model.session_events import MessageReceived, SessionDesktop, SessionEvent, SessionStateChanged
from paddock.model.sessions import Content, Message, Session, SessionState, TextContent
from paddock.store.database import Store
from paddock.store.events import Happening
from paddock.store.session_stream import happening, stream_of
from paddock.store.sessions import SessionStore

LOOK_AGAIN = 60.0
"""Seconds after which it is looked again whether the sandboxes that are held are still the same."""
KEEP = 3600.0
"""Seconds that a sandbox in which a person works lives at least."""
LOOK_BACK = 2000
"""Newest events of a session among which an earlier server may have left that somebody had taken over."""
PICTURE_WITHIN = 20.0
WINDOWS = "list_windows"
MOST_WINDOWS = 2000
"""Characters of what is told of windows."""
_HAD = "had mouse and keyboard of"
log = structlog.get_logger()


@dataclass(frozen=True)
class _Taken:
    """A sandbox that a person has or had."""

    kind: str
    sandbox_id: str
    by: str | None


class Parking:
    """Where agents wait. One instance serves all sessions. `aside` is entered by those who wait."""

    def __init__(self, live: Live, events: EventLog, store: Store, files: Files, book: SessionStore) -> None:
        self.aside: Aside = lambda session_id: nullcontext()
        self._live = live
        self._events = events
        self._files = files
        self._book = book
        self._taken: dict[str, dict[str, _Taken]] = {}
        """By session and kind: what the session was told that a person has."""
        self._owed: dict[str, dict[str, _Taken]] = {}
        """What was handed back since then, and the agent does not know of yet."""
        self._looked: set[str] = set()
        """Sessions of which it is known what an earlier server has left."""
        self._waiting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._looking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._noticing: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """From now on sessions are told at once when a person takes one of their sandboxes, or hands it back."""
        self._live.leases.changed.append(self._notice)

    async def close(self) -> None:
        self._live.leases.changed.remove(self._notice)
        await asyncio.gather(*self._noticing, return_exceptions=True)

    async def wait(self, session: Session) -> None:
        """Return once nobody has the input of any of the session's sandboxes: at once, unless somebody has.

        Meanwhile the session is parked. Afterwards a note tells the agent what was done, also when it was done while
        the agent was busy with something else. Does nothing for a session that is no more.
        """
        try:
            await self.pause(await self._book.get(session.id))
        except SessionNotFound:
            self.forget(session.id)

    async def pause(self, session: Session) -> bool:
        """As `wait`, for a session that was just read. False if there was no need to."""
        if session.id in self._looked and self._quiet(session):
            return False
        try:
            async with self._waiting.setdefault(session.id, asyncio.Lock()):
                await self._park(session)
        except SessionNotFound:
            self.forget(session.id)
        return True

    def forget(self, session_id: str) -> None:
        """The session is no more."""
        self._taken.pop(session_id, None)
        self._owed.pop(session_id, None)
        self._looked.discard(session_id)

    def _notice(self, tenant: str, sandbox_id: str) -> None:
        task = asyncio.create_task(self._noticed(tenant, sandbox_id), name=f"input of {sandbox_id}")
        self._noticing.add(task)
        task.add_done_callback(self._noticing.discard)

    async def _noticed(self, tenant: str, sandbox_id: str) -> None:
        """The input of a sandbox has gone to somebody else: tell the session whose it is, if it is one's."""
        try:
            session_id = (await self._live.fleet.get(tenant, sandbox_id)).metadata.get(SESSION)
            if session_id is None:
                return
            session = await self._book.get(session_id, tenant)
            if sandbox_id in session.sandboxes.values():
                await self._look(session)
        except NotFound:
            pass  # What was handed back by its end is told when the agent looks.
        except PaddockError as error:
            log.warning("that a person took over could not be told", sandbox=sandbox_id, error=error.message)

    def _quiet(self, session: Session) -> bool:
        """Whether nothing has happened, or happens, that the session has to be told of."""
        deeds = self._live.leases.deeds
        return (
            not self._taken.get(session.id)
            and not self._owed.get(session.id)
            and not any(
                self._live.leases.holder(sandbox_id) is not None or deeds.finished(sandbox_id)
                for sandbox_id in session.sandboxes.values()
            )
        )

    async def _park(self, session: Session) -> None:
        while True:
            session = await self._look(session)
            holders = self._holders(session.sandboxes)
            if not holders:
                if self._taken.get(session.id):
                    # Handed back while it was written down who has it: the next look tells of that.
                    continue
                break
            await self._prolong(session, holders)
            async with self.aside(session.id):
                await self._live.leases.free(session.sandboxes[next(iter(holders))], LOOK_AGAIN)
        await self._tell_agent(session)

    async def _look(self, session: Session) -> Session:
        """Tell the session who has its sandboxes, as far as that is news, and park it or let it go on."""
        async with self._looking.setdefault(session.id, asyncio.Lock()):
            await self._recall(session)
            session = await self._book.get(session.id)
            before, owed = self._taken.get(session.id, {}), self._owed.get(session.id, {})
            taken = {
                kind: _Taken(kind, session.sandboxes[kind], holder.name)
                for kind, holder in self._holders(session.sandboxes).items()
            }
            back = {kind: each for kind, each in before.items() if kind not in taken}
            events: list[SessionEvent] = []
            for kind, sandbox_id in session.sandboxes.items():
                stints = self._live.leases.deeds.finished(sandbox_id)
                if stints and not any(kind in known for known in (before, owed, taken)):
                    # It was over before anybody looked.
                    back[kind] = _Taken(kind, sandbox_id, stints[-1].name)
                    events.append(_event(back[kind], "taken"))
            events += [_event(each, "handed_back") for each in back.values()]
            events += [_event(each, "taken") for kind, each in taken.items() if before.get(kind) != each]
            state = SessionState.PARKED if taken else SessionState.RUNNING
            if events or session.state is (SessionState.RUNNING if taken else SessionState.PARKED):
                await self._record(session, state, events)
            self._taken[session.id] = taken
            self._owed[session.id] = owed | back
            return session

    async def _tell_agent(self, session: Session) -> None:
        """Leave a note of what persons did."""
        owed = dict(self._owed.get(session.id, {}))
        if not owed:
            return
        deeds = self._live.leases.deeds
        stints = {kind: deeds.finished(each.sandbox_id) for kind, each in owed.items()}
        content: list[Content] = []
        for kind, each in owed.items():
            content += await self._described(session, each, stints[kind])
        note = Message(
            id=f"msg-{secrets.token_hex(8)}",
            session=session.id,
            turn=session.turn,
            role="note",
            content=tuple(content),
            at=datetime.now(UTC),
        )
        await self._record(session, None, [], note)
        self._owed[session.id] = {
            kind: each for kind, each in self._owed.get(session.id, {}).items() if owed.get(kind) is not each
        }
        for kind, done in stints.items():
            deeds.forget(owed[kind].sandbox_id, done)

    async def _described(self, session: Session, taken: _Taken, stints: Sequence[Stint]) -> list[Content]:
        who = " and ".join(dict.fromkeys(stint.name for stint in stints)) or taken.by or "A person"
        if stints:
            did = " Then: ".join(f"{_length(stint)}: {stint.words()}." for stint in stints)
        else:
            did = "The server was started again meanwhile, so it is not known what was done."
        text = f"{who} {_HAD} the {taken.kind} sandbox, and has handed them back. {did}"
        if session.sandboxes.get(taken.kind) != taken.sandbox_id:
            return [TextContent(text=f"{text} The sandbox itself is no more.")]
        windows = await self._windows(session, taken)
        picture = await self._picture(session, taken)
        after = " It looks like this now:" if picture else " Look at how things are before you go on."
        return [TextContent(text=f"{text}{windows}{after}"), *picture]

    async def _picture(self, session: Session, taken: _Taken) -> list[Content]:
        try:
            async with asyncio.timeout(PICTURE_WITHIN):
                if not self._live.fleet.kinds.get(taken.kind).screen:
                    return []
                shot = await self._live.hands.screenshot(session.tenant, taken.sandbox_id, View(format="png"))
                if shot is None:
                    return []
                form = shot.mime.removeprefix("image/")
                return [await self._files.put(session.id, shot.data, name=f"{taken.kind}.{form}", mime=shot.mime)]
        except (PaddockError, TimeoutError) as error:
            log.info("there is no picture of what a person left", sandbox=taken.sandbox_id, error=str(error))
            return []

    async def _windows(self, session: Session, taken: _Taken) -> str:
        """Which windows there are now, where a sandbox can tell."""
        hands = self._live.hands
        try:
            async with asyncio.timeout(PICTURE_WITHIN):
                tools = await hands.tools(session.tenant, taken.sandbox_id)
                if not any(tool.name == WINDOWS and tool.read_only for tool in tools):
                    return ""
                result = await hands.call(session.tenant, taken.sandbox_id, WINDOWS, {}, timeout=PICTURE_WITHIN)
        except (PaddockError, TimeoutError):
            return ""
        text = "\n".join(part.text for part in result.content if isinstance(part, TextPart))
        return f" Windows now:\n{text[:MOST_WINDOWS]}\n" if text and not result.failed else ""

    async def _record(
        self,
        session: Session,
        state: SessionState | None,
        events: Sequence[SessionEvent],
        note: Message | None = None,
    ) -> None:
        """Park the session or let it go on, unless it waits for decisions or has ended meanwhile, and tell of it."""
        before = SessionState.RUNNING if state is SessionState.PARKED else SessionState.PARKED

        def work(connection: Any) -> tuple[bool, Message | None]:
            current = SessionStore.current(connection, session.id)
            changes = state is not None and current.state is before
            if changes:
                SessionStore.alter(connection, session.id, {"state": state}, datetime.now(UTC))
            return changes, SessionStore.keep(connection, note) if note is not None else None

        def tell(result: tuple[bool, Message | None]) -> Sequence[Happening]:
            changed, kept = result
            told = [*events]
            if kept is not None:
                told.append(MessageReceived(message=kept))
            if changed and state is not None:
                told.append(SessionStateChanged(state=state, reason=_reason(events)))
            return happening(session, *told)

        await self._events.together(work, tell)

    async def _recall(self, session: Session) -> None:
        """Find out once what an earlier server has left: somebody had a sandbox, and nobody told that it came back."""
        if session.id in self._looked:
            return
        stream = stream_of(session.id)
        end = await self._events.end(stream)
        found: dict[str, _Taken] = {}
        owed: dict[str, _Taken] = {}
        place = max(0, end - LOOK_BACK)
        while place < end:
            page = await self._events.read(stream, place, 500)
            if not page:
                break
            place = page[-1].number
            for event in page:
                if event.type is EventType.MESSAGE_RECEIVED and _tells(event.data["message"]):
                    owed.clear()
                if event.type is not EventType.SESSION_DESKTOP:
                    continue
                kind, state = str(event.data.get("kind")), event.data.get("state")
                if state == "taken":
                    by = event.data.get("by")
                    found[kind] = _Taken(kind, str(event.data.get("sandbox_id")), None if by is None else str(by))
                elif state == "handed_back" and kind in found:
                    owed[kind] = found.pop(kind)
        self._looked.add(session.id)
        self._taken.setdefault(session.id, found)
        self._owed.setdefault(session.id, owed)

    async def _prolong(self, session: Session, held: Mapping[str, Holder]) -> None:
        """Let sandboxes live on in which persons work."""
        fleet = self._live.fleet
        now = datetime.now(UTC)
        for kind in held:
            try:
                sandbox = await fleet.get(session.tenant, session.sandboxes[kind])
                if sandbox.expires_at is not None and sandbox.expires_at < now + timedelta(seconds=KEEP / 2):
                    await fleet.renew(session.tenant, sandbox.id, now + timedelta(seconds=KEEP))
            except PaddockError as error:
                log.info("a sandbox that a person has could not be renewed", kind=kind, error=error.message)

    def _holders(self, sandboxes: Mapping[str, str]) -> dict[str, Holder]:
        found = {kind: self._live.leases.holder(sandbox_id) for kind, sandbox_id in sandboxes.items()}
        return {kind: holder for kind, holder in found.items() if holder is not None}


def _event(taken: _Taken, state: Any) -> SessionDesktop:
    return SessionDesktop(kind=taken.kind, sandbox_id=taken.sandbox_id, state=state, by=taken.by)


def _reason(events: Sequence[SessionEvent]) -> str | None:
    told = [event for event in events if isinstance(event, SessionDesktop)]
    if not told:
        return None
    done = "has" if told[-1].state == "taken" else "has handed back"
    return f"{told[-1].by or 'a person'} {done} the {told[-1].kind} sandbox"


def _tells(message: Mapping[str, Any]) -> bool:
    """Whether a message is a note of what persons did."""
    return message.get("role") == "note" and any(_HAD in part.get("text", "") for part in message.get("content", ()))


def _length(stint: Stint) -> str:
    seconds = int(((stint.until or stint.since) - stint.since).total_seconds())
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} minutes"
