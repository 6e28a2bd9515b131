"""Plays the scripts of the engines' checks to agent programs: the model and the tools of `scripted_agent.py`.

The program in its box reaches both through the LLM proxy, as real ones reach their models.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from aiohttp import web

from paddock.agents.engines.acp.engine import AcpEngine
from paddock.agents.engines.acp.presets import Program
from paddock.agents.engines.acp.telling import KIND
from paddock.agents.engines.conformance.stage import SOON, Cast
from paddock.agents.engines.rehearsal import Rehearsal, Wanted
from paddock.errors import PaddockError
from paddock.model.sessions import Call

from .acp_bench import machine

SCRIPT = (Path(__file__).parent / "scripted_agent.py").read_text()
SCRIPTED = Program(
    name="scripted",
    image="host",
    command=lambda model: ("python3", "/home/agent/scripted_agent.py", model),
    files=lambda model: {"scripted_agent.py": SCRIPT},
)
KINDS: Mapping[str, str] = {"write": "edit", "send": "execute", "look": "read", "add": "move"}
"""What a program calls the tools of the checks, by which the policy knows them. The others are `other`."""
PREFIX = "script-"
SPOKEN = re.compile(r"(User|Assistant|Result|Note): (.*)", re.DOTALL)
ROLES = {"User": "user", "Assistant": "assistant", "Result": "user", "Note": "user"}


class ProgramCast(Cast):
    """The model and the tools of a program, for whichever turn is under way in its session."""

    told_later: ClassVar[bool] = True
    every: ClassVar[int] = 7

    def __init__(self, runner: asyncio.Runner) -> None:
        """It gets its engine once that is there, which needs the model's address."""
        self._runner = runner
        self._turns: dict[str, Rehearsal] = {}
        self._calls: defaultdict[tuple[str, int], dict[str, Call]] = defaultdict(dict)
        """Those of a turn of a session, by their ids."""
        self._at_work = 0
        self._changed = asyncio.Condition()

    def run(self, whole: Coroutine[Any, Any, None]) -> None:
        self._runner.run(whole)

    def prepare(self, turn: Rehearsal) -> None:
        session = turn.session
        about = {"agent": SCRIPTED.name, "engine": AcpEngine.name, "model": f"{PREFIX}{session.id}"}
        turn.session = session.model_copy(update={**about, "instructions": turn.instructions})
        turn.asked_about = tuple(map(_in_its_words, turn.asked_about))
        turn.denied = tuple(map(_in_its_words, turn.denied))

    def begin(self, turn: Rehearsal) -> None:
        self._turns[turn.session.id] = turn

    async def rest(self) -> None:
        async with asyncio.timeout(SOON), self._changed:
            await self._changed.wait_for(lambda: self._at_work == 0)

    async def leave(self, turn: Rehearsal) -> None:
        await self.engine.release(turn.session)

    async def answer(self, request: web.Request) -> web.Response:
        """A question to the model, or a tool that is to be run."""
        body = await request.json()
        turn = self._turns[body["model"].removeprefix(PREFIX)]
        if body.get("user") == "tool":
            return _completion(await self._perform(turn, body["messages"][0]["content"]))
        try:
            answer = turn.answer(as_asked(body["messages"]))
        except PaddockError as error:
            return web.json_response({"error": {"message": error.message, "type": "invalid"}}, status=400)
        calls = [self._call(turn, number, wanted) for number, wanted in enumerate(answer.calls, 1)]
        return _completion({"text": answer.text, "thought": answer.thought, "hangs": answer.hangs, "calls": calls})

    def _call(self, turn: Rehearsal, number: int, wanted: Wanted) -> Mapping[str, Any]:
        known = self._calls[turn.session.id, turn.number]
        # The program's own id comes again in every answer. The model's is the one that the session makes of it.
        mine = f"{wanted.name}.{number}"
        identifier = f"{mine}-{turn.number}.{len(known) + 1}"
        if isinstance(wanted.arguments, str):
            call = Call(id=identifier, name=wanted.name, malformed=wanted.arguments)
        else:
            call = Call(id=identifier, name=wanted.name, arguments=wanted.arguments)
        known[identifier] = call
        unfit = turn.unfit(call)
        return {
            "id": identifier,
            "tool_call": mine,
            "name": wanted.name,
            "kind": KINDS.get(wanted.name, "other"),
            "input": dict(call.arguments),
            "asks": unfit is None and turn.toolset[wanted.name].spec.effect != "none",
            "unfit": unfit,
        }

    async def _perform(self, turn: Rehearsal, identifier: str) -> Mapping[str, Any]:
        call = self._calls[turn.session.id, turn.number][identifier]
        self._at_work += 1
        try:
            result = await turn.perform(call.name, call.arguments)
        finally:
            self._at_work -= 1
            async with self._changed:
                self._changed.notify_all()
        return {"text": result.text, "failed": result.failed}


def as_asked(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What the program asks its model, as other engines ask: what it was told at first is the prompt and the past."""
    system, introduction, *rest = messages
    instructions, _, past = introduction["content"].partition("<transcript>\n")
    spoken = filter(None, map(SPOKEN.fullmatch, past.partition("\n</transcript>")[0].split("\n\n")))
    # Results are words there, and belong to no call any more.
    said = [{"role": ROLES[each[1]], "content": each[2]} for each in spoken if not each[2].startswith("[uses ")]
    return [{"role": "system", "content": f"{system['content']}\n{instructions}"}, *said, *rest]


def _in_its_words(pattern: str) -> str:
    return f"{KIND}_{KINDS[pattern]}" if pattern in KINDS else pattern


def _completion(content: Mapping[str, Any]) -> web.Response:
    message = {"role": "assistant", "content": json.dumps(content)}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return web.json_response(
        {"id": "1", "object": "chat.completion", "created": 1, "model": "script", "choices": [choice], "usage": usage}
    )


@asynccontextmanager
async def playing(data: Path, runner: asyncio.Runner) -> AsyncIterator[ProgramCast]:
    """A machine whose programs are scripted, on a data directory."""
    cast = ProgramCast(runner)
    application = web.Application()
    application.router.add_post("/v1/chat/completions", cast.answer)
    server = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=1)
    await server.setup()
    try:
        site = web.TCPSite(server, "127.0.0.1", 0)
        await site.start()
        host, port = server.addresses[0]
        provider = {"kind": "openai", "base_url": f"http://{host}:{port}/v1", "key": "none", "retries": 0}
        llm = {"providers": {"stage": provider}, "models": {f"{PREFIX}*": "stage"}}
        async with machine(data, llm=llm, program=SCRIPTED) as running:
            cast.engine = running.engine
            yield cast
    finally:
        await server.cleanup()
