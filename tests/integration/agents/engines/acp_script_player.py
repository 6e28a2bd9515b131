"""Script player for agent programs: the model and the tools of `scripted_agent.py`.

The program in its sandbox reaches both through the LLM proxy, as real ones reach their models.
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

from paddock.agents.engines.acp.agent_programs import AgentProgram
from paddock.agents.engines.acp.engine import AcpEngine
from paddock.agents.engines.acp.update_recorder import KIND
from paddock.errors import PaddockError
from paddock.model.sessions import ToolCall
from paddock.testing.engines.conformance_harness import STEP_TIMEOUT, ScriptPlayer
from paddock.testing.in_memory_turn import InMemoryTurn, ScriptedCall

from .acp_harness import open_acp_harness

SCRIPT = (Path(__file__).parent / "scripted_agent.py").read_text()
SCRIPTED_PROGRAM = AgentProgram(
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


class AcpScriptPlayer(ScriptPlayer):
    """Plays the model and the tools of an agent program for the running turn of its session."""

    reads_after_reply: ClassVar[bool] = True
    kill_every: ClassVar[int] = 7

    def __init__(self, runner: asyncio.Runner) -> None:
        """The engine is set later, because it needs the model's address."""
        self._runner = runner
        self._turns: dict[str, InMemoryTurn] = {}
        self._calls: defaultdict[tuple[str, int], dict[str, ToolCall]] = defaultdict(dict)
        """Calls of a turn of a session, by their ids."""
        self._running_tools = 0
        self._changed = asyncio.Condition()

    def run_check(self, whole: Coroutine[Any, Any, None]) -> None:
        self._runner.run(whole)

    def prepare(self, turn: InMemoryTurn) -> None:
        session = turn.session
        about = {"agent": SCRIPTED_PROGRAM.name, "engine": AcpEngine.name, "model": f"{PREFIX}{session.id}"}
        turn.session = session.model_copy(update={**about, "instructions": turn.instructions})
        turn.asked_about = tuple(map(_program_tool_pattern, turn.asked_about))
        turn.denied = tuple(map(_program_tool_pattern, turn.denied))

    def begin(self, turn: InMemoryTurn) -> None:
        self._turns[turn.session.id] = turn

    async def wait_for_cancellations(self) -> None:
        async with asyncio.timeout(STEP_TIMEOUT), self._changed:
            await self._changed.wait_for(lambda: self._running_tools == 0)

    async def discard(self, turn: InMemoryTurn) -> None:
        await self.engine.release(turn.session)

    async def answer_model_request(self, request: web.Request) -> web.Response:
        """Answer a question to the model, or run a tool."""
        body = await request.json()
        turn = self._turns[body["model"].removeprefix(PREFIX)]
        if body.get("user") == "tool":
            return _completion(await self._perform(turn, body["messages"][0]["content"]))
        try:
            answer = turn.next_reply(spoken_messages(body["messages"]))
        except PaddockError as error:
            return web.json_response({"error": {"message": error.message, "type": "invalid"}}, status=400)
        calls = [self._call(turn, number, wanted) for number, wanted in enumerate(answer.calls, 1)]
        return _completion({"text": answer.text, "thought": answer.thought, "hangs": answer.never_ends, "calls": calls})

    def _call(self, turn: InMemoryTurn, number: int, wanted: ScriptedCall) -> Mapping[str, Any]:
        known = self._calls[turn.session.id, turn.number]
        # The program repeats its own ids in every reply; the session derives unique ids from them.
        mine = f"{wanted.name}.{number}"
        identifier = f"{mine}-{turn.number}.{len(known) + 1}"
        if isinstance(wanted.arguments, str):
            call = ToolCall(id=identifier, name=wanted.name, malformed=wanted.arguments)
        else:
            call = ToolCall(id=identifier, name=wanted.name, arguments=wanted.arguments)
        known[identifier] = call
        unfit = turn.argument_problem(call)
        return {
            "id": identifier,
            "tool_call": mine,
            "name": wanted.name,
            "kind": KINDS.get(wanted.name, "other"),
            "input": dict(call.arguments),
            "asks": unfit is None and turn.tools_by_name[wanted.name].spec.effect != "none",
            "unfit": unfit,
        }

    async def _perform(self, turn: InMemoryTurn, identifier: str) -> Mapping[str, Any]:
        call = self._calls[turn.session.id, turn.number][identifier]
        self._running_tools += 1
        try:
            result = await turn.run_function(call.name, call.arguments)
        finally:
            self._running_tools -= 1
            async with self._changed:
                self._changed.notify_all()
        return {"text": result.text, "failed": result.failed}


def spoken_messages(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Convert a question of the program to the form of other engines; its first prompt holds prompt and history."""
    system, introduction, *rest = messages
    instructions, _, past = introduction["content"].partition("<transcript>\n")
    spoken = filter(None, map(SPOKEN.fullmatch, past.partition("\n</transcript>")[0].split("\n\n")))
    # Results are plain text in the transcript, without their calls.
    said = [{"role": ROLES[each[1]], "content": each[2]} for each in spoken if not each[2].startswith("[uses ")]
    return [{"role": "system", "content": f"{system['content']}\n{instructions}"}, *said, *rest]


def _program_tool_pattern(pattern: str) -> str:
    return f"{KIND}_{KINDS[pattern]}" if pattern in KINDS else pattern


def _completion(content: Mapping[str, Any]) -> web.Response:
    message = {"role": "assistant", "content": json.dumps(content)}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return web.json_response(
        {"id": "1", "object": "chat.completion", "created": 1, "model": "script", "choices": [choice], "usage": usage}
    )


@asynccontextmanager
async def open_script_player(data: Path, runner: asyncio.Runner) -> AsyncIterator[AcpScriptPlayer]:
    """Open a script player with an engine on a data directory."""
    player = AcpScriptPlayer(runner)
    application = web.Application()
    application.router.add_post("/v1/chat/completions", player.answer_model_request)
    server = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=1)
    await server.setup()
    try:
        site = web.TCPSite(server, "127.0.0.1", 0)
        await site.start()
        host, port = server.addresses[0]
        provider = {"kind": "openai", "base_url": f"http://{host}:{port}/v1", "key": "none", "retries": 0}
        llm = {"providers": {"stage": provider}, "models": {f"{PREFIX}*": "stage"}}
        async with open_acp_harness(data, llm=llm, program=SCRIPTED_PROGRAM) as running:
            player.engine = running.engine
            yield player
    finally:
        await server.cleanup()
