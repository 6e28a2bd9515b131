"""Sandboxes survive every end of the server."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.integration.api.conftest import create_sandbox
from tests.support.server import DAEMON_PORT, Server, eventually, run_in_sandbox, run_server

SANDBOXES = 20


def test_server_kill_loses_no_output(tmp_path: Path) -> None:
    """Twenty sandboxes count in the background; output is read by cursor before and after `kill -9`."""
    with run_server(tmp_path) as server:
        with server.client() as client, ThreadPoolExecutor(4) as pool:
            sandboxes = list(pool.map(lambda _: create_sandbox(client, timeout=600), range(SANDBOXES)))

            def begin(sandbox: str) -> str:
                script = "i=0; while [ $i -lt 200 ]; do echo $i; i=$((i+1)); sleep 0.02; done"
                response = client.post(
                    f"/v1/sandboxes/{sandbox}/proxy/{DAEMON_PORT}/command", json={"command": script, "background": True}
                )
                return str(json.loads(response.text.splitlines()[0])["text"])

            commands = dict(zip(sandboxes, pool.map(begin, sandboxes), strict=True))
            before = {sandbox: read_command_output(client, sandbox, commands[sandbox], 0) for sandbox in sandboxes}
        server.stop(signal.SIGKILL)
        server.start()
        with server.client() as client:
            listed = client.get("/v1/sandboxes", params={"pageSize": 200, "state": "Running"}).json()["items"]
            assert {item["id"] for item in listed} == set(sandboxes)
            for sandbox in sandboxes:
                text, cursor = before[sandbox]
                while not text.endswith("199\n"):
                    more, cursor = read_command_output(client, sandbox, commands[sandbox], cursor)
                    text += more
                assert text == "".join(f"{number}\n" for number in range(200))
            assert run_in_sandbox(client, sandboxes[0], "echo still here")[0] == "still here"
            page = client.get(f"/v1/sandboxes/{sandboxes[0]}/events", headers={"Accept": "application/json"}).json()
            assert "sandbox.adopted" in [item["type"] for item in page["items"]]


def read_command_output(client: httpx.Client, sandbox: str, command: str, cursor: int) -> tuple[str, int]:
    response = client.get(
        f"/v1/sandboxes/{sandbox}/proxy/{DAEMON_PORT}/command/{command}/logs", params={"cursor": cursor}
    )
    assert response.status_code == 200, response.text
    return response.text, int(response.headers["EXECD-COMMANDS-TAIL-CURSOR"])


def test_second_server_on_same_data_is_refused(tmp_path: Path) -> None:
    with run_server(tmp_path) as server:
        second = Server(server.data).popen()
        _, _ = second.communicate(timeout=30)
        assert second.returncode != 0
        log = (server.data.parent / "data.log").read_text()
        assert "Another Paddock server" in log and "Traceback" not in log
        assert httpx.get(f"{server.url}/health").status_code == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_server_stops_at_once_with_open_streams(tmp_path: Path, number: signal.Signals) -> None:
    with run_server(tmp_path, {"server": {"shutdown_grace": "10s"}}, command=True) as server:
        facts = json.loads((server.data / "server.json").read_text())
        assert server.process is not None and facts == {"pid": server.process.pid, "url": server.url}
        assert (server.data / "server.json").stat().st_mode & 0o777 == 0o600
        with server.client() as client:
            sandbox = create_sandbox(client)
            with (
                client.stream("GET", "/v1/events") as everything,
                client.stream("GET", f"/v1/sandboxes/{sandbox}/events") as one,
            ):
                lines = everything.iter_lines(), one.iter_lines()
                for stream in lines:
                    next(stream)
                started = time.monotonic()
                code = server.stop(number)
                took = time.monotonic() - started
                for stream in lines:
                    assert not any(line.startswith("error") for line in stream)
        assert code == 0 and took < 5
        assert not (server.data / "server.json").exists()
        log = server.log()
        assert "Traceback" not in log, log
        server.start()
        with server.client() as client:
            assert client.get(f"/v1/sandboxes/{sandbox}").json()["status"]["state"] == "Running"


def test_running_command_delays_shutdown_by_the_grace_period_at_most(tmp_path: Path) -> None:
    with run_server(tmp_path, {"server": {"shutdown_grace": "1s"}}) as server, server.client() as client:
        sandbox = create_sandbox(client)
        path = f"/v1/sandboxes/{sandbox}/proxy/{DAEMON_PORT}/command"
        with client.stream("POST", path, json={"command": "sleep 600"}) as response:
            next(response.iter_lines())
            started = time.monotonic()
            server.stop()
            assert time.monotonic() - started < 6
    assert "Traceback" not in (tmp_path / "data.log").read_text()


def test_client_waiting_for_quiet_command_must_retry_after_shutdown(tmp_path: Path) -> None:
    with run_server(tmp_path, {"server": {"shutdown_grace": "1s"}}) as server, server.client() as client:
        sandbox = create_sandbox(client)
        path = f"/v1/sandboxes/{sandbox}/proxy/{DAEMON_PORT}/command"
        start_response = client.post(path, json={"command": "sleep 600", "background": True})
        command = json.loads(start_response.text.splitlines()[0])["text"]
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(client.get, f"{path}/{command}/logs", params={"follow": "1"})
            eventually(lambda: waiting.running())
            time.sleep(0.5)
            server.stop()
            response = waiting.result(30)
    assert (response.status_code, response.json()["code"]) == (503, "UNAVAILABLE")
    assert "Traceback" not in (tmp_path / "data.log").read_text()


def test_occupied_port_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server(tmp_path / "data").popen(listener.getsockname()[1])
        server.communicate(timeout=30)
    assert server.returncode != 0
    assert "cannot listen on" in (tmp_path / "data.log").read_text()
    assert "--port 9000" in (tmp_path / "data.log").read_text()
    assert not (tmp_path / "data/paddock.db").exists()  # No part of the server was started.


def test_server_without_keys_refuses_reachable_addresses(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", {"server": {"host": "0.0.0.0"}})
    process = server.popen()
    process.communicate(timeout=30)
    assert process.returncode != 0 and "no API key yet" in server.log()


def test_unknown_backend_is_reported(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", {"sandboxes": {"default_backend": "nonsense"}})
    process: subprocess.Popen[str] = server.popen()
    process.communicate(timeout=30)
    assert process.returncode != 0 and "known are: local" in server.log()


def test_expired_sandboxes_end(tmp_path: Path) -> None:
    with run_server(tmp_path) as server, server.client() as client:
        sandbox = create_sandbox(client, timeout=1)
        status: dict[str, str] = {}

        def ended() -> bool:
            status.update(client.get(f"/v1/sandboxes/{sandbox}").json()["status"])
            return status["state"] == "Terminated"

        eventually(ended)
        assert status["reason"] == "expired"
