"""Commands in the foreground and the background."""

from __future__ import annotations

import base64
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from .daemon import TOKEN, Answer, Daemon, alive, eventually, next_event, running_daemon


def rebuild(events: list[dict[str, Any]], stream: str) -> bytes:
    """Rebuild the exact bytes of a stream from its events, as the client does."""
    out = b""
    for event in events:
        if event["type"] == stream:
            out += base64.b64decode(event["data"]) if "data" in event else event["text"].encode()
            out += b"\n" if event["eol"] else b""
    return out


def test_output_exit_code_and_order_of_events(daemon: Daemon) -> None:
    answer = daemon.run("echo one; echo two; echo oops >&2; exit 3")
    assert answer.headers["Content-Type"] == "text/event-stream"
    events = answer.events()
    assert events[0]["type"] == "init"
    assert answer.text() == ["one", "two"]
    assert answer.text("stderr") == ["oops"]
    assert events[-1]["error"] == {"ename": "CommandExecError", "evalue": "3", "traceback": ["exit status 3"]}
    status = daemon.call("GET", f"/command/status/{events[0]['text']}").json()
    assert (status["running"], status["exit_code"]) == (False, 3)


def test_success_ends_with_execution_complete(daemon: Daemon) -> None:
    assert daemon.run("true").events()[-1]["type"] == "execution_complete"


def test_environment_directory_and_stdin(daemon: Daemon) -> None:
    (daemon.directory / "sub").mkdir()
    answer = daemon.run('pwd; echo "$BOX $MINE"; cat', cwd="$SUB", envs={"MINE": "too", "SUB": "sub"}, stdin="typed\n")
    assert answer.text() == [str(daemon.directory / "sub"), "yes too", "typed"]


def test_variables_persist_through_the_env_file(daemon: Daemon) -> None:
    entries = "A='first\nsecond'\nB=\"q'\\\\n\\\"$\"\nexport C=plain\nB2=\n"
    assert daemon.run('cat >> "$EXECD_ENVS"', stdin=entries).exit_code() == 0
    assert daemon.run('echo "$A|$B|$C|$B2|"').text() == ["first", "second|q'\\n\"$|plain||"]


def test_argv_is_not_a_shell(daemon: Daemon) -> None:
    answer = daemon.call("POST", "/command", {"argv": ["printf", "%s", "$HOME *"]})
    assert answer.text() == ["$HOME *"]
    missing = daemon.call("POST", "/command", {"argv": ["no-such-program"]})
    assert missing.exit_code() == 127


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"command": ""},
        {"command": "true", "argv": ["true"]},
        {"argv": []},
        {"argv": ["a", 1]},
        {"command": 5},
        {"command": "true", "timeout": "soon"},
        {"command": "true", "timeout": -1},
        {"command": "true", "gid": 5},
        {"command": "true", "envs": {"A": 1}},
        {"command": "true", "cwd": "/no/such/directory"},
        {"command": "true", "cwd": "$UNDEFINED_VARIABLE"},
        {"command": "tr\0ue"},
        {"command": "true", "cwd": "/tmp\0"},
    ],
)
def test_invalid_requests_get_an_error_with_advice(daemon: Daemon, document: dict[str, Any]) -> None:
    answer = daemon.call("POST", "/command", document)
    assert (answer.status, answer.error()) == (400, "INVALID_REQUEST_BODY")


def test_own_identity_is_accepted(daemon: Daemon) -> None:
    assert daemon.run("id -u", uid=os.getuid(), gid=os.getgid()).text() == [str(os.getuid())]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can take another identity")
def test_root_can_switch_to_another_identity(daemon: Daemon) -> None:
    assert daemon.run("id -u; id -g", uid=12345, gid=12346, cwd="/").text() == ["12345", "12346"]


def test_binary_output_is_unchanged(daemon: Daemon) -> None:
    every = bytes(range(256)) * 300
    (daemon.directory / "bytes").write_bytes(every)
    assert rebuild(daemon.run("cat bytes").events(), "stdout") == every
    assert rebuild(daemon.run("cat bytes >&2", raw=True).events(), "stderr") == every


def test_characters_and_long_lines_are_not_split(daemon: Daemon) -> None:
    text = ("é世🙂" * 60000 + "\n") * 2 + "end"
    (daemon.directory / "text").write_text(text)
    events = daemon.run("cat text").events()
    assert not any("data" in event for event in events)
    assert max(len(event.get("text", "")) for event in events) <= 65536
    assert rebuild(events, "stdout").decode() == text


def test_output_arrives_while_the_command_runs(daemon: Daemon) -> None:
    with daemon.stream("POST", "/command", {"command": "echo first; printf unfinished; read line"}) as response:
        next_event(response)
        assert next_event(response)["text"] == "first"


