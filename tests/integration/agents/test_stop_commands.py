"""Cancelling a turn or a call stops the running command in the sandbox."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest

from tests.integration.agents.chat_client import CODE, SERVER_SIDE, Chat, call, check_order, scripted, text_of
from tests.support.server import Server, eventually, run_in_sandbox, run_server

SCRIPT = {"turns": [call("code_run_shell_command", command="sleep 300.5", timeout=600), {"say": "It is over."}]}
STOP_TIMEOUT = 2.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("stop")
    with run_server(directory, {"llm": scripted(directory, sleeper=SCRIPT), "kinds": CODE}) as running:
        yield running


def is_sleeping(client: httpx.Client, sandbox: str, words: str) -> bool:
    return run_in_sandbox(client, sandbox, f"ps -eo args | grep -cFx '{words}'")[0].strip() != "0"


@pytest.mark.parametrize("engine", SERVER_SIDE)
def test_cancelling_turn_stops_its_command(server: Server, engine: str) -> None:
    with server.client() as client:
        chat = Chat.create(client, model="sleeper", agent=engine, kinds=["code"], policy={"allow_all": ["code"]})
        chat.send_message("Sleep for a while.")
        sandbox = eventually(lambda: chat.load_session()["sandboxes"].get("code"))
        eventually(lambda: is_sleeping(client, sandbox, "sleep 300.5"))
        assert client.post(f"{chat.path}/cancel").status_code == 200
        eventually(lambda: not is_sleeping(client, sandbox, "sleep 300.5"), STOP_TIMEOUT)
        assert chat.wait_for_turn_end() == "cancelled"
        assert "running when it was cancelled" in text_of(chat.results_by_tool()["code_run_shell_command"])
        check_order(chat.list_events())
        response = client.post(f"/v1/sandboxes/{sandbox}/tools/run_shell_command", json={"command": "echo usable"})
        assert text_of(response.json()) == "usable"
        assert client.delete(chat.path).status_code == 204


@pytest.mark.parametrize("way", ["tools", "mcp"])
def test_disconnecting_client_stops_its_command(server: Server, way: str) -> None:
    with server.client() as client:
        response = client.post("/v1/sandboxes", json={"extensions": {"paddock.kind": "code"}})
        assert response.status_code in (201, 202), response.text
        sandbox = response.json()["id"]
        path = f"/v1/sandboxes/{sandbox}"
        arguments = {"command": "sleep 300.6", "timeout": 600}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        body = {**message, "params": {"name": "run_shell_command", "arguments": arguments}}
        path_and_query, content = (
            (f"{path}/tools/run_shell_command", arguments) if way == "tools" else (f"{path}/mcp", body)
        )
        headers = {"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"}
        connection = HTTPConnection(server.domain, timeout=20)
        connection.request("POST", path_and_query, json.dumps(content), headers)
        eventually(lambda: is_sleeping(client, sandbox, "sleep 300.6"))
        connection.close()
        eventually(lambda: not is_sleeping(client, sandbox, "sleep 300.6"), STOP_TIMEOUT)
        assert client.delete(path).status_code == 204
