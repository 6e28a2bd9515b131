"""End conditions of entrypoints in real sandboxes."""

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

from paddock.model.events import EventRecord, EventType
from paddock.model.runs import EndedBy, RunState
from paddock.model.sandbox import SandboxLimits
from paddock.sandbox.base import BackendFeature
from tests.integration.fleet.conftest import Running, running, until

from .watch_support import QUICK, TENANT, SimpleOutputReader, entrypoint

pytestmark = pytest.mark.anyio
MIB = 2**20
FOREVER = "while :; do sleep 60; done"


@pytest.fixture
async def data(tmp_path: Path) -> AsyncIterator[Path]:
    """A data directory; its sandboxes are removed after the test."""
    yield tmp_path
    async with running(tmp_path) as machine:
        listed, _ = await machine.fleet.sandboxes.list(page_size=1000)
        for sandbox in listed:
            await machine.fleet.end_sandbox(sandbox, "test over", keep=False)


async def test_exit_code_zero_succeeds_and_logs_the_output(data: Path) -> None:
    async with entrypoint(data, "echo one; echo trouble >&2; printf last") as watched:
        end = await watched.run_to_end()
        assert (end.state, end.ended_by, end.exit_code) == (RunState.SUCCEEDED, EndedBy.EXIT, 0)
        assert watched.log_text() == "one\nlast"
        assert (watched.logs / "agent.err").read_text() == "trouble\n"
        assert sorted(await watched.output()) == sorted("one\ntrouble\nlast")
        assert all(event.data["cursor"] > 0 for event in await watched.events())


async def test_failure_reason_has_exit_code_and_last_output(data: Path) -> None:
    async with entrypoint(data, "echo no such luck >&2; exit 3") as watched:
        end = await watched.run_to_end()
        assert (end.state, end.ended_by, end.exit_code) == (RunState.FAILED, EndedBy.EXIT, 3)
        assert "exit code 3" in end.reason
        assert "no such luck" in end.reason
        assert end.evidence["last_output"] == {"stderr": "no such luck\n"}


async def test_entrypoint_that_cannot_start_fails_with_a_reason(data: Path) -> None:
    async with entrypoint(data, "exec /no/such/program") as watched:
        end = await watched.run_to_end()
        assert (end.state, end.ended_by, end.exit_code) == (RunState.FAILED, EndedBy.EXIT, 127)
        assert "/no/such/program" in end.reason


async def test_agent_error_fails_the_run_despite_exit_code_zero(data: Path) -> None:
    async with entrypoint(data, "echo fail API error 529; exit 0", agent="talk") as watched:
        watched.usage_source.set(requests=3, failed=1, last_error="overloaded")
        end = await watched.run_to_end(SimpleOutputReader())
        assert (end.state, end.ended_by, end.exit_code) == (RunState.FAILED, EndedBy.AGENT_ERROR, 0)
        assert "API error 529" in end.reason
        assert "overloaded" in end.reason


async def test_agent_without_requests_and_output_fails(data: Path) -> None:
    async with entrypoint(data, "exit 0", agent="talk") as watched:
        end = await watched.run_to_end(SimpleOutputReader())
        assert end.state is RunState.FAILED
        assert "without a request to the model" in end.reason


async def test_agent_with_output_succeeds(data: Path) -> None:
    async with entrypoint(data, "echo turn; echo say hello; echo say again", agent="talk") as watched:
        end = await watched.run_to_end(SimpleOutputReader())
        assert (end.state, end.turns) == (RunState.SUCCEEDED, 1)
        texts = [event.data["text"] for event in await watched.events() if event.type is EventType.RUN_TEXT]
        assert texts == ["hello", "again"]


