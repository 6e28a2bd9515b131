"""What was said in a session, in the words of OpenAI's chat completions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from paddock.agents.engines.base import FILE_SCHEME
from paddock.model.sessions import Call, Content, FileContent, Message, TextContent

NOTE = "[note] "
"""How a message begins that the server wrote, not a person."""
NO_RESULT = "[This call has no result: it was not finished. It may or may not have happened.]"


def to_openai(prompt: str, history: Sequence[Message]) -> list[dict[str, Any]]:
    """The system prompt, if there is one, and the history.

    Results follow the calls they belong to, whatever was written in between, and calls without one get one that says
    so. What helpers said among themselves is left out; the agent has their results.
    """
    said: list[dict[str, Any]] = [{"role": "system", "content": prompt}] if prompt else []
    results: dict[str, Message] = {}
    for message in history:
        if message.role == "tool" and message.call_id is not None:
            results.setdefault(message.call_id, message)
    for message in history:
        match message.role:
            case "user":
                said.append({"role": "user", "content": content_of(message.content)})
            case "note":
                note: list[Content] = [TextContent(text=NOTE + message.text), *_files(message.content)]
                said.append({"role": "user", "content": content_of(note)})
            case "assistant" if message.by is None:
                said += _answer(message, results)
    return said


def content_of(content: Sequence[Content]) -> str | list[dict[str, Any]]:
    """Text by itself, or parts where there are pictures."""
    parts = [part_of(each) for each in content]
    if any(part["type"] != "text" for part in parts):
        return parts
    return "\n".join(part["text"] for part in parts)


def part_of(content: Content) -> dict[str, Any]:
    """One part of a message. Pictures are named by `FILE_SCHEME` and their SHA-256."""
    if isinstance(content, TextContent):
        return {"type": "text", "text": content.text}
    if content.type == "image":
        return {"type": "image_url", "image_url": {"url": FILE_SCHEME + content.file}}
    name = content.name or content.file[:12]
    return {"type": "text", "text": f"[file {name}: {content.mime}, {content.size} bytes]"}


def call_object(call: Call) -> dict[str, Any]:
    """A call as an assistant's message holds it. One that was malformed has no arguments: servers refuse such JSON."""
    arguments = json.dumps(call.arguments, ensure_ascii=False, default=dict)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _files(content: Sequence[Content]) -> list[FileContent]:
    return [each for each in content if isinstance(each, FileContent)]


def _answer(message: Message, results: dict[str, Message]) -> list[dict[str, Any]]:
    text = message.text
    if message.cut is not None and text:
        text = f"{text}\n[cut off: {message.cut}]"
    if not text and not message.calls:
        return []
    answer: dict[str, Any] = {"role": "assistant", "content": text or None}
    if message.calls:
        answer["tool_calls"] = [call_object(call) for call in message.calls]
    return [answer, *(_result(call, results.get(call.id)) for call in message.calls)]


def _result(call: Call, message: Message | None) -> dict[str, Any]:
    content = NO_RESULT if message is None else content_of(message.content)
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content}
