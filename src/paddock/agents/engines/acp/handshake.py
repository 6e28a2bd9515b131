"""ACP handshake with a new process: initialize, then load or create the session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import paddock
from paddock.agents.engines.acp.acp_session_state import AcpSessionState
from paddock.agents.engines.acp.agent_process import AgentProcess, AgentProgramError, AgentProgramMessage
from paddock.agents.engines.acp.agent_programs import AgentProgram
from paddock.agents.engines.acp.prompt_loop import METHOD_NOT_FOUND, describe_rpc_error
from paddock.mcp.declared_servers import mcp_server_url
from paddock.model.task_fields import WORKSPACE

READY_TIMEOUT = 120.0
"""Seconds that a program has to start and load its session."""
PROTOCOL_VERSION = 1
# The program accesses files of its sandbox itself.
CAPABILITIES = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}


async def perform_acp_handshake(
    process: AgentProcess, program: AgentProgram, state: AcpSessionState, mcp_servers: Sequence[str] = ()
) -> None:
    """Start a program and open the session in it, with MCP servers by name. Raises `AgentProgramError`."""
    state.requests = state.cursor = 0
    state.forget_prompt()
    await process.start(program.command(state.model or ""), program.env(state.model or ""), WORKSPACE)
    try:
        async with asyncio.timeout(READY_TIMEOUT), aclosing(process.read_messages(0)) as lines:
            await _Handshake(process, state, lines, mcp_servers).run()
    except TimeoutError:
        raise AgentProgramError(
            f"{program.name} was not ready within {READY_TIMEOUT:.0f} seconds{process.stderr_note}"
        ) from None
    state.ready = True


class _Handshake:
    def __init__(
        self,
        process: AgentProcess,
        state: AcpSessionState,
        lines: AsyncIterator[AgentProgramMessage],
        mcp_servers: Sequence[str],
    ) -> None:
        self._mcp_servers = mcp_servers
        self._process = process
        self._state = state
        self._lines = lines

    async def run(self) -> None:
        state = self._state
        client = {"name": "paddock", "version": paddock.__version__}
        initialized = await self._request(
            "initialize",
            {"protocolVersion": PROTOCOL_VERSION, "clientCapabilities": CAPABILITIES, "clientInfo": client},
        )
        capabilities = _as_object(initialized.get("agentCapabilities"))
        state.loads = capabilities.get("loadSession") is True
        state.images = _as_object(capabilities.get("promptCapabilities")).get("image") is True
        # Programs without HTTP could only start servers as programs of their own.
        has_http = _as_object(capabilities.get("mcpCapabilities")).get("http") is True
        servers = [
            {"type": "http", "name": name, "url": mcp_server_url(name), "headers": []}
            for name in (self._mcp_servers if has_http else ())
        ]
        session_params = {"cwd": WORKSPACE, "mcpServers": servers}
        if state.session is not None and state.loads:
            try:
                await self._request("session/load", {"sessionId": state.session, **session_params})
            except AgentProgramError:
                # The program lost the session, or never stored it.
                pass
            else:
                return
        session = (await self._request("session/new", session_params)).get("sessionId")
        if not isinstance(session, str):
            raise AgentProgramError("the agent program returned no session id")
        state.session, state.fresh = session, True

    async def _request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request and wait for its response. Updates meanwhile replay the past and are ignored."""
        state = self._state
        state.requests += 1
        number = state.requests
        await self._process.send_message(f"{method} {number}", {"id": number, "method": method, "params": params})
        async for line in self._lines:
            state.cursor = line.cursor
            message = line.message
            if "method" in message and "id" in message:
                refusal = {"id": message["id"], "error": METHOD_NOT_FOUND}
                await self._process.send_message(f"answer {message['id']}", refusal)
            elif "method" not in message and message.get("id") == number:
                if "error" in message:
                    raise AgentProgramError(describe_rpc_error(message["error"]))
                return _as_object(message.get("result"))
        raise AgentProgramError("the agent program ended its output during the handshake")


def _as_object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
