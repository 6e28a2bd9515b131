"""What a stream of events leaves open, and the events that close it: for sessions that nobody will go on with."""

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

NOT_RUN = "This call was under way in the session that was imported. It is not known what came of it."
WITHDRAWN = "the session was exported before anybody decided"
CUT = "the session was exported while it was at work"


class Loose:
    """Is shown events in their order."""

    def __init__(self) -> None:
        self._messages: dict[str, list[str]] = {}
        self._calls: dict[str, None] = {}
        self._approvals: dict[str, str] = {}
        self._turn: int | None = None
        self._state = SessionState.IDLE

    def see(self, event: SessionEvent) -> None:
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

    def ends(self) -> Iterator[SessionEvent]:
        """What has to be told so that nothing is open."""
        for message_id, text in self._messages.items():
            yield MessageEnded(message_id=message_id, text="".join(text), cut=CUT)
        for approval_id, call_id in self._approvals.items():
            yield ApprovalDecided(
                approval_id=approval_id, call_id=call_id, state=ApprovalState.WITHDRAWN, reason=WITHDRAWN
            )
        for call_id in self._calls:
            yield CallResulted(call_id=call_id, result=CallResult(content=(TextContent(text=NOT_RUN),), failed=True))
        if self._turn is not None:
            yield TurnEnded(turn=self._turn, state="cancelled", reason=CUT)
        if self._state is not SessionState.IDLE:
            yield SessionStateChanged(state=SessionState.IDLE)
