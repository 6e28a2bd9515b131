"""The program of a server in one sandbox: started on first use, restarted with back-off, ended when idle."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Raw

from paddock.errors import McpTimeout, PaddockError, Unavailable
from paddock.mcp.protocol import CallContext, JsonRpcMessage
from paddock.mcp.protocol.messages import UNSUPPORTED_VERSION, encode_value
from paddock.mcp.protocol.revisions import LEGACY_REVISIONS, STATELESS_REVISION
from paddock.mcp.upstreams.base import HealthHistory, Program, UpstreamStatus
from paddock.mcp.upstreams.call_clock import CallClock
from paddock.mcp.upstreams.programs.program_channel import ProgramChannel
from paddock.mcp.upstreams.request_fields import RequestFields, error_code, raw_object
from paddock.mcp.upstreams.retry_delay import RetryDelay
from paddock.mcp.upstreams.sessions.notification_fields import NotificationFields
from paddock.mcp.upstreams.sessions.session_channel import SessionRefused
from paddock.mcp.upstreams.sessions.session_handshake import discover_revision, initialize_session
from paddock.mcp.upstreams.sessions.session_pool import SessionEntry, SessionPool
from paddock.mcp.upstreams.sessions.subscriptions import Subscriptions
from paddock.mcp.upstreams.sessions.upstream_session import UpstreamSession
from paddock.model.mcp import McpServer

PROBE_TIME = 5.0
"""Seconds after which a program that ignores the probe is asked for a session."""
STABLE_TIME = 30.0
"""Seconds after which a program that ends is restarted at once."""
_KEY = ("program",)


class ProgramEra:
    """The revision that programs of a server speak; the same in all sandboxes."""

    is_stateless: bool | None = None


class ProgramSessions(SessionPool):
    """Requests to one program; all clients in the sandbox share it."""

    def __init__(
        self,
        server: McpServer,
        start_program: Callable[[], Awaitable[Program]],
        era: ProgramEra,
        health: HealthHistory,
        on_notification: Callable[[JsonRpcMessage], None],
        on_started: Callable[[], None],
    ) -> None:
        super().__init__(server, self._open_program_channel, on_notification)
        self._start_program = start_program
        self._era = era
        self._health = health
        self._on_started = on_started
        self._retry = RetryDelay()
        self._starting: asyncio.Future[SessionEntry] | None = None
        self._started_at = 0.0
        self._capabilities: dict[str, Raw] = {}
        """Capabilities of all clients so far; a program that takes no new ones is restarted."""

    async def is_stateless(self, fields: RequestFields, context: CallContext) -> bool:
        return (await self._entry(fields, context)).session.is_stateless

    async def close(self) -> None:
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
        await super().close()

    def _open_program_channel(self) -> ProgramChannel:
        return ProgramChannel(self._server, self._start_program)

    async def _entry(self, fields: RequestFields, context: CallContext) -> SessionEntry:
        entry = self._entries.get(_KEY)
        is_new = self._add_capabilities(fields)
        if entry is not None and not (is_new and not entry.session.is_stateless and entry.is_idle):
            return entry
        if entry is not None:
            self._discard(entry)
        if self._starting is None or self._starting.done():
            self._retry.check(time.monotonic())
            self._starting = asyncio.get_running_loop().create_future()
            if self._tasks.spawn(self._start(self._starting, fields, context)) is None:
                raise Unavailable(f"the connection to the MCP server {self._server.name} was closed")
        began = time.monotonic()
        clock = CallClock(self._server, context, self._server.timeouts.start + 1)
        try:
            async with clock.wait():
                return await asyncio.shield(self._starting)
        except TimeoutError:
            waited = f"{time.monotonic() - began:.1f} s"
            raise McpTimeout(
                f"the MCP server {self._server.name} is still starting after {waited}; try again in a moment"
            ) from None

    def _add_capabilities(self, fields: RequestFields) -> bool:
        """Remember a client's capabilities; return whether some are new."""
        found = raw_object(fields.meta.capabilities)
        new = {name: value for name, value in found.items() if name not in self._capabilities}
        self._capabilities |= new
        return bool(new)

    async def _start(self, started: asyncio.Future[SessionEntry], fields: RequestFields, context: CallContext) -> None:
        """Start the program for all waiting requests. The start outlives the request that caused it."""
        self._health.record(UpstreamStatus.STARTING)
        patient = CallContext(tenant=context.tenant, caller=context.caller, sandbox=context.sandbox)
        try:
            entry = await self._open_entry(fields, patient)
        except PaddockError as error:
            self._retry.failed(time.monotonic(), Unavailable(error.message))
            self._health.record(UpstreamStatus.FAILED, error.message)
            if not started.done():
                started.set_exception(error)
                started.exception()  # Mark as retrieved: the caller may have left.
            return
        except BaseException:
            started.cancel()
            raise
        self._started_at = time.monotonic()
        self._entries[_KEY] = entry
        self._on_started()
        self._health.record(UpstreamStatus.READY)
        if not started.done():
            started.set_result(entry)
        self._release_unused(entry)

    async def _open_entry(self, fields: RequestFields, context: CallContext) -> SessionEntry:
        clock = CallClock(self._server, context, self._server.timeouts.start)
        for _ in range(2):
            entry = self._new_entry()
            try:
                await entry.session.open(context, clock)
                if await self._handshake(entry.session, fields, context, clock):
                    return entry
            except McpTimeout:
                shown = self._error_output(entry.session)
                await entry.session.close()
                limit = f"{self._server.timeouts.start:g} s"
                raise McpTimeout(
                    f"the MCP server {self._server.name} did not start within {limit}{shown}; see its timeouts.start"
                ) from None
            except SessionRefused:
                await entry.session.close()
                if self._era.is_stateless is None:
                    raise
                self._era.is_stateless = None  # Another version of the program may be installed now.
                continue
            except BaseException:
                await entry.session.close()
                raise
            await entry.session.close()
        raise Unavailable(f"the MCP server {self._server.name} changes its revision with each start")

    def _new_entry(self) -> SessionEntry:
        def on_notification(message: JsonRpcMessage, found: NotificationFields) -> None:
            subscriptions.publish(message, found)
            self._on_notification(message)

        def on_closed(error: PaddockError) -> None:
            subscriptions.close(error)
            self._on_program_ended(session, error)

        session = UpstreamSession(self._server, self._open_channel(), self._suspended, on_notification, on_closed)
        subscriptions = Subscriptions(session)
        return SessionEntry(session, subscriptions)

    async def _handshake(
        self, session: UpstreamSession, fields: RequestFields, context: CallContext, clock: CallClock
    ) -> bool:
        """Find out the revision and start the session; False if the program must be started again for that."""
        meta = msgspec.structs.replace(fields.meta, capabilities=encode_value(self._capabilities))
        declared = RequestFields(meta=meta)
        if self._era.is_stateless is False:
            await initialize_session(session, declared, context, clock)
            return True
        discovery = asyncio.ensure_future(discover_revision(session, context, clock))
        try:
            await asyncio.wait([discovery], timeout=None if self._era.is_stateless else PROBE_TIME)
            if not discovery.done():
                # Programs of older revisions may ignore the probe, others may only be slow to start.
                opening = asyncio.ensure_future(initialize_session(session, declared, context, clock))
                try:
                    await asyncio.wait([discovery, opening], return_when=asyncio.FIRST_COMPLETED)
                    if not discovery.done():
                        await opening
                        self._era.is_stateless = False
                        return True
                finally:
                    opening.cancel()
                    await asyncio.wait([opening])
                # The session that was asked for meanwhile may have changed the program's behaviour.
                self._era.is_stateless = _is_stateless(discovery.result())
                return False
            self._era.is_stateless = session.is_stateless = _is_stateless(await discovery)
            if not session.is_stateless:
                self._era.is_stateless = None
                await initialize_session(session, declared, context, clock)
                self._era.is_stateless = False
            return True
        finally:
            discovery.cancel()
            await asyncio.wait([discovery])

    def _on_program_ended(self, session: UpstreamSession, error: PaddockError) -> None:
        entry = self._entries.get(_KEY)
        if entry is None or entry.session is not session:
            return
        del self._entries[_KEY]
        self._tasks.spawn(self._end(entry))
        now = time.monotonic()
        if now - self._started_at > STABLE_TIME:
            self._retry.succeeded()
        self._retry.failed(now, Unavailable(error.message))
        self._health.record(UpstreamStatus.FAILED, error.message)

    def _error_output(self, session: UpstreamSession) -> str:
        channel = session.channel
        shown = channel.error_output() if isinstance(channel, ProgramChannel) else ""
        return f": {shown}" if shown else ""

    def _on_idle(self, entry: SessionEntry) -> None:
        super()._on_idle(entry)
        if entry.is_discarded:
            self._health.record(UpstreamStatus.IDLE)


def _is_stateless(response: JsonRpcMessage) -> bool:
    """Return whether a program's answer to discovery is one of the stateless revision."""
    if isinstance(response.result, Raw):
        versions = response.result_object().get("supportedVersions")
        return isinstance(versions, list) and STATELESS_REVISION in versions
    if error_code(response) != UNSUPPORTED_VERSION:
        return False
    data = response.error_object().get("data")
    supported = data.get("supported") if isinstance(data, dict) else None
    return not (isinstance(supported, list) and any(each in LEGACY_REVISIONS for each in supported))
