"""MCP servers that a sandbox may reach, as its extension says: names, addresses, and headers without their secrets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from paddock.errors import InvalidInput
from paddock.model.task import McpServer

EXTENSION = "paddock.mcp"
"""The extension of a sandbox that holds them, as JSON. Only Paddock itself sets it, for the sandboxes of runs."""
PORT = 8422
"""Where they are in a box, on 127.0.0.1."""
ADDRESS = f"http://127.0.0.1:{PORT}"
Lookup: TypeAlias = Callable[[str], str | None]
"""Finds a secret by its name, or says that there is none."""
_SERVERS = TypeAdapter(tuple[McpServer, ...])
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_REFERENCE = re.compile(r"\$\$\{|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)\})?")
_OURS = frozenset({"host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer", "expect"})


def declare(servers: Iterable[McpServer]) -> dict[str, str]:
    """The extension that lets a sandbox reach those of a task's servers that are not in the sandbox itself.

    Headers may hold `${NAME}`, which stands for a secret of the server's and is stored as it is.
    """
    remote = tuple(server for server in servers if server.url)
    return {EXTENSION: _SERVERS.dump_json(remote, exclude_defaults=True).decode()} if remote else {}


def address(name: str) -> str:
    """Where a program in the box finds the server of this name."""
    return f"{ADDRESS}/{name}"


def read_declared(extensions: Mapping[str, str]) -> dict[str, McpServer]:
    """The servers of a sandbox by name. Raises `InvalidInput`."""
    said = extensions.get(EXTENSION)
    if said is None:
        return {}
    try:
        servers = _SERVERS.validate_json(said)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in (EXTENSION, *problem["loc"]))
        message = problem["msg"].removeprefix("Value error, ")
        raise InvalidInput(f"extensions.{where}: {message[:1].lower()}{message[1:]}") from None
    for server in servers:
        check_server(server)
    return {server.name: server for server in servers}


def check_server(server: McpServer, lookup: Lookup | None = None) -> None:
    """Raise `InvalidInput` for a server that is not written as one that can be reached, or names an unknown secret."""
    try:
        parts = urlsplit(server.url or "")
        usable = bool(parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0))
    except ValueError:
        usable = False
    if not usable:
        raise InvalidInput(
            f"mcp.{server.name}: {server.url!r} is not an address; write it like https://example.com/mcp"
        )
    if "@" in parts.netloc:
        raise InvalidInput(f"mcp.{server.name}: write no password in the address; use headers, with ${{NAME}} for it")
    for header, value in server.headers.items():
        if not _TOKEN.fullmatch(header) or header.lower() in _OURS:
            raise InvalidInput(f"mcp.{server.name}.headers: {header[:100]!r} is no header that can be set")
        if lookup is not None:
            fill(server.name, header, value, lookup)


def secrets_of(servers: Iterable[McpServer]) -> set[str]:
    """Names of the secrets that servers' headers hold."""
    values = [value for server in servers for value in server.headers.values()]
    return {match[1] for value in values for match in _REFERENCE.finditer(value) if match[1]}


def fill(server: str, header: str, value: str, lookup: Lookup) -> str:
    """The value of a header, secrets included. Raises `InvalidInput`, which tells none of them."""

    def one(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        if match[1] is None:
            raise InvalidInput(f"mcp.{server}.headers.{header}: write ${{NAME}}, or $${{ for a plain ${{")
        found = lookup(match[1])
        if found is None:
            raise InvalidInput(f"mcp.{server}.headers.{header}: there is no secret {match[1]}; set runs.secrets")
        return found

    filled = _REFERENCE.sub(one, value)
    if re.search(r"[^\t\x20-\x7e]", filled):
        raise InvalidInput(f"mcp.{server}.headers.{header}: a header is one line of ASCII text")
    return filled.strip()
