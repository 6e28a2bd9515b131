"""The tool worker, supervised by the daemon: started when needed, reported in the state, restarted after a crash."""

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


def test_worker_starts_with_the_first_call(daemon: Daemon) -> None:
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


def test_mcp_requests_reach_the_worker(daemon: Daemon) -> None:
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}
    answer = daemon.call("POST", "/mcp", message, Content_Type="application/json").json()
    assert answer["id"] == 7 and answer["result"]["tools"]


def sockets_of(process: Path) -> set[str]:
    """Return the sockets and pipes a process has open; some may be closed meanwhile."""
    found = set()
    for link in (process / "fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(os.readlink(link))
    return {name for name in found if name.startswith("socket:")}


def test_calls_need_the_token_and_the_worker_lacks_it(daemon: Daemon) -> None:
    assert daemon.call("GET", "/tools", X_EXECD_ACCESS_TOKEN="wrong").status == 401
    daemon.call("GET", "/tools")
    process = Path(f"/proc/{worker(daemon)['pid']}")
    assert TOKEN.encode() not in (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
    assert not sockets_of(process) & sockets_of(Path(f"/proc/{daemon.pid}"))


def test_worker_socket_is_unreachable_for_other_processes(daemon: Daemon) -> None:
    daemon.call("GET", "/tools")
    state = daemon.directory.parent / "state"
    assert not [path for path in state.rglob("*") if path.is_socket()]
    bound = [line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if str(state) in line]
    assert bound
    for path in bound:
        with socket.socket(socket.AF_UNIX) as stranger:
            assert stranger.connect_ex(path) != 0


def test_worker_crash_between_calls_is_transparent(daemon: Daemon) -> None:
    daemon.call("GET", "/tools")
    pid = worker(daemon)["pid"]
    os.kill(pid, signal.SIGKILL)
    assert "fresh" in shell(daemon, "echo fresh")
    assert worker(daemon)["starts"] == 2


def test_worker_crash_during_a_call_is_reported_and_restarts_it(daemon: Daemon) -> None:
    daemon.call("GET", "/tools")
    kill = f"kill -9 {worker(daemon)['pid']}; sleep 300"
    answer = daemon.call("POST", "/tools/run_shell_command", {"command": kill})
    assert (answer.status, answer.error()) == (502, "TOOLS_DIED")
    assert "exit code 137 during this call; call again" in answer.json()["message"]
    assert "fresh" in shell(daemon, "echo fresh")


def test_processes_of_a_dead_worker_keep_running(daemon: Daemon) -> None:
    started = shell(daemon, "setsid sleep 300 >/dev/null 2>&1 & echo pid $!")
    pid = int(started.split("pid ")[1].split()[0])
    os.kill(worker(daemon)["pid"], signal.SIGKILL)
    shell(daemon, "true")
    assert alive(pid)


def test_claimed_sandbox_tools_have_the_owners_environment(daemon: Daemon) -> None:
    daemon.call("GET", "/tools")
    pid = worker(daemon)["pid"]
    assert daemon.call("POST", "/paddock/claim", {"env": {"OWNER": "me"}, "cwd": "/usr"}).status == 200
    assert shell(daemon, "echo [$OWNER$BOX] $PWD").startswith("[me] /usr")
    assert worker(daemon)["pid"] == pid


def test_claim_with_another_kind_changes_the_tools(daemon: Daemon) -> None:
    daemon.call("GET", "/tools")
    pid = worker(daemon)["pid"]
    daemon.call("POST", "/paddock/claim", {"env": {"PADDOCK_KIND": "linux", "OWNER": "me"}})
    assert shell(daemon, "echo [$OWNER]").startswith("[me]")
    assert worker(daemon)["pid"] != pid
    eventually(lambda: not alive(pid))


def test_hung_worker_does_not_block_a_claim(daemon: Daemon) -> None:
    daemon.call("GET", "/tools")
    pid = worker(daemon)["pid"]
    os.kill(pid, signal.SIGSTOP)
    assert daemon.call("POST", "/paddock/claim", {"env": {"OWNER": "me"}}).status == 200
    assert shell(daemon, "echo [$OWNER]").startswith("[me]")
    eventually(lambda: not alive(pid))


def call_and_disconnect(daemon: Daemon) -> None:
    body = json.dumps({"command": "sleep 300"}).encode()
    head = f"POST /tools/run_shell_command HTTP/1.1\r\nHost: sandbox\r\nX-EXECD-ACCESS-TOKEN: {TOKEN}\r\n"
    raw = daemon.dial()
    raw.sendall(head.encode() + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    eventually(lambda: daemon.call("GET", "/paddock/state").json()["idle_seconds"] == 0)
    raw.close()
    eventually(lambda: daemon.call("GET", "/paddock/state").json()["idle_seconds"] > 0)


def test_client_disconnect_ends_the_call(daemon: Daemon) -> None:
    daemon.call("GET", "/tools")
    pid = worker(daemon)["pid"]
    call_and_disconnect(daemon)
    shell(daemon, "true")
    assert worker(daemon)["pid"] == pid


def test_unresponsive_worker_is_replaced(daemon: Daemon) -> None:
    daemon.call("GET", "/tools")
    pid = worker(daemon)["pid"]
    os.kill(pid, signal.SIGSTOP)
    call_and_disconnect(daemon)
    eventually(lambda: not alive(pid), 20.0)
    assert "fresh" in shell(daemon, "echo fresh")


def test_start_failure_is_reported(daemon: Daemon) -> None:
    assert daemon.call("GET", "/ping").status == 200
    state = daemon.directory.parent / "state"
    shutil.rmtree(state)
    state.write_text("in the way")
    answer = daemon.call("GET", "/tools")
    assert (answer.status, answer.error()) == (503, "TOOLS_UNAVAILABLE")
    assert daemon.run("echo alive").text() == ["alive"]
    state.unlink()
    assert daemon.call("GET", "/tools").status == 200


def test_oversized_body_is_refused(daemon: Daemon) -> None:
    answer = daemon.call("POST", "/tools/write_file", b" " * (33 * 2**20))
    assert (answer.status, answer.error()) == (413, "BODY_TOO_LARGE")


def test_screenshots_do_not_count_as_use_but_calls_do(daemon: Daemon) -> None:
    shell(daemon, "true")
    idle = daemon.call("GET", "/paddock/state").json()["idle_seconds"]
    assert daemon.call("GET", "/screen/shot").status == 404
    assert daemon.call("GET", "/screen/frames").status == 404
    assert daemon.call("GET", "/paddock/state").json()["idle_seconds"] > idle


def test_worker_starts_ahead_in_a_sandbox_with_services(zipapp: Path, directory: Path) -> None:
    services = [{"name": "one", "command": ["sleep", "300"]}]
    with running_daemon(zipapp, directory, services=services) as daemon:
        eventually(lambda: worker(daemon)["running"])


def test_shutdown_ends_the_worker(zipapp: Path, directory: Path) -> None:
    with running_daemon(zipapp, directory) as daemon:
        daemon.call("GET", "/tools")
        pid = worker(daemon)["pid"]
    assert not alive(pid)


def test_worker_exits_after_the_daemon_is_killed(zipapp: Path, directory: Path) -> None:
    with running_daemon(zipapp, directory) as daemon:
        daemon.call("GET", "/tools")
        pid = worker(daemon)["pid"]
        daemon.process.kill()
        eventually(lambda: not alive(pid))
