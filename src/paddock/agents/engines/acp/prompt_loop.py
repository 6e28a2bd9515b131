"""Prompts to a ready agent program: send, process updates until the reply ends, handle permissions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

from acp import schema
from pydantic import ValidationError

from paddock.agents.engines.acp.acp_session_state import AcpSessionState, PendingPermission
from paddock.agents.engines.acp.agent_process import (
    AgentProcess,
    AgentProgramError,
    AgentProgramGone,
    AgentProgramMessage,
    encode_rpc_message,
)
from paddock.agents.engines.acp.permissions import CANCELLED, acp_permission_choices, acp_permission_response
from paddock.agents.engines.acp.update_recorder import EFFECT_BY_KIND, KIND, AcpUpdateRecorder
from paddock.agents.engines.base import CallVerdict, Turn
from paddock.errors import PaddockError
from paddock.model.sessions import CallResult, TextContent

STOP_TIMEOUT = 2.0
"""Seconds that a program has to stop after a cancel request."""
TRAILING_OUTPUT_TIMEOUT = 0.3
"""Seconds for which late output is read and ignored after that."""
WORK_UPDATES = ("agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan")
METHOD_NOT_FOUND = {"code": -32601, "message": "method not found"}
INVALID_PARAMS = {"code": -32602, "message": "invalid params"}


class AcpPromptLoop:
    """A turn's conversation with one process; state is saved before the program can act on it."""

    def __init__(self, turn: Turn, state: AcpSessionState, process: AgentProcess, recorder: AcpUpdateRecorder) -> None:
        self._turn = turn
        self._state = state
        self._process = process
        self._recorder = recorder
        self._save_lock = asyncio.Lock()

    async def save_state(self) -> None:
        async with self._save_lock:
            await self._turn.save_state(self._state.model_dump_json().encode())

    async def begin_prompt(self, blocks: Sequence[dict[str, Any]], known: Sequence[str] = ()) -> None:
        """Prepare a prompt, which `run_prompt` sends; `known` are the ids of its messages."""
        state = self._state
        state.requests += 1
        state.prompt = state.requests
        params = {"sessionId": state.session, "prompt": list(blocks)}
        state.line = encode_rpc_message({"id": state.prompt, "method": "session/prompt", "params": params})
        state.known += known
        state.notes = []
        state.fresh = state.stopped = state.ended = False
        await self.save_state()

    async def run_prompt(self, background: Callable[[], Awaitable[None]]) -> str:
        """Process messages until the prompt is over; return the stop reason. `background` runs meanwhile."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_run_async(background))]
                if self._state.line is not None:
                    tasks.append(group.create_task(self._send_prompt(self._state.line)))
                tasks += [
                    group.create_task(self._decide_permission(permission))
                    for permission in self._state.pending_permissions
                ]
                reason = await self._read_until_prompt_ends(group, tasks)
                for task in tasks:
                    task.cancel()
                return reason
        except BaseExceptionGroup as errors:
            raise _first_error(errors) from None

    async def stop_prompt(self) -> None:
        """Stop the running prompt at once."""
        state, process = self._state, self._process
        can_cancel = state.line is None and state.prompt is not None
        try:
            async with asyncio.timeout(STOP_TIMEOUT):
                if can_cancel:
                    await self._cancel_prompt()
                    await self._discard_trailing_output()
        except (TimeoutError, PaddockError):
            can_cancel = False
        if not can_cancel:
            await process.kill()
            state.ready = False
        state.forget_prompt()
        state.stopped = True
        await self.save_state()

    async def fail_open_calls(self, reason: str) -> None:
        """Fail calls for which the program will send no result."""
        for observed in list(self._state.calls.values()):
            await self._recorder.record_result(observed, CallResult(content=(TextContent(text=reason),), failed=True))

    async def _cancel_prompt(self) -> None:
        state = self._state
        prompt = state.prompt
        params = {"sessionId": state.session}
        await self._process.send_message(f"cancel {prompt}", {"method": "session/cancel", "params": params})
        for permission in state.pending_permissions:
            await self._process.send_message(
                f"answer {permission.request}", {"id": permission.request, "result": CANCELLED}
            )
        async with aclosing(self._process.read_messages(state.cursor)) as lines:
            async for line in lines:
                state.cursor = line.cursor
                message = line.message
                if "method" not in message and message.get("id") == prompt:
                    return
                if message.get("method") == "session/request_permission":
                    await self._process.send_message(
                        f"answer {message.get('id')}", {"id": message.get("id"), "result": CANCELLED}
                    )

    async def _discard_trailing_output(self) -> None:
        """Discard output that the program sends after it has stopped."""
        try:
            async with (
                asyncio.timeout(TRAILING_OUTPUT_TIMEOUT),
                aclosing(self._process.read_messages(self._state.cursor)) as lines,
            ):
                async for line in lines:
                    self._state.cursor = line.cursor
        except TimeoutError:
            pass

    async def _send_prompt(self, line: str) -> None:
        await self._process.send_line(f"prompt {self._state.prompt}", line)
        self._state.line = None

    async def _read_until_prompt_ends(self, group: asyncio.TaskGroup, tasks: list[asyncio.Task[None]]) -> str:
        async with aclosing(self._process.read_messages(self._state.cursor)) as lines:
            async for line in lines:
                reason = await self._receive_message(line, group, tasks)
                if reason is not None:
                    return reason
        raise AgentProgramGone

    async def _receive_message(
        self, line: AgentProgramMessage, group: asyncio.TaskGroup, tasks: list[asyncio.Task[None]]
    ) -> str | None:
        """Handle one message; return the stop reason if the prompt is over."""
        state, message = self._state, line.message
        changed = False
        method = message.get("method")
        if method == "session/update":
            if _is_work_update(message.get("params")):
                state.line = None
            changed = await self._recorder.record_update(message.get("params"))
        elif method is not None and "id" in message:
            permission = await self._answer_request(message)
            if permission is not None:
                state.line = None
                state.cursor = line.cursor
                state.pending_permissions.append(permission)
                await self.save_state()
                tasks.append(group.create_task(self._decide_permission(permission)))
        elif method is None and message.get("id") == state.prompt:
            # The reply proves that the program has read the prompt.
            await self._recorder.finish_message()
            state.cursor = line.cursor
            return await self._end_prompt(message)
        if not self._recorder.has_open_message:
            state.cursor = line.cursor
            if changed:
                await self.save_state()
                await self._recorder.emit_running_calls()
        return None

    async def _end_prompt(self, message: Any) -> str:
        await self.fail_open_calls("The agent sent no result for this call.")
        self._state.forget_prompt()
        error = message.get("error")
        self._state.ended = error is None
        await self.save_state()
        if error is not None:
            raise AgentProgramError(describe_rpc_error(error))
        result = message.get("result")
        return str(result.get("stopReason", "end_turn")) if isinstance(result, dict) else "end_turn"

    async def _answer_request(self, message: Any) -> PendingPermission | None:
        """Handle a request of the program; everything but a permission request is refused."""
        error = METHOD_NOT_FOUND
        if message["method"] == "session/request_permission":
            try:
                request = schema.RequestPermissionRequest.model_validate(message.get("params"))
                permission = PendingPermission(request=message["id"], params=message["params"])
            except ValidationError:
                error = INVALID_PARAMS
            else:
                await self._recorder.find_permission_call(request.tool_call)
                return permission
        await self._process.send_message(f"answer {message['id']}", {"id": message["id"], "error": error})
        return None

    async def _decide_permission(self, permission: PendingPermission) -> None:
        state = self._state
        request = schema.RequestPermissionRequest.model_validate(permission.params)
        observed = state.calls.get(request.tool_call.tool_call_id)
        # A call that already has a result was refused before a restart.
        verdict = CallVerdict(allowed=False)
        if observed is not None and observed.call is not None:
            call = observed.call
            verdict = await self._turn.authorize_call(
                call,
                question=observed.title,
                choices=acp_permission_choices(request),
                effect=EFFECT_BY_KIND.get(observed.kind, "other"),
                kind=KIND,
            )
            if verdict.allowed and verdict.arguments not in (None, call.arguments):
                verdict = CallVerdict(
                    allowed=False, reason=f"do it with other arguments instead: {dict(verdict.arguments or {})}"
                )
            if verdict.allowed:
                observed.start_emitted = True
            else:
                reason = verdict.reason or "It was not allowed."
                await self._recorder.record_result(
                    observed, CallResult(content=(TextContent(text=reason),), refused=True)
                )
                if verdict.reason:
                    state.notes.append(f"I did not allow “{observed.title or call.name}”: {verdict.reason}")
                await self.save_state()
        result = acp_permission_response(verdict, request.options)
        await self._process.send_message(f"answer {permission.request}", {"id": permission.request, "result": result})
        state.pending_permissions = [each for each in state.pending_permissions if each.request != permission.request]
        await self.save_state()


def describe_rpc_error(error: Any) -> str:
    """Return the message of a JSON-RPC error, with its details."""
    if not isinstance(error, dict):
        return "the agent program answered with an error"
    message = str(error.get("message") or "the agent program answered with an error")
    data = error.get("data")
    details = data.get("details") or data.get("message") or data.get("error") if isinstance(data, dict) else data
    if details and str(details) not in message:
        message = f"{message}: {details}"
    return message[:2000]


def _is_work_update(params: Any) -> bool:
    """Return whether an update proves that the agent has read its prompt."""
    update = params.get("update") if isinstance(params, dict) else None
    return isinstance(update, dict) and update.get("sessionUpdate") in WORK_UPDATES


async def _run_async(work: Callable[[], Awaitable[None]]) -> None:
    await work()


def _first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of a group."""
    for error in group.exceptions:
        return _first_error(error) if isinstance(error, BaseExceptionGroup) else error
    return group