async def test_file_ends_the_run(data: Path) -> None:
    script = f"echo working; touch done.txt; {FOREVER}"
    async with entrypoint(data, script, end={"file": "done.txt"}) as watched:
        end = await watched.run_to_end()
        assert (end.state, end.ended_by) == (RunState.SUCCEEDED, EndedBy.FILE)
        assert "/workspace/done.txt" in end.reason
        assert "sleep 60" not in await watched.processes()
        assert watched.log_text() == "working\n"


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
async def test_output_pattern_ends_the_run(data: Path, script: str, pattern: str) -> None:
    async with entrypoint(data, f"{script}; {FOREVER}", end={"output": pattern}) as watched:
        end = await watched.run_to_end()
        assert (end.state, end.ended_by) == (RunState.SUCCEEDED, EndedBy.OUTPUT)


async def test_exponential_pattern_does_not_block_the_event_loop(data: Path) -> None:
    script = f"echo {'a' * 60}.; sleep 0.1; echo done"
    async with entrypoint(data, script, end={"output": "(a+)+$"}) as watched:
        longest_pause, end = 0.0, asyncio.ensure_future(watched.run_to_end())
        while not end.done():
            started_at = time.monotonic()
            await asyncio.sleep(0.01)
            longest_pause = max(longest_pause, time.monotonic() - started_at)
        assert end.result().ended_by is EndedBy.EXIT
        assert end.result().evidence["slow_patterns"] == 1
        assert longest_pause < 1


async def test_agent_text_pattern_ends_the_run(data: Path) -> None:
    script = f"echo say I am DONE; {FOREVER}"
    async with entrypoint(data, script, agent="talk", end={"says": "DONE$"}) as watched:
        end = await watched.run_to_end(SimpleOutputReader())
        assert (end.state, end.ended_by) == (RunState.SUCCEEDED, EndedBy.SAYS)


async def test_turn_limit_ends_the_run(data: Path) -> None:
    script = f"echo turn; echo turn; echo turn; {FOREVER}"
    async with entrypoint(data, script, agent="talk", end={"turns": 2}) as watched:
        end = await watched.run_to_end(SimpleOutputReader())
        assert (end.state, end.ended_by, end.turns) == (RunState.OVER_BUDGET, EndedBy.TURNS, 3)


@pytest.mark.parametrize(
    ("bounds", "figures"),
    [
        ({"tokens": 100}, {"requests": 1, "input_tokens": 80, "output_tokens": 30}),
        ({"cost": 0.5}, {"requests": 1, "cost": 0.6}),
        ({"requests": 2}, {"requests": 3, "failed": 1, "last_error": "This key has made the 2 requests of its budget"}),
    ],
    ids=["tokens", "cost", "requests"],
)
async def test_spent_budget_ends_the_run(data: Path, bounds: dict[str, float], figures: dict[str, float]) -> None:
    async with entrypoint(data, FOREVER, agent="talk", llm={"model": "m", **bounds}) as watched:
        watching = asyncio.ensure_future(watched.run_to_end(SimpleOutputReader()))
        watched.usage_source.set(**figures)
        end = await watching
        assert (end.state, end.ended_by) == (RunState.OVER_BUDGET, EndedBy.BUDGET)
        usage = [event.data for event in await watched.events() if event.type is EventType.RUN_USAGE]
        assert usage[-1]["requests"] == figures["requests"]


async def test_unreachable_provider_is_reported_at_once_and_ends_the_run(data: Path) -> None:
    def failures(events: list[EventRecord]) -> list[dict[str, Any]]:
        return [dict(event.data) for event in events if event.type is EventType.RUN_MODEL_FAILED]

    async def is_reported() -> bool:
        return bool(failures(await watched.events()))

    async with entrypoint(data, FOREVER, agent="talk") as watched:
        watching = asyncio.ensure_future(watched.run_to_end(SimpleOutputReader()))
        counts = {"requests": 1, "failed": 1, "failing": 1, "unreached": 1, "failing_since": time.time()}
        watched.usage_source.set(**counts, last_error="provider acme: gone")
        await until(is_reported)
        assert not watching.done()
        counts |= {"requests": 8, "failed": 8, "failing": 8, "unreached": 8}
        watched.usage_source.set(**counts, last_error="provider acme: gone")
        end = await watching
        assert (end.state, end.ended_by, end.code) == (RunState.FAILED, EndedBy.MODEL, "PROVIDER_UNREACHED")
        assert failures(await watched.events()) == [{"message": "provider acme: gone", "retried": True}]


