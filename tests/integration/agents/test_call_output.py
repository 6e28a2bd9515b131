"""Output of running tools in the session's events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paddock.agents.approvals.tool_call_service import ToolCallService
from paddock.config.schema import Config
from paddock.errors import Unavailable
from paddock.events.event_log import EventLog
from paddock.model.sessions import CallResult, Policy, Session, ToolCall
from paddock.sandbox.daemon.tool_stream import MAX_OUTPUT_BYTES
from tests.integration.agents.sandbox_harness import SandboxHarness, open_sandbox_harness, remove_everything

pytestmark = pytest.mark.anyio
WAIT = "until [ -e go ]; do sleep 0.02; done"


@dataclass
class Talk:
    """A session with recorded calls, as in a turn."""

    bench: SandboxHarness
    session: Session
    calls: ToolCallService

    async def run(self, call_id: str, tool: str = "run_shell_command", **arguments: Any) -> CallResult:
        specs = {spec.name: spec for spec in await self.bench.toolbox.list_tools(self.session)}
        call = ToolCall(id=call_id, name=f"code_{tool}", arguments=arguments)
        return await self.calls.run_call(self.session, 1, call, specs, wait=True)

    def start(self, call_id: str, tool: str = "run_shell_command", **arguments: Any) -> asyncio.Task[CallResult]:
        return asyncio.create_task(self.run(call_id, tool, **arguments))

    async def go(self) -> None:
        await self.bench.call(self.session, "code_write_file", path="/workspace/go", content="")

    async def heard(self, call_id: str, text: str) -> None:
        """Wait until this was told of a call that is under way."""
        said = ""
        async with asyncio.timeout(20):
            async for event in self.bench.events.follow(f"session/{self.session.id}"):
                assert event.type != "call.result" or event.data["call_id"] != call_id, event.data
                if event.type == "call.output" and event.data["call_id"] == call_id:
                    said += event.data["text"]
                    if text in said:
                        return

    async def story(self, call_id: str) -> tuple[list[str], str]:
        """The events of a call, each kind once where it is told in pieces, and all that was heard of it."""
        mine = [
            event
            for event in await self.bench.all_told(self.session)
            if event.type.startswith("call.") and call_id in (event.data.get("call_id"), _id(event.data))
        ]
        kinds = [str(event.type) for event in mine]
        once = [kind for place, kind in enumerate(kinds) if place == 0 or kinds[place - 1] != kind]
        return once, "".join(event.data["text"] for event in mine if event.type == "call.output")


def _id(data: Any) -> object:
    return data.get("call", {}).get("id")


@pytest.fixture
async def talk(tmp_path: Path) -> AsyncIterator[Talk]:
    async with open_sandbox_harness(tmp_path) as bench:
        calls = ToolCallService(
            bench.store, bench.events, Config.model_validate({"data": tmp_path}), bench.toolbox.run_call
        )
        session = await bench.session(policy=Policy(allow_all=("*",)))
        try:
            yield Talk(bench, session, calls)
        finally:
            await calls.close()
    await remove_everything(tmp_path)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("run_shell_command", {"command": f"echo first; {WAIT}; echo last"}),
        (
            "run_ipython_cell",
            {"code": "import os, time\nprint('first', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.02)\n"
                     "print('last')"},
        ),
    ],
)  # fmt: skip
async def test_it_is_told_while_the_tool_runs_and_before_its_end(
    talk: Talk, tool: str, arguments: dict[str, Any]
) -> None:
    running = talk.start("c1", tool, **arguments)
    await talk.heard("c1", "first\n")
    assert not running.done()
    await talk.go()
    assert (await running).text.split() == ["first", "last"]
    assert await talk.story("c1") == (["call.ready", "call.running", "call.output", "call.result"], "first\nlast\n")


async def test_a_flood_is_told_as_far_as_it_is_kept(talk: Talk) -> None:
    flood = 'python3 -c "print(chr(252) * 1_000_000)"'
    running = talk.start("c1", command=f"echo first; {WAIT}; {flood}")
    await talk.heard("c1", "first\n")
    await talk.go()
    assert not (await running).failed
    kinds, told = await talk.story("c1")
    assert kinds[-2:] == ["call.output", "call.result"]
    assert MAX_OUTPUT_BYTES - 2 <= len(told.encode()) <= MAX_OUTPUT_BYTES and set(told[6:]) == {"ü"}


async def test_calls_side_by_side_are_told_apart(talk: Talk) -> None:
    running = [talk.start(name, command=f"echo {name}; {WAIT}; echo {name} {name}") for name in ("c1", "c2")]
    for name in ("c1", "c2"):
        await talk.heard(name, f"{name}\n")
    await talk.go()
    await asyncio.gather(*running)
    for name in ("c1", "c2"):
        assert (await talk.story(name))[1] == f"{name}\n{name} {name}\n"


async def test_nothing_is_told_of_a_cancelled_call_after_its_end(talk: Talk) -> None:
    running = talk.start("c1", command="echo first; while :; do echo more; sleep 0.01; done")
    await talk.heard("c1", "more")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await talk.calls.abandon_calls(talk.session.id, 1, "cancelled")
    await talk.run("c2", command="echo well")
    kinds, told = await talk.story("c1")
    assert kinds == ["call.ready", "call.running", "call.output", "call.result"]
    assert told.startswith("first\nmore\n")


async def test_of_a_sandbox_that_is_killed_midway_there_is_what_it_said(talk: Talk) -> None:
    running = talk.start("c1", command="echo first; sleep 600")
    await talk.heard("c1", "first\n")
    talk.bench.kill(await talk.bench.sandbox(talk.session))
    async with asyncio.timeout(20):
        result = await running
    assert result.failed and "was lost while code_run_shell_command was running" in result.text
    assert await talk.story("c1") == (["call.ready", "call.running", "call.output", "call.result"], "first\n")


async def test_a_worker_that_dies_midway_is_told_of_as_ever(talk: Talk) -> None:
    running = talk.start("c1", command=f"echo first; {WAIT}; kill -9 $PPID; sleep 600")
    await talk.heard("c1", "first\n")
    await talk.go()
    result = await running
    assert result.failed and "the sandbox's tool worker ended with exit code 137" in result.text
    assert await talk.story("c1") == (["call.ready", "call.running", "call.output", "call.result"], "first\n")


async def test_other_tools_tell_nothing(talk: Talk) -> None:
    await talk.run("c1", "write_file", path="/workspace/a", content="a\n")
    await talk.run("c2", "read_file", path="/workspace/a")
    assert not await talk.bench.told(talk.session, "call.output")


async def test_a_log_that_cannot_be_written_does_not_harm_the_call(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    await talk.bench.toolbox.get_sandbox(talk.session, "code")
    together, refused = EventLog.write_with_events, asyncio.Event()

    async def full(self: EventLog, work: Any, tell: Any, **more: Any) -> Any:
        if any(each.type == "call.output" for each in tell(None) or ()):
            refused.set()
            raise Unavailable("the disk is full")
        return await together(self, work, tell, **more)

    specs = {spec.name: spec for spec in await talk.bench.toolbox.list_tools(talk.session)}
    call = ToolCall(id="c1", name="code_run_shell_command", arguments={"command": f"echo first; {WAIT}; echo last"})
    with monkeypatch.context() as patch:
        patch.setattr(EventLog, "write_with_events", full)
        running = asyncio.create_task(talk.bench.toolbox.run_call(talk.session, 1, call, specs[call.name]))
        async with asyncio.timeout(20):
            await refused.wait()
            await talk.go()
            result = await running
    assert (result.failed, result.text.split()) == (False, ["first", "last"])
