"""Runs from their submission to their result, in real sandboxes."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from paddock.app.server import PaddockServer
from paddock.errors import Conflict, InvalidInput, NotFound, RunNotFound
from paddock.model.events import EventType
from paddock.model.runs import EndedBy, RunReasonCode, RunStage, RunState
from paddock.runs.execution import run_executor, stage_operations
from paddock.runs.run_service import RunService
from paddock.sandbox.local.backend import LocalBackend

from .run_service_support import (
    TENANT,
    assert_nothing_left,
    events_of,
    open_server,
    result_of,
    stages_of,
    task,
    wait_for_stage,
    wait_until_ended,
)

pytestmark = pytest.mark.anyio
LONG = "echo begun > begun.txt; sleep 60"


@pytest.fixture
async def paddock(tmp_path: Path) -> AsyncIterator[PaddockServer]:
    presets = tmp_path / "presets"
    presets.mkdir()
    (presets / "deaf.yaml").write_text("command: 'true'\n")
    settings = {"secrets": {"TOKEN": "s3cret"}, "presets": [str(presets)]}
    limits, kinds = {"max_limits": {"memory": "8Gi"}}, {"plain": {"image": "host"}}
    async with open_server(tmp_path, runs=settings, sandboxes=limits, kinds=kinds) as running:
        yield running
        await assert_nothing_left(running)


async def test_successful_run_has_deliverables_logs_and_events(paddock: PaddockServer) -> None:
    work = task(
        "echo out; echo err >&2; echo made > a.txt; pwd > b.txt", deliverables=["a.txt", "*.txt"], verify="true"
    )
    run = await wait_until_ended(paddock, await paddock.runs.submit(TENANT, work))
    result = run.result
    assert result is not None and run.ended_at is not None
    assert (run.state, result.state, result.ended_by) == (RunState.SUCCEEDED, RunState.SUCCEEDED, EndedBy.EXIT)
    assert sorted(each.path for each in result.deliverables) == ["a.txt", "b.txt"]
    assert result.score == 1.0 and result.exit_code == 0 and result.attempt == 1
    assert await stages_of(paddock, run) == [stage for stage in RunStage if stage is not RunStage.ADMIT]
    assert set(result.stages) == set(RunStage) and sum(result.stages.values()) <= result.seconds + 0.5
    assert (run.owner, run.owned_until) == (None, None)

    folder = paddock.runs.dependencies.run_folder(run.id)
    assert (folder.deliverables / "b.txt").read_text() == "/workspace\n"
    assert (folder.logs / "agent.out").read_text() == "out\n"
    assert (folder.logs / "agent.err").read_text() == "err\n"
    assert json.loads(folder.result.read_text())["state"] == "succeeded"
    stored = [json.loads(line) for line in folder.events.read_text().splitlines()]
    events = await events_of(paddock, run)
    assert [(each["number"], each["type"]) for each in stored] == [(event.number, event.type) for event in events]
    assert stored[-1]["type"] == EventType.RUN_ENDED


async def test_kind_without_image_is_enough(paddock: PaddockServer) -> None:
    work = task('echo "$PADDOCK_KIND" > kind.txt', image=None, kind="plain", deliverables=["kind.txt"])
    run = await wait_until_ended(paddock, await paddock.runs.submit(TENANT, work))
    assert run.state is RunState.SUCCEEDED
    assert (paddock.runs.dependencies.run_folder(run.id).deliverables / "kind.txt").read_text() == "plain\n"


async def test_inputs_goal_variables_and_secrets_reach_the_entrypoint(paddock: PaddockServer) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("given/file.txt")
        entry.size = 5
        archive.addfile(entry, io.BytesIO(b"tar'd"))

    async def pieces() -> AsyncIterator[bytes]:
        yield buffer.getvalue()

    bundle = await paddock.runs.dependencies.bundles.save(TENANT, pieces(), 2**20)
    work = task(
        'cat given/file.txt note.txt "$PADDOCK_GOAL_FILE" > all.txt; echo "|$PLAIN|${#TOKEN}|$PADDOCK_RUN" >> all.txt',
        goal="the goal",
        inputs=[{"content": "-noted-", "target": "note.txt"}],
        env={"PLAIN": "value"},
        secrets="TOKEN",
        deliverables="all.txt",
    )
    run = await wait_until_ended(paddock, await paddock.runs.submit(TENANT, work, inputs=bundle))
    folder = paddock.runs.dependencies.run_folder(run.id)
    assert run.state is RunState.SUCCEEDED
    assert (folder.deliverables / "all.txt").read_text() == f"tar'd-noted-the goal|value|6|{run.id}\n"
    written = b"".join(path.read_bytes() for path in folder.path.rglob("*") if path.is_file())
    assert b"s3cret" not in written + (paddock.config.data / "paddock.db").read_bytes()
    await paddock.runs.remove(TENANT, run.id)
    assert not folder.path.exists()
    with pytest.raises(NotFound):
        paddock.runs.dependencies.bundles.bundle_path(TENANT, bundle)


async def test_printed_secrets_are_masked(paddock: PaddockServer) -> None:
    script = 'printf "a%s" "${TOKEN%%cret}"; echo other >&2; sleep 0.3; printf "cret|"; echo "$TOKEN" >&2; echo last s3'
    work = task(script, env={"PW": "hush"}, secrets="TOKEN")
    run = await wait_until_ended(paddock, await paddock.runs.submit(TENANT, work))
    folder = paddock.runs.dependencies.run_folder(run.id)
    assert (folder.logs / "agent.out").read_text() == "a******|last s3\n"
    assert (folder.logs / "agent.err").read_text() == "other\n******\n"
    events = "".join(
        event.data["text"] for event in await events_of(paddock, run) if event.type is EventType.RUN_OUTPUT
    )
    assert "s3cret" not in events and events.count("*") == 12 and "last s3" in events
    stored = b"".join(path.read_bytes() for path in folder.path.rglob("*") if path.is_file())
    assert b"s3cret" not in stored and b"hush" not in stored


async def test_secrets_repeated_in_the_task_are_masked(paddock: PaddockServer) -> None:
    work = task("true", env={"ADDRESS": "id=s3cret", "OTHER": "shown"}, goal="Log in with s3cret.", secrets="TOKEN")
    run = await wait_until_ended(paddock, await paddock.runs.submit(TENANT, work))
    shown = paddock.runs.dependencies.masked_task(run.task)
    assert shown["env"] == {"ADDRESS": "id=******", "OTHER": "shown"}
    assert shown["goal"] == "Log in with ******."
    stored = b"".join(
        path.read_bytes() for path in paddock.runs.dependencies.run_folder(run.id).path.rglob("*") if path.is_file()
    )
    assert b"s3cret" not in stored


async def test_failed_run_has_its_partial_deliverables(paddock: PaddockServer) -> None:
    result = await result_of(paddock, task("echo half > a.txt; exit 3", deliverables=["a.txt", "b.txt"]))
    assert (result.state, result.ended_by, result.exit_code) == (RunState.FAILED, EndedBy.EXIT, 3)
    assert [each.path for each in result.deliverables] == ["a.txt"]
    assert [each.path for each in result.missing] == ["/workspace/b.txt"]


async def test_missing_deliverable_fails_the_run_unless_optional(paddock: PaddockServer) -> None:
    missing, fine = await asyncio.gather(
        result_of(paddock, task(deliverables=["report.md"])),
        result_of(paddock, task(deliverables=[{"path": "report.md", "required": False}])),
    )
    assert missing.state is RunState.FAILED and "report.md" in missing.reason
    assert fine.state is RunState.SUCCEEDED and len(fine.missing) == 1


async def test_checks_score_the_run_and_required_checks_decide(paddock: PaddockServer) -> None:
    checks: list[dict[str, Any]] = [
        {"run": "test -f a.txt", "weight": 3},
        {"run": "echo why; false", "name": "taste", "required": False},
    ]
    work = task("touch a.txt", verify=checks)
    broken = task("touch a.txt", verify=[{"run": "sleep 60", "timeout": 0.2, "name": "slow"}])
    good, bad = await asyncio.gather(result_of(paddock, work), result_of(paddock, broken))
    assert good.state is RunState.SUCCEEDED and good.score == 0.75
    assert [(each.passed, each.output) for each in good.checks] == [(True, ""), (False, "why\n")]
    assert bad.state is RunState.FAILED and "slow" in bad.reason and bad.score == 0.0
    assert "timed out" in bad.checks[0].output


@pytest.mark.parametrize(
    ("entrypoint", "expected"),
    [
        ("no-such-program --please", "no-such-program"),
        (["no-such-program"], "No such file or directory"),
        (["/etc/hostname"], "Permission denied"),
        ("./data.txt", "Permission denied"),
    ],
)
async def test_entrypoint_that_cannot_start_fails_the_run_with_a_reason(
    paddock: PaddockServer, entrypoint: str | list[str], expected: str
) -> None:
    result = await result_of(paddock, task(entrypoint, inputs=[{"content": "x", "target": "data.txt"}]))
    assert (result.state, result.ended_by) == (RunState.FAILED, EndedBy.SETUP)
    assert "entrypoint" in result.reason and expected in result.reason


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"agent": "clade-code"}, "claude-code"),
        ({"secrets": "OTHER"}, "runs.secrets.OTHER"),
        ({"matrix": {"models": ["a", "b"]}}, "matrix"),
        ({"llm": {"script": "turns: 5"}}, "script"),
        ({"agent": "script", "entrypoint": None}, "entrypoint: the agent 'script' starts nothing by itself"),
        ({"image": "hots"}, r"image: no recipe named 'hots' \(did you mean 'host'\?\)"),
        ({"image": None, "kind": "linx"}, "kind: there is no kind 'linx', did you mean linux?"),
        ({"resources": {"memory": "900Gi"}}, "resources: memory may be at most"),
        ({"agent": "deaf", "mcp": "https://tools.example.org/mcp"}, "mcp.*: the agent 'deaf' has no way to use"),
        ({"agent": "mine"}, r"agent: the server knows no preset 'mine'; .* \(looked in .*/presets and among those"),
    ],
)
async def test_invalid_tasks_are_refused_at_submission(
    paddock: PaddockServer, fields: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InvalidInput, match=expected):
        await paddock.runs.submit(TENANT, task(**fields))
    with pytest.raises(NotFound):
        await paddock.runs.submit(TENANT, task(), inputs="0" * 64)


@pytest.mark.parametrize(
    "fields",
    [
        {"secrets": "TOKEN"},
        {"mcp": {"name": "tools", "url": "https://example.org/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}},
    ],
)
async def test_only_allowed_tenants_may_use_secrets(paddock: PaddockServer, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="tenant other may name none"):
        await paddock.runs.submit("other", task(**fields))
    assert (await paddock.runs.submit(TENANT, task(**fields))).state is RunState.QUEUED


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"llm": "no-such-model"}, "There is no model 'no-such-model'"),
        ({"llm": "gpt-5"}, "set OPENAI_API_KEY before the server starts"),
        ({"llm": "gpt-5"}, "give the task a script as 'llm.script'"),
    ],
)
async def test_run_without_an_available_model_fails_with_a_reason(
    paddock: PaddockServer, fields: dict[str, Any], expected: str
) -> None:
    run = await wait_until_ended(paddock, await paddock.runs.submit(TENANT, task(deliverables="a", **fields)))
    result = run.result
    assert result is not None and (result.state, result.ended_by) == (RunState.FAILED, EndedBy.SETUP)
    assert expected in result.reason and result.missing == ()
    assert set(result.stages) == {"admit"}  # Without a sandbox nothing is collected or removed.
    assert await stages_of(paddock, run) == []


async def test_sandbox_start_failure_fails_the_run(tmp_path: Path) -> None:
    async with open_server(tmp_path, sandboxes={"start_timeout": 0.001}) as paddock:
        result = await result_of(paddock, task(retries={"times": 1, "backoff": 0}))
        assert result.state in (RunState.FAILED, RunState.LOST) and result.attempt == 2
        await assert_nothing_left(paddock)


ASK = """python3 -c '
import json, os, urllib.request as web
body = {"model": os.environ["PADDOCK_MODEL"], "messages": [{"role": "user", "content": "hello"}]}
headers = {"Authorization": "Bearer " + os.environ["PADDOCK_LLM_KEY"], "Content-Type": "application/json"}
url = os.environ["PADDOCK_LLM_URL"] + "/v1/chat/completions"
answer = json.load(web.urlopen(web.Request(url, json.dumps(body).encode(), headers)))
print(answer["choices"][0]["message"]["content"])
' > said.txt"""


