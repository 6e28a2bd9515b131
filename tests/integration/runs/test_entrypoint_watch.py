"""How the work of a run ends, in real sandboxes."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddock.model.events import EventType
from paddock.model.runs import EndedBy, RunState
from paddock.model.sandbox import SandboxLimits
from paddock.sandbox.base import BackendFeature
from tests.integration.fleet.conftest import Running, running, until

from .watch_support import ME, QUICK, Talk, entrypoint

pytestmark = pytest.mark.anyio
MIB = 2**20
FOREVER = "while :; do sleep 60; done"


@pytest.fixture
async def data(tmp_path: Path) -> AsyncIterator[Path]:
    """A data directory of which nothing may be left on the machine afterwards."""
    yield tmp_path
    async with running(tmp_path) as machine:
        listed, _ = await machine.fleet.sandboxes.list(page_size=1000)
        for sandbox in listed:
            await machine.fleet.end_sandbox(sandbox, "test over", keep=False)


async def test_a_script_that_ends_well_has_succeeded_and_left_its_output(data: Path) -> None:
    async with entrypoint(data, "echo one; echo trouble >&2; printf last") as watched:
        over = await watched.until_over()
        assert (over.state, over.ended_by, over.exit_code) == (RunState.SUCCEEDED, EndedBy.EXIT, 0)
        assert watched.out() == "one\nlast"
        assert (watched.logs / "agent.err").read_text() == "trouble\n"
        assert sorted(await watched.output()) == sorted("one\ntrouble\nlast")
        assert all(event.data["cursor"] > 0 for event in await watched.events())


async def test_a_failure_is_told_with_its_code_and_its_last_words(data: Path) -> None:
    async with entrypoint(data, "echo no such luck >&2; exit 3") as watched:
        over = await watched.until_over()
        assert (over.state, over.ended_by, over.exit_code) == (RunState.FAILED, EndedBy.EXIT, 3)
        assert "exit code 3" in over.reason
        assert "no such luck" in over.reason
        assert over.evidence["last_output"] == {"stderr": "no such luck\n"}


async def test_an_entrypoint_that_cannot_be_started_says_why(data: Path) -> None:
    async with entrypoint(data, "exec /no/such/program") as watched:
        over = await watched.until_over()
        assert (over.state, over.ended_by, over.exit_code) == (RunState.FAILED, EndedBy.EXIT, 127)
        assert "/no/such/program" in over.reason


async def test_an_agents_error_counts_whatever_its_exit_code(data: Path) -> None:
    async with entrypoint(data, "echo fail API error 529; exit 0", agent="talk") as watched:
        watched.traffics.set(requests=3, failed=1, last_error="overloaded")
        over = await watched.until_over(Talk())
        assert (over.state, over.ended_by, over.exit_code) == (RunState.FAILED, EndedBy.AGENT_ERROR, 0)
        assert "API error 529" in over.reason
        assert "overloaded" in over.reason


async def test_an_agent_that_did_nothing_has_not_succeeded(data: Path) -> None:
    async with entrypoint(data, "exit 0", agent="talk") as watched:
        over = await watched.until_over(Talk())
        assert over.state is RunState.FAILED
        assert "without a request to the model" in over.reason


async def test_an_agent_that_says_something_has_succeeded(data: Path) -> None:
    async with entrypoint(data, "echo turn; echo say hello; echo say again", agent="talk") as watched:
        over = await watched.until_over(Talk())
        assert (over.state, over.turns) == (RunState.SUCCEEDED, 1)
        said = [event.data["text"] for event in await watched.events() if event.type is EventType.RUN_TEXT]
        assert said == ["hello", "again"]


async def test_a_file_ends_it(data: Path) -> None:
    script = f"echo working; touch done.txt; {FOREVER}"
    async with entrypoint(data, script, end={"file": "done.txt"}) as watched:
        over = await watched.until_over()
        assert (over.state, over.ended_by) == (RunState.SUCCEEDED, EndedBy.FILE)
        assert "/workspace/done.txt" in over.reason
        assert "sleep 60" not in await watched.processes()
        assert watched.out() == "working\n"


@pytest.mark.parametrize(
    ("script", "pattern"),
    [
        ("echo tests: 12 passed", r"\d+ passed"),
        ("printf rea; sleep 0.1; echo dy now", "ready"),
        ("echo listening >&2", "listening"),
        ("printf 'name> '", "name> $"),
    ],
    ids=["line", "in pieces", "stderr", "unfinished line"],
)
async def test_a_pattern_in_the_output_ends_it(data: Path, script: str, pattern: str) -> None:
    async with entrypoint(data, f"{script}; {FOREVER}", end={"output": pattern}) as watched:
        over = await watched.until_over()
        assert (over.state, over.ended_by) == (RunState.SUCCEEDED, EndedBy.OUTPUT)


async def test_a_pattern_that_would_take_for_ever_does_not_keep_the_server(data: Path) -> None:
    script = f"echo {'a' * 60}.; sleep 0.1; echo done"
    async with entrypoint(data, script, end={"output": "(a+)+$"}) as watched:
        longest, over = 0.0, asyncio.ensure_future(watched.until_over())
        while not over.done():
            began = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - began)
        assert over.result().ended_by is EndedBy.EXIT
        assert over.result().evidence["slow_patterns"] == 1
        assert longest < 1


async def test_what_the_agent_says_ends_it(data: Path) -> None:
    script = f"echo say I am DONE; {FOREVER}"
    async with entrypoint(data, script, agent="talk", end={"says": "DONE$"}) as watched:
        over = await watched.until_over(Talk())
        assert (over.state, over.ended_by) == (RunState.SUCCEEDED, EndedBy.SAYS)


async def test_too_many_turns_end_it(data: Path) -> None:
    script = f"echo turn; echo turn; echo turn; {FOREVER}"
    async with entrypoint(data, script, agent="talk", end={"turns": 2}) as watched:
        over = await watched.until_over(Talk())
        assert (over.state, over.ended_by, over.turns) == (RunState.OVER_BUDGET, EndedBy.TURNS, 3)


@pytest.mark.parametrize(
    ("bounds", "figures"),
    [
        ({"tokens": 100}, {"requests": 1, "input_tokens": 80, "output_tokens": 30}),
        ({"cost": 0.5}, {"requests": 1, "cost": 0.6}),
        ({"requests": 2}, {"requests": 3, "failed": 1, "last_error": "This key has made the 2 requests of its budget"}),
    ],
    ids=["tokens", "cost", "requests"],
)
async def test_a_spent_budget_ends_it(data: Path, bounds: dict[str, float], figures: dict[str, float]) -> None:
    async with entrypoint(data, FOREVER, agent="talk", llm={"model": "m", **bounds}) as watched:
        watching = asyncio.ensure_future(watched.until_over(Talk()))
        watched.traffics.set(**figures)
        over = await watching
        assert (over.state, over.ended_by) == (RunState.OVER_BUDGET, EndedBy.BUDGET)
        usage = [event.data for event in await watched.events() if event.type is EventType.RUN_USAGE]
        assert usage[-1]["requests"] == figures["requests"]


async def test_a_passed_check_ends_it_after_a_turn(data: Path) -> None:
    tried = []

    async def verify() -> bool:
        tried.append(1)
        return len(tried) == 2

    script = f"for i in 1 2 3; do echo turn; sleep 0.2; done; {FOREVER}"
    task: dict[str, Any] = {"end": {"verified": True}, "verify": ["true"]}
    async with entrypoint(data, script, agent="talk", **task) as watched:
        over = await watched.until_over(Talk(), verify=verify)
        assert (over.state, over.ended_by, len(tried)) == (RunState.SUCCEEDED, EndedBy.VERIFIED, 2)


async def test_what_never_ends_is_killed_when_its_time_is_up_with_all_it_started(data: Path) -> None:
    script = f"trap '' TERM; (trap '' TERM; setsid sleep 77 & {FOREVER}) & {FOREVER}"
    async with entrypoint(data, script, end={"timeout": 0.3}) as watched:
        over = await watched.until_over()
        assert (over.state, over.ended_by) == (RunState.TIMED_OUT, EndedBy.TIMEOUT)
        left = await watched.processes()
        assert "sleep 60" not in left
        assert "sleep 77" not in left


async def test_silence_ends_it_unless_a_model_is_being_asked(data: Path) -> None:
    async with entrypoint(data, f"echo hello; {FOREVER}", end={"silence": 0.4}) as watched:
        watched.traffics.set(requests=1, under_way=1)
        watching = asyncio.ensure_future(watched.until_over())
        await asyncio.wait([watching], timeout=0.8)
        assert not watching.done()
        watched.traffics.set(requests=1, last_at=time.time())
        over = await watching
        assert (over.state, over.ended_by) == (RunState.TIMED_OUT, EndedBy.SILENCE)


async def test_a_cancelled_agent_may_tidy_up(data: Path) -> None:
    script = f"trap 'echo tidied; exit 9' TERM; echo on; while :; do sleep 0.05; done; {FOREVER}"
    async with entrypoint(data, script) as watched:
        watching = asyncio.ensure_future(watched.until_over(settings=replace(QUICK, grace=20)))
        await until(lambda: _has(watched.logs / "agent.out", "on"))
        watched.cancel.request("not needed any more")
        over = await watching
        assert (over.state, over.ended_by, over.exit_code) == (RunState.CANCELLED, EndedBy.CANCEL, 9)
        assert over.reason == "it was cancelled: not needed any more"
        assert watched.out() == "on\ntidied\n"


async def test_a_hard_cancel_waits_for_nobody(data: Path) -> None:
    async with entrypoint(data, f"trap '' TERM; {FOREVER}") as watched:
        watching = asyncio.ensure_future(watched.until_over(settings=replace(QUICK, grace=60)))
        watched.cancel.request("stop")
        await asyncio.sleep(0.1)
        began = time.monotonic()
        watched.cancel.request("now", hard=True)
        over = await watching
        assert over.state is RunState.CANCELLED
        assert time.monotonic() - began < 5
        assert "sleep 60" not in await watched.processes()


async def test_what_goes_on_in_the_background_ends_with_the_entrypoint(data: Path) -> None:
    async with entrypoint(data, "setsid sleep 77 & echo started") as watched:
        over = await watched.until_over()
        assert over.state is RunState.SUCCEEDED
        assert "sleep 77" not in await watched.processes()


async def test_what_serves_in_the_background_goes_on_until_its_file_is_there(data: Path) -> None:
    script = "(sleep 0.3; touch ready) & exit 0"
    async with entrypoint(data, script, end={"exit": False, "file": "ready"}) as watched:
        over = await watched.until_over()
        assert (over.state, over.ended_by, over.exit_code) == (RunState.SUCCEEDED, EndedBy.FILE, 0)


async def test_a_flood_fills_neither_the_disk_nor_the_events(data: Path) -> None:
    script = "echo first; yes | head -c 1G; echo; echo last"
    async with entrypoint(data, script) as watched:
        over = await watched.until_over(settings=replace(QUICK, log_bytes=8 * MIB))
        assert over.state is RunState.SUCCEEDED
        size = (watched.logs / "agent.out").stat().st_size
        assert size <= 4 * MIB + 1000
        log = watched.out()
        assert log.startswith("first\ny\n")
        assert log.endswith("y\n\nlast\n")
        assert "left out here" in log
        assert sorted(path.name for path in watched.logs.iterdir()) == ["agent.err", "agent.out"]
        events = await watched.events()
        assert len(events) < 200
        assert sum(len(event.data["text"]) for event in events) < 4 * MIB
        assert sum(event.data.get("left_out", 0) for event in events) > 0


async def test_a_flood_leaves_the_server_time_for_others(data: Path) -> None:
    async with entrypoint(data, "yes", agent="talk") as watched:
        watching = asyncio.ensure_future(watched.until_over(Talk(), settings=replace(QUICK, log_bytes=MIB)))
        late = []
        for _ in range(60):
            began = time.monotonic()
            await asyncio.sleep(0.02)
            late.append(time.monotonic() - began - 0.02)
        watched.cancel.request("enough", hard=True)
        assert (await watching).state is RunState.CANCELLED
        assert sorted(late)[len(late) // 2] < 0.05


async def test_a_talkative_agent_becomes_a_bounded_number_of_events(data: Path) -> None:
    async with entrypoint(data, "for i in $(seq 5000); do echo say $i; done", agent="talk") as watched:
        over = await watched.until_over(Talk())
        assert over.state is RunState.SUCCEEDED
        assert watched.out() == "".join(f"say {i}\n" for i in range(1, 5001))
        events = await watched.events()
        assert 200 <= len(events) < 400
        assert sum(event.data.get("left_out", 0) for event in events) > 10_000
        assert events[-1].data["nth"] == 5000


async def test_a_connection_that_breaks_is_not_the_end(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.runs.output.output_follower.RECONNECT_SECONDS", 0.2)
    script = "for i in $(seq 30); do echo $i; sleep 0.02; done"
    async with entrypoint(data, script) as watched:
        watching = asyncio.ensure_future(watched.until_over())
        for number in (3, 12, 21):
            await until(lambda text=f"{number}\n": _has(watched.logs / "agent.out", text))  # type: ignore[misc]
            await watched.machine.fleet.disconnect(watched.run.sandbox_id or "")
        assert (await watching).state is RunState.SUCCEEDED
        assert watched.out() == await watched.output() == "".join(f"{i}\n" for i in range(1, 31))


async def test_a_full_disk_is_told_from_other_ends(data: Path) -> None:
    settings = {"local": {"disk_check_every": 0.05}}
    script = f"head -c 64M /dev/zero > big; {FOREVER}"
    async with entrypoint(data, script, limits=SandboxLimits(disk=8 * MIB), settings=settings) as watched:
        over = await watched.until_over()
        assert (over.state, over.ended_by) == (RunState.FAILED, EndedBy.DISK_FULL)
        assert over.evidence["disk"]["limit"] == 8 * MIB


async def test_want_of_memory_is_told_from_other_ends(data: Path) -> None:
    script = "exec python3 -c 'keep = []\nwhile True: keep.append(bytearray(2**20))'"
    async with entrypoint(data, script, limits=SandboxLimits(memory=128 * MIB)) as watched:
        if BackendFeature.MEMORY_LIMIT not in watched.machine.backend.features:
            pytest.skip("no memory control group on this machine for this user")
        over = await watched.until_over()
        assert (over.state, over.ended_by, over.exit_code) == (RunState.FAILED, EndedBy.OUT_OF_MEMORY, 137)
        assert over.evidence["out_of_memory_kills"] >= 1


async def test_a_killed_sandbox_is_lost(data: Path) -> None:
    async with entrypoint(data, f"echo going; {FOREVER}") as watched:
        watching = asyncio.ensure_future(watched.until_over())
        await until(lambda: _has(watched.logs / "agent.out", "going"))
        os.kill(_first_process(watched.machine, watched.run.sandbox_id), signal.SIGKILL)
        over = await watching
        assert (over.state, over.ended_by, over.exit_code) == (RunState.LOST, EndedBy.SANDBOX_DIED, None)
        assert over.evidence["sandbox"]["reason"] == "killed"
        assert over.evidence["last_output"] == {"stdout": "going\n"}


async def test_a_deleted_sandbox_is_lost_and_said_to_be_deleted(data: Path) -> None:
    async with entrypoint(data, FOREVER) as watched:
        watching = asyncio.ensure_future(watched.until_over())
        await until(lambda: _noted(watched.progress))
        await watched.machine.fleet.delete(ME, watched.run.sandbox_id or "")
        over = await watching
        assert (over.state, over.ended_by) == (RunState.LOST, EndedBy.SANDBOX_DIED)
        assert "deleted" in over.reason
        assert (await watched.until_over()).reason == over.reason


async def test_a_frozen_sandbox_is_lost_when_it_stays_frozen(data: Path) -> None:
    async with entrypoint(data, FOREVER) as watched:
        watching = asyncio.ensure_future(watched.until_over())
        await until(lambda: _noted(watched.progress))
        await watched.machine.fleet.pause(ME, watched.run.sandbox_id or "")
        over = await watching
        assert (over.state, over.ended_by) == (RunState.LOST, EndedBy.SANDBOX_FROZEN)
        assert over.evidence["sandbox"]["health"] == "paused"


async def test_a_sandbox_that_is_resumed_in_time_goes_on(data: Path) -> None:
    async with entrypoint(data, "while ! test -e go; do sleep 0.02; done; echo went") as watched:
        sandbox_id = watched.run.sandbox_id or ""
        patience = replace(QUICK.patience, frozen=30)
        watching = asyncio.ensure_future(watched.until_over(settings=replace(QUICK, patience=patience)))
        await watched.machine.fleet.pause(ME, sandbox_id)
        await asyncio.sleep(0.2)
        await watched.machine.fleet.resume(ME, sandbox_id)
        await (await watched.machine.fleet.running_client(ME, sandbox_id)).write_file("/workspace/go", b"")
        assert (await watching).state is RunState.SUCCEEDED
        assert watched.out() == "went\n"


async def test_a_silent_daemon_is_told_from_a_dead_sandbox(data: Path) -> None:
    async with entrypoint(data, FOREVER) as watched:
        watching = asyncio.ensure_future(watched.until_over())
        await until(lambda: _noted(watched.progress))
        os.kill(_first_process(watched.machine, watched.run.sandbox_id), signal.SIGSTOP)
        over = await watching
        # Where nothing can be frozen, a stopped first process is what a frozen sandbox looks like.
        assert over.state is RunState.LOST
        assert over.ended_by in (EndedBy.SANDBOX_SILENT, EndedBy.SANDBOX_FROZEN)
        assert over.evidence["sandbox"]["health"] != "gone"


def _first_process(machine: Running, sandbox_id: str | None) -> int:
    identity = machine.backend._identity(sandbox_id or "")
    assert identity is not None
    return identity.pid


async def _has(path: Path, text: str) -> bool:
    return path.exists() and text in path.read_text()


async def _noted(progress: dict[str, object]) -> bool:
    return "watch" in progress


TALKATIVE = """
for i in $(seq 40); do
  echo turn; echo "say message $i: äöü €"; echo "plain $i"
  printf 'half of a li'; echo "trouble $i" >&2; sleep 0.01; echo "ne $i"
