"""Commands run in a sandbox as if they ran here."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from tests.e2e.cli_driver import Server


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--", "true"], 0),
        (["--", "sh", "-c", "exit 7"], 7),
        (["-c", "kill -9 $$"], 137),
        (["--", "no-such-program"], 127),
        (["--", "/etc/passwd"], 126),
        (["--timeout", "200ms", "--", "sleep", "60"], 124),
        (["--cwd", "/no/such/place", "--", "true"], 125),
    ],
)
def test_the_exit_code_says_how_it_ended(server: Server, sandbox: str, words: list[str], code: int) -> None:
    assert server.run("sandbox", "exec", sandbox, *words).returncode == code


@pytest.mark.parametrize("mode", [[], ["--attached"]])
def test_both_streams_come_byte_for_byte(server: Server, sandbox: str, mode: list[str]) -> None:
    script = r"printf '\000\377\n\r\t \342\202'; printf 'e\377' >&2; printf '\254'"
    done = server.run("sandbox", "exec", sandbox, *mode, "-c", script)
    assert done.stdout == b"\x00\xff\n\r\t \xe2\x82\xac"
    assert done.stderr == b"e\xff"


def test_variables_and_directory_are_passed(server: Server, sandbox: str, tmp_path: Path) -> None:
    (tmp_path / "vars").write_text("# ours\nA=from file\nB='quoted'\n")
    words = ("--env-file", str(tmp_path / "vars"), "--env", "A=1=2", "--cwd", "/tmp")
    done = server.run("sandbox", "exec", sandbox, *words, "-c", "echo $A $B $PWD")
    assert done.stdout == b"1=2 quoted /tmp\n"


@pytest.mark.parametrize("size", [0, 5, 100_000, 5_000_000])
def test_standard_input_of_any_size_arrives_exactly(server: Server, sandbox: str, size: int) -> None:
    content = os.urandom(size)
    done = server.run("sandbox", "exec", sandbox, "--", "cat", stdin=content)
    assert done.returncode == 0, done.stderr
    assert done.stdout == content
    assert done.stderr == b""


def test_standard_input_streams(server: Server, sandbox: str) -> None:
    """Typed input is answered before end of input."""
    with server.start("sandbox", "exec", sandbox, "--", "cat", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        for word in (b"one\n", b"two\n"):
            process.stdin.write(word)
            process.stdin.flush()
            assert process.stdout.readline() == word
        process.stdin.close()
        assert process.wait(60) == 0


def test_a_command_that_does_not_read_all_input_ends_well(server: Server, sandbox: str) -> None:
    with server.start("sandbox", "exec", sandbox, "--", "head", "-c", "3", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"abcdef\n")
        process.stdin.flush()
        assert process.stdout.read() == b"abc"
        assert process.wait(60) == 0
        process.stdin.close()
    assert server.text("sandbox", "exec", sandbox, "-c", "ls -A /tmp | grep -c paddock-stdin || true") == "0"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on_and_the_command_waited_for(server: Server, sandbox: str, number: signal.Signals) -> None:
    name = number.name.removeprefix("SIG")
    script = f"trap 'echo bye; exit 9' {name}; echo ready; while :; do sleep 0.1; done"
    with server.start("sandbox", "exec", sandbox, "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.stdout.read() == b"bye\n"
        assert process.wait(60) == 9


def test_a_second_signal_ends_the_command_and_a_third_leaves_it(server: Server, sandbox: str) -> None:
    # Deaf to being asked, so that only leaving ends the wait within the two seconds of grace.
    script = "trap 'echo passed' INT; trap 'echo asked' TERM; echo ready; while :; do sleep 0.1; done"
    with server.start("sandbox", "exec", sandbox, "-c", script) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == b"passed\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == b"asked\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert b"the command is still running" in process.stderr.read()


def test_a_reader_that_leaves_ends_the_command(server: Server, sandbox: str) -> None:
    with server.start("sandbox", "exec", sandbox, "--", "yes", "paddock-test-yes") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 141
    gone = "for i in $(seq 50); do pgrep -f paddock-test-ye[s] || exit 0; sleep 0.1; done; exit 1"
    assert server.run("sandbox", "exec", sandbox, "-c", gone).returncode == 0


def test_detached_commands_are_followed_later(server: Server, sandbox: str) -> None:
    command = server.text("sandbox", "exec", sandbox, "--detach", "-c", "echo one; sleep 0.3; echo two >&2; exit 3")
    assert re.fullmatch(r"[0-9a-f]{32}", command)
    followed = server.run("sandbox", "logs", sandbox, "--command", command, "--follow")
    assert (followed.stdout, followed.stderr) == (b"one\n", b"two\nwarning: the command ended with exit code 3\n")
    again = server.run("sandbox", "logs", sandbox, "--command", command, "--cursor", "4")
    assert (again.stdout, again.stderr) == (b"", b"two\nwarning: the command ended with exit code 3\n")


def test_json_lines_tell_everything(server: Server, sandbox: str) -> None:
    done = server.run("sandbox", "exec", sandbox, "--json", "-c", r"echo hi; printf '\377'; exit 3")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 3
    assert lines[0]["type"] == "started"
    assert {"type": "stdout", "text": "hi\n"}.items() <= lines[1].items()
    assert lines[2]["data"] == "/w=="
    assert lines[-1] == {"type": "ended", "exitCode": 3}


def test_errors_of_ours_are_json_too_and_have_their_own_code(server: Server) -> None:
    done = server.run("sandbox", "exec", "sb-0000000000000000", "--json", "--", "true")
    assert done.returncode == 125
    assert json.loads(done.stderr)["error"]["code"] == "SANDBOX_NOT_FOUND"


@pytest.mark.slow
def test_a_command_goes_on_through_a_crash_of_the_server(tmp_path: Path) -> None:
    """Not a byte is lost, none comes twice, and the exit code is the command's."""
    server = Server(tmp_path / "data")
    server.up()
    try:
        sandbox = server.text("sandbox", "create", "--image", "host")
        script = "for i in $(seq 1 40); do echo $i; sleep 0.1; done; exit 5"
        process = server.start("sandbox", "exec", sandbox, "-c", script)
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"1\n"
        server.restart(signal.SIGKILL)
        complaint = process.stderr.readline()
        output, _ = process.communicate(timeout=60)
        assert output.split() == [str(number).encode() for number in range(2, 41)]
        assert b"waiting for the server" in complaint
        assert process.returncode == 5
    finally:
        server.run("sandbox", "rm", "--all", "--yes")
        server.down()


def test_many_at_once_do_not_mix(server: Server, sandbox: str) -> None:
    results: dict[int, bytes] = {}

    def one(number: int) -> None:
        results[number] = server.run("sandbox", "exec", sandbox, "-c", f"seq {number} {number + 500}").stdout

    threads = [threading.Thread(target=one, args=(number,)) for number in range(0, 4000, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, output in results.items():
        assert [int(line) for line in output.split()] == list(range(number, number + 501))
