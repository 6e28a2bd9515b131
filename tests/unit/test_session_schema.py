"""The events of chat sessions as programs are told of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from paddock.api.http.event_log_responses import event_to_json
from paddock.model.events import EventRecord
from paddock.model.session_events import (
    EVENTS,
    ApprovalDecided,
    CallReady,
    MessageDelta,
    MessageReceived,
    SessionChanged,
    SessionEvent,
    TurnEnded,
    UsageChanged,
)
from paddock.model.session_schema import session_event_schema, session_event_schema_text, session_event_typescript
from paddock.model.sessions import (
    ApprovalState,
    FileContent,
    Policy,
    PolicyRule,
    SessionMessage,
    SessionUsage,
    TextContent,
    ToolCall,
)

REFERENCE = Path(__file__).parents[2] / "docs/reference"
NOW = datetime.now(UTC)
SOME: list[SessionEvent] = [
    MessageDelta(message_id="m", text="a"),
    TurnEnded(turn=1, state="failed", reason="no"),
    UsageChanged(usage=SessionUsage(cost=0.5)),
    SessionChanged(policy=Policy(rules=(PolicyRule(action="ask", arguments={"path": "/etc/*"}),)), by="me"),
    CallReady(call=ToolCall(id="c", name="code_run", arguments={"a": None}), kind="code", tool="run"),
    ApprovalDecided(approval_id="a", call_id="c", state=ApprovalState.EDITED, arguments={"a": [1]}),
    MessageReceived(
        message=SessionMessage(
            id="m",
            session="s",
            turn=1,
            role="user",
            content=(TextContent(text="a"), FileContent(type="image", file="0" * 64)),
            at=NOW,
        )
    ),
]


def as_published(event: SessionEvent) -> Any:
    kept = EventRecord(
        sequence=7, stream="session/s", number=3, type=event.event, tenant="t", at=NOW, data=event.data()
    )
    return json.loads(event_to_json(kept))


def test_schema_files_are_current() -> None:
    assert (REFERENCE / "session-events.schema.json").read_text() == session_event_schema_text(), "run: make docs"
    assert (REFERENCE / "session-events.ts").read_text() == session_event_typescript(), "run: make docs"


def test_schema_is_valid_and_covers_all_events() -> None:
    assert jsonschema_rs.meta.is_valid(session_event_schema())
    kinds = {str(each) for each in EVENTS}
    assert set(session_event_schema()["properties"]["type"]["enum"]) == kinds
    assert all(f'"{kind}"' in session_event_typescript() for kind in kinds)


@pytest.mark.parametrize("event", SOME, ids=lambda event: str(event.event))
def test_published_events_match_the_schema(event: SessionEvent) -> None:
    validator = jsonschema_rs.validator_for(session_event_schema())
    document = as_published(event)
    validator.validate(document)
    for broken in (
        {**document, "type": "session.dance"},
        {**document, "data": "nothing"},
        {key: value for key, value in document.items() if key != "number"},
    ):
        assert not validator.is_valid(broken)
