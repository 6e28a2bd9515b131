"""`paddock sandbox exec`: exit codes, streams, signals and reconnection."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cli_driver import PaddockCliServer


@pytest.mark.parametrize(
    ("arguments", "code"),
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
def test_exec_exit_code_is_the_command_outcome(
    server: PaddockCliServer, sandbox: str, arguments: list[str], code: int
) -> None:
    assert server.run("sandbox", "exec", sandbox, *arguments).returncode == code


@pytest.mark.parametrize("mode", [[], ["--attached"]])
def test_stdout_and_stderr_arrive_byte_for_byte(server: PaddockCliServer, sandbox: str, mode: list[str]) -> None:
    script = r"printf '\000\377\n\r\t \342\202'; printf 'e\377' >&2; printf '\254'"
    result = server.run("sandbox", "exec", sandbox, *mode, "-c", script)
    assert result.stdout == b"\x00\xff\n\r\t \xe2\x82\xac"
    assert result.stderr == b"e\xff"


def test_variables_and_directory_are_passed(server: PaddockCliServer, sandbox: str, tmp_path: Path) -> None:
    (tmp_path / "vars").write_text("# ours\nA=from file\nB='quoted'\n")
    arguments = ("--env-file", str(tmp_path / "vars"), "--env", "A=1=2", "--cwd", "/tmp")
    result = server.run("sandbox", "exec", sandbox, *arguments, "-c", "echo $A $B $PWD")
    assert result.stdout == b"1=2 quoted /tmp\n"


@pytest.fixture(scope="module")
def root_sandbox(server: PaddockCliServer) -> Iterator[str]:
    sandbox_id = server.output("sandbox", "create", "--image", "host", "--user", "root")
    yield sandbox_id
    server.run("sandbox", "rm", sandbox_id)


@pytest.mark.parametrize("mode", [[], ["--attached"]])
@pytest.mark.parametrize(
    ("user", "shown"),
    [
        ("root", "0 0 /root"),
        ("agent", "1000 1000 /home/agent"),
        ("1000", "1000 1000 /home/agent"),
        ("1000:33", "1000 33 /home/agent"),
        ("4711:4712", "4711 4712 /root"),
    ],
)
def test_exec_runs_as_another_user_in_root_mode(
    server: PaddockCliServer, root_sandbox: str, user: str, shown: str, mode: list[str]
) -> None:
    arguments = ["--user", user, *mode, "-c", "echo $(id -u) $(id -g) $HOME"]
    assert server.output("sandbox", "exec", root_sandbox, *arguments) == shown


@pytest.mark.parametrize(
    ("user", "error"),
    [
        ("root", "this sandbox runs as uid 1000 only; create it with user: root to run commands as other users"),
        ("4711", "this sandbox runs as uid 1000 only; create it with user: root"),
        ("nobody-here", "there is no user 'nobody-here' in this sandbox"),
    ],
)
def test_exec_as_another_user_is_refused_in_ordinary_mode(
    server: PaddockCliServer, sandbox: str, user: str, error: str
) -> None:
    refused = server.run("sandbox", "exec", sandbox, "--user", user, "--", "id")
    assert refused.returncode == 125
    assert error in refused.stderr.decode()


def test_exec_as_the_users_own_identity_works_in_ordinary_mode(server: PaddockCliServer, sandbox: str) -> None:
    for user in ("agent", "1000"):
        assert server.output("sandbox", "exec", sandbox, "--user", user, "--", "id", "-u") == "1000"


@pytest.mark.parametrize("size", [0, 5, 100_000, 5_000_000])
def test_standard_input_of_any_size_arrives_exactly(server: PaddockCliServer, sandbox: str, size: int) -> None:
    content = os.urandom(size)
    result = server.run("sandbox", "exec", sandbox, "--", "cat", stdin=content)
    assert result.returncode == 0, result.stderr
    assert result.stdout == content
    assert result.stderr == b""


def test_standard_input_streams(server: PaddockCliServer, sandbox: str) -> None:
    """Input is processed before its end."""
    with server.start("sandbox", "exec", sandbox, "--", "cat", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        for word in (b"one\n", b"two\n"):
            process.stdin.write(word)
            process.stdin.flush()
            assert process.stdout.readline() == word
        process.stdin.close()
        assert process.wait(60) == 0


def test_command_with_unread_input_ends_normally(server: PaddockCliServer, sandbox: str) -> None:
    with server.start("sandbox", "exec", sandbox, "--", "head", "-c", "3", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"abcdef\n")
        process.stdin.flush()
        assert process.stdout.read() == b"abc"
        assert process.wait(60) == 0
        process.stdin.close()
    assert server.output("sandbox", "exec", sandbox, "-c", "ls -A /tmp | grep -c paddock-stdin || true") == "0"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_is_forwarded_and_command_awaited(
    server: PaddockCliServer, sandbox: str, number: signal.Signals
) -> None:
    name = number.name.removeprefix("SIG")
    script = f"trap 'echo bye; exit 9' {name}; echo ready; while :; do sleep 0.1; done"
    with server.start("sandbox", "exec", sandbox, "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.stdout.read() == b"bye\n"
        assert process.wait(60) == 9


def test_second_signal_ends_command_and_third_detaches(server: PaddockCliServer, sandbox: str) -> None:
    # The command ignores SIGTERM, so that only detaching ends the wait within the grace period of two seconds.
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


def test_closed_output_ends_the_command(server: PaddockCliServer, sandbox: str) -> None:
    with server.start("sandbox", "exec", sandbox, "--", "yes", "paddock-test-yes") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 141
    gone = "for i in $(seq 50); do pgrep -f paddock-test-ye[s] || exit 0; sleep 0.1; done; exit 1"
    assert server.run("sandbox", "exec", sandbox, "-c", gone).returncode == 0


def test_detached_commands_are_followed_later(server: PaddockCliServer, sandbox: str) -> None:
    command = server.output("sandbox", "exec", sandbox, "--detach", "-c", "echo one; sleep 0.3; echo two >&2; exit 3")
    assert re.fullmatch(r"[0-9a-f]{32}", command)
    followed = server.run("sandbox", "logs", sandbox, "--command", command, "--follow")
    assert (followed.stdout, followed.stderr) == (b"one\n", b"two\nwarning: the command ended with exit code 3\n")
    again = server.run("sandbox", "logs", sandbox, "--command", command, "--cursor", "4")
    assert (again.stdout, again.stderr) == (b"", b"two\nwarning: the command ended with exit code 3\n")


def test_exec_json_lines_contain_output_and_exit_code(server: PaddockCliServer, sandbox: str) -> None:
    result = server.run("sandbox", "exec", sandbox, "--json", "-c", r"echo hi; printf '\377'; exit 3")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.returncode == 3
    assert lines[0]["type"] == "started"
    assert {"type": "stdout", "text": "hi\n"}.items() <= lines[1].items()
    assert lines[2]["data"] == "/w=="
    assert lines[-1] == {"type": "ended", "exitCode": 3}


def test_paddock_errors_are_json_with_own_exit_code(server: PaddockCliServer) -> None:
    result = server.run("sandbox", "exec", "sb-0000000000000000", "--json", "--", "true")
    assert result.returncode == 125
    assert json.loads(result.stderr)["error"]["code"] == "SANDBOX_NOT_FOUND"


@pytest.mark.slow
def test_command_survives_a_server_crash(tmp_path: Path) -> None:
    """No byte is lost or repeated, and the exit code is that of the command."""
    server = PaddockCliServer(tmp_path / "data")
    server.start_server()
    try:
        sandbox = server.output("sandbox", "create", "--image", "host")
        script = "for i in $(seq 1 40); do echo $i; sleep 0.1; done; exit 5"
        process = server.start("sandbox", "exec", sandbox, "-c", script)
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"1\n"
        server.restart_server(signal.SIGKILL)
        complaint = process.stderr.readline()
        output, _ = process.communicate(timeout=60)
        assert output.split() == [str(number).encode() for number in range(2, 41)]
        assert b"waiting for the server" in complaint
        assert process.returncode == 5
    finally:
        server.run("sandbox", "rm", "--all", "--yes")
        server.stop_server()


def test_concurrent_commands_do_not_mix_output(server: PaddockCliServer, sandbox: str) -> None:
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
