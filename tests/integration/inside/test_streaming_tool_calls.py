"""Tool calls that stream their output before the result."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .daemon import TOKEN, Daemon, alive, ask, eventually, running_daemon
from .test_tool_worker import worker
from .tool_client import ToolClient

MOST = 64 * 1024
WAIT = "until [ -e continue_program ]; do sleep 0.02; done"
UNTIL = "import os, time\nwhile not os.path.exists('continue_program'): time.sleep(0.02)\n"


@pytest.fixture
def daemon(zipapp: Path, directory: Path) -> Iterator[Daemon]:
    """Hide IPython, so that the tests do not depend on it."""
    hidden = directory / "site/IPython"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('hidden')")
    with running_daemon(zipapp, directory, env={"PYTHONPATH": str(hidden.parent)}) as running:
        yield running


@pytest.fixture
def tools(daemon: Daemon) -> ToolClient:
    return ToolClient(daemon.socket_path, TOKEN)


def continue_program(daemon: Daemon) -> None:
    (daemon.directory / "continue_program").touch()


def output_of(lines: list[dict[str, Any]]) -> str:
    """Return the streamed output lines; asserts that exactly the last line is the result."""
    assert [line for line in lines if "result" in line] == lines[-1:]
    return "".join(line["output"] for line in lines[:-1])


def test_command_output_is_streamed_before_the_usual_result(tools: ToolClient, daemon: Daemon) -> None:
    with tools.stream_call("run_shell_command", command=f"echo first; {WAIT}; echo oh >&2; echo last; exit 3") as lines:
        assert next(lines) == {"output": "first\n"}
        continue_program(daemon)
        *more, last = lines
    assert sorted("".join(line["output"] for line in more).split()) == ["last", "oh"]
    result = last["result"]
    assert result["content"][0]["text"] == "first\nlast\n[stderr]\noh\n[exit code 3]"
    again = tools.result("run_shell_command", command="echo first; echo oh >&2; echo last; exit 3")
    for each in (result, again):
        del each["structuredContent"]["seconds"]
    assert result == again


def test_cell_output_is_streamed(tools: ToolClient, daemon: Daemon) -> None:
    with tools.stream_call("run_ipython_cell", code=f"print('first', flush=True)\n{UNTIL}print('last')\n7") as lines:
        assert next(lines) == {"output": "first\n"}
        continue_program(daemon)
        *more, last = lines
    assert "".join(line["output"] for line in more) == "last\n"
    assert last["result"]["structuredContent"] == {"stdout": "first\nlast\n", "stderr": "", "value": "7"}


def test_characters_are_never_split(tools: ToolClient, daemon: Daemon) -> None:
    """Characters split between writes and interleaved with the other stream, and invalid bytes."""
    unfinished = r"printf 'a\xc3'; printf 'b\xe4\xbd' >&2"
    rest = r"printf '\xbc\xff\xe4\xbd'; printf '\xa0c' >&2"
    with tools.stream_call("run_shell_command", command=f"{unfinished}; {WAIT}; {rest}") as lines:
        assert sorted(next(lines)["output"]) == ["a", "b"]
        continue_program(daemon)
        assert sorted(output_of(list(lines))) == sorted("ü\ufffd\ufffd" + "你c")


def test_output_of_short_calls_is_only_in_the_result(tools: ToolClient) -> None:
    tools.shell("true")
    with tools.stream_call("read_file", path="/etc/hostname") as lines:
        (only,) = lines
    assert only["result"]["content"][0]["text"]


@pytest.mark.parametrize("character", ["x", "\u4f60", "\\0"])
def test_streamed_output_is_cut_once_at_the_limit(tools: ToolClient, daemon: Daemon, character: str) -> None:
    flood = f"python3 -c \"import sys; sys.stdout.write('{character}' * 3_000_000)\""
    with tools.stream_call("run_shell_command", command=f"echo first; {WAIT}; {flood}; echo last") as stream:
        first = next(stream)
        continue_program(daemon)
        lines = [first, *stream]
    output = output_of(lines)
    assert output.startswith("first\n") and MOST - 4 < len(output.encode()) <= MOST and "\ufffd" not in output
    assert lines[-2] == {"output": "", "cut": True}
    assert [line for line in lines if "cut" in line] == [lines[-2]]
    assert lines[-1]["result"]["structuredContent"]["stdout"].endswith("last\n")


def test_sparse_output_of_long_calls_is_gathered(tools: ToolClient) -> None:
    with tools.stream_call("run_shell_command", command="for i in $(seq 100); do echo $i; sleep 0.005; done") as stream:
        lines = list(stream)
    assert output_of(lines).split() == [str(number) for number in range(1, 101)]
    assert len(lines) < 50


def test_invalid_calls_fail_with_a_status(tools: ToolClient) -> None:
    headers = {"Accept": "application/x-ndjson"}
    wrong = tools.ask("POST", "/tools/run_shell_command", {"comand": "x"}, **headers)
    assert (wrong.status, wrong.error()) == (400, "INVALID_ARGUMENTS")
    assert tools.ask("POST", "/tools/reed_file", {}, **headers).error() == "TOOL_NOT_FOUND"
    with tools.stream_call("read_file", path="/no/such") as lines:
        (only,) = lines
    assert only["result"]["isError"] is True


def test_client_disconnect_ends_the_command(tools: ToolClient, daemon: Daemon) -> None:
    with tools.stream_call("run_shell_command", command="echo $$; sleep 600") as lines:
        pid = int(next(lines)["output"])
        assert alive(pid)
    eventually(lambda: not alive(pid))
    assert tools.shell("echo well") == "well\n"


def test_client_disconnect_interrupts_the_cell(tools: ToolClient, daemon: Daemon) -> None:
    code = "import time\nx = 5\nprint('started', flush=True)\ntry: time.sleep(600)\nfinally: open('ended', 'w')"
    with tools.stream_call("run_ipython_cell", code=code) as lines:
        assert next(lines) == {"output": "started\n"}
    eventually((daemon.directory / "ended").exists)
    assert tools.call("run_ipython_cell", code="x") == "5"


def test_stalled_client_does_not_block_others(tools: ToolClient) -> None:
    flood = "echo $$; yes"
    with tools.stream_call("run_shell_command", command=flood, timeout=60) as lines:
        pid = int(next(lines)["output"].split()[0])
        assert tools.shell("echo well") == "well\n"
    eventually(lambda: not alive(pid))


def test_connection_is_reused_after_streaming(daemon: Daemon) -> None:
    connection = daemon.connect()
    body = {"command": f"echo first; {WAIT}; echo last"}
    continue_program(daemon)
    for _ in range(20):
        reply = ask(connection, "POST", "/tools/run_shell_command", body, Accept="application/x-ndjson")
        assert json.loads(reply.body.splitlines()[-1])["result"]["structuredContent"]["stdout"] == "first\nlast\n"
        assert ask(connection, "POST", "/tools/no_such_tool", {}).status == 404
    connection.close()
    assert worker(daemon)["starts"] == 1


def test_worker_crash_is_reported_in_the_last_line(tools: ToolClient, daemon: Daemon) -> None:
    with tools.stream_call("run_shell_command", command="echo started; sleep 600") as lines:
        assert next(lines) == {"output": "started\n"}
        os.kill(worker(daemon)["pid"], signal.SIGKILL)
        (last,) = lines
    assert (last["error"]["status"], last["error"]["code"]) == (502, "TOOLS_DIED")
    assert "exit code 137" in last["error"]["message"]
    assert tools.shell("echo well") == "well\n"
