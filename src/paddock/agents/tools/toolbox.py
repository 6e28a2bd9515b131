"""The toolbox of a session: lists its tools, and routes calls to sandboxes and session tools."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from paddock.agents.engines.base import ToolSpec
from paddock.agents.session_files import SessionFiles
from paddock.agents.tools.call_output import STREAMING_TOOLS, CallOutputStream
from paddock.agents.tools.client_tools import client_tool_spec
from paddock.agents.tools.mcp_tools import SessionMcpTools
from paddock.agents.tools.session_sandboxes import AcquiredSandbox, SessionSandboxes
from paddock.agents.tools.session_tools import SessionToolRunner, session_tool_specs
from paddock.agents.tools.system_prompt import build_system_prompt
from paddock.agents.tools.tool_names import build_sandbox_tool_specs, default_sandbox_tools
from paddock.agents.tools.tool_results import ToolResultFormatter, failed_tool_result
from paddock.config.schema import Config
from paddock.errors import Conflict, PaddockError, SandboxError, SandboxNotFound, SandboxTimeout, SessionNotFound
from paddock.events.event_log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.live.services import LiveServices
from paddock.live.tools.tool_caller import InputHeldByPerson
from paddock.mcp.gateway.chat_tools import ChatTools
from paddock.model.sandbox import SESSION_KEY, Sandbox
from paddock.model.screens import SandboxKind, SandboxTool, ToolResult
from paddock.model.session_events import SessionEvent, SessionFile, SessionScreen
from paddock.model.sessions import CallResult, Session, ToolCall
from paddock.sandbox.daemon.tool_stream import OnOutput
from paddock.store.chat_sessions.session_store import SessionStore
from paddock.store.database import Store

TIMEOUT_MARGIN = 30.0
"""Seconds added to the timeout that a call gives itself."""
MAX_FILES = 50
"""Changed files reported for one call."""
log = structlog.get_logger()


class _CallStopwatch:
    """Duration of a call, without the image build and the start of its sandbox."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()

    @property
    def seconds(self) -> float:
        return round(self._loop.time() - self._start, 3)

    @contextmanager
    def paused(self) -> Iterator[None]:
        paused_at = self._loop.time()
        try:
            yield
        finally:
            self._start += self._loop.time() - paused_at


