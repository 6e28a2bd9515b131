"""Messages of OpenAI's chat completions as AgentScope keeps them, and back again without a difference."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import AnyUrl

with warnings.catch_warnings():
    # AgentScope changes what is warned of in the whole process.
    warnings.simplefilter("ignore")
    from agentscope.message import (
        ContentBlock,
        DataBlock,
        Msg,
        TextBlock,
        ToolCallBlock,
        ToolResultBlock,
        ToolResultState,
        URLSource,
    )

NAME = "agent"
"""Of the agent, in its own messages."""
PERSON = "user"
PICTURE = "image/*"
"""AgentScope wants to know the type of a picture; the turn knows it by its file."""


def to_context(messages: Iterable[Mapping[str, Any]]) -> list[Msg]:
    """What was said, without a system prompt. Results go into the message whose calls they belong to."""
    context: list[Msg] = []
    for message in messages:
        match message["role"]:
            case "user":
                context.append(Msg(name=PERSON, role="user", content=[*_blocks(message["content"])]))
            case "assistant":
                calls = [
                    call_block(call["id"], call["function"]["name"], call["function"]["arguments"])
                    for call in message.get("tool_calls") or ()
                ]
                context.append(Msg(name=NAME, role="assistant", content=[*_blocks(message["content"]), *calls]))
            case "tool":
                context[-1].content.append(result_block(message["tool_call_id"], message["name"], message["content"]))
    return context


def result_block(call_id: str, name: str, content: str | Sequence[Mapping[str, Any]]) -> ToolResultBlock:
    return ToolResultBlock(id=call_id, name=name, output=_blocks(content), state=ToolResultState.SUCCESS)


def call_block(call_id: str, name: str, arguments: str) -> ToolCallBlock:
    return ToolCallBlock(id=call_id, name=name, input=arguments)


def to_question(context: Iterable[Msg]) -> list[dict[str, Any]]:
    """All of it, as the model is asked."""
    question: list[dict[str, Any]] = []
    for message in context:
        if message.role == "assistant":
            question += _answers(message.content)
        else:
            question.append({"role": message.role, "content": _content(message.content)})
    return question


def _answers(blocks: Iterable[ContentBlock]) -> list[dict[str, Any]]:
    """One message of AgentScope holds all rounds of a reply: what was said, its calls, their results, and so on."""
    answers: list[dict[str, Any]] = []
    for block in blocks:
        match block:
            case TextBlock():
                answers.append({"role": "assistant", "content": block.text})
            case ToolCallBlock():
                if not answers or answers[-1]["role"] != "assistant":
                    answers.append({"role": "assistant", "content": None})
                function = {"name": block.name, "arguments": block.input}
                calls = answers[-1].setdefault("tool_calls", [])
                calls.append({"id": block.id, "type": "function", "function": function})
            case ToolResultBlock():
                result = {"role": "tool", "tool_call_id": block.id, "name": block.name}
                answers.append({**result, "content": _content(block.output)})
    return answers


def _blocks(content: str | Sequence[Mapping[str, Any]] | None) -> list[TextBlock | DataBlock]:
    if not content:
        return []
    if isinstance(content, str):
        return [TextBlock(text=content)]
    return [_block(part) for part in content]


def _block(part: Mapping[str, Any]) -> TextBlock | DataBlock:
    if part["type"] == "text":
        return TextBlock(text=part["text"])
    return DataBlock(source=URLSource(url=AnyUrl(part["image_url"]["url"]), media_type=PICTURE))


def _content(blocks: str | Sequence[ContentBlock]) -> str | list[dict[str, Any]]:
    if isinstance(blocks, str):
        return blocks
    parts = [_part(block) for block in blocks if isinstance(block, TextBlock | DataBlock)]
    if any(part["type"] != "text" for part in parts):
        return parts
    return "\n".join(part["text"] for part in parts)


def _part(block: TextBlock | DataBlock) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if not isinstance(block.source, URLSource):
        raise TypeError("pictures are named, never held")
    return {"type": "image_url", "image_url": {"url": str(block.source.url)}}