async def test_script_replaces_an_unavailable_model(paddock: PaddockServer) -> None:
    script = "turns:\n- say: good day\n"
    work = task(ASK, llm={"model": "no-such-model", "script": script}, deliverables="said.txt")
    run = await wait_until_ended(paddock, await paddock.runs.submit(TENANT, work))
    assert run.result is not None and run.state is RunState.SUCCEEDED, run.result
    assert (run.model, run.scripted) == (f"script-{run.id}", True)
    folder = paddock.runs.dependencies.run_folder(run.id)
    assert (folder.deliverables / "said.txt").read_text() == "good day\n"
    assert "good day" in folder.conversation.read_text()
    assert run.result.traffic.requests == 1 and run.result.traffic.scripted


async def test_failed_run_is_retried_in_a_new_sandbox(paddock: PaddockServer) -> None:
    work = task("ls; touch here; echo again; exit 1", retries={"times": 2, "backoff": 0.05})
    run = await wait_until_ended(paddock, await paddock.runs.submit(TENANT, work))
    assert run.result is not None and (run.state, run.result.attempt) == (RunState.FAILED, 3)
    events = await events_of(paddock, run)
    retries = [event.data for event in events if event.type is EventType.RUN_RETRYING]
    assert [each["wait"] for each in retries] == [0.05, 0.1]
    assert (retries[0]["code"], retries[0]["params"]["exit_code"]) == (RunReasonCode.EXITED, "1")
    assert retries[0]["reason"].startswith("the program ended with exit code 1")
    assert len({event.data["sandbox_id"] for event in events if event.type is EventType.RUN_SANDBOX}) == 3
    logs = paddock.runs.dependencies.run_folder(run.id).logs
    found = [(logs / directory / "agent.out").read_text() for directory in ("", "attempt-2", "attempt-3")]
    assert found == ["again\n"] * 3


