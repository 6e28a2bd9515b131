"""Pauses agents while a person controls one of their sandboxes, and reports what the person did."""

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

from paddock.agents.approvals.tool_call_service import YieldSlot
from paddock.agents.session_files import SessionFiles
from paddock.errors import NotFound, PaddockError, SessionNotFound
from paddock.events.event_log import EventLog
from paddock.live.services import LiveServices
from paddock.live.takeover_activity import Takeover
from paddock.live.tools.tool_caller import ScreenshotOptions
from paddock.model.events import EventType
from paddock.model.sandbox import SESSION_KEY
from paddock.model.screens import InputControlHolder, ToolResultText
from paddock.model.session_events import MessageReceived, SessionDesktop, SessionEvent, SessionStateChanged
from paddock.model.sessions import MessageContent, Session, SessionMessage, SessionState, TextContent
from paddock.store.chat_sessions.session_log_entries import session_log_entries, session_stream_name
from paddock.store.chat_sessions.session_store import SessionStore
from paddock.store.database import Store
from paddock.store.event_store import NewEvent

CHECK_INTERVAL = 60.0
"""Seconds between checks which sandboxes are still controlled by a person."""
SANDBOX_LIFE = 3600.0
"""Minimum remaining life, in seconds, of a sandbox that a person controls."""
MAX_EVENTS_SEARCHED = 2000
"""Latest events of a session that are searched for takeovers left by an earlier server."""
SCREENSHOT_TIMEOUT = 20.0
WINDOWS_TOOL = "list_windows"
MAX_WINDOWS_CHARACTERS = 2000
"""Maximum characters of the window list in the note."""
_NOTE_MARK = "had mouse and keyboard of"
log = structlog.get_logger()


@dataclass(frozen=True)
class _Takeover:
    """A sandbox that a person controls or controlled."""

    kind: str
    sandbox_id: str
    by: str | None


