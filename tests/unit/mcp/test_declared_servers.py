"""The `paddock.mcp` extension: declared servers and their secrets."""

from __future__ import annotations

import json

import pytest

from paddock.errors import InvalidInput
from paddock.mcp.declared_servers import (
    MCP_EXTENSION,
    check_mcp_server,
    fill_header_secrets,
    mcp_server_url,
    mcp_servers_extension,
    read_declared_servers,
    read_sandbox_servers,
)
from paddock.model.mcp import McpServer, TaskMcpServer


def test_all_servers_of_a_task_are_declared() -> None:
    far = McpServer(name="far", url="https://tools.example.org/mcp", headers={"Authorization": "Bearer ${TOKEN}"})
    near = McpServer(name="near", command=("serve",))
    named = TaskMcpServer(name="tracker")
    extensions = mcp_servers_extension([far, near, named])
    assert json.loads(extensions[MCP_EXTENSION]) == [
        {"name": "far", "url": "https://tools.example.org/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
        {"name": "near", "command": ["serve"]},
        {"name": "tracker"},
    ]
    assert list(read_declared_servers(extensions)) == ["far"]
    found = read_sandbox_servers(extensions)
    assert list(found) == ["far", "near", "tracker"]
    assert [each.is_reference for each in found.values()] == [False, False, True]
    assert not mcp_servers_extension([]) and not read_declared_servers({})
    assert mcp_server_url("far") == "http://127.0.0.1:8422/far"


def test_secret_references_are_replaced() -> None:
    secrets = {"ONE": "1", "TWO": "${ONE}", "LINES": "a\r\nb"}

    def filled(value: str) -> str:
        return fill_header_secrets("x", "h", value, secrets.get)

    assert [filled(value) for value in ("plain", "a ${ONE} b", "${TWO}", "$${ONE}", "$ONE", "1$")] == [
        "plain", "a 1 b", "${ONE}", "${ONE}", "$ONE", "1$",
    ]  # fmt: skip
    for value, problem in (
        ("${NOPE}", "no secret NOPE"),
        ("${", "write"),
        ("${A B}", "write"),
        ("${LINES}", "one line"),
    ):
        with pytest.raises(InvalidInput, match=problem) as caught:
            filled(value)
        assert "a\r" not in caught.value.message


@pytest.mark.parametrize("header", ["Host", "content-length", "Transfer-Encoding", "a b", "", "x:y", "é"])
def test_reserved_headers_are_refused(header: str) -> None:
    with pytest.raises(InvalidInput, match=r"mcp\.x\.headers"):
        check_mcp_server(McpServer.model_construct(name="x", url="http://h/", headers={header: "v"}))


@pytest.mark.parametrize("host", ["①②⑦.⓪.⓪.①", "127。0。0。1", "bücher.example", "127.0.0.1\u200b"])
def test_hosts_are_written_in_ascii(host: str) -> None:
    with pytest.raises(InvalidInput, match="ASCII"):
        check_mcp_server(McpServer.model_construct(name="x", url=f"http://{host}/", headers={}))
