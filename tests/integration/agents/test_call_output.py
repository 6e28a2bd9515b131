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
class CallOutputHarness:
    """A session with recorded calls, as in a turn."""

    harness: SandboxHarness
    session: Session
    calls: ToolCallService

    async def run_call(self, call_id: str, tool: str = "run_shell_command", **arguments: Any) -> CallResult:
        specs = {spec.name: spec for spec in await self.harness.toolbox.list_tools(self.session)}
        call = ToolCall(id=call_id, name=f"code_{tool}", arguments=arguments)
        return await self.calls.run_call(self.session, 1, call, specs, wait=True)

    def start_call(self, call_id: str, tool: str = "run_shell_command", **arguments: Any) -> asyncio.Task[CallResult]:
        return asyncio.create_task(self.run_call(call_id, tool, **arguments))

    async def release_command(self) -> None:
        await self.harness.call_tool(self.session, "code_write_file", path="/workspace/go", content="")

    async def wait_for_output(self, call_id: str, text: str) -> None:
        """Wait until a running call has emitted this text."""
        output = ""
        async with asyncio.timeout(20):
            async for event in self.harness.events.follow(f"session/{self.session.id}"):
                assert event.type != "call.result" or event.data["call_id"] != call_id, event.data
                if event.type == "call.output" and event.data["call_id"] == call_id:
                    output += event.data["text"]
                    if text in output:
                        return

    async def describe_events(self, call_id: str) -> tuple[list[str], str]:
        """Return the event types of a call, without repetitions, and its whole output."""
        call_events = [
            event
            for event in await self.harness.list_events(self.session)
            if event.type.startswith("call.") and call_id in (event.data.get("call_id"), _id(event.data))
        ]
        kinds = [str(event.type) for event in call_events]
        distinct = [kind for index, kind in enumerate(kinds) if index == 0 or kinds[index - 1] != kind]
        return distinct, "".join(event.data["text"] for event in call_events if event.type == "call.output")


def _id(data: Any) -> object:
    return data.get("call", {}).get("id")


@pytest.fixture
async def call_output(tmp_path: Path) -> AsyncIterator[CallOutputHarness]:
    async with open_sandbox_harness(tmp_path) as harness:
        calls = ToolCallService(
            harness.store, harness.events, Config.model_validate({"data": tmp_path}), harness.toolbox.run_call
        )
        session = await harness.create_session(policy=Policy(allow_all=("*",)))
        try:
            yield CallOutputHarness(harness, session, calls)
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
async def test_output_is_emitted_while_the_tool_runs(
    call_output: CallOutputHarness, tool: str, arguments: dict[str, Any]
) -> None:
    running = call_output.start_call("c1", tool, **arguments)
    await call_output.wait_for_output("c1", "first\n")
    assert not running.done()
    await call_output.release_command()
    assert (await running).text.split() == ["first", "last"]
    assert await call_output.describe_events("c1") == (
        ["call.ready", "call.running", "call.output", "call.result"],
        "first\nlast\n",
    )


async def test_emitted_output_is_limited(call_output: CallOutputHarness) -> None:
    flood = 'python3 -c "print(chr(252) * 1_000_000)"'
    running = call_output.start_call("c1", command=f"echo first; {WAIT}; {flood}")
    await call_output.wait_for_output("c1", "first\n")
    await call_output.release_command()
    assert not (await running).failed
    kinds, output = await call_output.describe_events("c1")
    assert kinds[-2:] == ["call.output", "call.result"]
    assert MAX_OUTPUT_BYTES - 2 <= len(output.encode()) <= MAX_OUTPUT_BYTES and set(output[6:]) == {"ü"}


async def test_output_of_concurrent_calls_is_separate(call_output: CallOutputHarness) -> None:
    running = [
        call_output.start_call(name, command=f"echo {name}; {WAIT}; echo {name} {name}") for name in ("c1", "c2")
    ]
    for name in ("c1", "c2"):
        await call_output.wait_for_output(name, f"{name}\n")
    await call_output.release_command()
    await asyncio.gather(*running)
    for name in ("c1", "c2"):
        assert (await call_output.describe_events(name))[1] == f"{name}\n{name} {name}\n"


async def test_cancelled_call_emits_no_output_after_its_end(call_output: CallOutputHarness) -> None:
    running = call_output.start_call("c1", command="echo first; while :; do echo more; sleep 0.01; done")
    await call_output.wait_for_output("c1", "more")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await call_output.calls.abandon_calls(call_output.session.id, 1, "cancelled")
    await call_output.run_call("c2", command="echo well")
    kinds, output = await call_output.describe_events("c1")
    assert kinds == ["call.ready", "call.running", "call.output", "call.result"]
    assert output.startswith("first\nmore\n")


async def test_output_before_sandbox_kill_is_emitted(call_output: CallOutputHarness) -> None:
    running = call_output.start_call("c1", command="echo first; sleep 600")
    await call_output.wait_for_output("c1", "first\n")
    call_output.harness.kill_sandbox(await call_output.harness.sandbox_id(call_output.session))
    async with asyncio.timeout(20):
        result = await running
    assert result.failed and "was lost while code_run_shell_command was running" in result.text
    assert await call_output.describe_events("c1") == (
        ["call.ready", "call.running", "call.output", "call.result"],
        "first\n",
    )


async def test_output_before_tool_worker_death_is_emitted(call_output: CallOutputHarness) -> None:
    running = call_output.start_call("c1", command=f"echo first; {WAIT}; kill -9 $PPID; sleep 600")
    await call_output.wait_for_output("c1", "first\n")
    await call_output.release_command()
    result = await running
    assert result.failed and "the sandbox's tool worker ended with exit code 137" in result.text
    assert await call_output.describe_events("c1") == (
        ["call.ready", "call.running", "call.output", "call.result"],
        "first\n",
    )


async def test_other_tools_emit_no_output(call_output: CallOutputHarness) -> None:
    await call_output.run_call("c1", "write_file", path="/workspace/a", content="a\n")
    await call_output.run_call("c2", "read_file", path="/workspace/a")
    assert not await call_output.harness.events_of(call_output.session, "call.output")


async def test_failed_output_events_do_not_affect_the_call(
    call_output: CallOutputHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await call_output.harness.toolbox.get_sandbox(call_output.session, "code")
    write_with_events, refused = EventLog.write_with_events, asyncio.Event()

    async def fail_output_events(self: EventLog, work: Any, make_events: Any, **options: Any) -> Any:
        if any(each.type == "call.output" for each in make_events(None) or ()):
            refused.set()
            raise Unavailable("the disk is full")
        return await write_with_events(self, work, make_events, **options)

    specs = {spec.name: spec for spec in await call_output.harness.toolbox.list_tools(call_output.session)}
    call = ToolCall(id="c1", name="code_run_shell_command", arguments={"command": f"echo first; {WAIT}; echo last"})
    with monkeypatch.context() as patch:
        patch.setattr(EventLog, "write_with_events", fail_output_events)
        running = asyncio.create_task(
            call_output.harness.toolbox.run_call(call_output.session, 1, call, specs[call.name])
        )
        async with asyncio.timeout(20):
            await refused.wait()
            await call_output.release_command()
            result = await running
    assert (result.failed, result.text.split()) == (False, ["first", "last"])
