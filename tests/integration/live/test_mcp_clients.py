"""Any client of MCP lists and calls the tools of every kind of sandbox, and what is no MCP gets an answer that is."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal

import httpx
import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tests.integration.live.screen_sandboxes import Sandbox, sandbox_of, screens_server
from tests.support.server import Server, eventually, run_in_sandbox

pytestmark = pytest.mark.anyio
EVERYWHERE = {"read_file", "write_file", "list_directory", "create_directory", "move_file", "delete_file"}
KINDS: dict[str, tuple[set[str], str]] = {
    "code": ({"run_shell_command", "run_ipython_cell"}, ""),
    "linux": ({"run_shell_command", "run_ipython_cell", "screenshot"}, "screenshot"),
    "browser": ({"browser_navigate", "browser_click", "browser_input", "browser_screenshot"}, "browser_screenshot"),
    "windows": (
        {"run_shell_command", "start_app", "stop_app", "input_text", "window_maximize", "window_minimize"},
        "screenshot",
    ),
    "mobile": (
        {"mobile_click", "mobile_swipe", "mobile_input_text", "mobile_send_key", "mobile_start_app", "mobile_stop_app"},
        "mobile_screenshot",
    ),
}
"""What each kind can do at the least, and its tool that takes a picture."""
NONSENSE = r"""
import socket, threading
ANSWERS = {
    b"/mcp": b"<html>no</html>",
    b"/tools": b'{"tools": [{"name": "ok", "inputSchema": []}, {"name": "../no"}]}',
    b"/tools/ok": b'{"content": "nonsense"}',
    b"/screen/shot": b"<script>alert(1)</script>",
}
def serve(connection):
    stream = connection.makefile("rb")
    try:
        while line := stream.readline():
            size = 0
            while head := stream.readline().strip():
                if head.lower().startswith(b"content-length:"):
                    size = int(head.split(b":")[1])
            stream.read(size)
            body = ANSWERS.get(line.split()[1].partition(b"?")[0], b"{}")
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nETag: x\r\nContent-Length: %d\r\n\r\n"
            connection.sendall(head % len(body) + body)
    except OSError:
        pass
listener = socket.socket(fileno=3)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with screens_server(tmp_path_factory.mktemp("paddock"), "linux", "browser", "windows", "mobile") as running:
        yield running


@pytest.fixture(scope="module")
def sandbox(client: httpx.Client) -> Iterator[Sandbox]:
    with sandbox_of(client, "code", image={"uri": "host"}) as made:
        yield made


