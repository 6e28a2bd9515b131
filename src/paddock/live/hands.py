"""What agents and programs do in boxes: their tools, called from outside.

Tools live in the box and answer over MCP. Here it is decided when one may go ahead, because a person may have the
mouse and keyboard, and told what came of it.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from paddock.errors import BoxError, BoxGone, Conflict, NotFound, PaddockError, QuotaExceeded
from paddock.fleet.fleet import Fleet
from paddock.live import jsonrpc
from paddock.live.leases import Leases
from paddock.live.outcomes import ours, read_result, read_tools, write_result, written
from paddock.live.updates import Updates
from paddock.model.sandbox import Sandbox, SandboxState
from paddock.model.screens import Holder, Shot, TextPart, Tool, ToolResult
from paddock.sandbox.client import Inside
from paddock.sandbox.exchange import QUICK
from paddock.sandbox.tool_stream import OnOutput

CALLS_AT_ONCE = 64
"""Calls of one box's tools that may be under way."""
_PICTURES = ("image/jpeg", "image/png")
_TAG = re.compile(r'"[!#-~]{1,100}"')
WAITED = (
    "A person had control of this sandbox before this was done, so it may not look as you knew it: "
    "take a screenshot before you go on."
)


class InputHeld(Conflict):
    """A person has control of this sandbox."""

    code = "INPUT_HELD"

    def __init__(self, holder: Holder) -> None:
        super().__init__(
            f"{holder.name} has control of this sandbox since {holder.since:%H:%M:%S %Z}; "
            "try again when it is handed back",
            params={"holder": holder.name},
        )


@dataclass(frozen=True)
class View:
    """Which picture of a screen is wanted."""

    format: Literal["jpeg", "png"] = "jpeg"
    scale: float = 1.0
    quality: int = 80
    region: tuple[int, int, int, int] | None = None
    """Left, top, width and height, in the screen's own pixels."""

    def parameters(self) -> dict[str, str]:
        said = {"format": self.format, "scale": f"{self.scale:g}", "quality": str(self.quality)}
        return said if self.region is None else {**said, "region": ",".join(map(str, self.region))}


