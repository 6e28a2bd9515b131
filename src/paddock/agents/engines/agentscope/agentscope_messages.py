"""Lossless conversion between OpenAI chat messages and AgentScope messages."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import AnyUrl

with warnings.catch_warnings():
    # AgentScope changes the warning filters of the whole process.
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

AGENT_NAME = "agent"
"""Name of the agent in its own messages."""
USER_NAME = "user"
IMAGE_TYPE = "image/*"
"""Placeholder for the type of an image, which AgentScope requires and the turn knows from the file."""


def to_agentscope_messages(messages: Iterable[Mapping[str, Any]]) -> list[Msg]:
    """Convert chat messages without the system prompt; results are added to the message of their call."""
    context: list[Msg] = []
    for message in messages:
        match message["role"]:
            case "user":
                context.append(Msg(name=USER_NAME, role="user", content=[*_content_blocks(message["content"])]))
            case "assistant":
                calls = [
                    agentscope_call_block(call["id"], call["function"]["name"], call["function"]["arguments"])
                    for call in message.get("tool_calls") or ()
                ]
                context.append(
                    Msg(name=AGENT_NAME, role="assistant", content=[*_content_blocks(message["content"]), *calls])
                )
            case "tool":
                context[-1].content.append(
                    agentscope_result_block(message["tool_call_id"], message["name"], message["content"])
                )
    return context


def agentscope_result_block(call_id: str, name: str, content: str | Sequence[Mapping[str, Any]]) -> ToolResultBlock:
    return ToolResultBlock(id=call_id, name=name, output=_content_blocks(content), state=ToolResultState.SUCCESS)


def agentscope_call_block(call_id: str, name: str, arguments: str) -> ToolCallBlock:
    return ToolCallBlock(id=call_id, name=name, input=arguments)


def to_chat_messages(context: Iterable[Msg]) -> list[dict[str, Any]]:
    """Convert AgentScope messages to the chat messages of a model request."""
    chat_messages: list[dict[str, Any]] = []
    for message in context:
        if message.role == "assistant":
            chat_messages += _assistant_messages(message.content)
        else:
            chat_messages.append({"role": message.role, "content": _openai_content(message.content)})
    return chat_messages


def _assistant_messages(blocks: Iterable[ContentBlock]) -> list[dict[str, Any]]:
    """Split an AgentScope message, which holds all rounds of a reply, into chat messages."""
    messages: list[dict[str, Any]] = []
    for block in blocks:
        match block:
            case TextBlock():
                messages.append({"role": "assistant", "content": block.text})
            case ToolCallBlock():
                if not messages or messages[-1]["role"] != "assistant":
                    messages.append({"role": "assistant", "content": None})
                function = {"name": block.name, "arguments": block.input}
                calls = messages[-1].setdefault("tool_calls", [])
                calls.append({"id": block.id, "type": "function", "function": function})
            case ToolResultBlock():
                result = {"role": "tool", "tool_call_id": block.id, "name": block.name}
                messages.append({**result, "content": _openai_content(block.output)})
    return messages


def _content_blocks(content: str | Sequence[Mapping[str, Any]] | None) -> list[TextBlock | DataBlock]:
    if not content:
        return []
    if isinstance(content, str):
        return [TextBlock(text=content)]
    return [_content_block(part) for part in content]


def _content_block(part: Mapping[str, Any]) -> TextBlock | DataBlock:
    if part["type"] == "text":
        return TextBlock(text=part["text"])
    return DataBlock(source=URLSource(url=AnyUrl(part["image_url"]["url"]), media_type=IMAGE_TYPE))


def _openai_content(blocks: str | Sequence[ContentBlock]) -> str | list[dict[str, Any]]:
    if isinstance(blocks, str):
        return blocks
    parts = [_openai_part(block) for block in blocks if isinstance(block, TextBlock | DataBlock)]
    if any(part["type"] != "text" for part in parts):
        return parts
    return "\n".join(part["text"] for part in parts)


def _openai_part(block: TextBlock | DataBlock) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if not isinstance(block.source, URLSource):
        raise TypeError("images are references, never data")
    return {"type": "image_url", "image_url": {"url": str(block.source.url)}}