async def test_success_and_cancellation_are_not_retried(paddock: PaddockServer) -> None:
    assert (await result_of(paddock, task(retries=2))).attempt == 1
    run = await paddock.runs.submit(TENANT, task(LONG, retries={"times": 2, "on": ["failed", "lost"]}))
    await wait_for_stage(paddock, run, RunStage.WATCH)
    await paddock.runs.cancel(TENANT, run.id, hard=True)
    assert (await wait_until_ended(paddock, run)).attempt == 1


async def test_runs_can_be_retried_listed_and_removed(paddock: PaddockServer) -> None:
    first = await paddock.runs.submit(TENANT, task(), request_key="once", group="g", name="work (1)")
    assert (await paddock.runs.submit(TENANT, task(), request_key="once")).id == first.id
    await wait_until_ended(paddock, first)
    second = await paddock.runs.retry(TENANT, first.id)
    assert second.id != first.id and (second.name, second.group) == ("work (1)", "g")
    await wait_until_ended(paddock, second)
    found, total = await paddock.runs.list(TENANT, group="g", states=[RunState.SUCCEEDED])
    assert (total, [run.id for run in found]) == (2, [second.id, first.id])
    with pytest.raises(RunNotFound):
        await paddock.runs.remove("other", first.id)
    await paddock.runs.remove(TENANT, first.id)
    with pytest.raises(RunNotFound):
        await paddock.runs.get(TENANT, first.id)


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("stage", [stage for stage in RunStage if stage is not RunStage.RELEASE])
async def test_cancelling_at_any_stage_leaves_nothing_behind(
    paddock: PaddockServer, stage: RunStage, hard: bool
) -> None:
    late = stage in (RunStage.COLLECT, RunStage.VERIFY)
    work = task("echo done > a.txt" if late else LONG, deliverables="*.txt", verify="sleep 60")
    run = await paddock.runs.submit(TENANT, work)
    await wait_for_stage(paddock, run, stage)
    with pytest.raises(Conflict):
        await paddock.runs.remove(TENANT, run.id)
    await paddock.runs.cancel(TENANT, run.id, "enough", hard=hard)
    run = await wait_until_ended(paddock, run)
    assert run.result is not None and (run.state, run.result.ended_by) == (RunState.CANCELLED, EndedBy.CANCEL)
    assert "enough" in run.result.reason
    assert paddock.runs.dependencies.run_folder(run.id).result.exists()
    await assert_nothing_left(paddock)