def test_unfinished_line_is_streamed_before_its_end(daemon: Daemon) -> None:
    command = "printf 'password: '; while [ ! -e go ]; do sleep 0.01; done; echo done"
    with daemon.stream("POST", "/command", {"command": command}) as response:
        next_event(response)
        prompt = next_event(response)
        assert (prompt["text"], prompt["eol"]) == ("password: ", False)
        (daemon.directory / "go").touch()
        assert next_event(response)["text"] == "done"


def test_timeout_kills_the_command_and_reports_an_error(daemon: Daemon) -> None:
    answer = daemon.run("sleep 60", timeout=100)
    assert answer.events()[-1]["error"]["traceback"] == ["timed out after 100 ms"]
    assert answer.exit_code() == 124


def test_command_ignoring_sigterm_is_killed(daemon: Daemon) -> None:
    command = "trap '' TERM; echo $$; while :; do sleep 0.05; done"
    answer = daemon.run(command, timeout=100)
    assert answer.exit_code() == 124
    assert not alive(int(answer.text()[0]))


def test_interrupt_ends_all_descendants(daemon: Daemon) -> None:
    command = "setsid sleep 300 & (setsid sh -c 'echo $$; exec sleep 300' &) ; sleep 300"
    with daemon.stream("POST", "/command", {"command": command}) as response:
        identifier = next_event(response)["text"]
        escaped = int(next_event(response)["text"])
        assert daemon.call("DELETE", f"/command?id={identifier}").status == 200
        assert next_event(response)["error"]["evalue"] == str(128 + signal.SIGTERM)
    eventually(lambda: not alive(escaped))
    assert daemon.call("DELETE", "/command?id=unknown").status == 404
    assert daemon.call("DELETE", "/command").error() == "MISSING_QUERY"


def test_client_disconnect_ends_its_command(daemon: Daemon) -> None:
    with daemon.stream("POST", "/command", {"command": "echo $$; exec sleep 300"}) as response:
        identifier = next_event(response)["text"]
        pid = int(next_event(response)["text"])
        assert alive(pid)
    eventually(lambda: not alive(pid))
    eventually(lambda: not daemon.call("GET", f"/command/status/{identifier}").json()["running"])


def test_client_disconnect_during_heavy_output(daemon: Daemon) -> None:
    with daemon.stream("POST", "/command", {"command": "echo $$; exec yes"}) as response:
        next_event(response)
        pid = int(next_event(response)["text"])
    eventually(lambda: not alive(pid))


def test_leftover_processes_can_go_on_writing(daemon: Daemon) -> None:
    leave = "(while [ ! -e go ]; do sleep 0.01; done; echo more; echo survived > proof) & echo started"
    assert daemon.run(leave).text() == ["started"]
    (daemon.directory / "go").touch()
    eventually(lambda: (daemon.directory / "proof").exists())


def test_slow_reader_slows_the_command_down(daemon: Daemon) -> None:
    command = (
        "i=0; while [ $i -lt 1000 ]; do head -c 100000 /dev/zero | tr '\\0' x; i=$((i+1)); echo $i > progress; done"
    )
    with daemon.stream("POST", "/command", {"command": command}) as response:
        next_event(response)
        eventually((daemon.directory / "progress").exists)
        status = daemon.call("GET", "/paddock/state").json()
        assert status["running_commands"] == 1
        assert int((daemon.directory / "progress").read_text()) < 100
        assert daemon.rss_mib() < 40


@pytest.mark.slow
def test_gigabyte_of_output_needs_constant_memory(daemon: Daemon) -> None:
    before = daemon.rss_mib()
    command = "head -c 1073741824 /dev/zero | tr '\\0' x"
    buffer = bytearray(1 << 20)
    total = 0
    peak = 0.0
    with daemon.stream("POST", "/command", {"command": command}) as response:
        while size := response.readinto(buffer):
            total += size
            if total >> 26 != (total - size) >> 26:
                peak = max(peak, daemon.rss_mib())
    assert total > 1 << 30
    assert peak - before < 16


def test_zombies_and_orphans_are_reaped(daemon: Daemon) -> None:
    daemon.run("for i in 1 2 3 4 5; do (setsid sleep 0.01 &); done; sh -c 'sleep 0.02 & exit'")

    def children() -> list[str]:
        return Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()

    eventually(lambda: not children())


def test_commands_inherit_nothing_but_their_streams(daemon: Daemon) -> None:
    assert daemon.run("ls /proc/self/fd | tr '\\n' ' '").text() == ["0 1 2 3 "]


def test_daemon_is_protected_from_other_processes(daemon: Daemon) -> None:
    owner = Path(f"/proc/{daemon.pid}/fd").stat().st_uid
    assert owner == 0
    assert TOKEN.encode() not in daemon.run(f"cat /proc/{daemon.pid}/cmdline; env").body


