"""Keeps one connection per server, opened on first use and closed when it is idle or its declaration changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Protocol

import structlog

from paddock.mcp.gateway.server_directory import DeclaredServer
from paddock.mcp.protocol import CallContext, JsonRpcMessage
from paddock.model.mcp import McpServer

CHECK_SECONDS = 5.0
RETIRE_SECONDS = 30.0
"""Seconds that exchanges under way may continue after the declaration of their server has changed."""
CLOSE_SECONDS = 10.0
PoolKey = tuple[str, str, str, str]
log = structlog.get_logger()


class ClosableEndpoint(Protocol):
    """A connection to a server."""

    def exchange(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]: ...

    async def close(self) -> None: ...


OpenUpstream = Callable[[McpServer], ClosableEndpoint]


class PooledUpstream:
    """A connection with the number of its exchanges under way."""

    def __init__(self, declared: DeclaredServer, upstream: ClosableEndpoint) -> None:
        self.declared = declared
        self.upstream = upstream
        self.active = 0
        self.used_at = asyncio.get_running_loop().time()
        self.retired_at: float | None = None
        self.closers: list[Callable[[], Awaitable[None]]] = []
        """Called before the connection is closed."""

    async def exchange(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        self.active += 1
        try:
            async with aclosing(self.upstream.exchange(request, context)) as messages:
                async for message in messages:
                    yield message
        finally:
            self.active -= 1
            self.used_at = asyncio.get_running_loop().time()


class UpstreamPool:
    """Connections by server, and by sandbox for programs. Close it with `close`."""

    def __init__(self, open_upstream: OpenUpstream, idle_timeout: float) -> None:
        self._open_upstream = open_upstream
        self._idle_timeout = idle_timeout
        self._entries: dict[PoolKey, PooledUpstream] = {}
        self._retired: list[PooledUpstream] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._checking: asyncio.Task[None] | None = None
        self._closed = False

    def get(self, declared: DeclaredServer, context: CallContext) -> PooledUpstream:
        """Return the connection to a server, opened if needed; it connects by itself."""
        key = pool_key(declared, context.sandbox)
        found = self._entries.get(key)
        if found is not None:
            if found.declared.server is declared.server or found.declared.server == declared.server:
                return found
            self._retire(key)
        entry = PooledUpstream(declared, self._open_upstream(declared.server))
        self._entries[key] = entry
        if self._checking is None and not self._closed:
            self._checking = asyncio.create_task(self._check_periodically(), name="MCP connections")
        return entry

    def peek(self, declared: DeclaredServer, sandbox: str | None) -> PooledUpstream | None:
        """Return the connection to a server if it is open."""
        return self._entries.get(pool_key(declared, sandbox))

    @property
    def entries(self) -> Mapping[PoolKey, PooledUpstream]:
        return self._entries

    def forget_server(self, key: tuple[str, str, str]) -> None:
        """Close the connections to a removed server once their exchanges have ended."""
        for each in [each for each in self._entries if each[:3] == key]:
            self._retire(each)

    def forget_sandbox(self, sandbox_id: str) -> None:
        """Close the connections to the programs and the declared servers of a sandbox at once."""
        for key in [key for key in self._entries if key[3] == sandbox_id or key[:2] == ("sandbox", sandbox_id)]:
            self._close_soon(self._entries.pop(key))

    async def close(self) -> None:
        """Close all connections; exchanges under way end."""
        self._closed = True
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)
        for entry in [*self._entries.values(), *self._retired]:
            self._close_soon(entry)
        self._entries.clear()
        self._retired.clear()
        while self._closing:
            await asyncio.gather(*self._closing, return_exceptions=True)

    def _retire(self, key: PoolKey) -> None:
        entry = self._entries.pop(key)
        if not entry.active:
            self._close_soon(entry)
            return
        entry.retired_at = asyncio.get_running_loop().time()
        self._retired.append(entry)

    async def _check_periodically(self) -> None:
        while True:
            await asyncio.sleep(min(CHECK_SECONDS, self._idle_timeout / 4))
            self.close_unused()

    def close_unused(self) -> None:
        """Close connections of former declarations, and connections that are idle for long."""
        now = asyncio.get_running_loop().time()
        for key, entry in list(self._entries.items()):
            if not entry.active and now - entry.used_at > self._idle_timeout:
                self._close_soon(self._entries.pop(key))
        for entry in list(self._retired):
            if not entry.active or (entry.retired_at is not None and now - entry.retired_at > RETIRE_SECONDS):
                self._retired.remove(entry)
                self._close_soon(entry)

    def _close_soon(self, entry: PooledUpstream) -> None:
        task = asyncio.create_task(_close_entry(entry), name=f"close MCP server {entry.declared.name}")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def pool_key(declared: DeclaredServer, sandbox: str | None) -> PoolKey:
    """Return the key of a connection: a program runs once per sandbox, other servers are shared."""
    return (*declared.key, sandbox or "" if declared.is_local else "")


async def _close_entry(entry: PooledUpstream) -> None:
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            for closer in entry.closers:
                await closer()
            await entry.upstream.close()
    except TimeoutError:
        log.warning("could not close MCP server in time", server=entry.declared.name)
    except Exception as error:
        log.warning("could not close MCP server", server=entry.declared.name, error=repr(error))