@asynccontextmanager
async def connected(
    server: Server, sandbox: Sandbox, mode: Literal["auto", "legacy"] = "auto"
) -> AsyncIterator[Client]:
    """MCP's own client, with nothing of ours but the address and the key."""
    headers = {"Authorization": f"Bearer {server.key}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http,
        Client(streamable_http_client(f"{server.url}{sandbox.path}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


@pytest.mark.parametrize("kind", KINDS)
async def test_tools_of_each_kind_are_listed_and_called(server: Server, client: httpx.Client, kind: str) -> None:
    expected, pictures = KINDS[kind]
    more = {"image": {"uri": "host"}} if kind == "code" else {}
    with sandbox_of(client, kind, **more) as sandbox:
        async with connected(server, sandbox) as session:
            listed = {tool.name: tool for tool in (await session.list_tools()).tools}
            assert listed.keys() >= EVERYWHERE | expected
            assert all(tool.description and tool.input_schema["type"] == "object" for tool in listed.values())
            written = await session.call_tool("write_file", {"path": "/tmp/a.txt", "content": "你好"})
            assert not written.is_error
            read = await session.call_tool("read_file", {"path": "/tmp/a.txt"})
            assert "你好" in str(read.content)
            if pictures:
                shown = await session.call_tool(pictures, {})
                assert not shown.is_error, shown.content
                (picture,) = [part for part in shown.content if part.type == "image"]
                assert len(base64.b64decode(picture.data)) > 1000


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_old_and_new_protocol_clients_are_served(
    server: Server, sandbox: Sandbox, mode: Literal["auto", "legacy"]
) -> None:
    async with connected(server, sandbox, mode) as session:
        assert {tool.name for tool in (await session.list_tools()).tools} >= EVERYWHERE
        failed = await session.call_tool("read_file", {"path": "/no/such/file"})
        assert failed.is_error and "/no/such/file" in str(failed.content)
        with pytest.raises(MCPError, match="there is no tool 'fly'"):
            await session.call_tool("fly", {})


async def test_invalid_arguments_are_reported_to_the_model(server: Server, sandbox: Sandbox) -> None:
    async with connected(server, sandbox, "legacy") as session:
        failed = await session.call_tool("read_file", {"path": 3})
        assert failed.is_error and "'path'" in str(failed.content)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_progress_of_a_call_is_reported(
    server: Server, sandbox: Sandbox, mode: Literal["auto", "legacy"]
) -> None:
    progress_events: list[tuple[float, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        progress_events.append((progress, message))

    command = "for each in 1 2 3; do echo line-$each; sleep 1; done"
    async with connected(server, sandbox, mode) as session:
        result = await session.call_tool("run_shell_command", {"command": command}, progress_callback=on_progress)
        assert not result.is_error and "line-3" in str(result.content)
        wrong = await session.call_tool("read_file", {"path": 3}, progress_callback=on_progress)
        assert wrong.is_error and "'path'" in str(wrong.content)
    assert any(message is not None and message.startswith("line-") for _, message in progress_events)
    assert [progress for progress, _ in progress_events] == sorted({progress for progress, _ in progress_events})


def test_call_with_progress_ends_when_its_client_disconnects(sandbox: Sandbox) -> None:
    arguments = {"command": "touch /tmp/alive; while sleep 0.1; do echo on; date +%s.%N > /tmp/alive; done"}
    call = {"name": "run_shell_command", "arguments": arguments, "_meta": {"progressToken": "p"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    accept = {"Accept": "application/json, text/event-stream"}
    with sandbox.client.stream("POST", f"{sandbox.path}/mcp", json=body, headers=accept) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith("data: "):
                assert json.loads(line[6:])["params"]["progressToken"] == "p"
                break

    def stopped() -> bool:
        text, _ = run_in_sandbox(sandbox.client, sandbox.id, "pgrep -f [a]live || echo none")
        return "none" in text

    assert eventually(stopped)


def test_programs_in_the_sandbox_get_progress_too(sandbox: Sandbox) -> None:
    text, _ = run_in_sandbox(
        sandbox.client,
        sandbox.id,
        """python3 -c '
import json, urllib.request as r
call = {"name": "run_shell_command", "arguments": {"command": "echo begun; sleep 2"}, "_meta": {"progressToken": 1}}
body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
heads = {"Accept": "application/json, text/event-stream"}
asked = r.Request("http://127.0.0.1:8765/mcp", json.dumps(body).encode(), heads)
print(r.build_opener(r.ProxyHandler({})).open(asked, timeout=20).read().decode())
'""",
    )
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    assert events[0]["method"] == "notifications/progress" and events[0]["params"]["message"] == "begun"
    assert events[-1]["id"] == 1 and "begun" in str(events[-1]["result"]["content"])


def post(sandbox: Sandbox, body: bytes | Any, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return sandbox.client.post(
        f"{sandbox.path}/mcp", content=content, headers={"Content-Type": "application/json", **headers}
    )


def error_of(answer: httpx.Response) -> dict[str, Any]:
    assert answer.headers["Content-Type"] == "application/json"
    document = answer.json()
    assert document["jsonrpc"] == "2.0"
    error: dict[str, Any] = document["error"]
    assert "\n" not in error["message"]
    return error


PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def test_each_request_gets_one_response(sandbox: Sandbox) -> None:
    assert post(sandbox, PING).json() == {"jsonrpc": "2.0", "id": 1, "result": {}}
    taken = post(sandbox, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert taken.status_code == 202 and taken.content == b""
    assert error_of(post(sandbox, {**PING, "method": "prompts/list"}))["code"] == -32601


def test_get_and_delete_are_not_allowed(sandbox: Sandbox) -> None:
    for method in ("GET", "DELETE"):
        answer = sandbox.client.request(method, f"{sandbox.path}/mcp", headers={"Accept": "text/event-stream"})
        assert answer.status_code == 405 and answer.headers["Allow"] == "POST"


def test_invalid_messages_get_mcp_errors(sandbox: Sandbox) -> None:
    for body, status in ((b"", 400), (b"{", 400), ([PING], 400), ({**PING, "id": {}}, 400), (b" " * (17 << 20), 413)):
        answer = post(sandbox, body)
        assert answer.status_code == status
        error_of(answer)


def test_mcp_revision_is_checked(sandbox: Sandbox) -> None:
    assert post(sandbox, PING, **{"MCP-Protocol-Version": "2025-06-18"}).status_code == 200
    refused = post(sandbox, PING, **{"MCP-Protocol-Version": "1999-01-01"})
    assert refused.status_code == 400
    assert "2025-06-18" in error_of(refused)["message"]


def test_call_without_a_tool_is_refused(sandbox: Sandbox) -> None:
    for params in ({}, {"name": 3}, {"name": None}):
        answer = post(sandbox, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        assert "params.name" in error_of(answer)["message"]


def test_missing_or_paused_sandbox_gets_an_mcp_error(client: httpx.Client) -> None:
    answer = post(Sandbox(client, "sb-0000000000000000"), PING)
    assert answer.status_code == 404
    error_of(answer)
    with sandbox_of(client, "code", image={"uri": "host"}) as paused:
        client.post(f"{paused.path}/pause")
        answer = post(paused, PING)
        assert answer.status_code == 409 and answer.json()["id"] == 1
        error_of(answer)


def test_invalid_answers_of_a_sandbox_are_contained(client: httpx.Client) -> None:
    with invalid_sandbox(client) as sandbox:
        answer = post(sandbox, PING)
        assert answer.status_code == 502 and "invalid MCP response" in error_of(answer)["message"]
        listed = client.get(f"{sandbox.path}/tools")
        assert [tool["name"] for tool in listed.json()["items"]] == ["ok"]
        called = sandbox.post("ok")
        assert called.status_code == 502 and "invalid tool result" in called.json()["message"]
        shown = client.get(f"{sandbox.path}/screenshot")
        assert shown.status_code == 502 and shown.headers["Content-Type"] == "application/json"
        assert client.get(f"{sandbox.path}/desktop").status_code == 502


@contextmanager
def invalid_sandbox(client: httpx.Client) -> Iterator[Sandbox]:
    """A sandbox in which another program has taken the daemon's place: a volume lies over the image's Python."""

    def volume(name: str, path: str, **part: str) -> dict[str, Any]:
        return {"name": name, "pvc": {"claimName": "nonsense"}, "mountPath": path, **part}

    program = base64.b64encode(NONSENSE.encode()).decode()
    with sandbox_of(client, "code", image={"uri": "host"}, volumes=[volume("made", "/made")]) as maker:
        python, _ = run_in_sandbox(
            client,
            maker.id,
            "cp $(readlink -f /usr/bin/python3) /made/python; "
            f"echo {program} | base64 -d > /made/fake_daemon.py; "
            "printf '#!/bin/sh\\nexec /made/python -I -S /made/fake_daemon.py\\n' > /made/start; chmod 755 /made/*; "
            "readlink -f /usr/bin/python3",
        )
    volumes = [volume("made", "/made"), volume("python", python, subPath="start")]
    with sandbox_of(client, "code", image={"uri": "host"}, volumes=volumes) as sandbox:
        yield sandbox