async def test_last_output_begins_at_the_beginning_of_a_line(data: Path) -> None:
    script = "head -c 3000 /dev/zero | tr '\\0' x; echo; echo last; exit 1"
    async with entrypoint(data, script) as watched:
        assert (await watched.run_to_end()).evidence["last_output"] == {"stdout": "last\n"}


async def test_passed_checks_end_the_run_after_a_turn(data: Path) -> None:
    checks_run = []

    async def verify() -> bool:
        checks_run.append(1)
        return len(checks_run) == 2

    script = f"for i in 1 2 3; do echo turn; sleep 0.2; done; {FOREVER}"
    task: dict[str, Any] = {"end": {"verified": True}, "verify": ["true"]}
    async with entrypoint(data, script, agent="talk", **task) as watched:
        end = await watched.run_to_end(SimpleOutputReader(), verify=verify)
        assert (end.state, end.ended_by, len(checks_run)) == (RunState.SUCCEEDED, EndedBy.VERIFIED, 2)


async def test_timeout_kills_the_entrypoint_and_its_processes(data: Path) -> None:
    script = f"trap '' TERM; (trap '' TERM; setsid sleep 77 & {FOREVER}) & {FOREVER}"
    async with entrypoint(data, script, end={"timeout": 0.3}) as watched:
        end = await watched.run_to_end()
        assert (end.state, end.ended_by) == (RunState.TIMED_OUT, EndedBy.TIMEOUT)
        remaining = await watched.processes()
        assert "sleep 60" not in remaining
        assert "sleep 77" not in remaining


async def test_silence_ends_the_run_unless_a_model_request_is_active(data: Path) -> None:
    async with entrypoint(data, f"echo hello; {FOREVER}", end={"silence": 0.4}) as watched:
        watched.usage_source.set(requests=1, under_way=1)
        watching = asyncio.ensure_future(watched.run_to_end())
        await asyncio.wait([watching], timeout=0.8)
        assert not watching.done()
        watched.usage_source.set(requests=1, last_at=time.time())
        end = await watching
        assert (end.state, end.ended_by) == (RunState.TIMED_OUT, EndedBy.SILENCE)


async def test_cancelled_agent_may_clean_up(data: Path) -> None:
    script = f"trap 'echo tidied; exit 9' TERM; echo on; while :; do sleep 0.05; done; {FOREVER}"
    async with entrypoint(data, script) as watched:
        watching = asyncio.ensure_future(watched.run_to_end(settings=replace(QUICK, grace=20)))
        await until(lambda: _file_contains(watched.logs / "agent.out", "on"))
        watched.cancel.request("not needed any more")
        end = await watching
        assert (end.state, end.ended_by, end.exit_code) == (RunState.CANCELLED, EndedBy.CANCEL, 9)
        assert end.reason == "it was cancelled: not needed any more"
        assert watched.log_text() == "on\ntidied\n"


async def test_hard_cancellation_does_not_wait_for_the_agent(data: Path) -> None:
    async with entrypoint(data, f"trap '' TERM; {FOREVER}") as watched:
        watching = asyncio.ensure_future(watched.run_to_end(settings=replace(QUICK, grace=60)))
        watched.cancel.request("stop")
        await asyncio.sleep(0.1)
        started_at = time.monotonic()
        watched.cancel.request("now", hard=True)
        end = await watching
        assert end.state is RunState.CANCELLED
        assert time.monotonic() - started_at < 5
        assert "sleep 60" not in await watched.processes()


async def test_background_processes_end_with_the_entrypoint(data: Path) -> None:
    async with entrypoint(data, "setsid sleep 77 & echo started") as watched:
        end = await watched.run_to_end()
        assert end.state is RunState.SUCCEEDED
        assert "sleep 77" not in await watched.processes()


