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
SOON = 2.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("stop")
    with run_server(directory, {"llm": scripted(directory, sleeper=SCRIPT), "kinds": CODE}) as running:
        yield running


def sleeping(client: httpx.Client, sandbox: str, words: str) -> bool:
    return run_in_sandbox(client, sandbox, f"ps -eo args | grep -cFx '{words}'")[0].strip() != "0"


@pytest.mark.parametrize("engine", SERVER_SIDE)
def test_cancelling_a_turn_ends_its_command(server: Server, engine: str) -> None:
    with server.client() as client:
        chat = Chat.begin(client, model="sleeper", agent=engine, kinds=["code"], policy={"allow_all": ["code"]})
        chat.say("Sleep for a while.")
        sandbox = eventually(lambda: chat.now()["sandboxes"].get("code"))
        eventually(lambda: sleeping(client, sandbox, "sleep 300.5"))
        assert client.post(f"{chat.path}/cancel").status_code == 200
        eventually(lambda: not sleeping(client, sandbox, "sleep 300.5"), SOON)
        assert chat.until_over() == "cancelled"
        assert "running when it was cancelled" in text_of(chat.results()["code_run_shell_command"])
        check_order(chat.all())
        answer = client.post(f"/v1/sandboxes/{sandbox}/tools/run_shell_command", json={"command": "echo usable"})
        assert text_of(answer.json()) == "usable"
        assert client.delete(chat.path).status_code == 204


@pytest.mark.parametrize("way", ["tools", "mcp"])
def test_a_client_that_leaves_ends_its_command(server: Server, way: str) -> None:
    with server.client() as client:
        made = client.post("/v1/sandboxes", json={"extensions": {"paddock.kind": "code"}})
        assert made.status_code in (201, 202), made.text
        sandbox = made.json()["id"]
        path = f"/v1/sandboxes/{sandbox}"
        arguments = {"command": "sleep 300.6", "timeout": 600}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        body = {**message, "params": {"name": "run_shell_command", "arguments": arguments}}
        where, content = (f"{path}/tools/run_shell_command", arguments) if way == "tools" else (f"{path}/mcp", body)
        headers = {"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"}
        leaving = HTTPConnection(server.domain, timeout=20)
        leaving.request("POST", where, json.dumps(content), headers)
        eventually(lambda: sleeping(client, sandbox, "sleep 300.6"))
        leaving.close()
        eventually(lambda: not sleeping(client, sandbox, "sleep 300.6"), SOON)
        assert client.delete(path).status_code == 204
