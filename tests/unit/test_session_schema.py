"""The events of chat sessions as programs are told of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from paddock.api.events import told
from paddock.model.events import Event
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
from paddock.model.session_schema import schema, text, typescript
from paddock.model.sessions import (
    ApprovalState,
    Call,
    FileContent,
    Message,
    Policy,
    Rule,
    SessionUsage,
    TextContent,
)

REFERENCE = Path(__file__).parents[2] / "docs/reference"
NOW = datetime.now(UTC)
SOME: list[SessionEvent] = [
    MessageDelta(message_id="m", text="a"),
    TurnEnded(turn=1, state="failed", reason="no"),
    UsageChanged(usage=SessionUsage(cost=0.5)),
    SessionChanged(policy=Policy(rules=(Rule(action="ask", arguments={"path": "/etc/*"}),)), by="me"),
    CallReady(call=Call(id="c", name="code_run", arguments={"a": None}), kind="code", tool="run"),
    ApprovalDecided(approval_id="a", call_id="c", state=ApprovalState.EDITED, arguments={"a": [1]}),
    MessageReceived(
        message=Message(
            id="m",
            session="s",
            turn=1,
            role="user",
            content=(TextContent(text="a"), FileContent(type="image", file="0" * 64)),
            at=NOW,
        )
    ),
]


def as_told(event: SessionEvent) -> Any:
    kept = Event(sequence=7, stream="session/s", number=3, type=event.event, tenant="t", at=NOW, data=event.data())
    return json.loads(told(kept))


def test_the_files_are_up_to_date() -> None:
    assert (REFERENCE / "session-events.schema.json").read_text() == text(), "run: make docs"
    assert (REFERENCE / "session-events.ts").read_text() == typescript(), "run: make docs"


def test_the_schema_is_one_and_knows_every_event() -> None:
    assert jsonschema_rs.meta.is_valid(schema())
    kinds = {str(each) for each in EVENTS}
    assert set(schema()["properties"]["type"]["enum"]) == kinds
    assert all(f'"{kind}"' in typescript() for kind in kinds)


@pytest.mark.parametrize("event", SOME, ids=lambda event: str(event.event))
def test_what_is_told_fits(event: SessionEvent) -> None:
    validator = jsonschema_rs.validator_for(schema())
    document = as_told(event)
    validator.validate(document)
    for broken in (
        {**document, "type": "session.dance"},
        {**document, "data": "nothing"},
        {key: value for key, value in document.items() if key != "number"},
    ):
        assert not validator.is_valid(broken)
