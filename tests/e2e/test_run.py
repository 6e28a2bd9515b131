"""`paddock run` and `paddock runs`, used as a person would, on real sandboxes."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paddock.cli.connection.server_address import has_running_server
from paddock.cli.connection.server_finder import SERVER_LOG_NAME, find_responding_server
from paddock.cli.output.agent_text import clean_terminal_text
from tests.e2e.cli_driver import COMMAND, SECONDS, Paddock, Server
from tests.support.server import eventually

HELLO: dict[str, Any] = {
    "name": "hello",
    "goal": "Say hello.",
    "image": "host",
    "entrypoint": "cat greeting.txt > report.md; printf 'a \\033[31mred\\033[0m word\\n'",
    "inputs": ["greeting.txt"],
    "deliverables": ["report.md"],
    "verify": ["grep -q hello report.md"],
}
WAITS: dict[str, Any] = {
    "name": "waits",
    "goal": "Wait.",
    "image": "host",
    "entrypoint": "echo partial > report.md; echo begun; sleep 600",
    "deliverables": [{"path": "report.md", "required": False}],
}


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    directory = tmp_path / "tasks"
    directory.mkdir()
    (directory / "greeting.txt").write_text("hello world\n")
    for task in (HELLO, WAITS, {**HELLO, "name": "bad", "entrypoint": "echo oops; exit 3", "verify": []}):
        (directory / f"{task['name']}.json").write_text(json.dumps(task))
    return directory


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Paddock]:
    """The command on a data directory that no server uses."""
    yield Paddock(tmp_path / "alone")
    eventually(lambda: not has_running_server(tmp_path / "alone"))


def results(output: bytes) -> list[dict[str, Any]]:
    last = json.loads(output.splitlines()[-1])
    assert last["type"] == "results"
    found: list[dict[str, Any]] = last["results"]
    return found


def test_a_task_from_its_file_to_its_deliverable_without_a_server(alone: Paddock, tasks: Path, tmp_path: Path) -> None:
    done = alone.run("run", str(tasks / "hello.json"), "-o", str(tmp_path / "out"), "--show")
    text = done.stdout.decode()
    assert done.returncode == 0, text + done.stderr.decode()
    assert (tmp_path / "out/report.md").read_text() == "hello world\n"
    assert text.count("succeeded") == 1, "the end is told once"
    assert "✓ hello succeeded after " in text and f"{tmp_path}/out/report.md" in text
    assert "--- report.md ---\nhello world\n---" in text
    assert "a red word" in text and "\x1b" not in text
    assert not has_running_server(alone.data)
    assert not (alone.data / "server.json").exists()
    [folder] = (alone.data / "runs").iterdir()
    assert f"folder        {folder}" in text


def test_runs_are_looked_at_without_a_server(alone: Paddock, tasks: Path, tmp_path: Path) -> None:
    [run] = results(alone.run("run", str(tasks / "hello.json"), "--json").stdout)
    log = (alone.data / SERVER_LOG_NAME).read_bytes()
    assert log, "the run's own server has written a log"
    shown = [alone.run("runs", *words) for words in (("list",), ("show", "hello"), ("logs", "hello"))]
    assert [(each.returncode, each.stderr) for each in shown] == [(0, b"")] * 3
    listed, run_report, output = (each.stdout.decode() for each in shown)
    assert run["id"] in listed and run_report.startswith("✓ hello succeeded") and "red" in output
    assert (alone.data / SERVER_LOG_NAME).read_bytes() == log, "no server was started"
    alone.text("runs", "get", "hello", "-o", str(tmp_path / "got"))
    assert (tmp_path / "got/report.md").read_text() == "hello world\n"
    assert alone.text("runs", "rm", "hello") == run["id"]
    assert not has_running_server(alone.data)
    # What would only begin something needs a server that stays.
    retried = alone.run("runs", "retry", "hello")
    assert retried.returncode == 1 and b"paddock serve" in retried.stderr


def test_scripts_beside_tasks_are_left_out(server: Server, tasks: Path, tmp_path: Path) -> None:
    script = tasks / "hello.script.json"
    script.write_text("{}")
    files = [str(tasks / "bad.json"), str(tasks / "hello.json"), str(script)]
    done = server.run("run", *files, "-o", str(tmp_path / "out"))
    text = done.stdout.decode()
    assert f"skipped {script}" in done.stderr.decode() and "1 of 2 succeeded" in text
    assert text.splitlines()[-2:] == ["output files:", f"  {tmp_path}/out/hello"]
    assert server.run("task", "validate", *files).returncode == 0
    alone = server.run("run", str(script))
    assert alone.returncode == 1 and b"is a scripted-model file" in alone.stderr
    nothing = server.run("run", str(tasks / "bad.json"), str(tasks / "bad.json"))
    assert nothing.stdout.decode().splitlines()[-1] == "0 of 2 succeeded"


def test_the_server_says_whether_a_task_can_run(server: Server, tasks: Path) -> None:
    task = json.loads((tasks / "hello.json").read_text())
    (tasks / "no-model.json").write_text(json.dumps({**task, "llm": "no-such-model"}))
    ready = server.run("task", "validate", "--ready", str(tasks / "hello.json"))
    assert ready.returncode == 0, ready.stderr
    done = server.run("task", "validate", "--ready", str(tasks / "no-model.json"))
    assert done.returncode == 1 and b"error: llm.model: There is no model 'no-such-model'" in done.stdout
    said = json.loads(server.run("task", "validate", "--ready", "--json", str(tasks / "no-model.json")).stdout)
    assert said["valid"] and not said["ready"]
    assert said["files"][0]["server"]["issues"][0]["code"] == "MODEL_NOT_FOUND"
    refused = server.run("run", str(tasks / "no-model.json")).stdout.decode()
    assert "no model is connected" in refused and "= collect" not in refused
    listed = server.text("runs", "list", "--name", "hello", "--state", "failed").splitlines()[1]
    assert listed.endswith("…") and len(listed.partition("There is no model")[2]) < 80


def test_what_cannot_be_had_of_a_run_is_said(server: Server, tasks: Path, tmp_path: Path) -> None:
    [run] = results(server.run("run", str(tasks / "hello.json"), "--json").stdout)
    for words, said in (
        (("get", run["id"], "--archive", str(tmp_path / "run.rar")), ".tar or .zip"),
        (("logs", run["id"], "--attempt", "9"), "no attempt 9"),
        (("list", "--state", "done"), "timed out"),
    ):
        done = server.run("runs", *words)
        assert done.returncode != 0 and said in done.stderr.decode(), words
    cancelled = server.run("runs", "cancel", run["id"])
    assert cancelled.stdout == b"" and b"has already ended: succeeded" in cancelled.stderr
    assert server.json("runs", "list", "--state", "timed out") == server.json("runs", "list", "--state", "timed_out")
    unknown = server.run("llm", "log", "--run", "nobody")
    assert unknown.returncode == 1 and b"there is no run nobody" in unknown.stderr
    assert server.json("llm", "log", "--run", run["id"][:12]) == []


def test_what_is_wrong_with_a_file_is_said_before_anything_starts(alone: Paddock, tasks: Path) -> None:
    (tasks / "wrong.yaml").write_text("name: wrong\ngaol: x\n")
    done = alone.run("run", str(tasks / "hello.json"), str(tasks / "wrong.yaml"), str(tasks / "missing.yaml"))
    text = done.stderr.decode()
    assert done.returncode == 1
    assert "wrong.yaml:2" in text and "did you mean 'goal'" in text and "missing.yaml" in text
    assert not alone.data.exists()


def test_an_agent_that_nobody_knows(alone: Paddock, tasks: Path) -> None:
    done = alone.run("run", str(tasks / "hello.json"), "--agent", "clod-code")
    assert done.returncode == 2 and b"claude-code" in done.stderr


def test_a_run_that_fails_gives_exit_code_1_and_says_why(server: Server, tasks: Path) -> None:
    done = server.run("run", str(tasks / "bad.json"), "--json")
    assert done.returncode == 1
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert any(line.get("type") == "run.output" and "oops" in line["data"]["text"] for line in lines)
    [run] = results(done.stdout)
    assert (run["state"], run["result"]["exitCode"]) == ("failed", 3)
    shown = server.text("runs", "show", run["id"])
    assert shown.startswith("✗ bad failed after ") and "exit code 3" in shown and "report.md" in shown


def test_many_runs_no_more_at_a_time_than_wanted(server: Server, tasks: Path, tmp_path: Path) -> None:
    counting = {**HELLO, "name": "counting", "entrypoint": "cat greeting.txt > report.md; sleep 0.3"}
    (tasks / "counting.json").write_text(json.dumps(counting))
    files = [str(tasks / f"{name}.json") for name in ("counting", "counting", "counting", "hello")]
    done = server.run("run", *files, "-p", "2", "-o", str(tmp_path / "out"), "--json")
    assert done.returncode == 0, done.stderr.decode()
    runs = results(done.stdout)
    assert [run["name"] for run in runs] == ["counting", "counting", "counting", "hello"]
    spans = sorted((run["createdAt"], run["endedAt"]) for run in runs)
    for begun, _ in spans:
        assert sum(start <= begun < end for start, end in spans) <= 2
    assert {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.md")} == {
        "counting/report.md",
        "counting-2/report.md",
        "counting-3/report.md",
        "hello/report.md",
    }


def test_ctrl_c_cancels_and_brings_back_what_there_is(alone: Paddock, tasks: Path, tmp_path: Path) -> None:
    process = alone.start("run", str(tasks / "waits.json"), "-o", str(tmp_path / "out"))
    _wait_for(process, b"begun")
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 130, errors
    assert b"waits cancelled after" in output and (tmp_path / "out/report.md").read_text() == "partial\n"
    assert not has_running_server(alone.data)


def test_a_second_ctrl_c_is_hard(server: Server, tasks: Path) -> None:
    stubborn = {**WAITS, "name": "stubborn", "entrypoint": "trap '' TERM INT; echo begun; while :; do sleep 1; done"}
    (tasks / "stubborn.json").write_text(json.dumps(stubborn))
    process = server.start("run", str(tasks / "stubborn.json"))
    _wait_for(process, b"begun")
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _wait_for(process, b"cancelling")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 130 and time.monotonic() - began < 8
    [run] = server.json("runs", "list", "--name", "stubborn")
    assert run["state"] == "cancelled"


def test_a_server_of_ones_own_ends_with_a_command_that_is_killed(alone: Paddock, tasks: Path) -> None:
    process = alone.start("run", str(tasks / "waits.json"))
    _wait_for(process, b"begun")
    process.kill()
    process.communicate(timeout=SECONDS)
    eventually(lambda: not has_running_server(alone.data))
    # The next server goes on with the run that was left behind.
    follower = Server(alone.data)
    follower.up()
    try:
        [run] = follower.json("runs", "list")
        assert run["state"] == "running"
        follower.text("runs", "cancel", "waits", "--hard")
        eventually(lambda: follower.json("runs", "list")[0]["state"] == "cancelled")
    finally:
        assert follower.down() == 0


def test_runs_go_on_when_the_server_they_share_is_killed(tmp_path: Path, tasks: Path) -> None:
    first = Server(tmp_path / "shared")
    first.up()
    waits = {
        **HELLO,
        "name": "patient",
        "entrypoint": "echo begun; while [ ! -e go ]; do sleep 0.05; done; echo hello > report.md",
    }
    (tasks / "patient.json").write_text(json.dumps(waits))
    process = first.start("run", str(tasks / "patient.json"))
    _wait_for(process, b"begun")
    assert first.down(signal.SIGKILL) != 0
    eventually(lambda: has_running_server(first.data), 30)
    [run] = eventually(lambda: _runs(first), 30)
    refused = first.run("serve", "--port", "0")
    assert refused.returncode == 1 and f"`paddock run` (pid {process.pid}) uses".encode() in refused.stderr
    sandbox = first.json("runs", "show", run["id"])["sandboxId"]
    first.text("sandbox", "exec", sandbox, "--", "touch", "/workspace/go")
    output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, output + errors
    assert output.count(b"the server is gone; starting a temporary server") == 1
    assert b"begun" not in output, "what was told before was told again"
    eventually(lambda: not has_running_server(first.data))


def test_a_server_that_comes_back_is_not_replaced(tmp_path: Path, tasks: Path) -> None:
    shared = Server(tmp_path / "shared")
    shared.up()
    process = shared.start("run", str(tasks / "waits.json"))
    _wait_for(process, b"begun")
    shared.restart()
    holder = (shared.data / "server.lock").read_text()
    shared.text("runs", "cancel", "waits", "--hard")
    output, errors = process.communicate(timeout=SECONDS)
    assert b"waits cancelled after" in output and b"temporary server" not in output, output + errors
    assert (shared.data / "server.lock").read_text() == holder
    assert shared.down() == 0


def test_a_server_that_is_stopping_is_waited_for(tmp_path: Path, tasks: Path) -> None:
    leaving = Server(tmp_path / "leaving")
    leaving.up()
    sandbox = leaving.text("sandbox", "create", "--image", "host")
    busy = leaving.start("sandbox", "exec", sandbox, "--", "sh", "-c", "echo begun; sleep 600")
    _wait_for(busy, b"begun")
    # Open requests delay the shutdown; meanwhile nothing answers.
    os.kill(int((leaving.data / "server.lock").read_text()), signal.SIGTERM)
    eventually(lambda: find_responding_server(leaving.data) is None)
    assert has_running_server(leaving.data)
    done = leaving.run("run", str(tasks / "hello.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert b"starting a temporary server" in done.stdout
    busy.kill()
    busy.communicate()
    leaving.restart(signal.SIGKILL)
    leaving.text("sandbox", "rm", sandbox)
    assert leaving.down() == 0


def _runs(paddock: Paddock) -> list[dict[str, Any]]:
    done = paddock.run("runs", "list", "--json")
    return json.loads(done.stdout) if done.returncode == 0 else []


def test_detached_runs_are_watched_later(server: Server, tasks: Path) -> None:
    run = server.text("run", str(tasks / "hello.json"), "--detach")
    watched = server.run("runs", "watch", run)
    text = watched.stdout.decode()
    assert watched.returncode == 0 and "= sandbox" in text and "│ a red word" in text and "✓ hello succeeded" in text
    assert server.text("runs", "logs", run) == "a \x1b[31mred\x1b[0m word"


def test_detaching_needs_a_server(alone: Paddock, tasks: Path) -> None:
    done = alone.run("run", str(tasks / "hello.json"), "--detach")
    assert done.returncode == 1 and b"paddock serve" in done.stderr


def test_a_run_is_listed_fetched_retried_and_removed(server: Server, tasks: Path, tmp_path: Path) -> None:
    run = results(server.run("run", str(tasks / "hello.json"), "--json").stdout)[0]["id"]
    assert run in server.text("runs", "list", "--name", "hello")
    server.text("runs", "get", run, "-o", str(tmp_path / "got"))
    assert (tmp_path / "got/report.md").read_text() == "hello world\n"
    server.text("runs", "get", run, "--archive", str(tmp_path / "run.tar"))
    assert (tmp_path / "run.tar").stat().st_size > 0
    again = server.text("runs", "retry", run.removeprefix("run-")[:12])
    assert server.run("runs", "watch", again).returncode == 0
    server.text("runs", "rm", run, again)
    assert server.run("runs", "show", run).returncode == 1


def test_on_a_terminal_the_run_is_live_and_its_report_framed(alone: Paddock, tasks: Path) -> None:
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [COMMAND, "run", str(tasks / "hello.json")],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**alone.env, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"},
    )
    os.close(terminal)
    shown = bytearray()
    while True:
        try:
            piece = os.read(controller, 65536)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    os.close(controller)
    assert process.wait(SECONDS) == 0
    text = shown.decode()
    assert "\x1b[31mred" not in text and "\x1b[?25h" in text  # the cursor is given back
    assert "starting a temporary server" in text
    text = clean_terminal_text(text)
    assert "╭─ hello " in text and "╭─ report.md " in text and "hello world" in text
    assert "│ a red word" in text


def _wait_for(process: subprocess.Popen[bytes], words: bytes) -> None:
    assert process.stdout is not None
    seen = b""
    os.set_blocking(process.stdout.fileno(), True)
    while words not in seen:
        line = process.stdout.readline()
        assert line, seen.decode()
        seen += line


def test_one_run_that_is_refused_does_not_hold_up_the_others(server: Server, tasks: Path) -> None:
    (tasks / "secretive.json").write_text(json.dumps({**HELLO, "name": "secretive", "secrets": ["NOBODY_HAS_IT"]}))
    done = server.run("run", str(tasks / "secretive.json"), str(tasks / "hello.json"))
    text = done.stdout.decode()
    assert done.returncode == 1
    assert "secretive was rejected" in text and "NOBODY_HAS_IT" in text and "1 of 2 succeeded" in text
    alone = server.run("run", str(tasks / "secretive.json"))
    assert alone.returncode == 1 and b"NOBODY_HAS_IT" in alone.stderr


def test_a_server_that_is_not_there_is_told_of_at_once(alone: Paddock, tasks: Path) -> None:
    began = time.monotonic()
    done = alone.run("run", str(tasks / "hello.json"), "--server", "http://127.0.0.1:1")
    assert done.returncode == 1 and b"no Paddock server at http://127.0.0.1:1" in done.stderr
    assert time.monotonic() - began < 20


def test_a_server_of_ones_own_that_cannot_start_says_why(alone: Paddock, tasks: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("sandboxes: {default_backend: nope}\n")
    done = alone.run("run", str(tasks / "hello.json"), "--config", str(tmp_path / "bad.yaml"))
    assert done.returncode == 1 and b"there is no backend 'nope'" in done.stderr


def test_its_own_server_is_kept_for_the_next_command(tmp_path: Path, tasks: Path) -> None:
    paddock = Paddock(tmp_path / "kept")
    lock, hello = paddock.data / "server.lock", str(tasks / "hello.json")
    assert paddock.run("run", hello, "--no-warm", PADDOCK_RUNS__WARM_SERVER="600").returncode == 0
    assert not has_running_server(paddock.data)
    paddock.env["PADDOCK_RUNS__WARM_SERVER"] = "600"
    assert paddock.run("run", hello).returncode == 0
    first = lock.read_text()
    assert has_running_server(paddock.data)
    assert len(paddock.json("runs", "list")) == 2
    assert paddock.run("run", hello).returncode == 0
    assert lock.read_text() == first
    # A server with another configuration must not be used.
    paddock.env["PADDOCK_RUNS__WARM_SERVER"] = "1"
    assert paddock.run("run", hello).returncode == 0
    assert lock.read_text() != first
    eventually(lambda: not has_running_server(paddock.data))
    assert not (paddock.data / "run-server.json").exists()


def test_a_kept_server_is_used_by_a_shell_without_the_variables_of_the_configuration(
    tmp_path: Path, tasks: Path
) -> None:
    paddock = Paddock(tmp_path / "kept")
    lock, hello, config = paddock.data / "server.lock", str(tasks / "hello.json"), tmp_path / "paddock.yaml"
    config.write_text("llm: {providers: {mine: {kind: openai, base_url: 'http://127.0.0.1:9', key: '${MINE_KEY}'}}}\n")
    paddock.env |= {"PADDOCK_CONFIG": str(config), "PADDOCK_RUNS__WARM_SERVER": "600"}
    assert paddock.run("run", hello, MINE_KEY="secret").returncode == 0
    first = lock.read_text()
    without = paddock.run("run", hello)
    assert without.returncode == 0, without.stderr.decode()
    assert lock.read_text() == first and b"temporary server" not in without.stdout
    # A changed setting replaces the server, with one that soon ends.
    paddock.env["PADDOCK_RUNS__WARM_SERVER"] = "1"
    assert paddock.run("run", hello, MINE_KEY="secret").returncode == 0
    assert lock.read_text() != first
    eventually(lambda: not has_running_server(paddock.data))


def test_a_kept_server_makes_way_for_one_that_is_started(tmp_path: Path, tasks: Path) -> None:
    server = Server(tmp_path / "data")
    server.env["PADDOCK_RUNS__WARM_SERVER"] = "600"
    assert server.run("run", str(tasks / "hello.json")).returncode == 0
    kept = (server.data / "server.lock").read_text()
    server.up()
    assert (server.data / "server.lock").read_text() != kept
    assert not os.path.exists(f"/proc/{kept.strip()}/cmdline") or not Path(f"/proc/{kept.strip()}/cmdline").read_text()
    assert [run["state"] for run in server.json("runs", "list")] == ["succeeded"]
    assert server.down() == 0
    assert not has_running_server(server.data)