def test_background_command_has_status_logs_and_cursor(daemon: Daemon) -> None:
    identifier = daemon.start("echo out; echo err >&2; while [ ! -e go ]; do sleep 0.01; done; echo later; exit 4")
    eventually(lambda: b"err" in daemon.call("GET", f"/command/{identifier}/logs").body)
    first = daemon.call("GET", f"/command/{identifier}/logs")
    assert sorted(first.body.split()) == [b"err", b"out"]
    cursor = first.headers["EXECD-COMMANDS-TAIL-CURSOR"]
    assert daemon.call("GET", f"/command/status/{identifier}").json()["running"]
    (daemon.directory / "go").touch()
    eventually(lambda: not daemon.call("GET", f"/command/status/{identifier}").json()["running"])
    rest = daemon.call("GET", f"/command/{identifier}/logs?cursor={cursor}")
    assert rest.body == b"later\n"
    assert daemon.call("GET", f"/command/status/{identifier}").json()["exit_code"] == 4
    assert daemon.call("GET", "/command/unknown/logs").status == 404
    assert daemon.call("GET", f"/command/{identifier}/logs?cursor=-1").status == 400
    assert daemon.call("GET", f"/command/{identifier}/logs?cursor=999999").body == b""


def test_reconnecting_follower_misses_nothing(daemon: Daemon) -> None:
    command = "for i in $(seq 200); do echo out $i; echo err $i >&2; printf '\\377\\n'; sleep 0.002; done; exit 7"
    identifier = daemon.start(command)
    events: list[dict[str, Any]] = []
    cursor = 0
    while not events or events[-1]["type"] in ("stdout", "stderr"):
        with daemon.stream("GET", f"/command/{identifier}/logs?follow=1&cursor={cursor}") as response:
            for _ in range(37):
                if not (line := response.readline()):
                    break
                events.append(json.loads(line))
                cursor = events[-1]["cursor"]
    assert events[-1]["error"]["evalue"] == "7"
    assert rebuild(events, "stdout") == b"".join(b"out %d\n\xff\n" % i for i in range(1, 201))
    assert rebuild(events, "stderr") == b"".join(b"err %d\n" % i for i in range(1, 201))


def test_background_command_times_out(daemon: Daemon) -> None:
    identifier = daemon.start("sleep 60", timeout=100)
    last = Answer(200, daemon.call("GET", f"/command/{identifier}/logs?follow=1").body, {}).events()[-1]
    assert last["error"]["evalue"] == "124"
    assert "timed out" in daemon.call("GET", f"/command/status/{identifier}").json()["error"]


def test_oldest_finished_commands_are_dropped(daemon: Daemon, directory: Path) -> None:
    first = daemon.start("echo kept")
    eventually(lambda: not daemon.call("GET", f"/command/status/{first}").json()["running"])
    assert (directory / "state" / first).is_dir()
    for _ in range(201):
        daemon.run("true")
    assert daemon.call("GET", f"/command/status/{first}").status == 404
    assert not (directory / "state" / first).exists()


def test_shutdown_terminates_commands(zipapp: Path, directory: Path) -> None:
    with running_daemon(zipapp, directory) as daemon:
        daemon.start("trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done")
        eventually(lambda: (daemon.directory / "pid").exists() and (daemon.directory / "pid").read_text())
        pid = int((daemon.directory / "pid").read_text())
        daemon.process.terminate()
        daemon.process.wait(10)
        assert not alive(pid)


def test_command_with_client_id_is_started_once(daemon: Daemon) -> None:
    script = 'echo started >> "$HOME_FILE"; sleep 0.1; exit 7'
    body = {"command": script, "background": True, "id": "task", "envs": {"HOME_FILE": str(daemon.directory / "f")}}
    ids = [daemon.call("POST", "/command", body).events()[0]["text"] for _ in range(3)]
    assert ids == ["task"] * 3
    eventually(lambda: not daemon.call("GET", "/command/status/task").json()["running"])
    assert daemon.call("POST", "/command", body).events()[0]["text"] == "task"
    assert daemon.call("GET", "/command/status/task").json()["exit_code"] == 7
    assert (daemon.directory / "f").read_text() == "started\n"


def test_command_with_client_id_is_never_dropped(daemon: Daemon) -> None:
    daemon.call("POST", "/command", {"argv": ["no-such-program"], "background": True, "id": "task"})
    for _ in range(210):
        daemon.run("true")
    status = daemon.call("GET", "/command/status/task").json()
    assert (status["exit_code"], status["error"]) == (127, "no-such-program: No such file or directory")


@pytest.mark.parametrize("wrong", ["entrypoint", "", "a b", "../x", "x" * 64, 5])
def test_ids_are_plain_names(daemon: Daemon, wrong: object) -> None:
    answer = daemon.call("POST", "/command", {"command": "true", "background": True, "id": wrong})
    assert answer.status == 400
    assert daemon.call("POST", "/command", {"command": "true", "id": "task"}).status == 400