async def test_background_process_continues_until_the_end_file_exists(data: Path) -> None:
    script = "(sleep 0.3; touch ready) & exit 0"
    async with entrypoint(data, script, end={"exit": False, "file": "ready"}) as watched:
        end = await watched.run_to_end()
        assert (end.state, end.ended_by, end.exit_code) == (RunState.SUCCEEDED, EndedBy.FILE, 0)


async def test_output_flood_is_limited_in_logs_and_events(data: Path) -> None:
    script = "echo first; yes | head -c 1G; echo; echo last"
    async with entrypoint(data, script) as watched:
        end = await watched.run_to_end(settings=replace(QUICK, log_bytes=8 * MIB))
        assert end.state is RunState.SUCCEEDED
        size = (watched.logs / "agent.out").stat().st_size
        assert size <= 4 * MIB + 1000
        log = watched.log_text()
        assert log.startswith("first\ny\n")
        assert log.endswith("y\n\nlast\n")
        assert "left out here" in log
        assert sorted(path.name for path in watched.logs.iterdir()) == ["agent.err", "agent.out"]
        events = await watched.events()
        assert len(events) < 200
        assert sum(len(event.data["text"]) for event in events) < 4 * MIB
        assert sum(event.data.get("left_out", 0) for event in events) > 0


