"""Calls whose output is told as it comes, before their result."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .daemon import TOKEN, Daemon, alive, ask, eventually, running_daemon
from .test_worker import worker
from .toolbox import Toolbox

MOST = 64 * 1024
WAIT = "until [ -e go ]; do sleep 0.02; done"
UNTIL = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\n"


@pytest.fixture
def daemon(zipapp: Path, directory: Path) -> Iterator[Daemon]:
    """Whether this machine has IPython makes no difference to these tests."""
    hidden = directory / "site/IPython"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('hidden')")
    with running_daemon(zipapp, directory, env={"PYTHONPATH": str(hidden.parent)}) as running:
        yield running


@pytest.fixture
def tools(daemon: Daemon) -> Toolbox:
    return Toolbox(daemon.socket_path, TOKEN)


def go(daemon: Daemon) -> None:
    (daemon.directory / "go").touch()


def output_of(lines: list[dict[str, Any]]) -> str:
    """What was told before the result, which is the last line and the only one of its kind."""
    assert [line for line in lines if "result" in line] == lines[-1:]
    return "".join(line["output"] for line in lines[:-1])


def test_a_command_is_heard_while_it_runs_and_has_the_result_it_always_has(tools: Toolbox, daemon: Daemon) -> None:
    with tools.aloud("run_shell_command", command=f"echo first; {WAIT}; echo oh >&2; echo last; exit 3") as lines:
        assert next(lines) == {"output": "first\n"}
        go(daemon)
        *more, last = lines
    assert sorted("".join(line["output"] for line in more).split()) == ["last", "oh"]
    result = last["result"]
    assert result["content"][0]["text"] == "first\nlast\n[stderr]\noh\n[exit code 3]"
    again = tools.result("run_shell_command", command="echo first; echo oh >&2; echo last; exit 3")
    for each in (result, again):
        del each["structuredContent"]["seconds"]
    assert result == again


def test_a_cell_is_heard_while_it_runs(tools: Toolbox, daemon: Daemon) -> None:
    with tools.aloud("run_ipython_cell", code=f"print('first', flush=True)\n{UNTIL}print('last')\n7") as lines:
        assert next(lines) == {"output": "first\n"}
        go(daemon)
        *more, last = lines
    assert "".join(line["output"] for line in more) == "last\n"
    assert last["result"]["structuredContent"] == {"stdout": "first\nlast\n", "stderr": "", "value": "7"}


def test_letters_are_whole_however_they_are_written(tools: Toolbox, daemon: Daemon) -> None:
    """Bytes of one letter that come apart, with those of the other output between them, and bytes of no letter."""
    begun = r"printf 'a\xc3'; printf 'b\xe4\xbd' >&2"
    rest = r"printf '\xbc\xff\xe4\xbd'; printf '\xa0c' >&2"
    with tools.aloud("run_shell_command", command=f"{begun}; {WAIT}; {rest}") as lines:
        assert sorted(next(lines)["output"]) == ["a", "b"]
        go(daemon)
        assert sorted(output_of(list(lines))) == sorted("ü\ufffd\ufffd" + "你c")


def test_what_is_over_at_once_is_only_in_the_result(tools: Toolbox) -> None:
    tools.shell("true")
    with tools.aloud("read_file", path="/etc/hostname") as lines:
        (only,) = lines
    assert only["result"]["content"][0]["text"]


@pytest.mark.parametrize("letter", ["x", "\u4f60", "\\0"])
def test_a_flood_is_cut_once_and_the_result_is_whole(tools: Toolbox, daemon: Daemon, letter: str) -> None:
    flood = f"python3 -c \"import sys; sys.stdout.write('{letter}' * 3_000_000)\""
    with tools.aloud("run_shell_command", command=f"echo first; {WAIT}; {flood}; echo last") as told:
        first = next(told)
        go(daemon)
        lines = [first, *told]
    output = output_of(lines)
    assert output.startswith("first\n") and MOST - 4 < len(output.encode()) <= MOST and "\ufffd" not in output
    assert lines[-2] == {"output": "", "cut": True}
    assert [line for line in lines if "cut" in line] == [lines[-2]]
    assert lines[-1]["result"]["structuredContent"]["stdout"].endswith("last\n")


def test_a_long_call_that_mutters_is_told_in_few_lines(tools: Toolbox) -> None:
    with tools.aloud("run_shell_command", command="for i in $(seq 100); do echo $i; sleep 0.005; done") as told:
        lines = list(told)
    assert output_of(lines).split() == [str(number) for number in range(1, 101)]
    assert len(lines) < 50


def test_what_is_wrong_with_a_call_is_told_by_the_status(tools: Toolbox) -> None:
    headers = {"Accept": "application/x-ndjson"}
    wrong = tools.ask("POST", "/tools/run_shell_command", {"comand": "x"}, **headers)
    assert (wrong.status, wrong.error()) == (400, "INVALID_ARGUMENTS")
    assert tools.ask("POST", "/tools/reed_file", {}, **headers).error() == "TOOL_NOT_FOUND"
    with tools.aloud("read_file", path="/no/such") as lines:
        (only,) = lines
    assert only["result"]["isError"] is True


def test_a_caller_that_hangs_up_ends_the_command(tools: Toolbox, daemon: Daemon) -> None:
    with tools.aloud("run_shell_command", command="echo $$; sleep 600") as lines:
        pid = int(next(lines)["output"])
        assert alive(pid)
    eventually(lambda: not alive(pid))
    assert tools.shell("echo well") == "well\n"


def test_a_caller_that_hangs_up_interrupts_the_cell(tools: Toolbox, daemon: Daemon) -> None:
    code = "import time\nx = 5\nprint('begun', flush=True)\ntry: time.sleep(600)\nfinally: open('ended', 'w')"
    with tools.aloud("run_ipython_cell", code=code) as lines:
        assert next(lines) == {"output": "begun\n"}
    eventually((daemon.directory / "ended").exists)
    assert tools.call("run_ipython_cell", code="x") == "5"


def test_a_caller_that_hears_nothing_more_does_not_hold_up_others(tools: Toolbox) -> None:
    flood = "echo $$; yes"
    with tools.aloud("run_shell_command", command=flood, timeout=60) as lines:
        pid = int(next(lines)["output"].split()[0])
        assert tools.shell("echo well") == "well\n"
    eventually(lambda: not alive(pid))


def test_the_connection_is_good_for_the_next_call(daemon: Daemon) -> None:
    connection = daemon.connect()
    body = {"command": f"echo first; {WAIT}; echo last"}
    go(daemon)
    for _ in range(20):
        told = ask(connection, "POST", "/tools/run_shell_command", body, Accept="application/x-ndjson")
        assert json.loads(told.body.splitlines()[-1])["result"]["structuredContent"]["stdout"] == "first\nlast\n"
        assert ask(connection, "POST", "/tools/no_such_tool", {}).status == 404
    connection.close()
    assert worker(daemon)["starts"] == 1


def test_a_worker_that_dies_meanwhile_is_told_of_in_the_last_line(tools: Toolbox, daemon: Daemon) -> None:
    with tools.aloud("run_shell_command", command="echo begun; sleep 600") as lines:
        assert next(lines) == {"output": "begun\n"}
        os.kill(worker(daemon)["pid"], signal.SIGKILL)
        (last,) = lines
    assert (last["error"]["status"], last["error"]["code"]) == (502, "TOOLS_DIED")
    assert "exit code 137" in last["error"]["message"]
    assert tools.shell("echo well") == "well\n"