class SessionToolbox:
    """Route tool calls to the session's sandboxes, which are created on first use."""

    def __init__(
        self,
        config: Config,
        fleet: Fleet,
        live: LiveServices,
        events: EventLog,
        store: Store,
        files: SessionFiles,
        mcp: ChatTools | None = None,
    ) -> None:
        self._config = config
        self._fleet = fleet
        self._live = live
        self._events = events
        self._session_store = SessionStore(store)
        self._sandboxes = SessionSandboxes(config, fleet, events, store)
        self._result_formatter = ToolResultFormatter(files, config.chat.result_size)
        self._mcp = None if mcp is None else SessionMcpTools(mcp, self._sandboxes, self._result_formatter)
        self._default_tools: dict[str, tuple[SandboxTool, ...]] = {}
        self._spec_cache: dict[
            tuple[str, ...], tuple[list[SandboxKind], list[tuple[SandboxTool, ...]], tuple[ToolSpec, ...]]
        ] = {}
        """Cached tool specs by the session's kinds, with the kinds and tools they were built from."""
        self._session_tools = SessionToolRunner(
            fleet=fleet,
            live=live,
            sandboxes=self._sandboxes,
            session_store=self._session_store,
            events=events,
            files=files,
            result_formatter=self._result_formatter,
            max_file_size=config.chat.file_size,
            list_tools=self._current_tools,
        )

    async def list_tools(self, session: Session) -> tuple[ToolSpec, ...]:
        """List all tools: session tools, sandbox tools of every kind, and tools that the client runs.

        Tools of a kind are listed before its sandbox exists. The sandboxes are those of the given `Session` object.
        """
        server_tools = await self.list_server_tools(session)
        client_tools = await self._session_store.list_client_tools(session.id)
        if not client_tools:
            return server_tools
        taken_names = {spec.name for spec in server_tools}
        return (*server_tools, *(client_tool_spec(tool) for tool in client_tools if tool.name not in taken_names))

    async def list_server_tools(self, session: Session) -> tuple[ToolSpec, ...]:
        """List all tools of the session except its client's."""
        kinds = self._known_kinds(session)
        kind_tools = [await self._tools_of_kind(session, kind, session.sandboxes.get(kind.name)) for kind in kinds]
        cached = self._spec_cache.get(session.kinds)
        if cached is None or cached[:2] != (kinds, kind_tools):
            specs = {spec.name: spec for spec in session_tool_specs(kinds)}
            for kind, tools in zip(kinds, kind_tools, strict=True):
                for spec in build_sandbox_tool_specs(kind.name, tools):
                    specs.setdefault(spec.name, spec)
            cached = self._spec_cache[session.kinds] = kinds, kind_tools, tuple(specs.values())
        server_specs = () if self._mcp is None else await self._list_mcp_tools(session)
        if not server_specs:
            return cached[2]
        taken_names = {spec.name for spec in cached[2]}
        return (*cached[2], *(spec for spec in server_specs if spec.name not in taken_names))

    async def _list_mcp_tools(self, session: Session) -> tuple[ToolSpec, ...]:
        assert self._mcp is not None
        try:
            return await self._mcp.list_specs(session)
        except PaddockError as error:  # The sandbox of a program could not be started.
            log.warning("could not list MCP tools", session=session.id, error=error.message)
            return ()

    async def _current_tools(self, session: Session) -> tuple[ToolSpec, ...]:
        try:
            session = await self._session_store.get(session.id)
        except SessionNotFound:
            pass
        return await self.list_tools(session)

    async def system_prompt(self, session: Session) -> str:
        """Return the system prompt of the session."""
        return build_system_prompt(session, self._known_kinds(session))

    async def run_call(self, session: Session, turn: int, call: ToolCall, spec: ToolSpec) -> CallResult:
        """Run a call; failures are returned as failed results."""
        stopwatch = _CallStopwatch()
        try:
            if spec.server is not None and self._mcp is not None:
                async with asyncio.timeout(self._config.chat.call_timeout):
                    async with CallOutputStream(self._events, session, call) as output:
                        result = await self._mcp.run_call(session, call, spec, output.write)
            elif spec.kind is None:
                async with asyncio.timeout(self._config.chat.call_timeout):
                    result = await self._session_tools.run_tool(session, call, spec.tool)
            else:
                async with CallOutputStream(self._events, session, call) as output:
                    on_output = output.write if spec.tool in STREAMING_TOOLS else None
                    result = await self._run_in_sandbox(session, call, spec, spec.kind, on_output, stopwatch)
        except PaddockError as error:
            result = failed_tool_result(error.message)
        except TimeoutError:
            result = failed_tool_result("The call timed out. It may have been done in part.")
        except Exception as error:
            log.exception("call failed unexpectedly", session=session.id, call=call.id)
            result = failed_tool_result(f"internal server error ({type(error).__name__}); see the server log")
        return result.model_copy(update={"seconds": stopwatch.seconds})

    async def release_sandboxes(self, session: Session, reason: str) -> None:
        """Delete the session's sandboxes and emit the change; their workspaces are kept. Idempotent."""
        await self._sandboxes.release_all(session, reason)

    async def is_attended(self, session: Session) -> bool:
        """Return whether a person controls or watches a sandbox of the session; extends its life."""
        attended = [
            sandbox_id
            for sandbox_id in session.sandboxes.values()
            if self._live.leases.has_holder_or_viewers(sandbox_id) or self._live.desktops.viewer_count(sandbox_id)
        ]
        for sandbox_id in attended:
            await self._sandboxes.extend_life(session, sandbox_id)
        return bool(attended)

    async def delete_sandboxes(self, session: Session) -> None:
        """Delete the session's sandboxes and workspaces. Idempotent."""
        await self._sandboxes.delete_all(session)

    async def share_sandboxes(self, session: Session) -> None:
        """Give the session's sandboxes the visibility of the session."""
        await self._fleet.share_owned(session.tenant, {SESSION_KEY: session.id}, session)

    def check_mcp_servers(self, session: Session) -> None:
        """Raise `InvalidInput` for names of unknown MCP servers."""
        if self._mcp is not None:
            self._mcp.check_names(session, session.mcp or ())

    def check_network(self, tenant: str, policy: tuple[str, ...]) -> None:
        """Raise `InvalidInput` or `Unsupported` for a policy of which nothing can be granted."""
        self._fleet.check_network(tenant, policy)

    async def change_network(self, session: Session) -> None:
        """Give the session's running sandboxes the network policy of the session."""
        await self._sandboxes.change_network(session)

    async def close(self) -> None:
        """Wait for sandboxes that are being created; sandboxes keep running."""
        await self._sandboxes.close()

    async def get_sandbox(self, session: Session, kind: str) -> Sandbox:
        """Return the session's sandbox of a kind; create it if missing."""
        return (await self._sandboxes.acquire(session, kind)).sandbox

    def _known_kinds(self, session: Session) -> list[SandboxKind]:
        """Return the session's kinds that are still configured."""
        kinds_by_name = {kind.name: kind for kind in self._fleet.kinds}
        return [kinds_by_name[name] for name in session.kinds if name in kinds_by_name]

    async def _tools_of_kind(
        self, session: Session, kind: SandboxKind, sandbox_id: str | None
    ) -> tuple[SandboxTool, ...]:
        """Return the tools that the sandbox reports, or the defaults of its kind if it does not answer."""
        if sandbox_id is not None:
            try:
                reported_tools = await self._live.tools.list_tools(session.tenant, sandbox_id)
            except PaddockError:
                reported_tools = ()
            if reported_tools:
                return reported_tools
        if kind.name not in self._default_tools:
            self._default_tools[kind.name] = await asyncio.to_thread(default_sandbox_tools, kind)
        return self._default_tools[kind.name]

    async def _run_in_sandbox(
        self,
        session: Session,
        call: ToolCall,
        spec: ToolSpec,
        kind: str,
        on_output: OnOutput | None,
        stopwatch: _CallStopwatch,
    ) -> CallResult:
        with stopwatch.paused():
            acquired = await self._sandboxes.acquire(session, kind)
        notes = [acquired.note]
        limit = self._call_timeout(call)
        for can_retry in (True, False):
            try:
                result = await self._live.tools.call_tool(
                    session.tenant, acquired.sandbox.id, spec.tool, call.arguments, timeout=limit, on_output=on_output
                )
            except InputHeldByPerson as error:
                return failed_tool_result(f"Nothing was done: {error.message}.", *notes)
            except (SandboxError, SandboxNotFound, Conflict) as error:
                may_have_run = isinstance(error, SandboxError)
                loss_reason = await self._sandboxes.check_lost(session, kind, acquired.sandbox)
                if loss_reason is None and may_have_run:
                    return failed_tool_result(_failed_in_sandbox(error, limit), *notes)
                # Read-only calls are safe to repeat.
                if not can_retry or (may_have_run and spec.effect != "none"):
                    return failed_tool_result(_lost_sandbox_message(kind, loss_reason or error.message, spec), *notes)
                with stopwatch.paused():
                    acquired = await self._sandboxes.acquire(session, kind)
                notes.append(acquired.note)
            except PaddockError as error:
                return failed_tool_result(error.message, *notes)
            else:
                await self._emit_changes(session, kind, acquired, spec, result)
                return await self._result_formatter.format_result(session.id, spec.name, result, *notes)
        raise AssertionError("the second try returns")

    def _call_timeout(self, call: ToolCall) -> float:
        """Return the timeout of a call: its own `timeout` argument plus a margin, capped by the configuration."""
        max_timeout, requested = self._config.chat.call_timeout, call.arguments.get("timeout")
        if isinstance(requested, int | float) and not isinstance(requested, bool) and requested > 0:
            return min(max_timeout, requested + TIMEOUT_MARGIN)
        return max_timeout

    async def _emit_changes(
        self, session: Session, kind: str, acquired: AcquiredSandbox, spec: ToolSpec, result: ToolResult
    ) -> None:
        """Emit events for files and screens that the call changed."""
        sandbox = acquired.sandbox.id
        events: list[SessionEvent] = [
            SessionFile(kind=kind, sandbox_id=sandbox, path=path[:4096]) for path in result.files[:MAX_FILES]
        ]
        try:
            if self._fleet.kinds.get(kind).screen:
                tools = {tool.name: tool for tool in await self._live.tools.list_tools(session.tenant, sandbox)}
                tool = tools.get(spec.tool)
                if tool is not None and (tool.changes_screen or "screenshot" in tool.name):
                    events.append(SessionScreen(kind=kind, sandbox_id=sandbox, cause=spec.name))
            if events:
                await self._sandboxes.emit(session, *events)
        except PaddockError as error:  # The call itself succeeded.
            log.warning("could not emit changes of a call", session=session.id, error=error.message)


def _failed_in_sandbox(error: PaddockError, limit: float) -> str:
    if isinstance(error, SandboxTimeout):
        return (
            f"There was no answer within {limit:.0f} seconds, and the call was stopped. It may have been done in part."
        )
    return f"The sandbox is running, but the call failed: {error.message}. It may or may not have been done."


def _lost_sandbox_message(kind: str, loss_reason: str, spec: ToolSpec) -> str:
    warning = "" if spec.effect == "none" else " It may have been done in part; check before you repeat it."
    return (
        f"The {kind} sandbox was lost while {spec.name} was running: {loss_reason}.{warning} "
        "The next call creates a new one, with the same /workspace; everything else is gone."
    )
