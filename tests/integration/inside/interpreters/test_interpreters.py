"""Bash sessions and code contexts keep their state."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.integration.inside.daemon import Answer, Daemon, alive, eventually, next_event


class Session:
    def __init__(self, daemon: Daemon, **options: Any) -> None:
        self.daemon = daemon
        self.id = daemon.call("POST", "/session", options).json()["session_id"]

    def run(self, command: str, **options: Any) -> Answer:
        return self.daemon.call("POST", f"/session/{self.id}/run", {"command": command, **options})


class Context:
    def __init__(self, daemon: Daemon, language: str = "python") -> None:
        self.daemon = daemon
        self.id = daemon.call("POST", "/code/context", {"language": language}).json()["id"]
        self.language = language

    def run(self, code: str, **options: Any) -> Answer:
        context = {"id": self.id, "language": self.language}
        return self.daemon.call("POST", "/code", {"code": code, "context": context, **options})

    def result(self, code: str) -> dict[str, Any]:
        (event,) = [event for event in self.run(code).events() if event["type"] == "result"]
        results: dict[str, Any] = event["results"]
        return results

    def error(self, code: str, **options: Any) -> dict[str, Any]:
        error: dict[str, Any] = self.run(code, **options).events()[-1]["error"]
        return error


@pytest.fixture
def session(daemon: Daemon) -> Session:
    return Session(daemon)


@pytest.fixture
def context(daemon: Daemon) -> Context:
    return Context(daemon)


def test_bash_session_keeps_state(session: Session) -> None:
    learn = "cd /usr; export A=1; B='two words'; f() { echo \"$A $B\"; }; alias hi='echo hello'"
    assert session.run(learn).exit_code() == 0
    assert session.run("pwd; f; hi").text() == ["/usr", "1 two words", "hello"]
    assert session.run("false").exit_code() == 1
    assert session.run("pwd", cwd="/etc").text() == ["/etc"]
    assert session.run("pwd").text() == ["/usr"]


def test_bash_session_survives_exit(session: Session) -> None:
    session.run("cd /usr; B=2; f() { echo fn; }")
    assert session.run("exit 3").exit_code() == 3
    assert session.run("pwd; echo $B; f").text() == ["/usr", "2", "fn"]
    assert session.run("kill -9 $$").exit_code() == 137
    assert session.run("echo back").text() == ["back"]


def test_command_output_cannot_end_the_session(session: Session) -> None:
    zeros = "printf '0\\0'; printf '0\\0' >&2; printf '0\\0' >&3 2>/dev/null"
    answer = session.run(f"{zeros}; head -c 300000 /dev/urandom; echo end")
    assert answer.text()[-1].endswith("end")
    assert session.run("echo next").text() == ["next"]


def test_session_handles_syntax_errors_and_here_documents(session: Session) -> None:
    assert session.run("if then").exit_code() != 0
    assert session.run("cat <<EOF\none\ntwo\nEOF").text() == ["one", "two"]
    assert session.run("echo 'an open quote").exit_code() != 0
    assert session.run("echo fine").text() == ["fine"]


def test_session_continues_after_timeout(session: Session) -> None:
    session.run("KEPT=yes")
    assert session.run("while :; do :; done", timeout=100).exit_code() == 124
    assert session.run("echo $KEPT").text() == ["yes"]
    assert session.run("trap '' INT TERM; while :; do sleep 0.05; done", timeout=100).exit_code() == 124
    assert session.run("echo again").text() == ["again"]


def test_background_jobs_outlive_their_execution(daemon: Daemon, session: Session) -> None:
    session.run("(while [ ! -e go ]; do sleep 0.01; done; seq 100000; touch done) & echo started")
    (daemon.directory / "go").touch()
    eventually((daemon.directory / "done").exists)
    assert session.run("echo calm").text() == ["calm"]


def test_busy_session_is_interrupted_and_deleted(daemon: Daemon, session: Session) -> None:
    with daemon.stream("POST", f"/session/{session.id}/run", {"command": "echo $$; sleep 300"}) as response:
        identifier = next_event(response)["text"]
        pid = int(next_event(response)["text"])
        assert (session.run("true").status, session.run("true").error()) == (409, "SESSION_BUSY")
        assert daemon.call("DELETE", f"/command?id={identifier}").status == 200
        assert next_event(response)["error"]["evalue"] == "130"
    assert session.run("echo fresh").text() == ["fresh"]
    assert daemon.call("DELETE", f"/session/{session.id}").status == 200
    eventually(lambda: not alive(pid))
    assert session.run("true").error() == "SESSION_NOT_FOUND"
    assert daemon.call("DELETE", f"/session/{session.id}").status == 404


def test_client_disconnect_frees_the_session(daemon: Daemon, session: Session) -> None:
    with daemon.stream("POST", f"/session/{session.id}/run", {"command": "echo hi; sleep 300"}) as response:
        next_event(response)
        next_event(response)
    eventually(lambda: session.run("echo free").status == 200)


def test_invalid_session_requests_are_refused(daemon: Daemon, session: Session) -> None:
    assert daemon.call("POST", "/session", {"cwd": "/no/such"}).status == 400
    assert session.run("").status == 400
    assert session.run("a\0b").status == 400
    assert session.run("true", cwd="/no/such").status == 400
    assert session.run("true").exit_code() == 0


def test_python_keeps_state_and_shows_the_last_value(context: Context) -> None:
    assert context.run("x = 20\nimport math").events()[-1]["type"] == "execution_complete"
    answer = context.run("print('printed')\nx + 22")
    events = {event["type"]: event for event in answer.events()}
    assert list(events)[-2:] == ["result", "execution_complete"]
    assert events["stdout"]["text"] == "printed"
    assert events["result"]["results"] == {"text/plain": "42", "text": "42"}
    assert events["execution_count"]["execution_count"] == 2
    assert context.result("_ + 1")["text"] == "43"
    assert "result" not in [event["type"] for event in context.run("x;").events()]


def test_contexts_are_separate_and_the_default_is_shared(daemon: Daemon, context: Context) -> None:
    context.run("secret = 1")
    assert Context(daemon).error("secret")["ename"] == "NameError"
    daemon.call("POST", "/code", {"code": "shared = 5"})
    assert "5" in daemon.call("POST", "/code", {"code": "shared", "context": {"language": "python"}}).body.decode()


def test_results_have_rich_representations(context: Context) -> None:
    code = """