async def test_output_flood_does_not_block_the_event_loop(data: Path) -> None:
    async with entrypoint(data, "yes", agent="talk") as watched:
        watching = asyncio.ensure_future(
            watched.run_to_end(SimpleOutputReader(), settings=replace(QUICK, log_bytes=MIB))
        )
        delays = []
        for _ in range(60):
            started_at = time.monotonic()
            await asyncio.sleep(0.02)
            delays.append(time.monotonic() - started_at - 0.02)
        watched.cancel.request("enough", hard=True)
        assert (await watching).state is RunState.CANCELLED
        assert sorted(delays)[len(delays) // 2] < 0.05


async def test_number_of_agent_events_is_limited(data: Path) -> None:
    async with entrypoint(data, "for i in $(seq 5000); do echo say $i; done", agent="talk") as watched:
        end = await watched.run_to_end(SimpleOutputReader())
        assert end.state is RunState.SUCCEEDED
        assert watched.log_text() == "".join(f"say {i}\n" for i in range(1, 5001))
        events = await watched.events()
        assert 200 <= len(events) < 400
        assert sum(event.data.get("left_out", 0) for event in events) > 10_000
        assert events[-1].data["nth"] == 5000


async def test_watch_survives_lost_connections(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.runs.output.output_follower.RECONNECT_SECONDS", 0.2)
    script = "for i in $(seq 30); do echo $i; sleep 0.02; done"
    async with entrypoint(data, script) as watched:
        watching = asyncio.ensure_future(watched.run_to_end())
        for number in (3, 12, 21):
            await until(lambda text=f"{number}\n": _file_contains(watched.logs / "agent.out", text))  # type: ignore[misc]
            await watched.machine.fleet.disconnect(watched.run.sandbox_id or "")
        assert (await watching).state is RunState.SUCCEEDED
        assert watched.log_text() == await watched.output() == "".join(f"{i}\n" for i in range(1, 31))


async def test_full_disk_is_recognised(data: Path) -> None:
    settings = {"local": {"disk_check_every": 0.05}}
    script = f"head -c 64M /dev/zero > big; {FOREVER}"
    async with entrypoint(data, script, limits=SandboxLimits(disk=8 * MIB), settings=settings) as watched:
        end = await watched.run_to_end()
        assert (end.state, end.ended_by) == (RunState.FAILED, EndedBy.DISK_FULL)
        assert end.evidence["disk"]["limit"] == 8 * MIB


async def test_out_of_memory_is_recognised(data: Path) -> None:
    script = "exec python3 -c 'keep = []\nwhile True: keep.append(bytearray(2**20))'"
    async with entrypoint(data, script, limits=SandboxLimits(memory=128 * MIB)) as watched:
        if BackendFeature.MEMORY_LIMIT not in watched.machine.backend.features:
            pytest.skip("no memory control group on this machine for this user")
        end = await watched.run_to_end()
        assert (end.state, end.ended_by, end.exit_code) == (RunState.FAILED, EndedBy.OUT_OF_MEMORY, 137)
        assert end.evidence["out_of_memory_kills"] >= 1


async def test_killed_sandbox_is_lost(data: Path) -> None:
    async with entrypoint(data, f"echo going; {FOREVER}") as watched:
        watching = asyncio.ensure_future(watched.run_to_end())
        await until(lambda: _file_contains(watched.logs / "agent.out", "going"))
        os.kill(_first_process(watched.machine, watched.run.sandbox_id), signal.SIGKILL)
        end = await watching
        assert (end.state, end.ended_by, end.exit_code) == (RunState.LOST, EndedBy.SANDBOX_DIED, None)
        assert end.evidence["sandbox"]["reason"] == "killed"
        assert end.evidence["last_output"] == {"stdout": "going\n"}


async def test_deleted_sandbox_is_lost_with_the_reason_deleted(data: Path) -> None:
    async with entrypoint(data, FOREVER) as watched:
        watching = asyncio.ensure_future(watched.run_to_end())
        await until(lambda: _has_stored_progress(watched.progress))
        await watched.machine.fleet.delete(TENANT, watched.run.sandbox_id or "")
        end = await watching
        assert (end.state, end.ended_by) == (RunState.LOST, EndedBy.SANDBOX_DIED)
        assert "deleted" in end.reason
        assert (await watched.run_to_end()).reason == end.reason


async def test_sandbox_frozen_for_too_long_is_lost(data: Path) -> None:
    async with entrypoint(data, FOREVER) as watched:
        watching = asyncio.ensure_future(watched.run_to_end())
        await until(lambda: _has_stored_progress(watched.progress))
        await watched.machine.fleet.pause(TENANT, watched.run.sandbox_id or "")
        end = await watching
        assert (end.state, end.ended_by) == (RunState.LOST, EndedBy.SANDBOX_FROZEN)
        assert end.evidence["sandbox"]["health"] == "paused"


async def test_briefly_frozen_sandbox_is_not_lost(data: Path) -> None:
    async with entrypoint(data, "while ! test -e go; do sleep 0.02; done; echo went") as watched:
        sandbox_id = watched.run.sandbox_id or ""
        health_timeouts = replace(QUICK.health_timeouts, freeze_limit=30)
        watching = asyncio.ensure_future(watched.run_to_end(settings=replace(QUICK, health_timeouts=health_timeouts)))
        await watched.machine.fleet.pause(TENANT, sandbox_id)
        await asyncio.sleep(0.2)
        await watched.machine.fleet.resume(TENANT, sandbox_id)
        await (await watched.machine.fleet.running_client(TENANT, sandbox_id)).write_file("/workspace/go", b"")
        assert (await watching).state is RunState.SUCCEEDED
        assert watched.log_text() == "went\n"


async def test_unresponsive_daemon_is_distinguished_from_a_dead_sandbox(data: Path) -> None:
    async with entrypoint(data, FOREVER) as watched:
        watching = asyncio.ensure_future(watched.run_to_end())
        await until(lambda: _has_stored_progress(watched.progress))
        os.kill(_first_process(watched.machine, watched.run.sandbox_id), signal.SIGSTOP)
        end = await watching
        # Where nothing can be frozen, a stopped first process is what a frozen sandbox looks like.
        assert end.state is RunState.LOST
        assert end.ended_by in (EndedBy.SANDBOX_SILENT, EndedBy.SANDBOX_FROZEN)
        assert end.evidence["sandbox"]["health"] != "gone"


def _first_process(machine: Running, sandbox_id: str | None) -> int:
    identity = machine.backend._identity(sandbox_id or "")
    assert identity is not None
    return identity.pid


async def _file_contains(path: Path, text: str) -> bool:
    return path.exists() and text in path.read_text()


async def _has_stored_progress(progress: dict[str, object]) -> bool:
    return "watch" in progress


TWO_STREAM_SCRIPT = """
for i in $(seq 40); do
  echo turn; echo "say message $i: äöü €"; echo "plain $i"
  printf 'half of a li'; echo "trouble $i" >&2; sleep 0.01; echo "ne $i"
done
echo say the end
"""


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("plain", [False, True], ids=["with a reader", "plain"])
async def test_no_output_is_lost_or_repeated_when_watches_are_interrupted(
    data: Path, monkeypatch: pytest.MonkeyPatch, seed: int, plain: bool
) -> None:
    if seed % 2:  # As if there were too much output to read it again.
        monkeypatch.setattr("paddock.runs.output.output_pipeline.MAX_REREAD_BYTES", 0)
    rng = random.Random(seed)
    kinds = (EventType.RUN_TEXT, EventType.RUN_OUTPUT, EventType.RUN_ERROR)
    settings = replace(QUICK, store_interval=0.02)
    async with entrypoint(data, TWO_STREAM_SCRIPT, agent="talk") as watched:
        interruptions = 0
        while True:
            watching = asyncio.ensure_future(
                watched.run_to_end(None if plain else SimpleOutputReader(), settings=settings)
            )
            done, _ = await asyncio.wait([watching], timeout=rng.uniform(0, 0.25) if interruptions < 12 else 60)
            if done:
                break
            interruptions += 1
            watching.cancel()
            await asyncio.wait([watching])
        end = watching.result()
        assert end.state is RunState.SUCCEEDED
        assert interruptions
        expected = "".join(f"turn\nsay message {i}: äöü €\nplain {i}\nhalf of a line {i}\n" for i in range(1, 41))
        assert watched.log_text() == f"{expected}say the end\n"
        assert (watched.logs / "agent.err").read_text() == "".join(f"trouble {i}\n" for i in range(1, 41))
        events = [event for event in await watched.events() if event.type in kinds]
        output = "".join(event.data["text"] for event in events if event.data.get("stream") == "stdout")
        trouble = "".join(event.data["text"] for event in events if event.data.get("stream") == "stderr")
        assert trouble == "".join(f"trouble {i}\n" for i in range(1, 41))
        if plain:
            assert output == f"{expected}say the end\n"
        else:
            assert end.turns == 40
            assert output == "".join(f"plain {i}\nhalf of a line {i}\n" for i in range(1, 41))
            texts = [event.data["text"] for event in events if event.type is EventType.RUN_TEXT]
            assert texts == [*(f"message {i}: äöü €" for i in range(1, 41)), "the end"]


async def test_verdict_of_an_interrupted_watch_is_kept(data: Path) -> None:
    async with entrypoint(data, f"echo on; {FOREVER}", end={"timeout": 0.2}) as watched:
        first = await watched.run_to_end()
        again = await watched.run_to_end()
        assert first.ended_by is EndedBy.TIMEOUT
        assert (again.state, again.ended_by, again.reason) == (first.state, first.ended_by, first.reason)
        assert watched.log_text() == "on\n"
        assert await watched.output() == "on\n"


async def test_new_attempt_starts_its_output_from_the_beginning(data: Path) -> None:
    async with entrypoint(data, "echo same") as watched:
        await watched.run_to_end()
        await watched.machine.fleet.events.append("run/run-1", EventType.RUN_STARTED, {"attempt": 2}, tenant=TENANT)
        watched.run = watched.run.model_copy(update={"attempt": 2})
        watched.logs = data / "second"
        await watched.run_to_end()
        assert await watched.output() == "same\nsame\n"
        assert watched.log_text() == "same\n"


async def test_split_characters_survive_output_of_the_other_stream(data: Path) -> None:
    script = r"printf '\303'; sleep 0.1; printf oops >&2; sleep 0.1; printf '\251\n'"
    async with entrypoint(data, script) as watched:
        await watched.run_to_end()
        assert (watched.logs / "agent.out").read_bytes() == b"\xc3\xa9\n"
        assert (watched.logs / "agent.err").read_bytes() == b"oops"
