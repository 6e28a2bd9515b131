"""`paddock serve` with gRPC: keys, servers of the configuration, and another Paddock as a client."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import httpx
import pytest

from paddock.mcp.rpc.v1 import mcp_pb2, mcp_pb2_grpc
from tests.integration.mcp.upstream_servers import mcp_servers
from tests.support.server import PADDOCK_COMMAND, Server, eventually, free_port, run_server


@dataclass
class GrpcServer:
    server: Server
    port: int


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcServer]:
    """A server with an MCP server over HTTP, served over gRPC."""
    port = free_port()
    with mcp_servers() as upstream:
        mcp = {
            "allow": ["127.0.0.1"],
            "servers": [{"name": "calculator", "url": upstream.calculator}],
            "grpc": {"listen": f"127.0.0.1:{port}"},
        }
        with run_server(tmp_path_factory.mktemp("near"), {"mcp": mcp}) as server:
            yield GrpcServer(server, port)


def add(near: GrpcServer, key: str, a: int = 2, b: int = 3) -> int:
    with grpc.insecure_channel(f"127.0.0.1:{near.port}") as channel:
        tools = mcp_pb2_grpc.ToolsStub(channel)  # type: ignore[no-untyped-call]
        arguments = json.dumps({"a": a, "b": b}).encode()
        request = mcp_pb2.CallToolRequest(target="calculator", name="add", arguments_json=arguments)
        (event,) = tools.CallTool(request, metadata=[("authorization", f"Bearer {key}")], timeout=20)
        return int(json.loads(event.result.structured_json)["result"])


def test_a_key_calls_a_server_of_the_configuration(near: GrpcServer) -> None:
    assert add(near, near.server.key) == 5
    with near.server.client() as http:
        made = http.post("/v1/keys", json={"name": "models", "scopes": ["llm:use"]}).raise_for_status().json()
    with pytest.raises(grpc.RpcError) as refused:
        add(near, made["secret"])
    assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED and "mcp:use" in refused.value.details()


def test_a_server_uses_the_gateway_of_another(near: GrpcServer, tmp_path: Path) -> None:
    far_server = {
        "name": "far",
        "url": f"http://127.0.0.1:{near.port}/calculator",
        "transport": "grpc",
        "headers": {"Authorization": "Bearer $${NEAR_KEY}"},
    }
    settings = {
        "mcp": {"allow": ["127.0.0.1"], "servers": [far_server]},
        "runs": {"secrets": {"NEAR_KEY": near.server.key}},
    }
    with run_server(tmp_path, settings) as server, server.client() as http:

        def call() -> httpx.Response:
            params = {"name": "add", "arguments": {"a": 20, "b": 3}, "_meta": meta}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            headers = {
                "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": "2026-07-28",
                "Mcp-Method": "tools/call",
                "Mcp-Name": "add",
            }
            return http.post("/mcp/far", json=body, headers=headers)

        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        answer = call().json()
        assert answer["result"]["structuredContent"] == {"result": 23}, answer
        # A killed gateway is an error with a reason; once it is back, it is used again.
        near.server.stop(signal.SIGKILL)
        failed = call()
        assert failed.status_code >= 500 and "gateway" in failed.json()["error"]["message"]
        near.server.start()
        eventually(lambda: call().status_code == 200)


def output_of_failed_start(directory: Path, grpc_settings: dict[str, str]) -> str:
    """Start a server that cannot start, and return all that it wrote."""
    server = Server(directory / "data", {"mcp": {"grpc": grpc_settings}})
    process = server.popen()
    assert process.stdout is not None
    with process.stdout as written:
        output = written.read() + server.log()
    assert process.wait(30) != 0 and "Traceback" not in output
    return output


def test_a_taken_address_is_told(near: GrpcServer, tmp_path: Path) -> None:
    address = f"127.0.0.1:{near.port}"
    assert f"cannot listen on {address}" in output_of_failed_start(tmp_path, {"listen": address})


@pytest.mark.parametrize(
    ("grpc_settings", "text"),
    [
        ({"listen": "0.0.0.0:0"}, "no API key yet"),
        ({"listen": "127.0.0.1:0", "certificate": "/a.pem", "private_key": "/b.pem"}, "/a.pem cannot be read"),
        ({"certificate": "/a.pem"}, "both certificate and private_key"),
    ],
)
def test_bad_settings_are_told(tmp_path: Path, grpc_settings: dict[str, str], text: str) -> None:
    assert text in output_of_failed_start(tmp_path, grpc_settings)


def test_help_names_the_option() -> None:
    shown = subprocess.run([PADDOCK_COMMAND, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    assert "--grpc" in shown
