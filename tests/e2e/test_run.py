"""`paddock run` and `paddock runs` on real sandboxes."""

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
from tests.e2e.cli_driver import COMMAND_TIMEOUT, PADDOCK_COMMAND, PaddockCli, PaddockCliServer
from tests.support.server import eventually

HELLO_TASK: dict[str, Any] = {
    "name": "hello",
    "goal": "Say hello.",
    "image": "host",
    "entrypoint": "cat greeting.txt > report.md; printf 'a \\033[31mred\\033[0m word\\n'",
    "inputs": ["greeting.txt"],
    "deliverables": ["report.md"],
    "verify": ["grep -q hello report.md"],
}
WAITING_TASK: dict[str, Any] = {
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
    for task in (
        HELLO_TASK,
        WAITING_TASK,
        {**HELLO_TASK, "name": "bad", "entrypoint": "echo oops; exit 3", "verify": []},
    ):
        (directory / f"{task['name']}.json").write_text(json.dumps(task))
    return directory


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[PaddockCli]:
    """The command on a data directory without a server."""
    yield PaddockCli(tmp_path / "alone")
    eventually(lambda: not has_running_server(tmp_path / "alone"))


def parse_results(output: bytes) -> list[dict[str, Any]]:
    last = json.loads(output.splitlines()[-1])
    assert last["type"] == "results"
    found: list[dict[str, Any]] = last["results"]
    return found


def test_run_without_server_delivers_files(cli: PaddockCli, tasks: Path, tmp_path: Path) -> None:
    result = cli.run("run", str(tasks / "hello.json"), "-o", str(tmp_path / "out"), "--show")
    text = result.stdout.decode()
    assert result.returncode == 0, text + result.stderr.decode()
    assert (tmp_path / "out/report.md").read_text() == "hello world\n"
    assert text.count("succeeded") == 1, "the end was printed more than once"
    assert "✓ hello succeeded after " in text and f"{tmp_path}/out/report.md" in text
    assert "--- report.md ---\nhello world\n---" in text
    assert "a red word" in text and "\x1b" not in text
    assert not has_running_server(cli.data)
    assert not (cli.data / "server.json").exists()
    [folder] = (cli.data / "runs").iterdir()
    assert f"folder        {folder}" in text


def test_runs_are_readable_without_a_server(cli: PaddockCli, tasks: Path, tmp_path: Path) -> None:
    [run] = parse_results(cli.run("run", str(tasks / "hello.json"), "--json").stdout)
    log = (cli.data / SERVER_LOG_NAME).read_bytes()
    assert log, "the run's own server has written a log"
    shown = [cli.run("runs", *arguments) for arguments in (("list",), ("show", "hello"), ("logs", "hello"))]
    assert [(each.returncode, each.stderr) for each in shown] == [(0, b"")] * 3
    listed, run_report, output = (each.stdout.decode() for each in shown)
    assert run["id"] in listed and run_report.startswith("✓ hello succeeded") and "red" in output
    assert (cli.data / SERVER_LOG_NAME).read_bytes() == log, "no server was started"
    cli.output("runs", "get", "hello", "-o", str(tmp_path / "got"))
    assert (tmp_path / "got/report.md").read_text() == "hello world\n"
    assert cli.output("runs", "rm", "hello") == run["id"]
    assert not has_running_server(cli.data)
    # A command that only starts a run needs a permanent server.
    retried = cli.run("runs", "retry", "hello")
    assert retried.returncode == 1 and b"paddock serve" in retried.stderr


def test_script_files_beside_tasks_are_skipped(server: PaddockCliServer, tasks: Path, tmp_path: Path) -> None:
    script = tasks / "hello.script.json"
    script.write_text("{}")
    files = [str(tasks / "bad.json"), str(tasks / "hello.json"), str(script)]
    result = server.run("run", *files, "-o", str(tmp_path / "out"))
    text = result.stdout.decode()
    assert f"skipped {script}" in result.stderr.decode() and "1 of 2 succeeded" in text
    assert text.splitlines()[-2:] == ["output files:", f"  {tmp_path}/out/hello"]
    assert server.run("task", "validate", *files).returncode == 0
    single = server.run("run", str(script))
    assert single.returncode == 1 and b"is a scripted-model file" in single.stderr
    nothing = server.run("run", str(tasks / "bad.json"), str(tasks / "bad.json"))
    assert nothing.stdout.decode().splitlines()[-1] == "0 of 2 succeeded"


def test_task_validate_ready_checks_on_the_server(server: PaddockCliServer, tasks: Path) -> None:
    task = json.loads((tasks / "hello.json").read_text())
    (tasks / "no-model.json").write_text(json.dumps({**task, "llm": "no-such-model"}))
    ready = server.run("task", "validate", "--ready", str(tasks / "hello.json"))
    assert ready.returncode == 0, ready.stderr
    result = server.run("task", "validate", "--ready", str(tasks / "no-model.json"))
    assert result.returncode == 1 and b"error: llm.model: There is no model 'no-such-model'" in result.stdout
    verdict = json.loads(server.run("task", "validate", "--ready", "--json", str(tasks / "no-model.json")).stdout)
    assert verdict["valid"] and not verdict["ready"]
    assert verdict["files"][0]["server"]["issues"][0]["code"] == "MODEL_NOT_FOUND"
    refused = server.run("run", str(tasks / "no-model.json")).stdout.decode()
    assert "no model is connected" in refused and "= collect" not in refused
    listed = server.output("runs", "list", "--name", "hello", "--state", "failed").splitlines()[1]
    assert listed.endswith("…") and len(listed.partition("There is no model")[2]) < 80


def test_impossible_run_requests_print_an_error(server: PaddockCliServer, tasks: Path, tmp_path: Path) -> None:
    [run] = parse_results(server.run("run", str(tasks / "hello.json"), "--json").stdout)
    for arguments, message in (
        (("get", run["id"], "--archive", str(tmp_path / "run.rar")), ".tar or .zip"),
        (("logs", run["id"], "--attempt", "9"), "no attempt 9"),
        (("list", "--state", "done"), "timed out"),
    ):
        result = server.run("runs", *arguments)
        assert result.returncode != 0 and message in result.stderr.decode(), arguments
    cancelled = server.run("runs", "cancel", run["id"])
    assert cancelled.stdout == b"" and b"has already ended: succeeded" in cancelled.stderr
    assert server.json_output("runs", "list", "--state", "timed out") == server.json_output(
        "runs", "list", "--state", "timed_out"
    )
    unknown = server.run("llm", "log", "--run", "nobody")
    assert unknown.returncode == 1 and b"there is no run nobody" in unknown.stderr
    assert server.json_output("llm", "log", "--run", run["id"][:12]) == []


def test_invalid_task_files_are_reported_before_any_start(cli: PaddockCli, tasks: Path) -> None:
    (tasks / "wrong.yaml").write_text("name: wrong\ngaol: x\n")
    result = cli.run("run", str(tasks / "hello.json"), str(tasks / "wrong.yaml"), str(tasks / "missing.yaml"))
    text = result.stderr.decode()
    assert result.returncode == 1
    assert "wrong.yaml:2" in text and "did you mean 'goal'" in text and "missing.yaml" in text
    assert not cli.data.exists()


def test_unknown_agent_error_suggests_agents(cli: PaddockCli, tasks: Path) -> None:
    result = cli.run("run", str(tasks / "hello.json"), "--agent", "clod-code")
    assert result.returncode == 2 and b"claude-code" in result.stderr


def test_failed_run_exits_1_with_its_reason(server: PaddockCliServer, tasks: Path) -> None:
    result = server.run("run", str(tasks / "bad.json"), "--json")
    assert result.returncode == 1
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert any(line.get("type") == "run.output" and "oops" in line["data"]["text"] for line in lines)
    [run] = parse_results(result.stdout)
    assert (run["state"], run["result"]["exitCode"]) == ("failed", 3)
    shown = server.output("runs", "show", run["id"])
    assert shown.startswith("✗ bad failed after ") and "exit code 3" in shown and "report.md" in shown


def test_parallel_option_limits_concurrent_runs(server: PaddockCliServer, tasks: Path, tmp_path: Path) -> None:
    counting = {**HELLO_TASK, "name": "counting", "entrypoint": "cat greeting.txt > report.md; sleep 0.3"}
    (tasks / "counting.json").write_text(json.dumps(counting))
    files = [str(tasks / f"{name}.json") for name in ("counting", "counting", "counting", "hello")]
    result = server.run("run", *files, "-p", "2", "-o", str(tmp_path / "out"), "--json")
    assert result.returncode == 0, result.stderr.decode()
    runs = parse_results(result.stdout)
    assert [run["name"] for run in runs] == ["counting", "counting", "counting", "hello"]
    spans = sorted((run["createdAt"], run["endedAt"]) for run in runs)
    for started, _ in spans:
        assert sum(start <= started < end for start, end in spans) <= 2
    assert {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.md")} == {
        "counting/report.md",
        "counting-2/report.md",
        "counting-3/report.md",
        "hello/report.md",
    }


def test_ctrl_c_cancels_run_and_fetches_partial_results(cli: PaddockCli, tasks: Path, tmp_path: Path) -> None:
    process = cli.start("run", str(tasks / "waits.json"), "-o", str(tmp_path / "out"))
    _read_until(process, b"begun")
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=COMMAND_TIMEOUT)
    assert process.returncode == 130, errors
    assert b"waits cancelled after" in output and (tmp_path / "out/report.md").read_text() == "partial\n"
    assert not has_running_server(cli.data)