class TakeoverPause:
    """Pauses agents of all sessions during takeovers; turns wait within `yield_slot`."""

    def __init__(
        self, live: LiveServices, events: EventLog, store: Store, files: SessionFiles, session_store: SessionStore
    ) -> None:
        self.yield_slot: YieldSlot = lambda session_id: nullcontext()
        self._live = live
        self._events = events
        self._files = files
        self._session_store = session_store
        self._takeovers: dict[str, dict[str, _Takeover]] = {}
        """Takeovers that the session's events report, by session and kind."""
        self._unreported: dict[str, dict[str, _Takeover]] = {}
        """Takeovers that ended and were not reported to the agent yet."""
        self._recovered_sessions: set[str] = set()
        """Sessions whose events were searched for takeovers of an earlier server."""
        self._pause_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._update_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._change_tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Start emitting takeovers and hand-backs to sessions as they happen."""
        self._live.leases.change_listeners.append(self._on_control_change)

    async def close(self) -> None:
        self._live.leases.change_listeners.remove(self._on_control_change)
        await asyncio.gather(*self._change_tasks, return_exceptions=True)

    async def wait_for_release(self, session: Session) -> None:
        """Wait until no person controls any sandbox of the session.

        The session is parked meanwhile. Afterwards a note reports to the agent what the person did, also if the agent
        was busy during the takeover. Does nothing for a deleted session.
        """
        try:
            await self.pause_if_held(await self._session_store.get(session.id))
        except SessionNotFound:
            self.forget_session(session.id)

    async def pause_if_held(self, session: Session) -> bool:
        """Like `wait_for_release`, for a session that was just read; return False if there was nothing to do."""
        if session.id in self._recovered_sessions and self._nothing_to_report(session):
            return False
        try:
            async with self._pause_locks.setdefault(session.id, asyncio.Lock()):
                await self._wait_while_held(session)
        except SessionNotFound:
            self.forget_session(session.id)
        return True

    def forget_session(self, session_id: str) -> None:
        """Drop the state of a deleted session."""
        self._takeovers.pop(session_id, None)
        self._unreported.pop(session_id, None)
        self._recovered_sessions.discard(session_id)

    def _on_control_change(self, tenant: str, sandbox_id: str) -> None:
        task = asyncio.create_task(self._emit_control_change(tenant, sandbox_id), name=f"input of {sandbox_id}")
        self._change_tasks.add(task)
        task.add_done_callback(self._change_tasks.discard)

    async def _emit_control_change(self, tenant: str, sandbox_id: str) -> None:
        """Emit a change of control to the session that owns the sandbox, if any."""
        try:
            session_id = (await self._live.fleet.get(tenant, sandbox_id)).metadata.get(SESSION_KEY)
            if session_id is None:
                return
            session = await self._session_store.get(session_id, tenant)
            if sandbox_id in session.sandboxes.values():
                await self._update_takeovers(session)
        except NotFound:
            pass  # A hand-back by the end of the sandbox is reported when the agent continues.
        except PaddockError as error:
            log.warning("could not emit takeover", sandbox=sandbox_id, error=error.message)

    def _nothing_to_report(self, session: Session) -> bool:
        """Return whether there is no takeover to report, past or present."""
        takeover_log = self._live.leases.takeovers
        return (
            not self._takeovers.get(session.id)
            and not self._unreported.get(session.id)
            and not any(
                self._live.leases.input_holder(sandbox_id) is not None or takeover_log.finished_takeovers(sandbox_id)
                for sandbox_id in session.sandboxes.values()
            )
        )

    async def _wait_while_held(self, session: Session) -> None:
        while True:
            session = await self._update_takeovers(session)
            holders = self._holders(session.sandboxes)
            if not holders:
                if self._takeovers.get(session.id):
                    # Handed back while the takeover was being stored: the next pass reports it.
                    continue
                break
            await self._renew_held(session, holders)
            async with self.yield_slot(session.id):
                await self._live.leases.wait_until_free(session.sandboxes[next(iter(holders))], CHECK_INTERVAL)
        await self._store_note(session)

    async def _update_takeovers(self, session: Session) -> Session:
        """Emit new takeovers and hand-backs, and park or unpark the session."""
        async with self._update_locks.setdefault(session.id, asyncio.Lock()):
            await self._recover_takeovers(session)
            session = await self._session_store.get(session.id)
            before, unreported = self._takeovers.get(session.id, {}), self._unreported.get(session.id, {})
            takeovers = {
                kind: _Takeover(kind, session.sandboxes[kind], holder.name)
                for kind, holder in self._holders(session.sandboxes).items()
            }
            handed_back = {kind: takeover for kind, takeover in before.items() if kind not in takeovers}
            events: list[SessionEvent] = []
            for kind, sandbox_id in session.sandboxes.items():
                activities = self._live.leases.takeovers.finished_takeovers(sandbox_id)
                if activities and not any(kind in kinds for kinds in (before, unreported, takeovers)):
                    # The takeover ended before it was noticed.
                    handed_back[kind] = _Takeover(kind, sandbox_id, activities[-1].name)
                    events.append(_desktop_event(handed_back[kind], "taken"))
            events += [_desktop_event(takeover, "handed_back") for takeover in handed_back.values()]
            events += [
                _desktop_event(takeover, "taken")
                for kind, takeover in takeovers.items()
                if before.get(kind) != takeover
            ]
            state = SessionState.PARKED if takeovers else SessionState.RUNNING
            if events or session.state is (SessionState.RUNNING if takeovers else SessionState.PARKED):
                await self._update_session(session, state, events)
            self._takeovers[session.id] = takeovers
            self._unreported[session.id] = unreported | handed_back
            return session

    async def _store_note(self, session: Session) -> None:
        """Store a note for the agent about what persons did."""
        unreported = dict(self._unreported.get(session.id, {}))
        if not unreported:
            return
        takeover_log = self._live.leases.takeovers
        activities = {kind: takeover_log.finished_takeovers(each.sandbox_id) for kind, each in unreported.items()}
        content: list[MessageContent] = []
        for kind, each in unreported.items():
            content += await self._describe_takeover(session, each, activities[kind])
        note = SessionMessage(
            id=f"msg-{secrets.token_hex(8)}",
            session=session.id,
            turn=session.turn,
            role="note",
            content=tuple(content),
            at=datetime.now(UTC),
        )
        await self._update_session(session, None, [], note)
        self._unreported[session.id] = {
            kind: each
            for kind, each in self._unreported.get(session.id, {}).items()
            if unreported.get(kind) is not each
        }
        for kind, kind_activities in activities.items():
            takeover_log.forget_takeovers(unreported[kind].sandbox_id, kind_activities)

    async def _describe_takeover(
        self, session: Session, takeover: _Takeover, activities: Sequence[Takeover]
    ) -> list[MessageContent]:
        names = " and ".join(dict.fromkeys(activity.name for activity in activities)) or takeover.by or "A person"
        if activities:
            actions = " Then: ".join(f"{_format_duration(activity)}: {activity.describe()}." for activity in activities)
        else:
            actions = "The server was restarted meanwhile, so it is not known what was done."
        text = f"{names} {_NOTE_MARK} the {takeover.kind} sandbox, and has handed them back. {actions}"
        if session.sandboxes.get(takeover.kind) != takeover.sandbox_id:
            return [TextContent(text=f"{text} The sandbox itself no longer exists.")]
        windows = await self._list_windows(session, takeover)
        screenshot = await self._take_screenshot(session, takeover)
        after = " It looks like this now:" if screenshot else " Look at how things are before you go on."
        return [TextContent(text=f"{text}{windows}{after}"), *screenshot]

    async def _take_screenshot(self, session: Session, takeover: _Takeover) -> list[MessageContent]:
        try:
            async with asyncio.timeout(SCREENSHOT_TIMEOUT):
                if not self._live.fleet.kinds.get(takeover.kind).screen:
                    return []
                screenshot = await self._live.tools.take_screenshot(
                    session.tenant, takeover.sandbox_id, ScreenshotOptions(format="png")
                )
                if screenshot is None:
                    return []
                image_format = screenshot.mime.removeprefix("image/")
                return [
                    await self._files.store_file(
                        session.id, screenshot.data, name=f"{takeover.kind}.{image_format}", mime=screenshot.mime
                    )
                ]
        except (PaddockError, TimeoutError) as error:
            log.info("could not take screenshot after takeover", sandbox=takeover.sandbox_id, error=str(error))
            return []

    async def _list_windows(self, session: Session, takeover: _Takeover) -> str:
        """Return the list of windows, if the sandbox has a tool for it."""
        sandbox_tools = self._live.tools
        try:
            async with asyncio.timeout(SCREENSHOT_TIMEOUT):
                tools = await sandbox_tools.list_tools(session.tenant, takeover.sandbox_id)
                if not any(tool.name == WINDOWS_TOOL and tool.read_only for tool in tools):
                    return ""
                result = await sandbox_tools.call_tool(
                    session.tenant, takeover.sandbox_id, WINDOWS_TOOL, {}, timeout=SCREENSHOT_TIMEOUT
                )
        except (PaddockError, TimeoutError):
            return ""
        text = "\n".join(part.text for part in result.content if isinstance(part, ToolResultText))
        return f" Windows now:\n{text[:MAX_WINDOWS_CHARACTERS]}\n" if text and not result.failed else ""

    async def _update_session(
        self,
        session: Session,
        state: SessionState | None,
        events: Sequence[SessionEvent],
        note: SessionMessage | None = None,
    ) -> None:
        """Park or unpark the session and emit events; unchanged if it waits for approvals or is idle."""
        expected_state = SessionState.RUNNING if state is SessionState.PARKED else SessionState.PARKED

        def work(connection: Any) -> tuple[bool, SessionMessage | None]:
            current = SessionStore.load_session(connection, session.id)
            changes = state is not None and current.state is expected_state
            if changes:
                SessionStore.update_session(connection, session.id, {"state": state}, datetime.now(UTC))
            return changes, SessionStore.store_message(connection, note) if note is not None else None

        def events_for(result: tuple[bool, SessionMessage | None]) -> Sequence[NewEvent]:
            changed, stored = result
            events_to_emit = [*events]
            if stored is not None:
                events_to_emit.append(MessageReceived(message=stored))
            if changed and state is not None:
                events_to_emit.append(SessionStateChanged(state=state, reason=_state_reason(events)))
            return session_log_entries(session, *events_to_emit)

        await self._events.write_with_events(work, events_for)

    async def _recover_takeovers(self, session: Session) -> None:
        """Search the events once for takeovers of an earlier server that were not handed back or reported."""
        if session.id in self._recovered_sessions:
            return
        stream = session_stream_name(session.id)
        end = await self._events.newest_number(stream)
        open_takeovers: dict[str, _Takeover] = {}
        unreported: dict[str, _Takeover] = {}
        position = max(0, end - MAX_EVENTS_SEARCHED)
        while position < end:
            page = await self._events.read(stream, position, 500)
            if not page:
                break
            position = page[-1].number
            for event in page:
                if event.type is EventType.MESSAGE_RECEIVED and _is_takeover_note(event.data["message"]):
                    unreported.clear()
                if event.type is not EventType.SESSION_DESKTOP:
                    continue
                kind, state = str(event.data.get("kind")), event.data.get("state")
                if state == "taken":
                    by = event.data.get("by")
                    open_takeovers[kind] = _Takeover(
                        kind, str(event.data.get("sandbox_id")), None if by is None else str(by)
                    )
                elif state == "handed_back" and kind in open_takeovers:
                    unreported[kind] = open_takeovers.pop(kind)
        self._recovered_sessions.add(session.id)
        self._takeovers.setdefault(session.id, open_takeovers)
        self._unreported.setdefault(session.id, unreported)

    async def _renew_held(self, session: Session, held: Mapping[str, InputControlHolder]) -> None:
        """Renew sandboxes that persons control."""
        fleet = self._live.fleet
        now = datetime.now(UTC)
        for kind in held:
            try:
                sandbox = await fleet.get(session.tenant, session.sandboxes[kind])
                if sandbox.expires_at is not None and sandbox.expires_at < now + timedelta(seconds=SANDBOX_LIFE / 2):
                    await fleet.renew(session.tenant, sandbox.id, now + timedelta(seconds=SANDBOX_LIFE))
            except PaddockError as error:
                log.info("could not renew sandbox during takeover", kind=kind, error=error.message)

    def _holders(self, sandboxes: Mapping[str, str]) -> dict[str, InputControlHolder]:
        holders = {kind: self._live.leases.input_holder(sandbox_id) for kind, sandbox_id in sandboxes.items()}
        return {kind: holder for kind, holder in holders.items() if holder is not None}


def _desktop_event(takeover: _Takeover, state: Any) -> SessionDesktop:
    return SessionDesktop(kind=takeover.kind, sandbox_id=takeover.sandbox_id, state=state, by=takeover.by)


def _state_reason(events: Sequence[SessionEvent]) -> str | None:
    desktop_events = [event for event in events if isinstance(event, SessionDesktop)]
    if not desktop_events:
        return None
    action = "has" if desktop_events[-1].state == "taken" else "has handed back"
    return f"{desktop_events[-1].by or 'a person'} {action} the {desktop_events[-1].kind} sandbox"


def _is_takeover_note(message: Mapping[str, Any]) -> bool:
    """Return whether a message is a note about a takeover."""
    return message.get("role") == "note" and any(
        _NOTE_MARK in part.get("text", "") for part in message.get("content", ())
    )


def _format_duration(activity: Takeover) -> str:
    seconds = int(((activity.until or activity.since) - activity.since).total_seconds())
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} minutes"