done
echo say the end
"""


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("plain", [False, True], ids=["with a reader", "plain"])
async def test_nothing_is_lost_or_doubled_when_servers_die_while_it_is_watched(
    data: Path, monkeypatch: pytest.MonkeyPatch, seed: int, plain: bool
) -> None:
    if seed % 2:  # As if there were too much output to read it again.
        monkeypatch.setattr("paddock.runs.output.output_pipeline.MAX_REREAD_BYTES", 0)
    chance = random.Random(seed)
    kinds = (EventType.RUN_TEXT, EventType.RUN_OUTPUT, EventType.RUN_ERROR)
    settings = replace(QUICK, note_every=0.02)
    async with entrypoint(data, TALKATIVE, agent="talk") as watched:
        died = 0
        while True:
            watching = asyncio.ensure_future(watched.until_over(None if plain else Talk(), settings=settings))
            done, _ = await asyncio.wait([watching], timeout=chance.uniform(0, 0.25) if died < 12 else 60)
            if done:
                break
            died += 1
            watching.cancel()
            await asyncio.wait([watching])
        over = watching.result()
        assert over.state is RunState.SUCCEEDED
        assert died
        expected = "".join(f"turn\nsay message {i}: äöü €\nplain {i}\nhalf of a line {i}\n" for i in range(1, 41))
        assert watched.out() == f"{expected}say the end\n"
        assert (watched.logs / "agent.err").read_text() == "".join(f"trouble {i}\n" for i in range(1, 41))
        told = [event for event in await watched.events() if event.type in kinds]
        output = "".join(event.data["text"] for event in told if event.data.get("stream") == "stdout")
        trouble = "".join(event.data["text"] for event in told if event.data.get("stream") == "stderr")
        assert trouble == "".join(f"trouble {i}\n" for i in range(1, 41))
        if plain:
            assert output == f"{expected}say the end\n"
        else:
            assert over.turns == 40
            assert output == "".join(f"plain {i}\nhalf of a line {i}\n" for i in range(1, 41))
            said = [event.data["text"] for event in told if event.type is EventType.RUN_TEXT]
            assert said == [*(f"message {i}: äöü €" for i in range(1, 41)), "the end"]


async def test_how_it_ended_is_decided_once(data: Path) -> None:
    async with entrypoint(data, f"echo on; {FOREVER}", end={"timeout": 0.2}) as watched:
        first = await watched.until_over()
        again = await watched.until_over()
        assert first.ended_by is EndedBy.TIMEOUT
        assert (again.state, again.ended_by, again.reason) == (first.state, first.ended_by, first.reason)
        assert watched.out() == "on\n"
        assert await watched.output() == "on\n"


async def test_another_attempt_is_told_from_its_beginning(data: Path) -> None:
    async with entrypoint(data, "echo same") as watched:
        await watched.until_over()
        await watched.machine.fleet.events.append("run/run-1", EventType.RUN_STARTED, {"attempt": 2}, tenant=ME)
        watched.run = watched.run.model_copy(update={"attempt": 2})
        watched.logs = data / "second"
        await watched.until_over()
        assert await watched.output() == "same\nsame\n"
        assert watched.out() == "same\n"


async def test_an_unfinished_character_of_one_stream_survives_the_other(data: Path) -> None:
    script = r"printf '\303'; sleep 0.1; printf oops >&2; sleep 0.1; printf '\251\n'"
    async with entrypoint(data, script) as watched:
        await watched.until_over()
        assert (watched.logs / "agent.out").read_bytes() == b"\xc3\xa9\n"
        assert (watched.logs / "agent.err").read_bytes() == b"oops"