def test_second_ctrl_c_kills_the_run(server: PaddockCliServer, tasks: Path) -> None:
    stubborn = {
        **WAITING_TASK,
        "name": "stubborn",
        "entrypoint": "trap '' TERM INT; echo begun; while :; do sleep 1; done",
    }
    (tasks / "stubborn.json").write_text(json.dumps(stubborn))
    process = server.start("run", str(tasks / "stubborn.json"))
    _read_until(process, b"begun")
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    _read_until(process, b"cancelling")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=COMMAND_TIMEOUT)
    assert process.returncode == 130 and time.monotonic() - started < 8
    [run] = server.json_output("runs", "list", "--name", "stubborn")
    assert run["state"] == "cancelled"


def test_temporary_server_ends_with_a_killed_command(cli: PaddockCli, tasks: Path) -> None:
    process = cli.start("run", str(tasks / "waits.json"))
    _read_until(process, b"begun")
    process.kill()
    process.communicate(timeout=COMMAND_TIMEOUT)
    eventually(lambda: not has_running_server(cli.data))
    # The next server continues the run.
    follower = PaddockCliServer(cli.data)
    follower.start_server()
    try:
        [run] = follower.json_output("runs", "list")
        assert run["state"] == "running"
        follower.output("runs", "cancel", "waits", "--hard")
        eventually(lambda: follower.json_output("runs", "list")[0]["state"] == "cancelled")
    finally:
        assert follower.stop_server() == 0


