"""Finds what an imported event stream leaves open, and the events that close it."""

from __future__ import annotations

from collections.abc import Iterator

from paddock.model.session_events import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequired,
    CallReady,
    CallResulted,
    MessageDelta,
    MessageEnded,
    MessageStarted,
    SessionEvent,
    SessionStateChanged,
    TurnEnded,
    TurnStarted,
)
from paddock.model.sessions import ApprovalState, CallResult, SessionState, TextContent

RESULT_UNKNOWN = "This call was running in the imported session. Its result is not known."
WITHDRAWN_REASON = "the session was exported before a decision"
CUT_REASON = "the session was exported during a turn"


class UnfinishedEventTracker:
    """Tracks open messages, calls, approvals and turns while it observes events in order."""

    def __init__(self) -> None:
        self._messages: dict[str, list[str]] = {}
        self._calls: dict[str, None] = {}
        self._approvals: dict[str, str] = {}
        self._turn: int | None = None
        self._state = SessionState.IDLE

    def observe(self, event: SessionEvent) -> None:
        match event:
            case MessageStarted():
                self._messages[event.message_id] = []
            case MessageDelta():
                if event.message_id in self._messages:
                    self._messages[event.message_id].append(event.text)
            case MessageEnded():
                self._messages.pop(event.message_id, None)
            case CallReady():
                self._calls[event.call.id] = None
            case CallResulted():
                self._calls.pop(event.call_id, None)
            case ApprovalRequired():
                self._approvals[event.approval.id] = event.approval.call_id
            case ApprovalDecided() | ApprovalExpired():
                self._approvals.pop(event.approval_id, None)
            case TurnStarted():
                self._turn = event.turn
            case TurnEnded():
                self._turn = event.turn if event.state == "waiting" else None
            case SessionStateChanged():
                self._state = event.state

    def closing_events(self) -> Iterator[SessionEvent]:
        """Yield the events that close everything still open."""
        for message_id, text in self._messages.items():
            yield MessageEnded(message_id=message_id, text="".join(text), cut=CUT_REASON)
        for approval_id, call_id in self._approvals.items():
            yield ApprovalDecided(
                approval_id=approval_id, call_id=call_id, state=ApprovalState.WITHDRAWN, reason=WITHDRAWN_REASON
            )
        for call_id in self._calls:
            yield CallResulted(
                call_id=call_id, result=CallResult(content=(TextContent(text=RESULT_UNKNOWN),), failed=True)
            )
        if self._turn is not None:
            yield TurnEnded(turn=self._turn, state="cancelled", reason=CUT_REASON)
        if self._state is not SessionState.IDLE:
            yield SessionStateChanged(state=SessionState.IDLE)
