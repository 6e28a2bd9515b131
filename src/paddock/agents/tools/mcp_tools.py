"""Tools of MCP servers among the tools of a session."""

from __future__ import annotations

from collections.abc import Callable

from paddock.agents.engines.base import ToolSpec
from paddock.agents.tools.session_sandboxes import SessionSandboxes
from paddock.agents.tools.tool_results import ToolResultFormatter
from paddock.live.tools.tool_result_validation import parse_tool_result
from paddock.mcp.declared_servers import AGENT_EXTENSION, ALL_SERVERS_EXTENSION, mcp_servers_extension
from paddock.mcp.gateway.chat_tools import ChatTool, ChatTools, result_parts
from paddock.mcp.protocol import CallContext
from paddock.model.mcp import TaskMcpServer
from paddock.model.sessions import CallResult, Session, ToolCall


class SessionMcpTools:
    """Lists and calls the MCP tools of sessions. Programs run in the session's first sandbox."""

    def __init__(self, tools: ChatTools, sandboxes: SessionSandboxes, formatter: ToolResultFormatter) -> None:
        self._tools = tools
        self._sandboxes = sandboxes
        self._formatter = formatter

    async def list_specs(self, session: Session) -> tuple[ToolSpec, ...]:
        """Describe the tools for the model."""
        if session.mcp == ():
            return ()
        context = session_context(session)
        if session.mcp is not None and session.kinds and self._tools.has_programs(session.mcp, context):
            # Their tools are unknown before they run.
            context = await self._with_sandbox(session)
        return tuple(map(_tool_spec, await self._tools.list_tools(session.mcp, context)))

    async def run_call(
        self, session: Session, call: ToolCall, spec: ToolSpec, on_progress: Callable[[str], None]
    ) -> CallResult:
        """Call a tool. Raises `PaddockError`."""
        assert spec.server is not None
        context = session_context(session)
        if session.kinds and self._tools.has_programs((spec.server,), context):
            context = await self._with_sandbox(session)
        result = await self._tools.call_tool(spec.server, spec.tool, call.arguments, context, on_progress)
        parsed = parse_tool_result({**result, "content": result_parts(result), "_meta": {}})
        return await self._formatter.format_result(session.id, spec.name, parsed)

    def check_names(self, session: Session, names: tuple[str, ...]) -> None:
        """Raise `InvalidInput` for names of unknown MCP servers."""
        self._tools.check_names(names, session_context(session))

    async def _with_sandbox(self, session: Session) -> CallContext:
        acquired = await self._sandboxes.acquire(session, session.kinds[0])
        return session_context(session, acquired.sandbox.id)


def session_server_names(tools: ChatTools | None, session: Session) -> list[str]:
    """Return the names of the MCP servers that an agent program in the session's sandbox may use."""
    if tools is None or session.mcp == ():
        return []
    # Programs of servers are usable there too.
    return [each.name for each in tools.servers(session.mcp, session_context(session, sandbox="any"))]


def session_sandbox_extensions(tools: ChatTools | None, session: Session) -> dict[str, str]:
    """Return the extensions that give an agent program in a sandbox its MCP servers; empty without servers."""
    if not session_server_names(tools, session):
        return {}
    agent = {AGENT_EXTENSION: session.agent}
    if session.mcp is None:
        return {**agent, ALL_SERVERS_EXTENSION: "true"}
    return {**agent, **mcp_servers_extension([TaskMcpServer(name=name) for name in session.mcp])}


def session_context(session: Session, sandbox: str | None = None) -> CallContext:
    """Return the context of calls in a chat. The owner of the chat is their caller."""
    if sandbox is None and session.kinds:
        sandbox = session.sandboxes.get(session.kinds[0])
    return CallContext(
        tenant=str(session.tenant),
        caller=session.subject or f"session:{session.id}",
        names=(session.created_by,) if session.created_by else (),
        agent=session.agent,
        origin="chat",
        sandbox=sandbox,
        session=session.id,
        client_session=f"chat {session.id}",
    )


def _tool_spec(tool: ChatTool) -> ToolSpec:
    return ToolSpec(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        tool=tool.tool,
        server=tool.server,
        # The hint is part of the tool's approved version, so the server cannot change it unseen.
        effect="none" if tool.read_only else "server",
    )
