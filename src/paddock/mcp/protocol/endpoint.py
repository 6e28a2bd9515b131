"""The one contract of the gateway: an endpoint answers a request with notifications and one response.

Servers, the guards around them, aggregates of several servers and the client of the gRPC transport are all endpoints,
and can be stacked. An endpoint speaks the stateless form of revision 2026-07-28, whatever its peer speaks:

- Each request stands alone and has the revision, the client's capabilities and its log level in `params._meta`.
- `server/discover` returns capabilities, server information and instructions.
- A server that needs input of the client answers `tools/call`, `prompts/get` or `resources/read` with a result of type
  `input_required`; the client repeats the request with `inputResponses` and the `requestState` of that result.
- `subscriptions/listen` is a long exchange of notifications.
- Closing the generator cancels the request.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from paddock.mcp.protocol.messages import JsonRpcMessage

Origin: TypeAlias = Literal["http", "sandbox", "chat", "run", "grpc", "console"]
"""Where a request comes from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """The authenticated sender of a request. Nothing of it comes from the message."""

    tenant: str
    caller: str
    """Id of the key or user, for access rules, limits, credentials and records."""
    names: tuple[str, ...] = ()
    """Further names of the caller for access rules: its user, and the name of its key."""
    agent: str | None = None
    """Engine or preset of the agent that calls, such as `claude-code`."""
    origin: Origin = "http"
    sandbox: str | None = None
    run: str | None = None
    session: str | None = None
    """Chat session."""
    client_session: str | None = None
    """MCP session of a client of an older revision; it keeps a session of its own with servers that have sessions."""
    deadline: float | None = None
    """Time of the event loop at which the caller stops waiting."""


class McpEndpoint(Protocol):
    """Answers requests of MCP clients. May be called concurrently."""

    def exchange(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        """Yield the notifications of a request, then exactly one response with the request's id.

        A JSON-RPC error of the server is a response. Raises `PaddockError` if the server cannot be asked or does not
        answer: `Unavailable` with the reason, `SandboxTimeout`-like errors on time-outs, `Forbidden`, `NotFound`,
        `QuotaExceeded`; edges convert them to JSON-RPC errors.
        """
        ...


EndpointResolver: TypeAlias = Callable[[str, CallContext], McpEndpoint]
"""Returns the endpoint of a path for a caller: `NAME`, `` for all servers, or `sets/NAME`.

Raises `NotFound` and `Forbidden`."""
