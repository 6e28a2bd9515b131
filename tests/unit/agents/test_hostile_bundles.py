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
from tests.unit.agents.test_session_bundles import a_busy_session, at_work, exported, imported, opened, packed

pytestmark = pytest.mark.anyio
Change = Callable[[dict[str, Any]], Any]


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


def first(parts: dict[str, bytes], name: str, fits: Callable[[dict[str, Any]], bool], change: Change) -> bytes:
    """A bundle in which the first line that fits is another."""
    lines = [json.loads(line) for line in parts[name].splitlines()]
    change(next(line for line in lines if fits(line)))
    written = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return packed(parts | {name: written})


def anything(line: dict[str, Any]) -> bool:
    return True


def has_calls(line: dict[str, Any]) -> bool:
    return bool(line.get("calls"))


def of_type(kind: str) -> Callable[[dict[str, Any]], bool]:
    return lambda line: line.get("type") == kind


STRANGE: dict[str, tuple[str, Callable[[dict[str, Any]], bool], Change]] = {
    "a deep call": ("messages.jsonl", has_calls, lambda d: d["calls"][0].update(arguments=deep(150))),
    "a deeper call": ("messages.jsonl", has_calls, lambda d: d["calls"][0].update(arguments=deep(250))),
    "the deepest call": ("messages.jsonl", has_calls, lambda d: d["calls"][0].update(arguments=deep(900))),
    "a deep record": ("calls.jsonl", anything, lambda d: d["call"].update(arguments=deep(190))),
    "a deep approval": ("approvals.jsonl", anything, lambda d: d.update(arguments=deep(190))),
    "a deep event": ("events.jsonl", of_type("call.ready"), lambda d: d["data"]["call"].update(arguments=deep(250))),
    "the deepest event": (
        "events.jsonl",
        of_type("call.ready"),
        lambda d: d["data"]["call"].update(arguments=deep(900)),
    ),
    "a number of an argument": ("calls.jsonl", anything, lambda d: d["call"].update(arguments={"n": 10**300})),
    "no number": ("calls.jsonl", anything, lambda d: d["call"].update(arguments={"n": float("nan")})),
    "a message of no number": ("messages.jsonl", anything, lambda d: d.update(number=-(10**30))),
    "a message before time": ("messages.jsonl", anything, lambda d: d.update(at="0001-01-01T00:00:00+14:00")),
    "a message after time": ("messages.jsonl", anything, lambda d: d.update(at="9999-12-31T23:59:59-14:00")),
    "an event before time": ("events.jsonl", anything, lambda d: d.update(at="0001-01-01T00:00:00+14:00")),
    "an approval after time": (
        "approvals.jsonl",
        anything,
        lambda d: d.update(expires_at="9999-12-31T23:59:59-14:00", decided_at="0001-01-01T00:00:00+14:00"),
    ),
    "a record before time": ("calls.jsonl", anything, lambda d: d.update(created_at="0001-01-01T00:00:00+14:00")),
    "half a character": ("messages.jsonl", anything, lambda d: d.update(content=[{"type": "text", "text": "\ud800"}])),
    "nothing at all": ("messages.jsonl", anything, lambda d: d.update(content=[{"type": "text", "text": "\0"}])),
    "a long id of a call": ("calls.jsonl", anything, lambda d: d["call"].update(id="x" * 10_000)),
    "a path as a file": ("messages.jsonl", anything, lambda d: d["content"][1].update(file="../../../etc/passwd")),
    "a size of a file": ("messages.jsonl", anything, lambda d: d["content"][1].update(size=10**30)),
    "a type of a file": ("messages.jsonl", anything, lambda d: d["content"][1].update(mime="text/html\r\nX: y")),
    "a name of a file": ("messages.jsonl", anything, lambda d: d["content"][1].update(name="../\r\nX: y")),
    "a session of nobody": ("session.json", anything, lambda d: d["session"].update(tenant="\0", id="ses-1")),
    "a large budget": ("session.json", anything, lambda d: d["session"].update(budget=10**30)),
    "a long plan": (
        "session.json",
        anything,
        lambda d: d["session"].update(plan=[{"title": "x"}] * 200_000),
    ),
    "many turns": ("session.json", anything, lambda d: d["session"].update(turn=10**30)),
}


@pytest.mark.parametrize("about", STRANGE)
async def test_what_is_let_in_can_be_read_to_its_end(tmp_path: Path, about: str) -> None:
    name, fits, change = STRANGE[about]
    async with open_session_harness(tmp_path, ScriptedEngine(at_work)) as at:
        session = await a_busy_session(at)
        parts = opened(await exported(at, session))
        made: Session | None = None
        with suppress(InvalidInput):
            made = await imported(at, first(parts, name, fits, change))
        if made is None:
            assert await at.sessions.list(TENANT) == [await at.sessions.get(TENANT, session.id)]
            return
        assert made in await at.sessions.list(TENANT)
        found = await at.sessions.list_messages(TENANT, made.id)
        assert [message.session for message in found] == [made.id] * len(found)
        assert all(message.session for message in found)
        assert [each.session for each in await at.sessions.list_approvals(TENANT, session=made.id)]
        events = await at.events.read(f"session/{made.id}", 0, 1000)
        assert events and all(event.model_dump_json() for event in events)
        again = await imported(at, await exported(at, made))
        assert len(await at.sessions.list_messages(TENANT, again.id)) == len(found)
        assert (await at.sessions.fork(TENANT, made.id, by="bob")).origin is not None


async def test_a_bundle_says_nothing_of_what_may_be_done_here(tmp_path: Path) -> None:
    def take_over(line: dict[str, Any]) -> None:
        line["session"].update(
            tenant="other",
            state="running",
            sandboxes={"code": "sb-0000000000000000"},
            created_by="root",
            policy={"rules": [{"tool": "*", "action": "allow"}], "allow_all": ["*"]},
            usage={"requests": -5, "input_tokens": -(10**15), "output_tokens": -(10**15), "cost": -1e9},
        )

    async with open_session_harness(tmp_path, ScriptedEngine(at_work)) as at:
        parts = opened(await exported(at, await a_busy_session(at)))
        made = await imported(at, first(parts, "session.json", anything, take_over))
        assert made.tenant == TENANT and made.created_by == "bob"
        assert made.state is SessionState.IDLE and made.sandboxes == {}
        assert made.policy == Policy()
        used = made.usage
        assert used.requests >= 0 and used.input_tokens >= 0 and used.output_tokens >= 0, "a budget without an end"
        assert used.cost is None or used.cost >= 0


async def test_what_a_bundle_calls_approved_runs_nothing(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(at_work)) as at:
        session = await a_busy_session(at)
        parts = opened(await exported(at, session))
        bundle = first(parts, "approvals.jsonl", anything, lambda d: d.update(state="approved", decided_by="ann"))
        made = await imported(at, bundle)
        (approval,) = await at.sessions.list_approvals(TENANT, session=made.id)
        assert approval.state is ApprovalState.APPROVED
        assert made.state is SessionState.IDLE
        mine = (await at.sessions.list_approvals(TENANT, session=session.id))[0]
        assert approval.id != mine.id and mine.state is ApprovalState.PENDING
