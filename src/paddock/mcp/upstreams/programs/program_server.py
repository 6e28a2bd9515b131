"""A server that is a program in sandboxes: one process for each sandbox that uses it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from paddock.errors import InvalidInput, Unavailable
from paddock.mcp.protocol import CallContext, JsonRpcMessage
from paddock.mcp.upstreams.base import (
    HealthHistory,
    Program,
    Upstream,
    UpstreamDependencies,
    UpstreamState,
    UpstreamStatus,
)
from paddock.mcp.upstreams.programs.program_sessions import ProgramEra, ProgramSessions
from paddock.mcp.upstreams.response_cache import ResponseCache
from paddock.model.mcp import McpServer


class SandboxProgram:
    """The program in one sandbox, with the lists it gave."""

    def __init__(self, sessions: ProgramSessions, cache: ResponseCache, health: HealthHistory) -> None:
        self.sessions = sessions
        self.cache = cache
        self.health = health


class ProgramServer(Upstream):
    """A program that speaks MCP on its standard streams."""

    def __init__(self, server: McpServer, dependencies: UpstreamDependencies) -> None:
        super().__init__(server)
        self._starter = dependencies.programs
        self._programs: dict[tuple[str, str], SandboxProgram] = {}
        self._era = ProgramEra()
        self._is_closed = False

    def sandbox_state(self, sandbox: str) -> UpstreamState:
        """Return the state of the program in a sandbox."""
        found = next((each for (_, id), each in self._programs.items() if id == sandbox), None)
        return (found.health if found is not None else HealthHistory()).state

    async def exchange(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        if not isinstance(request.id, (int, str)):
            raise InvalidInput("a request needs an id")
        program = self._program_of(context)
        slot = program.cache.slot(request, context)
        if slot is not None and (kept := program.cache.find(slot)) is not None:
            yield JsonRpcMessage(id=request.id, result=kept)
            return
        async with aclosing(program.sessions.exchange(request, context)) as messages:
            async for message in messages:
                if slot is not None and message.is_response:
                    program.cache.keep(slot, message)
                yield message

    async def end_sandbox(self, sandbox: str) -> None:
        """End the program of a sandbox that has ended."""
        for key in [key for key in self._programs if key[1] == sandbox]:
            await self._programs.pop(key).sessions.close()

    async def close(self) -> None:
        self._is_closed = True
        while self._programs:
            await self._programs.popitem()[1].sessions.close()

    def _program_of(self, context: CallContext) -> SandboxProgram:
        name = self.server.name
        if context.sandbox is None:
            raise Unavailable(f"the MCP server {name} is a program in sandboxes; call it from a sandbox, run or chat")
        if self._is_closed or self._starter is None:
            raise Unavailable(f"the MCP server {name} cannot be started here")
        key = (context.tenant, context.sandbox)
        if key not in self._programs:
            cache, health = ResponseCache(), _SharedHealth(self._health)
            sessions = ProgramSessions(
                self.server,
                lambda: self._start_program(*key),
                self._era,
                health,
                cache.on_notification,
                on_started=cache.clear,
            )
            self._programs[key] = SandboxProgram(sessions, cache, health)
        return self._programs[key]

    async def _start_program(self, tenant: str, sandbox: str) -> Program:
        assert self._starter is not None
        server = self.server
        return await self._starter.start(tenant, sandbox, server.name, server.command, server.env)


class _SharedHealth(HealthHistory):
    """History of one sandbox's program, which is part of the server's history."""

    def __init__(self, shared: HealthHistory) -> None:
        super().__init__()
        self._shared = shared

    def record(self, status: UpstreamStatus, reason: str = "") -> None:
        super().record(status, reason)
        self._shared.record(status, reason)
