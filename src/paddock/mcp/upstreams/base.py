"""Contract of connections to MCP servers, their state, and what they need from other packages."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol
from urllib.parse import urlsplit

from paddock.errors import Forbidden, Unavailable
from paddock.mcp.declared_servers import LOOPBACK_NAMES, SecretLookup
from paddock.mcp.http_client import McpHttpClient
from paddock.mcp.protocol import CallContext, JsonRpcMessage
from paddock.model.mcp import McpKind, McpServer

MAX_HEALTH_CHANGES = 50


class UpstreamStatus(StrEnum):
    IDLE = "idle"
    """Nothing was sent yet, or the program ended because nobody used it."""
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamState:
    """State of a connection since a time."""

    status: UpstreamStatus
    since: float
    """Unix time."""
    reason: str = ""
    """Why the server failed."""


class HealthHistory:
    """The last changes of a connection's state, oldest first."""

    def __init__(self) -> None:
        self._changes = deque([UpstreamState(status=UpstreamStatus.IDLE, since=time.time())], MAX_HEALTH_CHANGES)

    @property
    def state(self) -> UpstreamState:
        return self._changes[-1]

    @property
    def changes(self) -> Sequence[UpstreamState]:
        return tuple(self._changes)

    def record(self, status: UpstreamStatus, reason: str = "") -> None:
        """Add a change; the same state as before is not a change."""
        if (status, reason) != (self.state.status, self.state.reason):
            self._changes.append(UpstreamState(status=status, since=time.time(), reason=reason))


class CredentialSource(Protocol):
    """Adds the credentials of a caller to requests to a server."""

    async def headers(self, server: McpServer, context: CallContext) -> Mapping[str, str]:
        """Return headers for a request. Raises `PaddockError` if the caller must sign in first."""
        ...

    async def on_challenge(
        self, server: McpServer, context: CallContext, status: int, www_authenticate: str | None
    ) -> bool:
        """Handle a refusal with status 401 or 403; True if the request should be repeated with new headers."""
        ...


class NoCredentials:
    """Credentials of servers that need none beyond their configured headers."""

    async def headers(self, server: McpServer, context: CallContext) -> Mapping[str, str]:
        return {}

    async def on_challenge(
        self, server: McpServer, context: CallContext, status: int, www_authenticate: str | None
    ) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """A piece of a program's output."""

    stream: Literal["stdout", "stderr"]
    data: bytes


class Program(Protocol):
    """A program in a sandbox."""

    async def write(self, data: bytes) -> None:
        """Write to the program's standard input. Raises `PaddockError` if it has ended."""
        ...

    async def read(self) -> ProgramOutput | None:
        """Return the next piece of output, or None after the program's end. Raises `PaddockError`."""
        ...

    async def close(self) -> int | None:
        """End the program if it runs; return its exit code if known."""
        ...


class ProgramStarter(Protocol):
    """Starts programs in sandboxes."""

    async def start(
        self, tenant: str, sandbox: str, name: str, command: Sequence[str], environment: Mapping[str, str]
    ) -> Program:
        """Start the command of a server in a sandbox. Raises `PaddockError`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamDependencies:
    client: McpHttpClient
    """Connections to servers of the kind `remote`; private addresses as the operator allows."""
    internet_client: McpHttpClient | None = None
    """Connections to servers of the kind `internet`: public addresses only."""
    secrets: SecretLookup = lambda name: None
    credentials: CredentialSource = field(default_factory=NoCredentials)
    programs: ProgramStarter | None = None

    def client_for(self, server: McpServer) -> McpHttpClient:
        """Return the client for a server's kind. Raises `Unavailable`, and `Forbidden` for an address without TLS."""
        is_loopback = urlsplit(server.url or "").hostname in LOOPBACK_NAMES
        if server.sort is not McpKind.INTERNET or is_loopback:
            return self.client
        if self.internet_client is None:
            raise Unavailable(f"the MCP server {server.name} is on the internet, which is not reachable from here")
        if not (server.url or "").startswith("https:"):
            raise Forbidden(f"the MCP server {server.name} is on the internet; its address must begin with https")
        return self.internet_client


class Upstream(ABC):
    """A connection to one MCP server, shared by all its callers. Connects on first use."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self._health = HealthHistory()

    @property
    def state(self) -> UpstreamState:
        return self._health.state

    @property
    def health_history(self) -> Sequence[UpstreamState]:
        """The last changes of the state, oldest first."""
        return self._health.changes

    @abstractmethod
    def exchange(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        """Send a request to the server, as described at `McpEndpoint`."""

    @abstractmethod
    async def close(self) -> None:
        """End all calls, sessions and programs."""
