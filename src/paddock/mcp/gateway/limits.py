"""Bounds of calls: how many at once, how many per minute, and how large, by server, tool, tenant and sandbox."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Hashable, Iterator
from contextlib import aclosing

from msgspec import Raw

from paddock.config.mcp import McpConfig
from paddock.errors import QuotaExceeded, TooLarge
from paddock.mcp.gateway.envelopes import raw_object, raw_text
from paddock.mcp.gateway.server_directory import DeclaredServer
from paddock.mcp.gateway.tool_names import matches_pattern
from paddock.mcp.gateway.tool_rules import TOOLS_CALL
from paddock.mcp.protocol import CallContext, JsonRpcMessage, McpEndpoint
from paddock.mcp.protocol.revisions import LISTEN
from paddock.model.mcp import McpToolLimits

CALL_METHODS = frozenset({TOOLS_CALL, "resources/read", "prompts/get"})
"""Methods that count as calls, and that are recorded."""
WAIT_SECONDS = 5.0
"""Time for which a call waits for others to end before it is refused."""
MAX_LISTENERS = 200
"""Open `subscriptions/listen` of one server and caller, or sandbox."""
MAX_WAITING = 1000
MAX_RATES = 50_000
MINUTE = 60.0


class _Gate:
    """Admits some calls at a time, in the order in which they came."""

    __slots__ = ("active", "waiting")

    def __init__(self) -> None:
        self.active = 0
        self.waiting: deque[asyncio.Future[None]] = deque()


class ConcurrencyGates:
    """Gates by key; gates without calls are dropped."""

    def __init__(self, wait: float = WAIT_SECONDS) -> None:
        self._wait = wait
        self._gates: dict[Hashable, _Gate] = {}

    def active(self, key: Hashable) -> int:
        found = self._gates.get(key)
        return 0 if found is None else found.active

    async def acquire(self, key: Hashable, limit: int, what: str) -> None:
        """Enter a gate, after a short wait if it is full. Raises `QuotaExceeded`."""
        gate = self._gates.get(key)
        if gate is None:
            gate = self._gates[key] = _Gate()
        if gate.active < limit and not gate.waiting:
            gate.active += 1
            return
        if len(gate.waiting) >= MAX_WAITING:
            raise QuotaExceeded(f"{what} has {limit} calls under way, and many wait; try again later.")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        gate.waiting.append(turn)
        try:
            async with asyncio.timeout(self._wait):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.release(key)  # The turn came at the same moment.
            elif turn in gate.waiting:
                gate.waiting.remove(turn)
            if isinstance(error, TimeoutError):
                raise QuotaExceeded(f"{what} has {limit} calls under way; try again later.") from None
            raise

    def release(self, key: Hashable) -> None:
        gate = self._gates[key]
        while gate.waiting:
            turn = gate.waiting.popleft()
            if not turn.done():
                turn.set_result(None)  # The place passes on.
                return
        gate.active -= 1
        if not gate.active:
            del self._gates[key]


class CallRates:
    """Calls per minute by key, from the counts of this and the last minute."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._counts: OrderedDict[Hashable, tuple[int, int, int]] = OrderedDict()
        """Minute, calls in it, and calls in the one before."""

    def count(self, key: Hashable, limit: int, what: str) -> None:
        """Count a call. Raises `QuotaExceeded` with the time to wait."""
        now = self._now()
        minute, part = int(now // MINUTE), now % MINUTE / MINUTE
        at, current, last = self._counts.get(key, (minute, 0, 0))
        if at != minute:
            current, last = 0, current if at == minute - 1 else 0
        if current + last * (1 - part) >= limit:
            self._counts[key] = minute, current, last
            raise QuotaExceeded(f"{what} may have {limit} calls per minute; try again in {self._pause(part)} seconds.")
        self._counts[key] = minute, current + 1, last
        self._counts.move_to_end(key)
        if len(self._counts) > MAX_RATES:
            self._counts.popitem(last=False)

    @staticmethod
    def _pause(part: float) -> int:
        return max(1, round((1 - part) * MINUTE))


class GatewayLimits:
    """The counts that all servers share."""

    def __init__(self, settings: McpConfig, wait: float = WAIT_SECONDS) -> None:
        self.settings = settings
        self.gates = ConcurrencyGates(wait)
        self.rates = CallRates()


class LimitedEndpoint:
    """Applies the limits of one server, of tenants and of sandboxes."""

    def __init__(self, inner: McpEndpoint, declared: DeclaredServer, shared: GatewayLimits) -> None:
        self._inner = inner
        self._declared = declared
        self._limits = declared.server.limits
        self._shared = shared

    async def exchange(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        name = self._declared.name
        size = len(memoryview(request.params)) if isinstance(request.params, Raw) else 0
        if size > self._limits.request_size:
            raise TooLarge(f"The request to the MCP server {name} is larger than {self._limits.request_size} bytes.")
        tool = self._limited_tool(request)
        if request.method in CALL_METHODS:
            self._count_call(tool, context)
        held: list[Hashable] = []
        received = 0
        bound = None if request.method == LISTEN else self._limits.response_size
        try:
            for key, limit, what in self._gates(request, tool, context):
                await self._shared.gates.acquire(key, limit, what)
                held.append(key)
            async with aclosing(self._inner.exchange(request, context)) as messages:
                async for message in messages:
                    if bound is not None:
                        received += _content_size(message)
                        if received > bound:
                            raise TooLarge(f"The response of the MCP server {name} is larger than {bound} bytes.")
                    yield message
        finally:
            for key in held:
                self._shared.gates.release(key)

    def _limited_tool(self, request: JsonRpcMessage) -> tuple[str, McpToolLimits] | None:
        if not self._limits.tools or request.method != TOOLS_CALL:
            return None
        name = raw_text(raw_object(request.params, "params").get("name", Raw(b"null"))) or ""
        own = {offered: own for own, offered in self._declared.server.tools.rename.items()}.get(name, name)
        for pattern, limits in self._limits.tools.items():
            if matches_pattern(own, (pattern,)):
                return own, limits
        return None

    def _count_call(self, tool: tuple[str, McpToolLimits] | None, context: CallContext) -> None:
        server, rates = self._declared, self._shared.rates
        tenant, sandbox = self._shared.settings.tenant_limits, self._shared.settings.sandbox_limits
        caller = (context.tenant, context.caller)
        if self._limits.calls_per_minute is not None:
            rates.count((server.key, caller), self._limits.calls_per_minute, f"A caller of {server.name}")
        if tool is not None and tool[1].calls_per_minute is not None:
            what = f"A caller of the tool {tool[0][:100]}"
            rates.count((server.key, tool[0], caller), tool[1].calls_per_minute, what)
        if tenant.calls_per_minute is not None:
            rates.count(("tenant", context.tenant), tenant.calls_per_minute, f"The tenant {context.tenant}")
        if sandbox.calls_per_minute is not None and context.sandbox is not None:
            rates.count(("sandbox", context.sandbox), sandbox.calls_per_minute, "A sandbox")

    def _gates(
        self, request: JsonRpcMessage, tool: tuple[str, McpToolLimits] | None, context: CallContext
    ) -> Iterator[tuple[Hashable, int, str]]:
        # The narrowest limit first: a call that waits for it must not occupy a slot of a wider one.
        server = self._declared
        if request.method == LISTEN:
            yield ("listen", server.key, context.tenant, context.caller, context.sandbox), MAX_LISTENERS, "A caller"
            return
        tenant, sandbox = self._shared.settings.tenant_limits, self._shared.settings.sandbox_limits
        if sandbox.concurrency is not None and context.sandbox is not None:
            yield ("sandbox", context.sandbox), sandbox.concurrency, "This sandbox"
        if tenant.concurrency is not None:
            yield ("tenant", context.tenant), tenant.concurrency, f"The tenant {context.tenant}"
        place = context.sandbox if server.is_local else None
        if tool is not None and tool[1].concurrency is not None:
            yield (server.key, place, tool[0]), tool[1].concurrency, f"The tool {tool[0][:100]}"
        yield (server.key, place), self._limits.concurrency, f"The MCP server {server.name}"


def _content_size(message: JsonRpcMessage) -> int:
    parts = (message.params, message.result, message.error)
    return sum(len(memoryview(part)) for part in parts if isinstance(part, Raw))
