"""Published MCP servers: nine as programs in a sandbox, and one of them over HTTP too."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.support.server import eventually, free_port

ROOT = Path(__file__).parents[3]
CLIS = ROOT / ".make/clis"
MODULES = CLIS / "node_modules"
"""Servers from npm, in the versions of tests/clis/package.json."""
VENVS = {"peers": ROOT / ".venv-peers", "sqlite": ROOT / ".venv-mcp-sqlite"}
"""Servers from PyPI. That for SQLite needs an older SDK than the others."""
HTTP_PATHS = {"streamableHttp": "mcp", "sse": "sse"}


@dataclass(frozen=True)
class PublishedServer:
    """A server as a program, and calls of it, each with a part of its result."""

    command: tuple[str, ...]
    calls: Sequence[tuple[str, Mapping[str, Any], str]]
    env: Mapping[str, str]
    size: int
    """Number of its tools."""


def published_servers(node: str = "/usr/bin/node", modules: str = str(MODULES)) -> dict[str, PublishedServer]:
    """Return the servers by name, for a sandbox that has the packages."""

    def npm(package: str, *words: str, path: str = "dist/index.js") -> tuple[str, ...]:
        return node, f"{modules}/{package}/{path}", *words

    def pypi(name: str, *words: str, venv: str = "peers") -> tuple[str, ...]:
        return f"{VENVS[venv]}/bin/python", f"{VENVS[venv]}/bin/{name}", *words

    playwright = ("--headless", "--isolated", "--no-sandbox", "--executable-path", "/usr/bin/chromium")
    thought = {"thought": "Add.", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
    ada = {"name": "Ada", "entityType": "person", "observations": ["wrote a program"]}
    servers: dict[str, tuple[tuple[str, ...], Sequence[tuple[str, Mapping[str, Any], str]], int]] = {
        "everything": (
            npm("@modelcontextprotocol/server-everything", "stdio"),
            [("echo", {"message": "höllo"}, "Echo: höllo"), ("get-sum", {"a": 2, "b": 40}, "42")],
            13,
        ),
        "filesystem": (
            npm("@modelcontextprotocol/server-filesystem", "/workspace"),
            [
                ("write_file", {"path": "/workspace/a.txt", "content": "kept"}, "Successfully wrote"),
                ("read_text_file", {"path": "/workspace/a.txt"}, "kept"),
                ("read_text_file", {"path": "/etc/passwd"}, "Access denied"),
            ],
            14,
        ),
        "memory": (
            npm("@modelcontextprotocol/server-memory"),
            [("create_entities", {"entities": [ada]}, ""), ("read_graph", {}, "wrote a program")],
            9,
        ),
        "thinking": (
            npm("@modelcontextprotocol/server-sequential-thinking"),
            [("sequentialthinking", thought, '"thoughtNumber": 1')],
            1,
        ),
        "playwright": (
            npm("@playwright/mcp", *playwright, path="cli.js"),
            [("browser_navigate", {"url": "data:text/html,<h1>Hello</h1>"}, "Hello"), ("browser_close", {}, "")],
            25,
        ),
        "time": (
            pypi("mcp-server-time", "--local-timezone", "UTC"),
            [("get_current_time", {"timezone": "UTC"}, '"timezone": "UTC"')],
            2,
        ),
        "git": (
            pypi("mcp-server-git", "--repository", "/workspace/repository"),
            [("git_status", {"repo_path": "/workspace/repository"}, "Untracked")],
            12,
        ),
        "fetch": (
            pypi("mcp-server-fetch", "--ignore-robots-txt", "--allow-private-ips"),
            [("fetch", {"url": "http://127.0.0.1:8000/page.txt"}, "fetched text")],
            1,
        ),
        "sqlite": (
            pypi("mcp-server-sqlite", "--db-path", "/workspace/data.db", venv="sqlite"),
            [
                ("create_table", {"query": "CREATE TABLE IF NOT EXISTS a (b INTEGER)"}, "created"),
                ("write_query", {"query": "INSERT INTO a VALUES (42)"}, "affected_rows"),
                ("read_query", {"query": "SELECT b FROM a LIMIT 1"}, "42"),
            ],
            6,
        ),
    }  # fmt: skip
    env = {"memory": {"MEMORY_FILE_PATH": "/workspace/memory.jsonl"}, "playwright": {"HOME": "/tmp"}}
    return {
        name: PublishedServer(command, calls, env.get(name, {}), size)
        for name, (command, calls, size) in servers.items()
    }


PREPARATION = (
    "git init -q repository && touch repository/a && mkdir -p pages && echo fetched text > pages/page.txt && "
    "(setsid python3 -m http.server -d pages 8000 >/dev/null 2>&1 &)"
)
"""What the servers need in `/workspace`."""


@contextmanager
def everything_server(transport: Literal["streamableHttp", "sse"], log: Path) -> Iterator[str]:
    """Run the server from npm on a free port, and yield its address."""
    program = MODULES / "@modelcontextprotocol/server-everything/dist/index.js"
    assert program.exists(), "run make setup-test"
    port = free_port()
    with log.open("wb") as output:
        command = [str(CLIS / "bin/node"), str(program), transport]
        process = subprocess.Popen(command, env=os.environ | {"PORT": str(port)}, stdout=output, stderr=output)
        try:
            eventually(lambda: _listens(process, log), 30)
            yield f"http://127.0.0.1:{port}/{HTTP_PATHS[transport]}"
        finally:
            process.terminate()
            process.wait(10)


def _listens(process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    return re.search(r"listening|running on", log.read_text(), re.IGNORECASE) is not None
