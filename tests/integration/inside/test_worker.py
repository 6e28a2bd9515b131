"""The tool worker, as the daemon keeps it: started when needed, told of by the daemon, and anew after its death."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from .daemon import TOKEN, Daemon, alive, ask, eventually, running_daemon


def worker(daemon: Daemon) -> dict[str, Any]:
    document: dict[str, Any] = daemon.call("GET", "/paddock/services").json()["tools"]
    return document


def shell(daemon: Daemon, command: str) -> str:
    answer = daemon.call("POST", "/tools/run_shell_command", {"command": command})
    assert answer.status == 200, answer.body
    text: str = answer.json()["content"][0]["text"]
    return text


def test_it_starts_with_the_first_call_and_serves_the_next_ones(daemon: Daemon) -> None:
    assert worker(daemon) == {"running": False, "pid": None, "starts": 0, "log": []}
    names = {tool["name"] for tool in daemon.call("GET", "/tools").json()["tools"]}
    assert {"read_file", "write_file", "run_shell_command"} <= names
    first = worker(daemon)
    assert "yes" in shell(daemon, "echo $BOX; pwd") and str(daemon.directory) in shell(daemon, "pwd")
    assert worker(daemon)["pid"] == first["pid"] and first["starts"] == 1


def test_calls_share_the_callers_connection(daemon: Daemon) -> None:
    connection = daemon.connect()
    for number in range(20):
        content = f"number {number}"
        answer = ask(connection, "POST", "/tools/write_file", {"path": "x", "content": content})
        assert answer.status == 200
        assert ask(connection, "POST", "/tools/no_such_tool", {}).status == 404
        assert ask(connection, "GET", "/tools/read_file").status == 405
        assert ask(connection, "GET", "/mcp").status == 405
        assert (daemon.directory / "x").read_text() == content
    connection.close()


def test_mcp_passes_through(daemon: Daemon) -> None:
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}
    answer = daemon.call("POST", "/mcp", message, Content_Type="application/json").json()
    assert answer["id"] == 7 and answer["result"]["tools"]


def sockets_of(process: Path) -> set[str]:
    """What a process has open that others may have open as well; some of it may be closed meanwhile."""
    found = set()
    for link in (process / "fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(os.readlink(link))
    return {name for name in found if name.startswith("socket:")}


def test_it_needs_the_token_and_never_learns_it(daemon: Daemon) -> None:
    assert daemon.call("GET", "/tools", X_EXECD_ACCESS_TOKEN="wrong").status == 401
    daemon.call("GET", "/tools")
    process = Path(f"/proc/{worker(daemon)['pid']}")
    assert TOKEN.encode() not in (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
    assert not sockets_of(process) & sockets_of(Path(f"/proc/{daemon.pid}"))


def test_nothing_else_in_the_box_finds_its_socket(daemon: Daemon) -> None:
    daemon.call("GET", "/tools")
    state = daemon.directory.parent / "state"
    assert not [path for path in state.rglob("*") if path.is_socket()]
    bound = [line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if str(state) in line]
    assert bound
    for path in bound:
        with socket.socket(socket.AF_UNIX) as stranger:
            assert stranger.connect_ex(path) != 0


def test_a_worker_that_died_between_calls_is_not_noticed(daemon: Daemon) -> None:
    daemon.call("GET", "/tools")
    pid = worker(daemon)["pid"]
    os.kill(pid, signal.SIGKILL)
    assert "fresh" in shell(daemon, "echo fresh")
    assert worker(daemon)["starts"] == 2


def test_a_worker_that_dies_in_a_call_says_so_and_the_next_is_fresh(daemon: Daemon) -> None:
    daemon.call("GET", "/tools")
    kill = f"kill -9 {worker(daemon)['pid']}; sleep 300"
    answer = daemon.call("POST", "/tools/run_shell_command", {"command": kill})
    assert (answer.status, answer.error()) == (502, "TOOLS_DIED")
    assert "exit code 137 during this call; call again" in answer.json()["message"]
    assert "fresh" in shell(daemon, "echo fresh")


def test_what_a_dead_worker_started_goes_on(daemon: Daemon) -> None:
    started = shell(daemon, "setsid sleep 300 >/dev/null 2>&1 & echo pid $!")
    pid = int(started.split("pid ")[1].split()[0])
    os.kill(worker(daemon)["pid"], signal.SIGKILL)
    shell(daemon, "true")
    assert alive(pid)


def test_a_claimed_box_has_tools_with_its_owners_environment(daemon: Daemon) -> None:
    daemon.call("GET", "/tools")
    pid = worker(daemon)["pid"]
    assert daemon.call("POST", "/paddock/claim", {"env": {"OWNER": "me"}, "cwd": "/usr"}).status == 200
    assert shell(daemon, "echo [$OWNER$BOX] $PWD").startswith("[me] /usr")
    assert worker(daemon)["pid"] == pid


def test_a_box_that_becomes_another_kind_gets_other_tools(daemon: Daemon) -> None:
    daemon.call("GET", "/tools")
    pid = worker(daemon)["pid"]
    daemon.call("POST", "/paddock/claim", {"env": {"PADDOCK_KIND": "linux", "OWNER": "me"}})
    assert shell(daemon, "echo [$OWNER]").startswith("[me]")
    assert worker(daemon)["pid"] != pid
    eventually(lambda: not alive(pid))


def test_a_worker_that_hangs_does_not_hold_up_a_claim(daemon: Daemon) -> None:
    daemon.call("GET", "/tools")
    pid = worker(daemon)["pid"]
    os.kill(pid, signal.SIGSTOP)
    assert daemon.call("POST", "/paddock/claim", {"env": {"OWNER": "me"}}).status == 200
    assert shell(daemon, "echo [$OWNER]").startswith("[me]")
    eventually(lambda: not alive(pid))


def call_and_leave(daemon: Daemon) -> None:
    body = json.dumps({"command": "sleep 300"}).encode()
    head = f"POST /tools/run_shell_command HTTP/1.1\r\nHost: box\r\nX-EXECD-ACCESS-TOKEN: {TOKEN}\r\n"
    raw = daemon.dial()
    raw.sendall(head.encode() + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    eventually(lambda: daemon.call("GET", "/paddock/state").json()["idle_seconds"] == 0)
    raw.close()
    eventually(lambda: daemon.call("GET", "/paddock/state").json()["idle_seconds"] > 0)


def test_a_client_that_leaves_a_call_is_not_waited_for(daemon: Daemon) -> None:
    daemon.call("GET", "/tools")
    pid = worker(daemon)["pid"]
    call_and_leave(daemon)
    shell(daemon, "true")
    assert worker(daemon)["pid"] == pid


def test_a_worker_that_answers_nobody_any_more_is_replaced(daemon: Daemon) -> None:
    daemon.call("GET", "/tools")
    pid = worker(daemon)["pid"]
    os.kill(pid, signal.SIGSTOP)
    call_and_leave(daemon)
    eventually(lambda: not alive(pid), 20.0)
    assert "fresh" in shell(daemon, "echo fresh")


def test_tools_that_cannot_be_started(daemon: Daemon) -> None:
    assert daemon.call("GET", "/ping").status == 200
    state = daemon.directory.parent / "state"
    shutil.rmtree(state)
    state.write_text("in the way")
    answer = daemon.call("GET", "/tools")
    assert (answer.status, answer.error()) == (503, "TOOLS_UNAVAILABLE")
    assert daemon.run("echo alive").text() == ["alive"]
    state.unlink()
    assert daemon.call("GET", "/tools").status == 200


def test_a_body_beyond_all_bounds(daemon: Daemon) -> None:
    answer = daemon.call("POST", "/tools/write_file", b" " * (33 * 2**20))
    assert (answer.status, answer.error()) == (413, "BODY_TOO_LARGE")


def test_looking_at_the_screen_is_no_use_and_a_call_is(daemon: Daemon) -> None:
    shell(daemon, "true")
    idle = daemon.call("GET", "/paddock/state").json()["idle_seconds"]
    assert daemon.call("GET", "/screen/shot").status == 404
    assert daemon.call("GET", "/screen/frames").status == 404
    assert daemon.call("GET", "/paddock/state").json()["idle_seconds"] > idle


def test_a_box_with_services_has_its_tools_ready_before_they_are_asked_for(zipapp: Path, directory: Path) -> None:
    services = [{"name": "one", "command": ["sleep", "300"]}]
    with running_daemon(zipapp, directory, services=services) as daemon:
        eventually(lambda: worker(daemon)["running"])


def test_the_end_of_the_box_ends_it(zipapp: Path, directory: Path) -> None:
    with running_daemon(zipapp, directory) as daemon:
        daemon.call("GET", "/tools")
        pid = worker(daemon)["pid"]
    assert not alive(pid)


def test_it_does_not_outlive_a_daemon_that_was_killed(zipapp: Path, directory: Path) -> None:
    with running_daemon(zipapp, directory) as daemon:
        daemon.call("GET", "/tools")
        pid = worker(daemon)["pid"]
        daemon.process.kill()
        eventually(lambda: not alive(pid))
