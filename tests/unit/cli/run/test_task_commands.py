"""`paddock task` without a server."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from paddock.cli.main import run
from paddock.runs.presets import PresetLibrary
from paddock.runs.tasks.task_schema import task_json_schema
from paddock.runs.tasks.task_starter import render_starter_task_file

GOOD = "name: good\ndescription: Does it.\ngoal: Do it.\nagent: codex\nllm: fast\ndeliverables: [a.md, b/]\n"
BAD = "name: bad\ngoal: Do it.\nagnet: codex\nend: {turns: 0}\n"


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory without any configuration."""
    for name in [name for name in os.environ if name.startswith("PADDOCK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def tasks(working_directory: Path) -> Path:
    (working_directory / "tasks").mkdir()
    (working_directory / "tasks/good.yaml").write_text(GOOD)
    return working_directory / "tasks"


def document(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert run([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("agent", PresetLibrary().names())
def test_a_new_task_is_valid(agent: str, working_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["task", "new", "demo", "--agent", agent]) == 0
    assert "tasks/demo.yaml created; edit it, then run it with: paddock run tasks/demo.yaml" in capsys.readouterr().out
    assert run(["task", "validate"]) == 0
    output = capsys.readouterr().out
    assert output == f"✓ tasks/demo.yaml  demo: {agent}, 1 input, 1 deliverable, 1 check\n"
    assert jsonschema_rs.is_valid(
        task_json_schema(), yaml.safe_load((working_directory / "tasks/demo.yaml").read_text())
    )


def test_new_task_does_not_overwrite_files(tasks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["task", "new", "good"]) == 1
    assert "tasks/good.yaml already exists" in capsys.readouterr().err
    assert (tasks / "good.yaml").read_text() == GOOD
    (tasks / "link.yaml").symlink_to("elsewhere.yaml")
    assert run(["task", "new", "link"]) == 1 and not (tasks / "elsewhere.yaml").exists()


def test_a_new_task_is_written_to_the_given_path(working_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = document(capsys, "task", "new", "demo", "-o", "mine.yaml")
    assert made == {"file": "mine.yaml", "name": "demo", "agent": "claude-code"}
    assert (
        not (working_directory / "tasks").exists()
        and "paddock run mine.yaml" in (working_directory / "mine.yaml").read_text()
    )
    assert run(["task", "new", "demo", "-o", "-"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["name"] == "demo"


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (["Demo"], "NAME: 'Demo' may have a-z, 0-9"),
        (["../demo"], "NAME: '../demo' may have a-z, 0-9"),
        (["demo", "--agent", "codx"], "no preset 'codx'\n  did you mean codex?"),
        (["demo", "--agent", "zzz"], "no preset 'zzz'\n  claude-code, codex"),
        (["demo", "-o", "no/where.yaml"], "no/where.yaml cannot be written: No such file or directory"),
    ],
)
def test_an_unwritable_path_is_an_error(
    words: list[str], output: str, working_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["task", "new", *words]) == 1
    assert output in capsys.readouterr().err and list(working_directory.glob("tasks/*")) == []


def test_all_files_are_validated_and_all_problems_reported(tasks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tasks / "bad.yaml").write_text(BAD)
    assert run(["task", "validate"]) == 1
    output = capsys.readouterr()
    assert output.out.splitlines() == [
        "tasks/bad.yaml:3: agnet: no such field; did you mean 'agent'?",
        "tasks/bad.yaml:4: end.turns: must be at least 1, not 0",
        "✓ tasks/good.yaml  good: codex, 2 deliverables",
    ]
    assert output.err == "error: 1 of 2 task files is not valid\n"
    assert run(["task", "validate", "tasks/good.yaml"]) == 0


def test_problems_are_listed_in_json(tasks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tasks / "bad.yaml").write_text(BAD)
    report = document(capsys, "task", "validate", "tasks/bad.yaml", "tasks/good.yaml", code=1)
    problem = {
        "file": "tasks/bad.yaml",
        "line": 3,
        "field": "agnet",
        "message": "no such field; did you mean 'agent'?",
    }
    assert report["valid"] is False and report["files"][0]["problems"][0] == problem
    assert report["files"][1] == {"file": "tasks/good.yaml", "valid": True, "name": "good"}


def test_terminal_shows_problems_below_their_lines(tasks: Path) -> None:
    (tasks / "bad.yaml").write_text(BAD)
    (tasks / "evil.yaml").write_text("name: \x1b[5mevil\n")
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "paddock.cli.main", "task", "validate", "tasks/bad.yaml", "tasks/evil.yaml"]
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "TERM": "xterm", "LANG": "C.UTF-8"}
    done = subprocess.run(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, timeout=60, check=False)
    os.close(theirs)
    raw = os.read(ours, 65536).decode().replace("\r", "")
    os.close(ours)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", raw)
    assert done.returncode == 1 and "\N{REPLACEMENT CHARACTER}[5mevil" in shown and "\x1b[5m" not in raw
    assert shown.splitlines()[:5] == [
        "✗ tasks/bad.yaml",
        "     3 │ agnet: codex",
        "         agnet: no such field; did you mean 'agent'?",
        "     4 │ end: {turns: 0}",
        "         end.turns: must be at least 1, not 0",
    ]


def test_without_tasks_the_output_shows_how_to_create_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["task", "validate"]) == 1
    assert "create one: paddock task new NAME" in capsys.readouterr().err


def test_samples_are_found_by_name_without_a_tasks_directory(capsys: pytest.CaptureFixture[str]) -> None:
    listed = document(capsys, "task", "list")["tasks"]
    assert {"hello", "fix-bug"} <= {each["name"] for each in listed} and all(each["sample"] for each in listed)
    assert document(capsys, "task", "show", "hello")["task"]["name"] == "hello"
    assert run(["task", "validate", "hello"]) == 0 and "hello: claude-code" in capsys.readouterr().out
    assert run(["run", "tasks/hello.yaml"]) == 1
    assert "run the sample of that name: paddock run hello" in capsys.readouterr().err
    assert run(["run", "helo"]) == 1
    assert "there is no task helo\n  did you mean hello?" in capsys.readouterr().err


def test_own_task_hides_the_sample_of_its_name(tasks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tasks / "hello.yaml").write_text(GOOD.replace("name: good", "name: hello"))
    assert document(capsys, "task", "show", "hello")["file"] == "tasks/hello.yaml"
    hellos = [each for each in document(capsys, "task", "list")["tasks"] if each["name"] == "hello"]
    assert [each["sample"] for each in hellos] == [False]


def test_tasks_are_listed_with_their_details(tasks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = tasks.parent / "more"
    more.mkdir()
    (more / "other.json").write_text(json.dumps({"name": "other", "goal": "x", "matrix": {"agents": ["codex"]}}))
    (tasks.parent / "paddock.yaml").write_text("runs: {tasks: more}\n")
    (tasks / "bad.yaml").write_text(BAD)
    assert run(["task", "list"]) == 0
    rows = [re.split(r"  +", line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["NAME", "AGENT", "MODEL", "DELIVERABLES", "DESCRIPTION"]
    assert rows[1] == ["bad", "✗", "not valid; see: paddock task validate tasks/bad.yaml"]
    assert rows[2] == ["good", "codex", "fast", "a.md, b", "Does it."]
    assert rows[3][:2] == ["other", "codex"]
    listed = [each for each in document(capsys, "task", "list")["tasks"] if not each.get("sample")]
    assert [(each["file"].rpartition("/")[2], each["valid"]) for each in listed] == [
        ("bad.yaml", False),
        ("good.yaml", True),
        ("other.json", True),
    ]
    assert listed[1]["deliverables"] == ["/workspace/a.md", "/workspace/b"]


def test_a_task_is_shown_by_name_or_file(tasks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tasks / "many.yaml").write_text("name: many\ngoal: |\n  One.\n  Two.\nmatrix: {agents: [codex, opencode]}\n")
    assert run(["task", "show", "many"]) == 0
    shown = capsys.readouterr().out
    assert "agent         codex, opencode" in shown or "codex, opencode" in shown
    assert "many/codex" in shown and "many/opencode" in shown and "Two." in shown
    report = document(capsys, "task", "show", "tasks/good.yaml")
    assert (
        report["file"] == "tasks/good.yaml"
        and report["runs"] == ["good"]
        and report["task"]["llm"] == {"model": "fast"}
    )


def test_an_unknown_or_ambiguous_task_is_an_error(tasks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["task", "show", "goood"]) == 1
    assert "there is no task goood\n  did you mean good?" in capsys.readouterr().err
    (tasks / "again.yaml").write_text(GOOD)
    assert run(["task", "show", "good"]) == 1
    assert "good is the name of tasks/again.yaml, tasks/good.yaml\n  give the file instead" in capsys.readouterr().err
    (tasks / "bad.yaml").write_text(BAD)
    assert run(["task", "show", "bad"]) == 1
    assert "tasks/bad.yaml:3: agnet: no such field" in capsys.readouterr().err


def test_custom_presets_are_known(tasks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tasks / "good.yaml").write_text(GOOD.replace("codex", "mine"))
    assert run(["task", "validate"]) == 1 and "no preset 'mine'" in capsys.readouterr().out
    (tasks.parent / "presets").mkdir()
    (tasks.parent / "presets/mine.yaml").write_text('command: [my-agent, "{goal}"]\n')
    (tasks.parent / "paddock.yaml").write_text("runs: {presets: [presets]}\n")
    assert run(["task", "validate"]) == 0


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["task", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == task_json_schema() == document(capsys, "task", "schema")


def test_the_starter_names_the_models_of_the_server() -> None:
    text = render_starter_task_file("demo", "codex", "demo.yaml", models=["large", "small"])
    assert "its default first: large, small." in text and "#  model: large\n" in text
    assert "paddock llm list" in render_starter_task_file("demo", "codex", "demo.yaml")