class Hands:
    """Calls the tools of boxes. Every method takes the tenant that asks.

    Raises what the fleet raises for sandboxes that are not there or do not run, `BoxError` for boxes that do not
    answer or answer nonsense, `InvalidInput` for arguments that a tool does not take.
    """

    def __init__(self, fleet: Fleet, leases: Leases, updates: Updates) -> None:
        self._fleet = fleet
        self._leases = leases
        self._updates = updates
        self._settings = fleet.config.live
        self._tools: dict[str, tuple[Tool, ...]] = {}
        """Of each box that was asked; a box has the same tools from its start to its end."""
        self._under_way: dict[str, int] = {}
        self._waiting: dict[str, set[asyncio.Future[Holder | None]]] = {}
        """For persons who have mouse and keyboard of a box."""

    async def tools(self, tenant: str, sandbox_id: str) -> tuple[Tool, ...]:
        """What a sandbox can do."""
        sandbox, inside = await self._reach(tenant, sandbox_id)
        return await self._tools_of(sandbox, inside)

    async def call(
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
        """Have a tool do its work. One that fails is a result too. `on_output` is told what it says meanwhile.

        While a person has mouse and keyboard, a tool that uses them waits `wait` seconds for them (else as long as is
        configured) and then raises `InputHeld`. Raises `NotFound` for a tool that the sandbox does not have.
        """
        sandbox, inside = await self._reach(tenant, sandbox_id)
        tool = _find(await self._tools_of(sandbox, inside), name)
        with self._one_more(sandbox_id):
            waited = await self._may_go_on(sandbox, tool, wait)
            began = _now()
            try:
                limit = self._settings.call_timeout if timeout is None else timeout
                document = await inside.call_tool(name, arguments, limit, on_output=on_output)
                result = read_result(document)
            except PaddockError as error:
                self._tell_of_failure(sandbox, name, _now() - began, error)
                raise
            self._tell(sandbox, tool, _now() - began, document)
        if waited:
            return result.model_copy(update={"content": (*result.content, TextPart(text=WAITED))})
        return result

    async def screenshot(self, tenant: str, sandbox_id: str, view: View, etag: str | None = None) -> Shot | None:
        """A picture of the screen; None when it is still the one with this `etag`."""
        _, inside = await self._reach(tenant, sandbox_id)
        with self._one_more(sandbox_id):
            shot = await inside.screenshot(view.parameters(), etag)
        # Browsers are told both, in headers of ours.
        if shot is not None and not (shot.mime in _PICTURES and _TAG.fullmatch(shot.etag)):
            raise BoxError("the sandbox answers with something that is no picture")
        return shot

    async def desktop(self, tenant: str, sandbox_id: str) -> list[dict[str, Any]]:
        """How the programs are that a sandbox's screen is made of, in the daemon's words."""
        _, inside = await self._reach(tenant, sandbox_id)
        return await inside.services()

    async def start_desktop(self, tenant: str, sandbox_id: str) -> list[dict[str, Any]]:
        """Start what does not run of a sandbox's screen, wait for it, and say how it is."""
        _, inside = await self._reach(tenant, sandbox_id)
        return await inside.start_services()

    async def stop_desktop(self, tenant: str, sandbox_id: str) -> list[dict[str, Any]]:
        """Stop what a sandbox's screen is made of, and say how it is."""
        _, inside = await self._reach(tenant, sandbox_id)
        return await inside.stop_services()

    async def rpc(self, tenant: str, sandbox_id: str, body: bytes, version: str | None = None) -> jsonrpc.Answer:
        """Answer a message of MCP. Whatever goes wrong is told in the words of MCP, and nothing is raised."""
        message: jsonrpc.Message | None = None
        try:
            jsonrpc.check_version(version)
            message = jsonrpc.read_message(body)
            sandbox, inside = await self._reach(tenant, sandbox_id)
            if message is None or message.id is None:
                return jsonrpc.Answer(202)  # The box keeps no sessions, so there is nothing it would do with it.
            if message.method == "tools/call":
                return await self._call_rpc(sandbox, inside, message, body)
            return (await self._pass_on(inside, message, body))[0]
        except jsonrpc.Refusal as refusal:
            return refusal.answer
        except PaddockError as error:
            return jsonrpc.refusal(error, None if message is None else message.id)

    def forget(self, sandbox_id: str) -> None:
        """The sandbox has ended, and with it all that waits for it."""
        self._tools.pop(sandbox_id, None)
        for waiting in list(self._waiting.get(sandbox_id, ())):
            waiting.cancel()
        self._updates.forget(sandbox_id)

    async def _call_rpc(
        self, sandbox: Sandbox, inside: Inside, message: jsonrpc.Message, body: bytes
    ) -> jsonrpc.Answer:
        name = message.tool
        if name is None:
            raise jsonrpc.Refusal(
                400, jsonrpc.INVALID_PARAMETERS, "params.name: must be the name of a tool", message.id
            )
        known = {tool.name: tool for tool in await self._tools_of(sandbox, inside)}
        tool = known.get(name)
        if tool is None:  # The box says so in its own words.
            return (await self._pass_on(inside, message, body))[0]
        with self._one_more(sandbox.id):
            try:
                waited = await self._may_go_on(sandbox, tool, None)
            except InputHeld as error:
                # An agent reads results; an error of the protocol would end many a one.
                return jsonrpc.result(message, {"content": [{"type": "text", "text": error.message}], "isError": True})
            began = _now()
            try:
                answer, document = await self._pass_on(inside, message, body, self._settings.call_timeout)
            except PaddockError as error:
                self._tell_of_failure(sandbox, name, _now() - began, error)
                raise
            found = document.get("result")
            self._tell(sandbox, tool, _now() - began, found if isinstance(found, dict) else {"isError": True})
        if waited and isinstance(found, dict) and isinstance(found.get("content"), list):
            content = [*found["content"], {"type": "text", "text": WAITED}]
            return jsonrpc.result(message, {**found, "content": content})
        return answer

    async def _pass_on(
        self, inside: Inside, message: jsonrpc.Message, body: bytes, timeout: float = QUICK
    ) -> tuple[jsonrpc.Answer, dict[str, Any]]:
        """The box's own answer, as it is. Raises `BoxError` for one that is none."""
        status, _, said = await inside.mcp(body, timeout=timeout)
        document = jsonrpc.read_answer(said, message)
        if document is None:
            raise BoxError(jsonrpc.trouble(said) or "the sandbox answers MCP with nonsense")
        return jsonrpc.passed(status, said), document

    async def _reach(self, tenant: str, sandbox_id: str) -> tuple[Sandbox, Inside]:
        sandbox = await self._fleet.get(tenant, sandbox_id)
        starting = self._fleet.starting.get(sandbox_id)
        if sandbox.state is SandboxState.PENDING and starting is not None:
            # What a box runs from its start may call tools before we have said that it runs.
            sandbox = await asyncio.shield(starting)
        if sandbox.state is not SandboxState.RUNNING:
            raise Conflict(f"sandbox {sandbox_id} is {sandbox.state}, not {SandboxState.RUNNING}")
        return sandbox, self._fleet.client(sandbox)

    async def _tools_of(self, sandbox: Sandbox, inside: Inside) -> tuple[Tool, ...]:
        known = self._tools.get(sandbox.id)
        if known is None:
            known = self._tools[sandbox.id] = read_tools(await inside.tools())
        return known

    async def _may_go_on(self, sandbox: Sandbox, tool: Tool, wait: float | None) -> bool:
        """Whether there was something to wait for. Raises `InputHeld`."""
        if not tool.input or self._leases.holder(sandbox.id) is None:
            return False
        patience = self._settings.input_wait if wait is None else wait
        waiting = asyncio.ensure_future(self._leases.free(sandbox.id, patience))
        self._waiting.setdefault(sandbox.id, set()).add(waiting)
        try:
            holder = await waiting
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if this is not None and this.cancelling():
                raise
            raise BoxGone("the sandbox has ended") from None
        finally:
            self._waiting[sandbox.id].discard(waiting)
            if not self._waiting[sandbox.id]:
                del self._waiting[sandbox.id]
        if holder is not None:
            raise InputHeld(holder)
        return True

    @contextmanager
    def _one_more(self, sandbox_id: str) -> Iterator[None]:
        count = self._under_way.get(sandbox_id, 0)
        if count >= CALLS_AT_ONCE:
            raise QuotaExceeded(f"{CALLS_AT_ONCE} calls of this sandbox's tools are under way; wait for one to end")
        self._under_way[sandbox_id] = count + 1
        try:
            yield
        finally:
            self._under_way[sandbox_id] -= 1
            if not self._under_way[sandbox_id]:
                del self._under_way[sandbox_id]

    def _tell(self, sandbox: Sandbox, tool: Tool, seconds: float, document: Mapping[str, Any]) -> None:
        self._updates.called(sandbox, tool.name, seconds, failed=document.get("isError") is True)
        self._updates.wrote(sandbox, tool.name, written(document))
        if tool.changes_screen:
            shot = ours(document).get("shot")
            self._updates.screen(sandbox, tool.name, etag=shot[:100] if isinstance(shot, str) else None)

    def _tell_of_failure(self, sandbox: Sandbox, name: str, seconds: float, error: PaddockError) -> None:
        if not isinstance(error, BoxError):  # Of a box that has ended there is nothing more to be told.
            self._updates.called(sandbox, name, seconds, failed=True)


def _find(tools: tuple[Tool, ...], name: str) -> Tool:
    for tool in tools:
        if tool.name == name:
            return tool
    near = difflib.get_close_matches(name, [tool.name for tool in tools], 1)
    hint = f"did you mean {near[0]}?" if near else "see which there are: paddock tool list SANDBOX"
    raise NotFound(f"this sandbox has no tool {name[:100]}; {hint}")


def _now() -> float:
    return asyncio.get_running_loop().time()


def result_json(result: ToolResult) -> bytes:
    """A result as MCP has it, in bytes."""
    return json.dumps(write_result(result)).encode()
