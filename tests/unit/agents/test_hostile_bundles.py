"""Hostile bundles are rejected or harmless, and sessions imported from them can be exported."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from paddock.errors import InvalidInput
from paddock.model.sessions import ApprovalState, Policy, Session, SessionState
from tests.unit.agents.session_harness import TENANT, ScriptedEngine, open_session_harness
from tests.unit.agents.test_session_bundles import (
    create_busy_session,
    export_bundle,
    import_bundle,
    pack,
    pause_midway,
    unpack,
)

pytestmark = pytest.mark.anyio
Change = Callable[[dict[str, Any]], Any]


def nested_object(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


def bundle_with_change(
    parts: dict[str, bytes], name: str, matches: Callable[[dict[str, Any]], bool], change: Change
) -> bytes:
    """Return a bundle with a change of the first matching line."""
    lines = [json.loads(line) for line in parts[name].splitlines()]
    change(next(line for line in lines if matches(line)))
    lines_json = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return pack(parts | {name: lines_json})


def any_line(line: dict[str, Any]) -> bool:
    return True


def has_calls(line: dict[str, Any]) -> bool:
    return bool(line.get("calls"))


def of_type(kind: str) -> Callable[[dict[str, Any]], bool]:
    return lambda line: line.get("type") == kind


STRANGE_BUNDLES: dict[str, tuple[str, Callable[[dict[str, Any]], bool], Change]] = {
    "a deep call": ("messages.jsonl", has_calls, lambda d: d["calls"][0].update(arguments=nested_object(150))),
    "a deeper call": ("messages.jsonl", has_calls, lambda d: d["calls"][0].update(arguments=nested_object(250))),
    "the deepest call": ("messages.jsonl", has_calls, lambda d: d["calls"][0].update(arguments=nested_object(900))),
    "a deep record": ("calls.jsonl", any_line, lambda d: d["call"].update(arguments=nested_object(190))),
    "a deep approval": ("approvals.jsonl", any_line, lambda d: d.update(arguments=nested_object(190))),
    "a deep event": (
        "events.jsonl",
        of_type("call.ready"),
        lambda d: d["data"]["call"].update(arguments=nested_object(250)),
    ),
    "the deepest event": (
        "events.jsonl",
        of_type("call.ready"),
        lambda d: d["data"]["call"].update(arguments=nested_object(900)),
    ),
    "a number of an argument": ("calls.jsonl", any_line, lambda d: d["call"].update(arguments={"n": 10**300})),
    "no number": ("calls.jsonl", any_line, lambda d: d["call"].update(arguments={"n": float("nan")})),
    "a message of no number": ("messages.jsonl", any_line, lambda d: d.update(number=-(10**30))),
    "a message before time": ("messages.jsonl", any_line, lambda d: d.update(at="0001-01-01T00:00:00+14:00")),
    "a message after time": ("messages.jsonl", any_line, lambda d: d.update(at="9999-12-31T23:59:59-14:00")),
    "an event before time": ("events.jsonl", any_line, lambda d: d.update(at="0001-01-01T00:00:00+14:00")),
    "an approval after time": (
        "approvals.jsonl",
        any_line,
        lambda d: d.update(expires_at="9999-12-31T23:59:59-14:00", decided_at="0001-01-01T00:00:00+14:00"),
    ),
    "a record before time": ("calls.jsonl", any_line, lambda d: d.update(created_at="0001-01-01T00:00:00+14:00")),
    "half a character": ("messages.jsonl", any_line, lambda d: d.update(content=[{"type": "text", "text": "\ud800"}])),
    "nothing at all": ("messages.jsonl", any_line, lambda d: d.update(content=[{"type": "text", "text": "\0"}])),
    "a long id of a call": ("calls.jsonl", any_line, lambda d: d["call"].update(id="x" * 10_000)),
    "a path as a file": ("messages.jsonl", any_line, lambda d: d["content"][1].update(file="../../../etc/passwd")),
    "a size of a file": ("messages.jsonl", any_line, lambda d: d["content"][1].update(size=10**30)),
    "a type of a file": ("messages.jsonl", any_line, lambda d: d["content"][1].update(mime="text/html\r\nX: y")),
    "a name of a file": ("messages.jsonl", any_line, lambda d: d["content"][1].update(name="../\r\nX: y")),
    "a session of nobody": ("session.json", any_line, lambda d: d["session"].update(tenant="\0", id="ses-1")),
    "a large budget": ("session.json", any_line, lambda d: d["session"].update(budget=10**30)),
    "a long plan": (
        "session.json",
        any_line,
        lambda d: d["session"].update(plan=[{"title": "x"}] * 200_000),
    ),
    "many turns": ("session.json", any_line, lambda d: d["session"].update(turn=10**30)),
}


@pytest.mark.parametrize("description", STRANGE_BUNDLES)
async def test_accepted_bundles_can_be_read_and_exported(tmp_path: Path, description: str) -> None:
    name, matches, change = STRANGE_BUNDLES[description]
    async with open_session_harness(tmp_path, ScriptedEngine(pause_midway)) as harness:
        session = await create_busy_session(harness)
        parts = unpack(await export_bundle(harness, session))
        imported: Session | None = None
        with suppress(InvalidInput):
            imported = await import_bundle(harness, bundle_with_change(parts, name, matches, change))
        if imported is None:
            assert await harness.sessions.list(TENANT) == [await harness.sessions.get(TENANT, session.id)]
            return
        assert imported in await harness.sessions.list(TENANT)
        found = await harness.sessions.list_messages(TENANT, imported.id)
        assert [message.session for message in found] == [imported.id] * len(found)
        assert all(message.session for message in found)
        assert [each.session for each in await harness.sessions.list_approvals(TENANT, session=imported.id)]
        events = await harness.events.read(f"session/{imported.id}", 0, 1000)
        assert events and all(event.model_dump_json() for event in events)
        again = await import_bundle(harness, await export_bundle(harness, imported))
        assert len(await harness.sessions.list_messages(TENANT, again.id)) == len(found)
        assert (await harness.sessions.fork(TENANT, imported.id, by="bob")).origin is not None


async def test_bundle_cannot_set_tenant_policy_or_usage(tmp_path: Path) -> None:
    def take_over(line: dict[str, Any]) -> None:
        line["session"].update(
            tenant="other",
            state="running",
            sandboxes={"code": "sb-0000000000000000"},
            created_by="root",
            policy={"rules": [{"tool": "*", "action": "allow"}], "allow_all": ["*"]},
            usage={"requests": -5, "input_tokens": -(10**15), "output_tokens": -(10**15), "cost": -1e9},
        )

    async with open_session_harness(tmp_path, ScriptedEngine(pause_midway)) as harness:
        parts = unpack(await export_bundle(harness, await create_busy_session(harness)))
        imported = await import_bundle(harness, bundle_with_change(parts, "session.json", any_line, take_over))
        assert imported.tenant == TENANT and imported.created_by == "bob"
        assert imported.state is SessionState.IDLE and imported.sandboxes == {}
        assert imported.policy == Policy()
        usage = imported.usage
        assert usage.requests >= 0 and usage.input_tokens >= 0 and usage.output_tokens >= 0, "a budget without an end"
        assert usage.cost is None or usage.cost >= 0


async def test_approved_calls_of_bundle_are_not_run(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(pause_midway)) as harness:
        session = await create_busy_session(harness)
        parts = unpack(await export_bundle(harness, session))
        bundle = bundle_with_change(
            parts, "approvals.jsonl", any_line, lambda d: d.update(state="approved", decided_by="ann")
        )
        imported = await import_bundle(harness, bundle)
        (approval,) = await harness.sessions.list_approvals(TENANT, session=imported.id)
        assert approval.state is ApprovalState.APPROVED
        assert imported.state is SessionState.IDLE
        mine = (await harness.sessions.list_approvals(TENANT, session=session.id))[0]
        assert approval.id != mine.id and mine.state is ApprovalState.PENDING
