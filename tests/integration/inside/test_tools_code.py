"""The tools that run code: shell commands, and Python cells that keep their variables."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .daemon import TOKEN, Daemon, alive, eventually, running_daemon
from .tool_client import ToolClient, pictures_of

CELL = {"timeout": 20}
SHELL = """
class Hook:
    check_for_underscore = update_user_ns = lambda *_: None
    quiet = lambda self: False

class Outcome:
    error_before_exec = error_in_exec = None

class InteractiveShell:
    @classmethod
    def instance(cls, user_module):
        self = cls()
        self.user_ns, self.displayhook = vars(user_module), Hook()
        return self

    def run_cell(self, source, store_history):
        outcome = Outcome()
        if source == "%magic":
            print("magic")
        elif source == "?help":
            self.displayhook("shown")
        else:
            try:
                exec(compile("\\n\\ndef cell(): {}['x']\\ncell()", "<ipython-input-1-ab>", "exec"), {})
            except KeyError as error:
                outcome.error_in_exec = error
        return outcome
"""
"""A stand-in for IPython with the names that the kernel uses."""


@pytest.fixture
def daemon(zipapp: Path, directory: Path) -> Iterator[Daemon]:
    """Hide IPython, so that the tests do not depend on it."""
    hidden = directory / "site/IPython"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('hidden')")
    with running_daemon(zipapp, directory, env={"BOX": "yes", "PYTHONPATH": str(hidden.parent)}) as running:
        yield running


@pytest.fixture
def tools(daemon: Daemon) -> ToolClient:
    return ToolClient(daemon.socket_path, TOKEN)


def test_command_returns_output_and_exit_code(tools: ToolClient, daemon: Daemon) -> None:
    result = tools.result("run_shell_command", command="pwd; echo oh >&2; exit 3")
    assert result["isError"] is False
    assert result["content"][0]["text"] == f"{daemon.directory}\n[stderr]\noh\n[exit code 3]"
    structured = result["structuredContent"]
    assert (structured["exit_code"], structured["stdout"], structured["stderr"]) == (3, f"{daemon.directory}\n", "oh\n")
    assert tools.call("run_shell_command", command="true") == "[no output]"


def test_a_command_has_its_directory_input_and_variables(tools: ToolClient) -> None:
    assert tools.shell("pwd", cwd="/usr") == "/usr\n"
    assert tools.shell("tr a-z A-Z", stdin="grüße") == "GRüßE"
    assert tools.shell("echo $BOX") == "yes\n"
    assert "does not exist" in tools.fails("run_shell_command", command="true", cwd="/nowhere")


def test_ten_megabytes_of_output_are_cut(tools: ToolClient) -> None:
    result = tools.data("run_shell_command", command="echo first; head -c 10000000 /dev/zero | tr '\\0' x; echo last")
    assert result["stdout"].startswith("first\nxxx") and result["stdout"].endswith("xxxlast\n")
    assert result["cut"] is True and "bytes left out" in result["stdout"] and len(result["stdout"]) < 60_000


def test_timeout_kills_the_command_and_its_children(tools: ToolClient, daemon: Daemon) -> None:
    error_text = tools.fails(
        "run_shell_command", command="sleep 600 & echo $! > child; echo started; wait", timeout=0.5
    )
    assert error_text == "started\n[killed after 0.5 seconds (timeout)]"
    eventually(lambda: not alive(int((daemon.directory / "child").read_text())))


def test_timeout_kills_a_command_ignoring_sigterm(tools: ToolClient) -> None:
    assert "killed after" in tools.fails("run_shell_command", command="trap '' TERM; sleep 600", timeout=0.2)


def test_background_processes_do_not_delay_the_result(tools: ToolClient, daemon: Daemon) -> None:
    started = time.monotonic()
    output = tools.shell("sleep 600 & echo $!")
    assert time.monotonic() - started < 5
    os.kill(int(output), 9)


def test_cells_share_variables(tools: ToolClient) -> None:
    assert tools.call("run_ipython_cell", code="x = 20\nprint('hello')", **CELL) == "hello"
    assert tools.call("run_ipython_cell", code="x * 2 + 2") == "42"
    assert tools.data("run_ipython_cell", code="[x]")["value"] == "[20]"
    assert tools.call("run_ipython_cell", code="x;") == "[no output]"
    assert tools.call("run_ipython_cell", code="import asyncio\nawait asyncio.sleep(0)\n'waited'") == "'waited'"
    assert "NameError" in tools.fails("run_ipython_cell", code="x", restart=True)


def test_traceback_shows_only_the_cells_lines(tools: ToolClient) -> None:
    error_text = tools.fails("run_ipython_cell", code="def f():\n    return 1 / 0\nf()", **CELL)
    assert (
        "return 1 / 0" in error_text
        and "ZeroDivisionError: division by zero" in error_text
        and "inside/" not in error_text
    )
    assert "SyntaxError" in tools.fails("run_ipython_cell", code="def f(:")
    assert "EOFError" in tools.fails("run_ipython_cell", code="input()")


def test_image_representations_are_returned(tools: ToolClient) -> None:
    code = "class Dot:\n    def _repr_png_(self): return b'\\x89PNG'\nDot()"
    assert pictures_of(tools.result("run_ipython_cell", code=code, **CELL)) == [b"\x89PNG"]


def test_figures_are_shown_where_matplotlib_is_loaded(tools: ToolClient) -> None:
    pyplot = (
        "import sys, types\nplot = types.ModuleType('matplotlib.pyplot')\nshown = [1]\n"
        "plot.get_fignums = lambda: list(shown)\nplot.close = lambda which: shown.clear()\n"
        "plot.figure = lambda n: types.SimpleNamespace(savefig=lambda to, **_: to.write(b'\\x89PNG fig'))\n"
        "sys.modules['matplotlib.pyplot'] = plot"
    )
    assert pictures_of(tools.result("run_ipython_cell", code=pyplot, **CELL)) == [b"\x89PNG fig"]
    assert pictures_of(tools.result("run_ipython_cell", code="1")) == []


def test_timed_out_cell_is_interrupted_and_keeps_variables(tools: ToolClient) -> None:
    tools.call("run_ipython_cell", code="x = 5", **CELL)
    error_text = tools.fails("run_ipython_cell", code="print('started')\nwhile True: pass", timeout=0.3)
    assert (
        "started" in error_text and "interrupted after 0.3 seconds" in error_text and "KeyboardInterrupt" in error_text
    )
    assert tools.call("run_ipython_cell", code="x") == "5"


def test_dead_python_process_is_reported_and_restarted(tools: ToolClient) -> None:
    error_text = tools.fails("run_ipython_cell", code="import os\nos._exit(3)", **CELL)
    assert "its variables are lost" in error_text
    assert tools.call("run_ipython_cell", code="1 + 1", **CELL) == "2"


def test_output_of_a_cell_is_bounded(tools: ToolClient) -> None:
    text = tools.call("run_ipython_cell", code="print('x' * 10_000_000)\n'y' * 10_000_000", **CELL)
    assert len(text) < 250_000 and "left out" in text


def test_cells_run_one_at_a_time(tools: ToolClient) -> None:
    tools.call("run_ipython_cell", code="import time", **CELL)
    slow = threading.Thread(target=tools.result, args=("run_ipython_cell",), kwargs={"code": "time.sleep(1)\ny = 7"})
    slow.start()
    eventually(lambda: "another cell" in str(tools.result("run_ipython_cell", code="1", timeout=0.1)))
    assert tools.call("run_ipython_cell", code="y") == "7"
    slow.join(10)


def test_installed_ipython_is_used(zipapp: Path, directory: Path) -> None:
    package = directory / "site/IPython/core"
    package.mkdir(parents=True)
    for each in (package.parent, package):
        (each / "__init__.py").touch()
    (package / "interactiveshell.py").write_text(SHELL)
    with running_daemon(zipapp, directory, env={"PYTHONPATH": str(directory / "site")}) as daemon:
        tools = ToolClient(daemon.socket_path, TOKEN)
        assert tools.call("run_ipython_cell", code="%magic", **CELL) == "magic"
        assert tools.call("run_ipython_cell", code="?help") == "'shown'"
        error_text = tools.fails("run_ipython_cell", code="broken")
        assert "line 3, in cell" in error_text and "KeyError: 'x'" in error_text and "run_cell" not in error_text


def test_missing_screen_is_reported(zipapp: Path, directory: Path) -> None:
    with running_daemon(zipapp, directory, env={"DISPLAY": "", "PADDOCK_KIND": "linux"}) as daemon:
        tools = ToolClient(daemon.socket_path, TOKEN)
        names = {tool["name"] for tool in tools.ask("GET", "/tools").json()["tools"]}
        assert "read_file" in names and not names & {"screenshot", "click_mouse", "start_app"}
        for target in ("/screen/shot", "/screen/frames"):
            answer = tools.ask("GET", target)
            assert (answer.status, answer.error()) == (404, "NO_SCREEN")
            assert "this sandbox has no screen" in answer.json()["message"]
        assert tools.ask("POST", "/tools/screenshot", {}).error() == "TOOL_NOT_FOUND"


def test_malformed_calls_are_refused(tools: ToolClient) -> None:
    assert tools.ask("POST", "/tools/read_file", b"{").error() == "INVALID_REQUEST_BODY"
    assert tools.ask("POST", "/tools/read_file", b"[" * 100_000).status == 400
    assert tools.ask("POST", "/tools/read_file", [1]).error() == "INVALID_ARGUMENTS"
    unknown = tools.ask("POST", "/tools/reed_file", {})
    assert unknown.status == 404 and "did you mean read_file" in unknown.json()["message"]