def test_runs_continue_after_their_shared_server_is_killed(tmp_path: Path, tasks: Path) -> None:
    first = PaddockCliServer(tmp_path / "shared")
    first.start_server()
    waits = {
        **HELLO_TASK,
        "name": "patient",
        "entrypoint": "echo begun; while [ ! -e go ]; do sleep 0.05; done; echo hello > report.md",
    }
    (tasks / "patient.json").write_text(json.dumps(waits))
    process = first.start("run", str(tasks / "patient.json"))
    _read_until(process, b"begun")
    assert first.stop_server(signal.SIGKILL) != 0
    eventually(lambda: has_running_server(first.data), 30)
    [run] = eventually(lambda: _list_runs(first), 30)
    refused = first.run("serve", "--port", "0")
    assert refused.returncode == 1 and f"`paddock run` (pid {process.pid}) uses".encode() in refused.stderr
    sandbox = first.json_output("runs", "show", run["id"])["sandboxId"]
    first.output("sandbox", "exec", sandbox, "--", "touch", "/workspace/go")
    output, errors = process.communicate(timeout=COMMAND_TIMEOUT)
    assert process.returncode == 0, output + errors
    assert output.count(b"the server is gone; starting a temporary server") == 1
    assert b"begun" not in output, "output was printed twice"
    eventually(lambda: not has_running_server(first.data))