async def test_cancelled_run_collects_files_of_the_cleanup(paddock: PaddockServer) -> None:
    work = task(
        "trap 'echo tidied > a.txt; exit 0' INT TERM; echo ready; while :; do sleep 0.05; done", deliverables="a.txt"
    )
    run = await paddock.runs.submit(TENANT, work)
    async for event in paddock.events.follow(f"run/{run.id}"):
        if event.type is EventType.RUN_OUTPUT:
            break
    await paddock.runs.cancel(TENANT, run.id)
    run = await wait_until_ended(paddock, run)
    assert run.state is RunState.CANCELLED
    assert (paddock.runs.dependencies.run_folder(run.id).deliverables / "a.txt").read_text() == "tidied\n"


@pytest.mark.parametrize("stage", [RunStage.INPUTS, RunStage.START, RunStage.WATCH, RunStage.COLLECT, RunStage.VERIFY])
async def test_killed_sandbox_ends_the_run_at_every_stage(paddock: PaddockServer, stage: RunStage) -> None:
    early = stage in (RunStage.INPUTS, RunStage.START, RunStage.WATCH)
    entrypoint = LONG if early else "head -c 50000000 /dev/zero > a.bin"
    run = await paddock.runs.submit(TENANT, task(entrypoint, deliverables="*", verify="sleep 60"))
    await wait_for_stage(paddock, run, stage)
    (sandbox,), _ = await paddock.fleet.list(TENANT)
    assert isinstance(paddock.backend, LocalBackend)
    identity = paddock.backend._running_process(sandbox.id)
    os.kill(identity.pid, signal.SIGKILL)
    run = await wait_until_ended(paddock, run)
    assert run.result is not None and run.state is RunState.LOST, run.result
    assert run.result.ended_by is EndedBy.SANDBOX_DIED and run.result.evidence


