"""Conversations with scripted and replayed models in tests: requests in any format, and answers read back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from paddock.llm.collect import collect
from paddock.llm.exchange import Caller
from paddock.llm.formats.registry import FORMATS
from paddock.llm.neutral import Answer, Message, Part, Request, Role, Text, Tool, ToolCall, ToolResult
from paddock.llm.providers.base import Answered, Ask, Provider
from paddock.llm.providers.script import ScriptProvider
from paddock.llm.script.load import parse_scenario

CLIS = json.loads((Path(__file__).parent / "cli_tools.json").read_text())
"""By agent: the wire format it speaks, and the tools it offered when it was watched, without their descriptions."""
CALLER = Caller("tenant", "key")
BASH = Tool("Bash", None, {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]})


def cli_tools(cli: str) -> list[Tool]:
    return [Tool(tool["name"], None, tool["parameters"]) for tool in CLIS[cli]["tools"]]


def script(text: str) -> ScriptProvider:
    return ScriptProvider("demo", parse_scenario(text, Path("demo.yaml")))


def begun(prompt: str = "Do it.", tools: list[Tool] | None = None, stream: bool = False) -> Request:
    messages = [Message(Role.SYSTEM, [Text("Be brief.")]), Message(Role.USER, [Text(prompt)])]
    return Request("some-model", messages, stream, [BASH] if tools is None else tools, max_tokens=1000)


def gone_on(request: Request, answer: Answer, output: str = "ok") -> Request:
    """The conversation after an answer: with results of its calls, or with another question."""
    calls = [part for part in answer.parts if isinstance(part, ToolCall)]
    results: list[Part] = [ToolResult(call.id, [Text(output)], name=call.name) for call in calls]
    told = Message(Role.USER, results or [Text(output)])
    return replace(request, messages=[*request.messages, Message(Role.ASSISTANT, answer.parts), told])


def ask(request: Request, format: str = "anthropic", *, array: bool = False, caller: Caller = CALLER) -> Ask:
    body = FORMATS[format].write_request(replace(request, notes=[], extra={}))
    return Ask(format, "generate", request.model, body, request.stream, caller, array=array)


async def received(answered: Answered) -> list[bytes]:
    pieces: list[bytes] = []
    try:
        while piece := await answered.piece():
            pieces.append(piece)
    finally:
        answered.close()
    return pieces


async def answer_to(
    provider: Provider, request: Request, format: str = "anthropic", *, array: bool = False, caller: Caller = CALLER
) -> Answer:
    """The whole answer of a provider. Fails unless it is one."""
    answered = await provider.send(ask(request, format, array=array, caller=caller))
    pieces = await received(answered)
    assert answered.status == 200, b"".join(pieces)
    return read(format, b"".join(pieces), request.stream)


def read(format: str, body: bytes, stream: bool) -> Answer:
    if not stream:
        return FORMATS[format].read_answer(body)
    reader = FORMATS[format].reader()
    answer = collect([*reader.feed(body), *reader.close()])
    assert answer is not None
    return answer


def text_of(answer: Answer) -> str:
    return "".join(part.text for part in answer.parts if isinstance(part, Text))


def calls_of(answer: Answer) -> list[tuple[str, dict[str, object]]]:
    return [(part.name, json.loads(part.arguments)) for part in answer.parts if isinstance(part, ToolCall)]
