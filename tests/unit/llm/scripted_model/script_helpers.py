"""Helpers for conversations with scripted and replayed models, in any format."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from paddock.llm.exchange import ModelCaller
from paddock.llm.formats.answer_events import answer_from_stream_events
from paddock.llm.formats.neutral import (
    MessagePart,
    MessageRole,
    ModelAnswer,
    ModelMessage,
    ModelRequest,
    ModelText,
    ModelToolCall,
    ModelToolResult,
    ToolDefinition,
)
from paddock.llm.formats.registry import FORMATS
from paddock.llm.providers.base import Provider, ProviderRequest
from paddock.llm.providers.script_provider import ScriptProvider
from paddock.llm.scripted_model.script_loader import parse_script
from paddock.llm.wire.base import UpstreamResponse

CLIS = json.loads((Path(__file__).parent / "cli_tools.json").read_text())
"""Wire format and recorded tools of each agent, without descriptions."""
CALLER = ModelCaller("tenant", "key")
BASH = ToolDefinition(
    "Bash", None, {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
)


def cli_tools(cli: str) -> list[ToolDefinition]:
    return [ToolDefinition(tool["name"], None, tool["parameters"]) for tool in CLIS[cli]["tools"]]


def script(text: str) -> ScriptProvider:
    return ScriptProvider("demo", parse_script(text, Path("demo.yaml")))


def start_conversation(
    prompt: str = "Do it.", tools: list[ToolDefinition] | None = None, stream: bool = False
) -> ModelRequest:
    messages = [
        ModelMessage(MessageRole.SYSTEM, [ModelText("Be brief.")]),
        ModelMessage(MessageRole.USER, [ModelText(prompt)]),
    ]
    return ModelRequest("some-model", messages, stream, [BASH] if tools is None else tools, max_tokens=1000)


def continue_conversation(request: ModelRequest, answer: ModelAnswer, output: str = "ok") -> ModelRequest:
    """Extend a conversation by an answer and the results of its calls, or another prompt."""
    calls = [part for part in answer.parts if isinstance(part, ModelToolCall)]
    results: list[MessagePart] = [ModelToolResult(call.id, [ModelText(output)], name=call.name) for call in calls]
    user_message = ModelMessage(MessageRole.USER, results or [ModelText(output)])
    return replace(
        request, messages=[*request.messages, ModelMessage(MessageRole.ASSISTANT, answer.parts), user_message]
    )


def ask(
    request: ModelRequest, format: str = "anthropic", *, array: bool = False, caller: ModelCaller = CALLER
) -> ProviderRequest:
    body = FORMATS[format].write_request(replace(request, notes=[], extra={}))
    return ProviderRequest(format, "generate", request.model, body, request.stream, caller, array=array)


async def received(answered: UpstreamResponse) -> list[bytes]:
    pieces: list[bytes] = []
    try:
        while piece := await answered.read_piece():
            pieces.append(piece)
    finally:
        answered.close()
    return pieces


async def get_whole_answer(
    provider: Provider,
    request: ModelRequest,
    format: str = "anthropic",
    *,
    array: bool = False,
    caller: ModelCaller = CALLER,
) -> ModelAnswer:
    """Return the complete answer of a provider. Fails on errors."""
    answered = await provider.send(ask(request, format, array=array, caller=caller))
    pieces = await received(answered)
    assert answered.status == 200, b"".join(pieces)
    return read(format, b"".join(pieces), request.stream)


def read(format: str, body: bytes, stream: bool) -> ModelAnswer:
    if not stream:
        return FORMATS[format].read_answer(body)
    reader = FORMATS[format].new_stream_reader()
    answer = answer_from_stream_events([*reader.feed(body), *reader.close()])
    assert answer is not None
    return answer


def text_of(answer: ModelAnswer) -> str:
    return "".join(part.text for part in answer.parts if isinstance(part, ModelText))


def calls_of(answer: ModelAnswer) -> list[tuple[str, dict[str, object]]]:
    return [(part.name, json.loads(part.arguments)) for part in answer.parts if isinstance(part, ModelToolCall)]