async def test_internal_error_fails_one_run_and_not_the_server(
    paddock: PaddockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("unforeseen")

    for where, name in (
        (stage_operations, "upload_run_inputs"),
        (run_executor, "collect_results"),
        (run_executor, "run_checks"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, broken)
            result = await result_of(paddock, task("touch a", deliverables="a", verify="true"))
            assert result.state is RunState.FAILED and "unforeseen" in json.dumps(result.model_dump(mode="json"))
    assert (await result_of(paddock, task())).state is RunState.SUCCEEDED


async def test_two_servers_on_one_database_execute_each_run_once(tmp_path: Path) -> None:
    async with open_server(tmp_path, runs={"parallel": 2, "lease": 1}) as paddock:
        await paddock.runs.close()
        both = [RunService(paddock.runs.dependencies, paddock.store) for _ in range(2)]
        for each in both:
            await each.open()
        work = task("echo ran >> log.txt", deliverables="log.txt")
        submitted = [await both[0].submit(TENANT, work) for _ in range(8)]
        runs = [await wait_until_ended(paddock, run) for run in submitted]
        for run in runs:
            assert run.state is RunState.SUCCEEDED, run.result
            assert (paddock.runs.dependencies.run_folder(run.id).deliverables / "log.txt").read_text() == "ran\n"
            assert await stages_of(paddock, run) == [
                stage for stage in RunStage if stage not in (RunStage.ADMIT, RunStage.VERIFY)
            ]
        for each in both:
            await each.close()
        await assert_nothing_left(paddock)


async def test_default_model_replaces_an_unavailable_suggested_model(tmp_path: Path) -> None:
    script = tmp_path / "fast.yaml"
    script.write_text("turns: [{say: Hello.}]\n")
    llm = {
        "providers": {"own": {"kind": "script", "file": str(script)}},
        "models": {"fast": {"provider": "own"}},
    }
    async with open_server(tmp_path / "data", llm=llm) as paddock:
        work = task('test "$PADDOCK_MODEL" = fast', agent="claude-code", image="host")
        run = await wait_until_ended(paddock, await paddock.runs.submit(TENANT, work))
        assert run.result is not None and (run.model, run.result.exit_code) == ("fast", 0)
        [started] = [each for each in await events_of(paddock, run) if each.type is EventType.RUN_STARTED]
        assert started.data["instead_of"] == "claude-sonnet-4-5"
        named = work.model_copy(update={"llm": work.llm.model_copy(update={"model": "gpt-5"})})
        assert "Models: fast." in (await result_of(paddock, named)).reason


async def test_demo_script_does_not_replace_a_model(paddock: PaddockServer) -> None:
    result = await result_of(paddock, task(agent="claude-code", image="host"))
    assert "no model is connected: set ANTHROPIC_API_KEY" in result.reason and "run a template" in result.reason
    assert "demo" not in result.reason
