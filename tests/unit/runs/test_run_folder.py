"""Run folders: content, permissions and atomic writes."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from paddock.errors import InvalidInput
from paddock.model.runs import DeliveredFile, EndedBy, MissingDeliverable, RunResult, RunState
from paddock.model.task import Task
from paddock.runs.results.conversation_export import write_run_conversation
from paddock.runs.results.run_folder import RunFolder, mask_task_secrets
from tests.unit.llm.archive.exchange_samples import an_exchange, archive

RESULT = RunResult(
    state=RunState.FAILED,
    ended_by=EndedBy.EXIT,
    reason="report.md is missing",
    deliverables=(DeliveredFile(path="größe.txt", size=1, sha256="0" * 64),),
    missing=(MissingDeliverable(path="/workspace/report.md", required=True, reason="there is no such file"),),
)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "runs", "run-1")
    made.create()
    return made


def test_run_folder_is_readable_by_its_owner_only(folder: RunFolder) -> None:
    for directory in (
        folder.path.parent,
        folder.path,
        folder.deliverables,
        folder.logs,
        folder.attempt_log_directory(3),
    ):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    folder.write_result(RESULT)
    assert stat.S_IMODE(folder.result.stat().st_mode) == 0o600


def test_creating_an_existing_folder_changes_nothing(folder: RunFolder) -> None:
    (folder.deliverables / "x").write_text("x")
    folder.create()
    assert (folder.deliverables / "x").read_text() == "x"


@pytest.mark.parametrize("run_id", ["", ".", "..", "a/b", "/etc", "a\n", "-x", "a" * 200, "ä", "run.1"])
def test_invalid_run_id_is_refused(tmp_path: Path, run_id: str) -> None:
    with pytest.raises(InvalidInput, match="no id of a run"):
        RunFolder(tmp_path, run_id)


def test_result_is_readable_json(folder: RunFolder) -> None:
    folder.write_result(RESULT)
    text = folder.result.read_text()
    assert "größe.txt" in text and "\n  " in text
    assert RunResult.model_validate(json.loads(text)) == RESULT
    folder.write_result(RESULT.model_copy(update={"reason": "other"}))
    assert json.loads(folder.result.read_text())["reason"] == "other"
    assert sorted(os.listdir(folder.path)) == ["deliverables", "logs", "result.json"], "nothing else is left"


def test_task_is_written_as_a_task_file(folder: RunFolder) -> None:
    task = Task.model_validate(
        {
            "name": "hello",
            "goal": "Write a report.\nMake it short.\n",
            "agent": "claude-code",
            "env": {"MODE": "fast"},
            "deliverables": ["report.md"],
        }
    )
    folder.write_task(mask_task_secrets(task))
    text = folder.task.read_text()
    assert "goal: |\n  Write a report.\n  Make it short.\n" in text
    assert "retries" not in text, "only what differs from the defaults"
    assert Task.model_validate(yaml.safe_load(text)) == task


def test_stored_task_has_no_secrets(folder: RunFolder) -> None:
    task = Task.model_validate(
        {
            "name": "hello",
            "goal": "x",
            "agent": "script",
            "env": {"API_KEY": "s3cret-1", "db_password": "s3cret-2", "MODE": "fast"},
            "secrets": ["DEPLOY_TOKEN"],
            "mcp": [
                {"name": "a", "url": "https://me:s3cret-3@host/mcp?k=s3cret-4", "headers": {"X-Any": "s3cret-5"}},
                {"name": "b", "command": ["serve"], "env": {"AUTH": "s3cret-6", "PORT": "1"}},
            ],
        }
    )
    folder.write_task(mask_task_secrets(task))
    text = folder.task.read_text()
    assert "s3cret" not in text
    stored = yaml.safe_load(text)
    assert stored["env"] == {"API_KEY": "(hidden)", "db_password": "(hidden)", "MODE": "fast"}
    assert stored["secrets"] == ["DEPLOY_TOKEN"]
    assert stored["mcp"][0]["url"].startswith("https://host/mcp")
    assert stored["mcp"][1]["env"] == {"AUTH": "(hidden)", "PORT": "1"}


@pytest.mark.anyio
async def test_interrupted_write_keeps_the_previous_file(folder: RunFolder) -> None:
    async def two() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two\n"

    async def broken() -> AsyncIterator[bytes]:
        yield b"three"
        raise InvalidInput("no more")

    assert await folder.write_lines(folder.events, two()) == 2
    with pytest.raises(InvalidInput):
        await folder.write_lines(folder.events, broken())
    assert folder.events.read_bytes() == b"one\ntwo\n"
    assert "events.jsonl" in os.listdir(folder.path) and len(os.listdir(folder.path)) == 3


def test_each_attempt_has_its_own_log_directory(folder: RunFolder) -> None:
    assert folder.attempt_log_directory(1) == folder.logs
    assert folder.attempt_log_directory(2) == folder.logs / "attempt-2"
    assert folder.attempt_log_directory(2).is_dir()


def test_deliverables_can_be_cleared(folder: RunFolder) -> None:
    (folder.deliverables / "deep" / "er").mkdir(parents=True)
    (folder.deliverables / "deep" / "x").write_text("x")
    folder.clear_deliverables()
    assert list(folder.deliverables.iterdir()) == []


def test_removal_includes_leftovers_of_an_earlier_removal(folder: RunFolder) -> None:
    (folder.path.parent / ".run-1.0badcafe" / "deliverables").mkdir(parents=True)
    neighbour = RunFolder(folder.path.parent, "run-10")
    neighbour.create()
    (folder.deliverables / "x").write_text("x")
    folder.remove()
    folder.remove()
    assert os.listdir(folder.path.parent) == ["run-10"]


@pytest.mark.anyio
async def test_the_conversation_has_a_line_for_each_message(tmp_path: Path, folder: RunFolder) -> None:
    first = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Two and two?"}]
    second = [*first, {"role": "assistant", "content": "Four."}, {"role": "user", "content": "Größer?"}]
    async with archive(tmp_path) as stored:
        for number, (messages, answer, run) in enumerate(
            [(first, "Four.", "run-1"), (first, "Other.", "run-2"), (second, "Five.", "run-1")]
        ):
            exchange = an_exchange(number, messages, answer, sandbox=f"sb-{run}")
            exchange.caller = dataclasses.replace(exchange.caller, run=run)
            stored.enqueue(exchange)
        assert await write_run_conversation(stored, "default", folder) == 5
        assert await write_run_conversation(stored, "other", RunFolder(folder.path.parent, "run-1")) == 0
        assert await write_run_conversation(stored, "default", folder) == 5
    lines = [json.loads(line) for line in folder.conversation.read_text().splitlines()]
    assert [(line["role"], line["content"]) for line in lines] == [
        ("system", "Be brief."),
        ("user", "Two and two?"),
        ("assistant", "Four."),
        ("user", "Größer?"),
        ("assistant", "Five."),
    ]
    assert len({line["thread"] for line in lines}) == 1 and lines[0]["kind"] == "main"
