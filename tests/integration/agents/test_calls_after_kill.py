"""A process is killed at each stage of a call; another one continues."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import asyncio, json, os, sys
from pathlib import Path
from paddock.config.schema import LogConfig
from paddock.events.event_log import EventLog
from paddock.model.sessions import ApprovalState
from paddock.store.database import Store
from paddock.telemetry.logging_setup import configure_logging
from tests.unit.agents.call_harness import CallHarness, RecordingTools, make_decision, shell_call, text_tool_result

place = Path(sys.argv[1])

def stage(name):
    # The parent process may kill this one here.
    print(name, flush=True)
    sys.stdin.readline()

async def run(call):
    stage("running")
    deeds = os.open(place / "deeds", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(deeds, call.arguments["command"].encode() + b"\\n")
    stage("ran")
    return text_tool_result("did it")

async def main():
    configure_logging(LogConfig())  # Standard output carries the stages.
    async with await Store.open(place / "p.db") as store:
        new = not (place / "begun").exists()
        tools = RecordingTools(run)
        if new:
            harness = await CallHarness.open(store, tools)
        else:
            harness = CallHarness(store, await EventLog.open(store), tools, {})
        (place / "begun").touch()
        work = asyncio.create_task(harness.run_call(shell_call("make")))
        approval = None
        while approval is None and not work.done():
            approval = next(iter(await harness.calls.list_approvals("t")), None)
            await asyncio.sleep(0)
        if approval is not None and approval.state is ApprovalState.PENDING:
            stage("asked")
            await harness.decide(make_decision(approval, "edit", arguments={"command": "make -n"}))
            stage("decided")
        result = await work
        stage("done")
        order = [str(kind) for kind in await harness.event_types()]
        print(json.dumps({"text": result.text, "failed": result.failed, "order": order}), flush=True)

asyncio.run(main())
"""
STAGES = ("asked", "decided", "running", "ran", "done")


def run_until_stage(directory: Path, kill_at: str | None) -> dict[str, Any] | None:
    """Run the program until a stage, or to its end, and return its output."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith("{"):
                outcome: dict[str, Any] = json.loads(line)
                return outcome
            assert line.strip() in STAGES
            if line.strip() == kill_at:
                return None
            process.stdin.write("\n")
            process.stdin.flush()
        raise AssertionError("it ended by itself")
    finally:
        process.kill()
        process.wait(10)
        process.stdin.close()
        process.stdout.close()


@pytest.mark.parametrize("kill_at", STAGES)
def test_call_runs_at_most_once_when_killed_at_any_stage(tmp_path: Path, kill_at: str) -> None:
    assert run_until_stage(tmp_path, kill_at) is None
    outcome = run_until_stage(tmp_path, None)
    assert outcome is not None
    commands_run = (tmp_path / "deeds").read_text().split("\n")[:-1] if (tmp_path / "deeds").exists() else []
    lost = "running when the server stopped" in outcome["text"]
    if kill_at in ("running", "ran") or (kill_at == "decided" and lost):
        # It is unknown whether the call has happened; waiters act on a decision at once.
        assert outcome["failed"] and lost
        assert commands_run == (["make -n"] if kill_at == "ran" else [])
    else:
        assert outcome["text"] == "did it"
        assert commands_run == ["make -n"]
    assert outcome["order"] == [
        "call.ready",
        "approval.required",
        "session.state",
        "approval.decided",
        "session.state",
        "call.running",
        "call.result",
    ]