def test_restarted_server_is_not_replaced(tmp_path: Path, tasks: Path) -> None:
    shared = PaddockCliServer(tmp_path / "shared")
    shared.start_server()
    process = shared.start("run", str(tasks / "waits.json"))
    _read_until(process, b"begun")
    shared.restart_server()
    holder = (shared.data / "server.lock").read_text()
    shared.output("runs", "cancel", "waits", "--hard")
    output, errors = process.communicate(timeout=COMMAND_TIMEOUT)
    assert b"waits cancelled after" in output and b"temporary server" not in output, output + errors
    assert (shared.data / "server.lock").read_text() == holder
    assert shared.stop_server() == 0


def test_run_waits_for_a_stopping_server(tmp_path: Path, tasks: Path) -> None:
    leaving = PaddockCliServer(tmp_path / "leaving")
    leaving.start_server()
    sandbox = leaving.output("sandbox", "create", "--image", "host")
    busy = leaving.start("sandbox", "exec", sandbox, "--", "sh", "-c", "echo begun; sleep 600")
    _read_until(busy, b"begun")
    # Open requests delay the shutdown; meanwhile the server does not respond.
    os.kill(int((leaving.data / "server.lock").read_text()), signal.SIGTERM)
    eventually(lambda: find_responding_server(leaving.data) is None)
    assert has_running_server(leaving.data)
    result = leaving.run("run", str(tasks / "hello.json"))
    assert result.returncode == 0, result.stdout + result.stderr
    assert b"starting a temporary server" in result.stdout
    busy.kill()
    busy.communicate()
    leaving.restart_server(signal.SIGKILL)
    leaving.output("sandbox", "rm", sandbox)
    assert leaving.stop_server() == 0


def _list_runs(paddock: PaddockCli) -> list[dict[str, Any]]:
    result = paddock.run("runs", "list", "--json")
    return json.loads(result.stdout) if result.returncode == 0 else []


def test_detached_run_is_watched_later(server: PaddockCliServer, tasks: Path) -> None:
    run = server.output("run", str(tasks / "hello.json"), "--detach")
    watched = server.run("runs", "watch", run)
    text = watched.stdout.decode()
    assert watched.returncode == 0 and "= sandbox" in text and "│ a red word" in text and "✓ hello succeeded" in text
    assert server.output("runs", "logs", run) == "a \x1b[31mred\x1b[0m word"


def test_detaching_needs_a_server(cli: PaddockCli, tasks: Path) -> None:
    result = cli.run("run", str(tasks / "hello.json"), "--detach")
    assert result.returncode == 1 and b"paddock serve" in result.stderr


def test_run_is_listed_fetched_retried_and_removed(server: PaddockCliServer, tasks: Path, tmp_path: Path) -> None:
    run = parse_results(server.run("run", str(tasks / "hello.json"), "--json").stdout)[0]["id"]
    assert run in server.output("runs", "list", "--name", "hello")
    server.output("runs", "get", run, "-o", str(tmp_path / "got"))
    assert (tmp_path / "got/report.md").read_text() == "hello world\n"
    server.output("runs", "get", run, "--archive", str(tmp_path / "run.tar"))
    assert (tmp_path / "run.tar").stat().st_size > 0
    again = server.output("runs", "retry", run.removeprefix("run-")[:12])
    assert server.run("runs", "watch", again).returncode == 0
    server.output("runs", "rm", run, again)
    assert server.run("runs", "show", run).returncode == 1


def test_run_on_a_terminal_is_live_with_framed_report(cli: PaddockCli, tasks: Path) -> None:
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [PADDOCK_COMMAND, "run", str(tasks / "hello.json")],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**cli.env, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"},
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
    assert process.wait(COMMAND_TIMEOUT) == 0
    text = shown.decode()
    assert "\x1b[31mred" not in text and "\x1b[?25h" in text  # the cursor is visible again
    assert "starting a temporary server" in text
    text = clean_terminal_text(text)
    assert "╭─ hello " in text and "╭─ report.md " in text and "hello world" in text
    assert "│ a red word" in text


def _read_until(process: subprocess.Popen[bytes], arguments: bytes) -> None:
    assert process.stdout is not None
    seen = b""
    os.set_blocking(process.stdout.fileno(), True)
    while arguments not in seen:
        line = process.stdout.readline()
        assert line, seen.decode()
        seen += line


