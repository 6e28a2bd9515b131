"""Script player for agent programs: the model and the tools of `scripted_agent.py`.

The program in its sandbox reaches both through the model proxy, as real ones reach their models.
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
"""Kinds that the program reports for the tools of the checks; other tools are `other`."""
PREFIX = "script-"
TRANSCRIPT_LINE = re.compile(r"(User|Assistant|Result|Note): (.*)", re.DOTALL)
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

    def run_check(self, run_with_timeout: Coroutine[Any, Any, None]) -> None:
        self._runner.run(run_with_timeout)

    def prepare(self, turn: InMemoryTurn) -> None:
        session = turn.session
        changes = {"agent": SCRIPTED_PROGRAM.name, "engine": AcpEngine.name, "model": f"{PREFIX}{session.id}"}
        turn.session = session.model_copy(update={**changes, "instructions": turn.instructions})
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
            return _completion(await self._run_tool(turn, body["messages"][0]["content"]))
        try:
            reply = turn.next_reply(question_messages(body["messages"]))
        except PaddockError as error:
            return web.json_response({"error": {"message": error.message, "type": "invalid"}}, status=400)
        calls = [self._create_call(turn, number, scripted_call) for number, scripted_call in enumerate(reply.calls, 1)]
        return _completion({"text": reply.text, "thought": reply.thought, "hangs": reply.never_ends, "calls": calls})

    def _create_call(self, turn: InMemoryTurn, number: int, scripted_call: ScriptedCall) -> Mapping[str, Any]:
        calls = self._calls[turn.session.id, turn.number]
        # The program repeats its own ids in every reply; the session derives unique ids from them.
        program_call_id = f"{scripted_call.name}.{number}"
        call_id = f"{program_call_id}-{turn.number}.{len(calls) + 1}"
        if isinstance(scripted_call.arguments, str):
            call = ToolCall(id=call_id, name=scripted_call.name, malformed=scripted_call.arguments)
        else:
            call = ToolCall(id=call_id, name=scripted_call.name, arguments=scripted_call.arguments)
        calls[call_id] = call
        problem = turn.argument_problem(call)
        return {
            "id": call_id,
            "tool_call": program_call_id,
            "name": scripted_call.name,
            "kind": KINDS.get(scripted_call.name, "other"),
            "input": dict(call.arguments),
            "asks": problem is None and turn.tools_by_name[scripted_call.name].spec.effect != "none",
            "unfit": problem,
        }

    async def _run_tool(self, turn: InMemoryTurn, call_id: str) -> Mapping[str, Any]:
        call = self._calls[turn.session.id, turn.number][call_id]
        self._running_tools += 1
        try:
            result = await turn.run_function(call.name, call.arguments)
        finally:
            self._running_tools -= 1
            async with self._changed:
                self._changed.notify_all()
        return {"text": result.text, "failed": result.failed}


def question_messages(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Convert a question of the program to the form of other engines; its first prompt holds prompt and history."""
    system, introduction, *rest = messages
    instructions, _, transcript = introduction["content"].partition("<transcript>\n")
    transcript_lines = filter(
        None, map(TRANSCRIPT_LINE.fullmatch, transcript.partition("\n</transcript>")[0].split("\n\n"))
    )
    # Results are plain text in the transcript, without their calls.
    history = [
        {"role": ROLES[each[1]], "content": each[2]} for each in transcript_lines if not each[2].startswith("[uses ")
    ]
    return [{"role": "system", "content": f"{system['content']}\n{instructions}"}, *history, *rest]


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
        async with open_acp_harness(data, llm=llm, program=SCRIPTED_PROGRAM) as harness:
            player.engine = harness.engine
            yield player
    finally:
        await server.cleanup()
