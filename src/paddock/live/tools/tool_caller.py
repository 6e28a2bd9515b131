"""Calls the tools of sandboxes for agents and API clients.

Tools run in the sandbox and answer over MCP. The caller delays tools that need mouse or keyboard while a person has
taken over, and publishes an event for every call.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from paddock.errors import Conflict, InvalidInput, NotFound, PaddockError, QuotaExceeded, SandboxError, SandboxGone
from paddock.fleet.fleet import Fleet
from paddock.live.input_leases import InputLeases
from paddock.live.throttled_events import ThrottledEvents
from paddock.live.tools import mcp_messages
from paddock.live.tools.mcp_progress import EVENT_STREAM, ToolProgressNotifier
from paddock.live.tools.tool_result_validation import (
    paddock_metadata,
    parse_tool_result,
    parse_tools,
    tool_result_to_mcp,
    written_files_of_result,
)
from paddock.model.sandbox import Sandbox, SandboxState
from paddock.model.screens import InputControlHolder, SandboxTool, Screenshot, ToolResult, ToolResultText
from paddock.sandbox.daemon.client import DaemonClient
from paddock.sandbox.daemon.daemon_http import QUICK_TIMEOUT
from paddock.sandbox.daemon.tool_stream import OnOutput
from paddock.sandbox.daemon.untrusted_json import encode_json

MAX_CONCURRENT_CALLS = 64
"""Concurrent tool calls of one sandbox."""
_PICTURE_TYPES = ("image/jpeg", "image/png")
_ETAG = re.compile(r'"[!#-~]{1,100}"')
AFTER_TAKEOVER_NOTE = (
    "A person had control of this sandbox before this call ran, so the screen may have changed: "
    "take a screenshot before you continue."
)


class InputHeldByPerson(Conflict):
    """Mouse and keyboard of the sandbox are held by a person."""

    code = "INPUT_HELD"

    def __init__(self, holder: InputControlHolder) -> None:
        super().__init__(
            f"{holder.name} has control of this sandbox since {holder.since:%H:%M:%S %Z}; "
            "try again when it is handed back",
            params={"holder": holder.name},
        )


@dataclass(frozen=True)
class ScreenshotOptions:
    """Format, scale and region of a screenshot."""

    format: Literal["jpeg", "png"] = "jpeg"
    scale: float = 1.0
    quality: int = 80
    region: tuple[int, int, int, int] | None = None
    """Left, top, width and height in screen pixels."""

    def query_parameters(self) -> dict[str, str]:
        parameters = {"format": self.format, "scale": f"{self.scale:g}", "quality": str(self.quality)}
        return parameters if self.region is None else {**parameters, "region": ",".join(map(str, self.region))}


class ToolCaller:
    """Calls tools and takes screenshots on behalf of a tenant.

    Raises the fleet's errors for unknown or stopped sandboxes, `SandboxError` for sandboxes that do not answer or
    answer invalid data, `InvalidInput` for arguments that a tool does not accept.
    """

    def __init__(self, fleet: Fleet, leases: InputLeases, events: ThrottledEvents) -> None:
        self._fleet = fleet
        self._leases = leases
        self._events = events
        self._settings = fleet.config.live
        self._tools: dict[str, tuple[SandboxTool, ...]] = {}
        """Tools by sandbox, cached: the tools of a sandbox never change."""
        self._running_calls: dict[str, int] = {}
        self._waiting: dict[str, set[asyncio.Future[InputControlHolder | None]]] = {}
        """Calls that wait for a takeover to end, by sandbox."""

    async def list_tools(self, tenant: str, sandbox_id: str) -> tuple[SandboxTool, ...]:
        """List the tools of a sandbox."""
        sandbox, inside = await self._running_sandbox(tenant, sandbox_id)
        return await self._cached_tools(sandbox, inside)

    async def call_tool(
        self,
        tenant: str,
        sandbox_id: str,
        name: str,
        arguments: Mapping[str, Any],
        *,
        wait: float | None = None,
        timeout: float | None = None,
        on_output: OnOutput | None = None,
    ) -> ToolResult:
        """Call a tool and return its result, also when the tool failed. `on_output` receives streamed output.

        While a person has mouse and keyboard, a tool that uses them waits `wait` seconds (by default `live.input_wait`)
        and then raises `InputHeldByPerson`. Raises `NotFound` for a tool that the sandbox does not have.
        """
        sandbox, inside = await self._running_sandbox(tenant, sandbox_id)
        tool = _find_tool(await self._cached_tools(sandbox, inside), name)
        with self._count_call(sandbox_id):
            waited = await self._wait_for_input(sandbox, tool, wait)
            began = _loop_time()
            try:
                limit = self._settings.call_timeout if timeout is None else timeout
                document = await inside.call_tool(name, arguments, limit, on_output=on_output)
                result = parse_tool_result(document)
            except PaddockError as error:
                self._publish_failure(sandbox, name, _loop_time() - began, error)
                raise
            self._publish_call(sandbox, tool, _loop_time() - began, document)
        if waited:
            return result.model_copy(update={"content": (*result.content, ToolResultText(text=AFTER_TAKEOVER_NOTE))})
        return result

    async def take_screenshot(
        self, tenant: str, sandbox_id: str, view: ScreenshotOptions, etag: str | None = None
    ) -> Screenshot | None:
        """Take a screenshot; return None when it still has this `etag`."""
        _, inside = await self._running_sandbox(tenant, sandbox_id)
        with self._count_call(sandbox_id):
            shot = await inside.screenshot(view.query_parameters(), etag)
        # Both values go into our response headers.
        if shot is not None and not (shot.mime in _PICTURE_TYPES and _ETAG.fullmatch(shot.etag)):
            raise SandboxError("the sandbox returned an invalid picture")
        return shot

    async def list_desktop_services(self, tenant: str, sandbox_id: str) -> list[dict[str, Any]]:
        """Return the daemon's status of each desktop service."""
        _, inside = await self._running_sandbox(tenant, sandbox_id)
        return await inside.services()

    async def start_desktop(self, tenant: str, sandbox_id: str) -> list[dict[str, Any]]:
        """Start the stopped desktop services, wait for them, and return their status."""
        _, inside = await self._running_sandbox(tenant, sandbox_id)
        return await inside.start_services()

    async def stop_desktop(self, tenant: str, sandbox_id: str) -> list[dict[str, Any]]:
        """Stop the desktop services and return their status."""
        _, inside = await self._running_sandbox(tenant, sandbox_id)
        return await inside.stop_services()

    async def handle_mcp_message(
        self, tenant: str, sandbox_id: str, body: bytes, version: str | None = None, accept: str = ""
    ) -> mcp_messages.McpResponse | ToolProgressNotifier:
        """Answer an MCP message. Errors become MCP error responses; nothing is raised.

        A longer tool call whose client asked for progress and accepts event streams is returned while it runs.
        """
        message: mcp_messages.McpMessage | None = None
        try:
            mcp_messages.check_mcp_version(version)
            message = await mcp_messages.parse_mcp_message(body)
        except mcp_messages.McpError as refusal:
            return refusal.response
        token = message.progress_token if message is not None and message.id is not None else None
        if token is None or EVENT_STREAM not in accept:
            return await self._answer_mcp_message(tenant, sandbox_id, message, body, None)
        progress = ToolProgressNotifier(
            token, lambda on_output: self._answer_mcp_message(tenant, sandbox_id, message, body, on_output)
        )
        return await progress.wait_for_first() or progress

    async def _answer_mcp_message(
        self,
        tenant: str,
        sandbox_id: str,
        message: mcp_messages.McpMessage | None,
        body: bytes,
        on_output: OnOutput | None,
    ) -> mcp_messages.McpResponse:
        try:
            sandbox, inside = await self._running_sandbox(tenant, sandbox_id)
            if message is None or message.id is None:
                return mcp_messages.McpResponse(
                    202
                )  # The sandbox keeps no MCP sessions, so notifications have no effect.
            if message.method == "tools/call":
                return await self._call_tool_message(sandbox, inside, message, body, on_output)
            return (await self._forward_message(inside, message, body))[0]
        except mcp_messages.McpError as refusal:
            return refusal.response
        except PaddockError as error:
            return mcp_messages.mcp_response_for_error(error, None if message is None else message.id)

    def forget_sandbox(self, sandbox_id: str) -> None:
        """Cancel waiting calls and drop cached tools of a sandbox that has ended."""
        self._tools.pop(sandbox_id, None)
        for waiting in list(self._waiting.get(sandbox_id, ())):
            waiting.cancel()
        self._events.forget_sandbox(sandbox_id)

    async def _call_tool_message(
        self,
        sandbox: Sandbox,
        inside: DaemonClient,
        message: mcp_messages.McpMessage,
        body: bytes,
        on_output: OnOutput | None,
    ) -> mcp_messages.McpResponse:
        name = message.tool
        if name is None:
            raise mcp_messages.McpError(
                400, mcp_messages.INVALID_PARAMETERS, "params.name: must be the name of a tool", message.id
            )
        known = {tool.name: tool for tool in await self._cached_tools(sandbox, inside)}
        tool = known.get(name)
        if tool is None:  # The sandbox returns its own error for unknown tools.
            return (await self._forward_message(inside, message, body))[0]
        with self._count_call(sandbox.id):
            try:
                waited = await self._wait_for_input(sandbox, tool, None)
            except InputHeldByPerson as error:
                # A tool result is read by the agent; a protocol error would end many agents.
                return mcp_messages.mcp_result_response(
                    message, {"content": [{"type": "text", "text": error.message}], "isError": True}
                )
            began = _loop_time()
            try:
                if on_output is not None and message.arguments is not None:
                    answer, document = await self._stream_tool_message(inside, message, name, on_output)
                else:
                    answer, document = await self._forward_message(inside, message, body, self._settings.call_timeout)
            except PaddockError as error:
                self._publish_failure(sandbox, name, _loop_time() - began, error)
                raise
            found = document.get("result")
            self._publish_call(
                sandbox, tool, _loop_time() - began, found if isinstance(found, dict) else {"isError": True}
            )
        if waited and isinstance(found, dict) and isinstance(found.get("content"), list):
            content = [*found["content"], {"type": "text", "text": AFTER_TAKEOVER_NOTE}]
            return mcp_messages.mcp_result_response(message, {**found, "content": content})
        return answer

    async def _stream_tool_message(
        self, inside: DaemonClient, message: mcp_messages.McpMessage, name: str, on_output: OnOutput
    ) -> tuple[mcp_messages.McpResponse, dict[str, Any]]:
        """Call a tool with live output, and return the response and its document."""
        try:
            result = await inside.call_tool(
                name, message.arguments or {}, self._settings.call_timeout, on_output=on_output
            )
        except InvalidInput as error:
            # The model reads results and can correct its arguments.
            result = {"content": [{"type": "text", "text": error.message}], "isError": True}
        return mcp_messages.mcp_result_response(message, result), {"result": result}

    async def _forward_message(
        self, inside: DaemonClient, message: mcp_messages.McpMessage, body: bytes, timeout: float = QUICK_TIMEOUT
    ) -> tuple[mcp_messages.McpResponse, dict[str, Any]]:
        """Forward a message and return the sandbox's response. Raises `SandboxError` if it is invalid."""
        status, _, parameters = await inside.mcp(body, timeout=timeout)
        document = await mcp_messages.parse_mcp_response(parameters, message)
        if document is None:
            raise SandboxError(
                mcp_messages.daemon_error_text(parameters) or "the sandbox returned an invalid MCP response"
            )
        return mcp_messages.forwarded_mcp_response(status, parameters), document

    async def _running_sandbox(self, tenant: str, sandbox_id: str) -> tuple[Sandbox, DaemonClient]:
        sandbox = await self._fleet.get(tenant, sandbox_id)
        starting = self._fleet.starting.get(sandbox_id)
        if sandbox.state is SandboxState.PENDING and starting is not None:
            # Programs started with the sandbox may call tools before its state is RUNNING.
            sandbox = await asyncio.shield(starting)
        if sandbox.state is not SandboxState.RUNNING:
            raise Conflict(f"sandbox {sandbox_id} is {sandbox.state}, not {SandboxState.RUNNING}")
        return sandbox, self._fleet.client(sandbox)

    async def _cached_tools(self, sandbox: Sandbox, inside: DaemonClient) -> tuple[SandboxTool, ...]:
        known = self._tools.get(sandbox.id)
        if known is None:
            known = self._tools[sandbox.id] = parse_tools(await inside.tools())
        return known

    async def _wait_for_input(self, sandbox: Sandbox, tool: SandboxTool, wait: float | None) -> bool:
        """Wait until no person holds the input; return whether the call had to wait. Raises `InputHeldByPerson`."""
        if not tool.input or self._leases.input_holder(sandbox.id) is None:
            return False
        wait_limit = self._settings.input_wait if wait is None else wait
        waiting = asyncio.ensure_future(self._leases.wait_until_free(sandbox.id, wait_limit))
        self._waiting.setdefault(sandbox.id, set()).add(waiting)
        try:
            holder = await waiting
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            raise SandboxGone("the sandbox has ended") from None
        finally:
            self._waiting[sandbox.id].discard(waiting)
            if not self._waiting[sandbox.id]:
                del self._waiting[sandbox.id]
        if holder is not None:
            raise InputHeldByPerson(holder)
        return True

    @contextmanager
    def _count_call(self, sandbox_id: str) -> Iterator[None]:
        count = self._running_calls.get(sandbox_id, 0)
        if count >= MAX_CONCURRENT_CALLS:
            raise QuotaExceeded(f"{MAX_CONCURRENT_CALLS} tool calls of this sandbox are running; wait for one to end")
        self._running_calls[sandbox_id] = count + 1
        try:
            yield
        finally:
            self._running_calls[sandbox_id] -= 1
            if not self._running_calls[sandbox_id]:
                del self._running_calls[sandbox_id]

    def _publish_call(self, sandbox: Sandbox, tool: SandboxTool, seconds: float, document: Mapping[str, Any]) -> None:
        self._events.publish_tool_call(sandbox, tool.name, seconds, failed=document.get("isError") is True)
        self._events.publish_file_changes(sandbox, tool.name, written_files_of_result(document))
        if tool.changes_screen:
            shot = paddock_metadata(document).get("shot")
            self._events.publish_screen_change(sandbox, tool.name, etag=shot[:100] if isinstance(shot, str) else None)

    def _publish_failure(self, sandbox: Sandbox, name: str, seconds: float, error: PaddockError) -> None:
        if not isinstance(error, SandboxError):  # No event may follow the end of a sandbox.
            self._events.publish_tool_call(sandbox, name, seconds, failed=True)


def _find_tool(tools: tuple[SandboxTool, ...], name: str) -> SandboxTool:
    for tool in tools:
        if tool.name == name:
            return tool
    near = difflib.get_close_matches(name, [tool.name for tool in tools], 1)
    hint = f"did you mean {near[0]}?" if near else "list its tools with: paddock tool list SANDBOX"
    raise NotFound(f"this sandbox has no tool {name[:100]}; {hint}")


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def tool_result_to_json(result: ToolResult) -> bytes:
    """Encode a tool result as MCP's JSON."""
    return encode_json(tool_result_to_mcp(result))
