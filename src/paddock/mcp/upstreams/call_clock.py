"""Time limits of one exchange: without progress, in total, and the caller's own."""

from __future__ import annotations

import asyncio
import math

from paddock.errors import McpTimeout
from paddock.mcp.protocol import CallContext
from paddock.model.mcp import McpServer


class CallClock:
    """Limits the waits of an exchange. Each message from the server is progress."""

    def __init__(self, server: McpServer, context: CallContext, first: float | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._name = server.name
        self._silence = server.timeouts.call if first is None else first
        now = self._loop.time()
        self._total_at = now + server.timeouts.total
        self._deadline = math.inf if context.deadline is None else context.deadline
        self._silent_until = now + self._silence

    @classmethod
    def unlimited(cls, server: McpServer, context: CallContext) -> CallClock:
        """Limits of subscriptions, which may be silent for any time."""
        clock = cls(server, context, math.inf)
        clock._total_at = math.inf
        return clock

    def restart(self) -> None:
        """Count the time without progress from now."""
        self._silent_until = self._loop.time() + self._silence

    def wait(self) -> asyncio.Timeout:
        """Return a context manager that raises `TimeoutError` at the first limit."""
        until = min(self._silent_until, self._total_at, self._deadline)
        return asyncio.timeout_at(None if until == math.inf else until)

    def timeout_error(self) -> McpTimeout:
        """Return the error for the limit that was reached."""
        now = self._loop.time()
        if now >= self._deadline:
            return McpTimeout(f"the MCP server {self._name} did not answer before the caller's deadline")
        if now >= self._total_at:
            return McpTimeout(f"a call of the MCP server {self._name} took too long; see its timeouts.total")
        return McpTimeout(f"the MCP server {self._name} did not answer for {self._silence:g} s; see its timeouts")