class Rich:
    def __repr__(self): return "plain"
    def _repr_html_(self): return "<b>html</b>"
    def _repr_png_(self): return b"png"
    def _repr_json_(self): return {"a": 1}
    def _repr_markdown_(self): raise ValueError
display(1)
Rich()"""
    results = [event["results"] for event in context.run(code).events() if event["type"] == "result"]
    assert results[0]["text"] == "1"
    assert results[1] == {
        "text/plain": "plain",
        "text": "plain",
        "text/html": "<b>html</b>",
        "image/png": "cG5n",
        "application/json": {"a": 1},
    }


def test_figures_are_captured(context: Context, daemon: Daemon) -> None:
    package = daemon.directory / "matplotlib"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "pyplot.py").write_text(
        "figures = []\n"
        "class Figure:\n"
        "    def savefig(self, file, **options): file.write(b'picture')\n"
        "def plot(*points): figures.append(Figure())\n"
        "def get_fignums(): return list(range(1, len(figures) + 1))\n"
        "def figure(number): return figures[number - 1]\n"
        "def close(which): figures.clear()\n"
    )
    assert context.result("import matplotlib.pyplot as plt\nplt.plot([1, 2])")["image/png"] == "cGljdHVyZQ=="


def test_errors_have_clean_tracebacks(context: Context) -> None:
    error = context.error("def f():\n    return 1 / 0\nf()")
    assert (error["ename"], error["evalue"]) == ("ZeroDivisionError", "division by zero")
    assert "    return 1 / 0" in error["traceback"]
    assert not any("kernel" in line for line in error["traceback"])
    assert context.error("def f(:")["ename"] == "SyntaxError"
    assert context.error("input()")["ename"] == "EOFError"
    assert context.error("import sys; sys.exit(3)")["ename"] == "SystemExit"


def test_top_level_await_and_subprocess_output(context: Context) -> None:
    assert context.result("import asyncio\nawait asyncio.sleep(0, 'awaited')")["text"] == "'awaited'"
    answer = context.run("import os, sys\nos.system('echo from a child')\nos.write(2, b'raw\\n')\nprint('last')")
    assert answer.text() == ["from a child", "last"]
    assert answer.text("stderr") == ["raw"]


def test_interrupt_and_timeout_keep_the_variables(daemon: Daemon, context: Context) -> None:
    context.run("x = 1")
    assert context.error("while True: pass", timeout=100)["evalue"] == "timed out after 100 ms"
    body = {"code": "print('on')\nimport time\ntime.sleep(300)", "context": {"id": context.id, "language": "python"}}
    with daemon.stream("POST", "/code", body) as response:
        identifier = next_event(response)["text"]
        while next_event(response)["type"] != "stdout":
            pass
        assert context.run("1").error() == "SESSION_BUSY"
        assert daemon.call("DELETE", f"/code?id={identifier}").status == 200
        while (event := next_event(response))["type"] != "error":
            pass
        assert event["error"]["ename"] == "KeyboardInterrupt"
    assert context.result("x")["text"] == "1"


def test_early_interrupt_is_not_lost(daemon: Daemon) -> None:
    with daemon.stream("POST", "/code", {"code": "while True: pass", "context": {"language": "python"}}) as response:
        identifier = next_event(response)["text"]
        assert daemon.call("DELETE", f"/code?id={identifier}").status == 200
        while (event := next_event(response))["type"] != "error":
            pass
        assert event["error"]["ename"] == "KeyboardInterrupt"


def test_dead_kernel_is_reported_and_replaced(context: Context) -> None:
    context.run("x = 1")
    assert context.error("import os; os._exit(7)")["ename"] == "KernelDied"
    assert context.error("x")["ename"] == "NameError"
    stubborn = "import signal\nsignal.signal(2, lambda *a: None)\nsignal.signal(15, lambda *a: None)\nwhile True: pass"
    assert context.error(stubborn, timeout=100)["ename"] == "KernelDied"
    assert context.result("1 + 1")["text"] == "2"


def test_binary_output_of_code_is_handled(context: Context) -> None:
    answer = context.run("""import sys
