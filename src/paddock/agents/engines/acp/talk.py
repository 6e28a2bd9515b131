"""One prompt after another with a program that is ready: sends, listens until the answer is over, asks persons."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

from acp import schema
from pydantic import ValidationError

from paddock.agents.engines.acp.permissions import CANCELLED, answer, choices_of
from paddock.agents.engines.acp.place import Asked, Place
from paddock.agents.engines.acp.telling import EFFECTS, KIND, Teller
from paddock.agents.engines.acp.wire import Line, ProgramError, ProgramGone, Wire, encode
from paddock.agents.engines.base import Turn, Verdict
from paddock.errors import PaddockError
from paddock.model.sessions import CallResult, TextContent

STOPPED_WITHIN = 2.0
"""Seconds that a program has to stop when it is told to."""
ECHO = 0.3
"""Seconds for which a program may go on speaking after that."""
WORK = ("agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan")
METHOD_NOT_FOUND = {"code": -32601, "message": "this client has no such method"}
INVALID_PARAMS = {"code": -32602, "message": "these parameters are not understood"}


class Talk:
    """A turn's conversation with one process. Everything is saved before the program can have seen it."""

    def __init__(self, turn: Turn, place: Place, wire: Wire, teller: Teller) -> None:
        self._turn = turn
        self._place = place
        self._wire = wire
        self._teller = teller
        self._saving = asyncio.Lock()

    async def save(self) -> None:
        async with self._saving:
            await self._turn.save(self._place.model_dump_json().encode())

    async def prompt(self, blocks: Sequence[dict[str, Any]], known: Sequence[str] = ()) -> None:
        """Begin a prompt; `hear` sends it. `known` are the messages in it."""
        place = self._place
        place.requests += 1
        place.prompt = place.requests
        params = {"sessionId": place.session, "prompt": list(blocks)}
        place.line = encode({"id": place.prompt, "method": "session/prompt", "params": params})
        place.known += known
        place.notes = []
        place.fresh = place.stopped = place.ended = False
        await self.save()

    async def hear(self, beside: Callable[[], Awaitable[None]]) -> str:
        """Listen until the prompt is over, and say why it is. `beside` is done meanwhile, and never ends by itself."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_run(beside))]
                if self._place.line is not None:
                    tasks.append(group.create_task(self._send_prompt(self._place.line)))
                tasks += [group.create_task(self._consult(asked)) for asked in self._place.asked]
                reason = await self._listen(group, tasks)
                for task in tasks:
                    task.cancel()
                return reason
        except BaseExceptionGroup as problems:
            raise _first(problems) from None

    async def stop(self) -> None:
        """End what is under way at once."""
        place, wire = self._place, self._wire
        sure = place.line is None and place.prompt is not None
        try:
            async with asyncio.timeout(STOPPED_WITHIN):
                if sure:
                    await self._cancel()
                    await self._outlast()
        except (TimeoutError, PaddockError):
            sure = False
        if not sure:
            await wire.end()
            place.ready = False
        place.forget_prompt()
        place.stopped = True
        await self.save()

    async def conclude(self, why: str) -> None:
        """Give results to calls of which the program will tell nothing more."""
        for seen in list(self._place.calls.values()):
            await self._teller.settle(seen, CallResult(content=(TextContent(text=why),), failed=True))

    async def _cancel(self) -> None:
        place = self._place
        prompt = place.prompt
        params = {"sessionId": place.session}
        await self._wire.send(f"cancel {prompt}", {"method": "session/cancel", "params": params})
        for asked in place.asked:
            await self._wire.send(f"answer {asked.request}", {"id": asked.request, "result": CANCELLED})
        async with aclosing(self._wire.read(place.cursor)) as lines:
            async for line in lines:
                place.cursor = line.cursor
                message = line.message
                if "method" not in message and message.get("id") == prompt:
                    return
                if message.get("method") == "session/request_permission":
                    await self._wire.send(f"answer {message.get('id')}", {"id": message.get("id"), "result": CANCELLED})

    async def _outlast(self) -> None:
        """Pass over what a program still says after it has said that it stopped; it belongs to no other answer."""
        try:
            async with asyncio.timeout(ECHO), aclosing(self._wire.read(self._place.cursor)) as lines:
                async for line in lines:
                    self._place.cursor = line.cursor
        except TimeoutError:
            pass

    async def _send_prompt(self, line: str) -> None:
        await self._wire.send_line(f"prompt {self._place.prompt}", line)
        self._place.line = None

    async def _listen(self, group: asyncio.TaskGroup, tasks: list[asyncio.Task[None]]) -> str:
        async with aclosing(self._wire.read(self._place.cursor)) as lines:
            async for line in lines:
                reason = await self._take(line, group, tasks)
                if reason is not None:
                    return reason
        raise ProgramGone

    async def _take(self, line: Line, group: asyncio.TaskGroup, tasks: list[asyncio.Task[None]]) -> str | None:
        """Deal with one message; why the prompt is over, if it is."""
        place, message = self._place, line.message
        changed = False
        method = message.get("method")
        if method == "session/update":
            if _is_work(message.get("params")):
                place.line = None
            changed = await self._teller.update(message.get("params"))
        elif method is not None and "id" in message:
            asked = await self._request(message)
            if asked is not None:
                place.line = None
                place.cursor = line.cursor
                place.asked.append(asked)
                await self.save()
                tasks.append(group.create_task(self._consult(asked)))
        elif method is None and message.get("id") == place.prompt:
            # The program has read the prompt, whatever is known of the sending.
            await self._teller.introduce()
            place.cursor = line.cursor
            return await self._over(message)
        if not self._teller.speaking:
            place.cursor = line.cursor
            if changed:
                await self.save()
                await self._teller.running()
        return None

    async def _over(self, message: Any) -> str:
        await self.conclude("The agent did not tell what came of it.")
        self._place.forget_prompt()
        error = message.get("error")
        self._place.ended = error is None
        await self.save()
        if error is not None:
            raise ProgramError(explain(error))
        result = message.get("result")
        return str(result.get("stopReason", "end_turn")) if isinstance(result, dict) else "end_turn"

    async def _request(self, message: Any) -> Asked | None:
        """What a program asks of us; anything but a permission is refused at once."""
        error = METHOD_NOT_FOUND
        if message["method"] == "session/request_permission":
            try:
                request = schema.RequestPermissionRequest.model_validate(message.get("params"))
                asked = Asked(request=message["id"], params=message["params"])
            except ValidationError:
                error = INVALID_PARAMS
            else:
                await self._teller.permission(request.tool_call)
                return asked
        await self._wire.send(f"answer {message['id']}", {"id": message["id"], "error": error})
        return None

    async def _consult(self, asked: Asked) -> None:
        place = self._place
        request = schema.RequestPermissionRequest.model_validate(asked.params)
        seen = place.calls.get(request.tool_call.tool_call_id)
        # A call that has its result already was refused before a restart.
        verdict = Verdict(allowed=False)
        if seen is not None and seen.call is not None:
            call = seen.call
            verdict = await self._turn.consult(
                call,
                question=seen.title,
                choices=choices_of(request),
                effect=EFFECTS.get(seen.kind, "other"),
                kind=KIND,
            )
            if verdict.allowed and verdict.arguments not in (None, call.arguments):
                verdict = Verdict(
                    allowed=False, reason=f"do it with other arguments instead: {dict(verdict.arguments or {})}"
                )
            if verdict.allowed:
                seen.begun = True
            else:
                why = verdict.reason or "It was not allowed."
                await self._teller.settle(seen, CallResult(content=(TextContent(text=why),), refused=True))
                if verdict.reason:
                    place.notes.append(f"I did not allow “{seen.title or call.name}”: {verdict.reason}")
                await self.save()
        result = answer(verdict, request.options)
        await self._wire.send(f"answer {asked.request}", {"id": asked.request, "result": result})
        place.asked = [each for each in place.asked if each.request != asked.request]
        await self.save()


def explain(error: Any) -> str:
    """What an error of JSON-RPC says, with its details."""
    if not isinstance(error, dict):
        return "the agent program answered with an error"
    message = str(error.get("message") or "the agent program answered with an error")
    data = error.get("data")
    details = data.get("details") or data.get("message") or data.get("error") if isinstance(data, dict) else data
    if details and str(details) not in message:
        message = f"{message}: {details}"
    return message[:2000]


def _is_work(params: Any) -> bool:
    """Whether it is told of something that only an agent does that has read its prompt."""
    update = params.get("update") if isinstance(params, dict) else None
    return isinstance(update, dict) and update.get("sessionUpdate") in WORK


async def _run(work: Callable[[], Awaitable[None]]) -> None:
    await work()


def _first(problems: BaseExceptionGroup[BaseException]) -> BaseException:
    """What went wrong first, without the group around it."""
    for problem in problems.exceptions:
        return _first(problem) if isinstance(problem, BaseExceptionGroup) else problem
    return problems
