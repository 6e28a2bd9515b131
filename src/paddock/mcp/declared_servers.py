"""Reads and writes the `paddock.mcp` extension, which declares the MCP servers of a sandbox."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from paddock.errors import InvalidInput
from paddock.model.mcp import McpServer, TaskMcpServer

MCP_EXTENSION = "paddock.mcp"
"""The sandbox extension with the servers as JSON. Only Paddock itself sets it, for sandboxes of runs."""
ALL_SERVERS_EXTENSION = "paddock.mcp.all"
"""The sandbox extension that lets a sandbox use all servers that its owner may use; its value is `true`."""
AGENT_EXTENSION = "paddock.mcp.agent"
"""The sandbox extension with the engine or preset of the agent in the sandbox."""
MCP_PROXY_PORT = 8422
"""Port of the proxy in a sandbox, on 127.0.0.1."""
MCP_PROXY_ADDRESS = f"http://127.0.0.1:{MCP_PROXY_PORT}"
SecretLookup: TypeAlias = Callable[[str], str | None]
"""Returns a secret by name, or None."""
LOOPBACK_NAMES = ("127.0.0.1", "::1", "localhost")
_SERVERS = TypeAdapter(tuple[TaskMcpServer, ...])
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_REFERENCE = re.compile(r"\$\$\{|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)\})?")
_RESERVED_HEADERS = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer", "expect"}
)


def mcp_servers_extension(servers: Iterable[McpServer]) -> dict[str, str]:
    """Return the extension that declares a task's MCP servers, and the servers that the task names.

    Headers may contain `${NAME}`, a reference to a secret, which is stored unresolved.
    """
    found = tuple(servers)
    texts = ",".join(server.model_dump_json(exclude_defaults=True) for server in found)
    return {MCP_EXTENSION: f"[{texts}]"} if found else {}


def mcp_server_url(name: str) -> str:
    """Return the URL of a server as seen in the sandbox."""
    return f"{MCP_PROXY_ADDRESS}/{name}"


def read_declared_servers(extensions: Mapping[str, str]) -> dict[str, McpServer]:
    """Parse the declared servers of a sandbox that have an address, by name. Raises `InvalidInput`."""
    return {name: server for name, server in read_sandbox_servers(extensions).items() if server.url}


def read_sandbox_servers(extensions: Mapping[str, str]) -> dict[str, TaskMcpServer]:
    """Parse all servers of a sandbox by name, programs and references too. Raises `InvalidInput`."""
    text = extensions.get(MCP_EXTENSION)
    if text is None:
        return {}
    try:
        servers = _SERVERS.validate_json(text)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        field_path = ".".join(str(part) for part in (MCP_EXTENSION, *problem["loc"]))
        message = problem["msg"].removeprefix("Value error, ")
        raise InvalidInput(f"extensions.{field_path}: {message[:1].lower()}{message[1:]}") from None
    for server in servers:
        if server.url:
            check_mcp_server(server)
    return {server.name: server for server in servers}


def check_mcp_server(server: McpServer, lookup: SecretLookup | None = None) -> None:
    """Raise `InvalidInput` for an invalid address or header, or an unknown secret."""
    try:
        parts = urlsplit(server.url or "")
        usable = bool(parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0))
    except ValueError:
        usable = False
    if not usable:
        raise InvalidInput(
            f"mcp.{server.name}: {server.url!r} is not an address; write it like https://example.com/mcp"
        )
    if not (parts.hostname or "").isascii():
        # Some libraries read other digits and dots as an address, which others would have checked as a name.
        raise InvalidInput(
            f"mcp.{server.name}: write the host {parts.hostname!r} in ASCII, such as xn--bcher-kva.example"
        )
    if "@" in parts.netloc:
        raise InvalidInput(
            f"mcp.{server.name}: the address must not contain a password; use a header with ${{NAME}} instead"
        )
    for header, value in server.headers.items():
        if not _TOKEN.fullmatch(header) or header.lower() in _RESERVED_HEADERS:
            raise InvalidInput(f"mcp.{server.name}.headers: {header[:100]!r} cannot be set as a header")
        if lookup is not None:
            fill_header_secrets(server.name, header, value, lookup)
    if lookup is not None:
        for value in oauth_values(server):
            fill_secrets(f"mcp.{server.name}.oauth", value, lookup)


def referenced_secrets(servers: Iterable[McpServer]) -> set[str]:
    """Return names of the secrets that the servers' headers and sign-ins reference."""
    found = list(servers)
    values = [value for server in found for value in server.headers.values()]
    values += [value for server in found for value in oauth_values(server)]
    return {match[1] for value in values for match in _REFERENCE.finditer(value) if match[1]}


def oauth_values(server: McpServer) -> list[str]:
    """Return the values of a server's OAuth client in which secrets are replaced."""
    oauth = server.oauth
    if oauth is None:
        return []
    return [value for value in (oauth.client_id, oauth.client_secret, oauth.private_key) if value is not None]


def fill_header_secrets(server: str, header: str, value: str, lookup: SecretLookup) -> str:
    """Replace secret references in a header value. Raises `InvalidInput`, without secrets in its message."""
    filled = fill_secrets(f"mcp.{server}.headers.{header}", value, lookup)
    if re.search(r"[^\t\x20-\x7e]", filled):
        raise InvalidInput(f"mcp.{server}.headers.{header}: a header is one line of ASCII text")
    return filled.strip()


def fill_secrets(field: str, value: str, lookup: SecretLookup) -> str:
    """Replace secret references in a value. Raises `InvalidInput`, without secrets in its message."""

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        if match[1] is None:
            raise InvalidInput(f"{field}: write ${{NAME}}, or $${{ for a plain ${{")
        found = lookup(match[1])
        if found is None:
            raise InvalidInput(f"{field}: there is no secret {match[1]}; set runs.secrets")
        return found

    return _REFERENCE.sub(replace, value)