print('{"done": true}')
sys.stdout.buffer.write(bytes(range(256)))
print('\\udcff')
sys.stdout.close()
1 + 1""")
    assert answer.events()[-2]["results"]["text"] == "2"
    assert context.run("x = 'y' * 3_000_000\nx").events()[-1]["type"] == "execution_complete"


def test_bash_contexts_run_and_are_listed(daemon: Daemon, context: Context) -> None:
    bash = Context(daemon, "bash")
    bash.run("cd /usr")
    assert bash.run("pwd").text() == ["/usr"]
    everything = daemon.call("GET", "/code/contexts").json()
    assert {item["language"] for item in everything} == {"python", "bash"}
    assert daemon.call("GET", "/code/contexts?language=bash").json() == [{"id": bash.id, "language": "bash"}]
    assert daemon.call("GET", f"/code/contexts/{context.id}").json() == {"id": context.id, "language": "python"}
    assert daemon.call("DELETE", f"/code/contexts/{context.id}").status == 200
    assert context.run("1").error() == "CONTEXT_NOT_FOUND"
    assert daemon.call("DELETE", "/code/contexts?language=bash").status == 200
    assert daemon.call("GET", "/code/contexts").json() == []


def test_contexts_run_side_by_side(daemon: Daemon) -> None:
    contexts = [Context(daemon) for _ in range(4)]
    answers: dict[int, str] = {}
    barrier = "import glob, time\nopen('{n}', 'w').close()\nwhile len(glob.glob('[0-9]')) < 4: time.sleep(0.01)\n{n}"

    def work(number: int) -> None:
        answers[number] = contexts[number].result(barrier.format(n=number))["text"]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == {number: str(number) for number in range(4)}
