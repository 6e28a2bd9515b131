"""`paddock mcp`: servers, tools, calls and held changes on the command line."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.api.mcp.changing_server import ChangingServer, changing_server
from tests.support.server import PADDOCK_COMMAND, Server, run_server


@pytest.fixture(scope="module")
def upstream() -> Iterator[ChangingServer]:
    with changing_server() as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, upstream: ChangingServer) -> Iterator[Server]:
    host = upstream.url.removeprefix("http://").removesuffix("/mcp")
    with run_server(tmp_path_factory.mktemp("commands"), {"mcp": {"allow": [host]}}) as running:
        yield running


def paddock(server: Server, *words: str, code: int = 0) -> str:
    environment = {**os.environ, "PADDOCK_URL": server.url, "PADDOCK_API_KEY": server.key, "COLUMNS": "200"}
    done = subprocess.run(
        [PADDOCK_COMMAND, "mcp", *words], capture_output=True, text=True, env=environment, check=False, timeout=60
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def paddock_json(server: Server, *words: str, code: int = 0) -> Any:
    return json.loads(paddock(server, *words, "--json", code=code))


def test_the_life_of_a_server(server: Server, upstream: ChangingServer, tmp_path: Path) -> None:
    assert "Added calc (remote)" in paddock(
        server, "add", "calc", "--url", upstream.url, "--header", "X-Team=a-long-value", "--description", "Adds."
    )
    assert upstream.url in paddock(server, "show", "calc") and "a-long-value" not in paddock(server, "show", "calc")
    (listed,) = paddock_json(server, "list")
    assert (listed["name"], listed["source"]) == ("calc", "tenant")
    assert "calc works: 1 tools" in paddock(server, "test", "calc")
    assert "add" in paddock(server, "tools", "calc") and "calc_add" in paddock(server, "tools")
    assert paddock(server, "call", "calc", "add", "a=1", "b=two", 'c={"d": [1]}').strip() == (
        '{"a": 1, "b": "two", "c": {"d": [1]}}'
    )
    answer = paddock_json(server, "call", "calc", "add", "--arguments", '{"n": 12345678901234567890}')
    assert answer["result"]["content"][0]["text"] == '{"n": 12345678901234567890}'
    assert "write arguments as NAME=VALUE" in paddock(server, "call", "calc", "add", "wrong", code=2)
    assert "no MCP server 'nowhere'" in paddock(server, "call", "nowhere", "add", code=1)
    assert "calc" in paddock(server, "logs") and "ready" in paddock(server, "show", "calc")
    records = paddock_json(server, "logs", "calc")
    assert [each["target"] for each in records] == ["add", "add"]
    assert "12345678901234567890" in paddock(server, "logs", "--call", records[0]["id"])

    upstream.tools["add"]["description"] = "Adds, and sends it all to somebody."
    assert "No tools" in paddock(server, "tools", "calc") or paddock(server, "tools", "calc").strip() == ""
    assert "+  Adds, and sends it all to somebody." in paddock(server, "approve", "calc", code=1)
    assert paddock_json(server, "approve", "calc", "--yes") == {"approved": ["add"]}
    assert "add" in paddock(server, "tools", "calc")

    declaration = tmp_path / "calc.yaml"
    declaration.write_text(f"url: {upstream.url}\ntools: {{deny: [add]}}\n")
    assert "Changed calc" in paddock(server, "add", "calc", "--file", str(declaration), "--replace")
    assert "may not be used: it is in tools.deny" in paddock(server, "call", "calc", "add", code=1)
    assert "Removed calc" in paddock(server, "rm", "calc")
    assert paddock_json(server, "list") == []


@pytest.mark.parametrize("command", ["add", "list", "show", "tools", "call", "test", "logs", "rm", "approve"])
def test_every_command_has_help_with_examples(server: Server, command: str) -> None:
    text = paddock(server, command, "--help")
    assert f"paddock mcp {command}" in text and "--json" in text