def test_rejected_run_does_not_delay_other_runs(server: PaddockCliServer, tasks: Path) -> None:
    (tasks / "secretive.json").write_text(json.dumps({**HELLO_TASK, "name": "secretive", "secrets": ["NOBODY_HAS_IT"]}))
    result = server.run("run", str(tasks / "secretive.json"), str(tasks / "hello.json"))
    text = result.stdout.decode()
    assert result.returncode == 1
    assert "secretive was rejected" in text and "NOBODY_HAS_IT" in text and "1 of 2 succeeded" in text
    single = server.run("run", str(tasks / "secretive.json"))
    assert single.returncode == 1 and b"NOBODY_HAS_IT" in single.stderr


def test_missing_server_address_fails_at_once(cli: PaddockCli, tasks: Path) -> None:
    started = time.monotonic()
    result = cli.run("run", str(tasks / "hello.json"), "--server", "http://127.0.0.1:1")
    assert result.returncode == 1 and b"no Paddock server at http://127.0.0.1:1" in result.stderr
    assert time.monotonic() - started < 20


def test_temporary_server_start_failure_is_reported(cli: PaddockCli, tasks: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("sandboxes: {default_backend: nope}\n")
    result = cli.run("run", str(tasks / "hello.json"), "--config", str(tmp_path / "bad.yaml"))
    assert result.returncode == 1 and b"there is no backend 'nope'" in result.stderr


def test_warm_server_is_reused_by_the_next_command(tmp_path: Path, tasks: Path) -> None:
    paddock = PaddockCli(tmp_path / "kept")
    lock, hello = paddock.data / "server.lock", str(tasks / "hello.json")
    assert paddock.run("run", hello, "--no-warm", PADDOCK_RUNS__WARM_SERVER="600").returncode == 0
    assert not has_running_server(paddock.data)
    paddock.env["PADDOCK_RUNS__WARM_SERVER"] = "600"
    assert paddock.run("run", hello).returncode == 0
    first = lock.read_text()
    assert has_running_server(paddock.data)
    assert len(paddock.json_output("runs", "list")) == 2
    assert paddock.run("run", hello).returncode == 0
    assert lock.read_text() == first
    # A server with another configuration must not be used.
    paddock.env["PADDOCK_RUNS__WARM_SERVER"] = "1"
    assert paddock.run("run", hello).returncode == 0
    assert lock.read_text() != first
    eventually(lambda: not has_running_server(paddock.data))
    assert not (paddock.data / "run-server.json").exists()


def test_warm_server_is_reused_without_configuration_variables(tmp_path: Path, tasks: Path) -> None:
    paddock = PaddockCli(tmp_path / "kept")
    lock, hello, config = paddock.data / "server.lock", str(tasks / "hello.json"), tmp_path / "paddock.yaml"
    config.write_text("llm: {providers: {mine: {kind: openai, base_url: 'http://127.0.0.1:9', key: '${MINE_KEY}'}}}\n")
    paddock.env |= {"PADDOCK_CONFIG": str(config), "PADDOCK_RUNS__WARM_SERVER": "600"}
    assert paddock.run("run", hello, MINE_KEY="secret").returncode == 0
    first = lock.read_text()
    without = paddock.run("run", hello)
    assert without.returncode == 0, without.stderr.decode()
    assert lock.read_text() == first and b"temporary server" not in without.stdout
    # A changed setting replaces the server, with one that ends soon.
    paddock.env["PADDOCK_RUNS__WARM_SERVER"] = "1"
    assert paddock.run("run", hello, MINE_KEY="secret").returncode == 0
    assert lock.read_text() != first
    eventually(lambda: not has_running_server(paddock.data))


def test_warm_server_is_replaced_by_a_started_server(tmp_path: Path, tasks: Path) -> None:
    server = PaddockCliServer(tmp_path / "data")
    server.env["PADDOCK_RUNS__WARM_SERVER"] = "600"
    assert server.run("run", str(tasks / "hello.json")).returncode == 0
    warm_pid = (server.data / "server.lock").read_text()
    server.start_server()
    assert (server.data / "server.lock").read_text() != warm_pid
    assert (
        not os.path.exists(f"/proc/{warm_pid.strip()}/cmdline")
        or not Path(f"/proc/{warm_pid.strip()}/cmdline").read_text()
    )
    assert [run["state"] for run in server.json_output("runs", "list")] == ["succeeded"]
    assert server.stop_server() == 0
    assert not has_running_server(server.data)
