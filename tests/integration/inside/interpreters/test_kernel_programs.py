"""Code contexts run by kernels of the image: the protocol, and programs that break it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.inside.daemon import Answer, Daemon, eventually, next_event, running_daemon

KERNEL = """#!/usr/bin/python3 -u
import json, os, signal, sys, time

signal.signal(signal.SIGINT, lambda *_: None)
commands = os.fdopen(int(os.environ["PADDOCK_KERNEL_COMMANDS"]))
replies = int(os.environ["PADDOCK_KERNEL_REPLIES"])

def send(**reply):
    os.write(replies, json.dumps(reply).encode() + b"\\n")

def wait_for_interrupt():
    while json.loads(commands.readline()).get("interrupt") != cell:
        pass
    send(error={"ename": "Interrupted", "evalue": "stopped", "traceback": ["stopped"]})

kept = {}
for line in commands:
    command = json.loads(line)
    if "interrupt" in command:
        continue
    cell = command["cell"]
    send(count=cell)
    exec(command["code"], {**globals(), "kept": kept})
    send(done=True)
"""


@pytest.fixture
def kernels(directory: Path) -> Path:
    made = directory / "kernels"
    made.mkdir()
    add_kernel(made, "sample", KERNEL)
    return made


@pytest.fixture
def daemon(zipapp: Path, directory: Path, kernels: Path) -> Iterator[Daemon]:
    with running_daemon(zipapp, directory, env={"PADDOCK_KERNELS": str(kernels)}) as running:
        yield running


def add_kernel(kernels: Path, language: str, text: str) -> None:
    (kernels / language).write_text(text)
    (kernels / language).chmod(0o755)


def run(daemon: Daemon, code: str, language: str = "sample", **options: Any) -> Answer:
    return daemon.call("POST", "/code", {"code": code, "context": {"language": language}, **options})


def error(answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = answer.events()[-1]["error"]
    return found


def test_cells_share_one_process(daemon: Daemon) -> None:
    first = run(daemon, "kept['x'] = 41; print('out'); print('err', file=sys.stderr)")
    assert (first.text(), first.text("stderr")) == (["out"], ["err"])
    second = run(daemon, "send(result={'text/plain': str(kept['x'] + 1), 'text/html': '<b>42</b>'})").events()
    assert [event["type"] for event in second] == ["init", "execution_count", "result", "execution_complete"]
    assert second[1]["execution_count"] == 2
    assert second[2]["results"] == {"text": "42", "text/plain": "42", "text/html": "<b>42</b>"}


def test_late_output_appears_with_the_next_cell(daemon: Daemon) -> None:
    run(
        daemon,
        "os.spawnlp(os.P_NOWAIT, 'sh', 'sh', '-c', 'while [ ! -e go ]; do sleep 0.01; done; echo late; touch gone')",
    )
    (daemon.directory / "go").touch()
    answer = run(daemon, "while not os.path.exists('gone'): time.sleep(0.01)\nprint('next')")
    assert answer.text() == ["late", "next"]


def test_interrupt_reaches_the_kernel_and_programs_of_the_cell(daemon: Daemon) -> None:
    assert error(run(daemon, "wait_for_interrupt()", timeout=100)) == {
        "ename": "Interrupted", "evalue": "timed out after 100 ms", "traceback": ["stopped"],
    }  # fmt: skip
    code = "kept['status'] = os.spawnlp(os.P_WAIT, 'sleep', 'sleep', '300')\nprint('over')"
    assert run(daemon, code, timeout=100).text() == ["over"]
    assert run(daemon, "print(kept['status'])").text() == ["-2"]


def test_interrupt_of_a_starting_kernel_is_not_lost(daemon: Daemon) -> None:
    padding = "#" * 1_000_000  # More than a pipe takes, so that the kernel has to read before it is all sent.
    body = {"code": f"wait_for_interrupt()\n{padding}", "context": {"language": "sample"}}
    with daemon.stream("POST", "/code", body) as response:
        identifier = next_event(response)["text"]
        assert daemon.call("DELETE", f"/code?id={identifier}").status == 200
        while (event := next_event(response))["type"] != "error":
            pass
        assert event["error"]["ename"] == "Interrupted"


def test_stubborn_and_dead_kernels_are_replaced(daemon: Daemon) -> None:
    run(daemon, "kept['x'] = 1")
    died = error(run(daemon, "os._exit(7)"))
    assert (died["ename"], "exit code 7" in died["evalue"]) == ("KernelDied", True)
    assert run(daemon, "print(kept)").text() == ["{}"]
    stubborn = "signal.signal(15, lambda *_: None)\nwhile True: time.sleep(0.01)"
    assert error(run(daemon, stubborn, timeout=100))["ename"] == "KernelDied"
    assert run(daemon, "print(kept)").text() == ["{}"]


@pytest.mark.parametrize("reply", ["not json", "[1]", '{"result": 1}', '{"error": {}}', '{"result": {}}'])
def test_invalid_replies_end_the_kernel(daemon: Daemon, reply: str) -> None:
    failed = error(run(daemon, f"os.write(replies, {reply!r}.encode() + b'\\n')\ntime.sleep(300)"))
    assert failed["ename"] == "KernelDied" and "invalid reply" in failed["evalue"]
    assert run(daemon, "print('again')").text() == ["again"]


def test_endless_reply_is_not_collected(daemon: Daemon) -> None:
    before = daemon.rss_mib()
    failed = error(run(daemon, "while True: os.write(replies, b'x' * 65536)"))
    assert "too long" in failed["evalue"]
    assert daemon.rss_mib() < before + 300


@pytest.mark.parametrize("language", ["sample", "python", "bash"])
def test_deleted_contexts_leave_no_descriptors(daemon: Daemon, language: str) -> None:
    def open_descriptors() -> int:
        return len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))

    run(daemon, "pass" if language != "bash" else "true", language)
    before = open_descriptors()
    for _ in range(10):
        identifier = daemon.call("POST", "/code/context", {"language": language}).json()["id"]
        body = {"code": "1", "context": {"id": identifier, "language": language}}
        assert daemon.call("POST", "/code", body).status == 200
        assert daemon.call("DELETE", f"/code/contexts/{identifier}").status == 200
    eventually(lambda: open_descriptors() <= before)


def test_kernel_that_does_not_start_is_named(daemon: Daemon, kernels: Path) -> None:
    add_kernel(kernels, "broken", "#!/no/such/interpreter\n")
    answer = run(daemon, "1", "broken")
    assert (answer.status, answer.error()) == (400, "NOT_SUPPORTED")
    assert f"cannot start the kernel {kernels}/broken" in answer.json()["message"]


@pytest.mark.parametrize("language", ["java", "go", "javascript", "typescript"])
def test_missing_language_names_the_image(daemon: Daemon, language: str) -> None:
    answer = daemon.call("POST", "/code/context", {"language": language})
    assert (answer.status, answer.error()) == (400, "NOT_SUPPORTED")
    assert "image 'code-interpreter'" in answer.json()["message"]


@pytest.mark.parametrize("language", ["cobol", "../kernels/sample", "Sample", "kernel.py"])
def test_unknown_language_is_refused_with_the_list(daemon: Daemon, kernels: Path, language: str) -> None:
    add_kernel(kernels, "kernel.py", KERNEL)
    answer = daemon.call("POST", "/code/context", {"language": language})
    assert (answer.status, answer.error()) == (400, "NOT_SUPPORTED")
    assert answer.json()["message"].endswith("use one of: bash, python, sample")
