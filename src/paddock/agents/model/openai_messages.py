"""Session messages in the format of OpenAI's chat completions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from paddock.agents.engines.base import FILE_SCHEME
from paddock.model.sessions import FileContent, MessageContent, SessionMessage, TextContent, ToolCall

NOTE_PREFIX = "[note] "
"""Prefix of messages that the server wrote."""
NO_RESULT = "[This call has no result: it was not finished. It may or may not have happened.]"


def to_openai_messages(prompt: str, history: Sequence[SessionMessage]) -> list[dict[str, Any]]:
    """Convert the system prompt, if any, and the history.

    Each result follows its call, whatever was written in between; calls without a result get a placeholder. Messages
    of helper agents are left out, because the agent has their results.
    """
    converted: list[dict[str, Any]] = [{"role": "system", "content": prompt}] if prompt else []
    results: dict[str, SessionMessage] = {}
    for message in history:
        if message.role == "tool" and message.call_id is not None:
            results.setdefault(message.call_id, message)
    for message in history:
        match message.role:
            case "user":
                converted.append({"role": "user", "content": to_openai_content(message.content)})
            case "note":
                note: list[MessageContent] = [
                    TextContent(text=NOTE_PREFIX + message.text),
                    *_file_parts(message.content),
                ]
                converted.append({"role": "user", "content": to_openai_content(note)})
            case "assistant" if message.by is None:
                converted += _assistant_messages(message, results)
    return converted


def to_openai_content(content: Sequence[MessageContent]) -> str | list[dict[str, Any]]:
    """Return plain text, or content parts if there are images."""
    parts = [to_openai_content_part(each) for each in content]
    if any(part["type"] != "text" for part in parts):
        return parts
    return "\n".join(part["text"] for part in parts)


def to_openai_content_part(content: MessageContent) -> dict[str, Any]:
    """Convert one content part; images are referenced by `FILE_SCHEME` and their SHA-256."""
    if isinstance(content, TextContent):
        return {"type": "text", "text": content.text}
    if content.type == "image":
        return {"type": "image_url", "image_url": {"url": FILE_SCHEME + content.file}}
    name = content.name or content.file[:12]
    return {"type": "text", "text": f"[file {name}: {content.mime}, {content.size} bytes]"}


def tool_call_object(call: ToolCall) -> dict[str, Any]:
    """Convert a call; malformed arguments are left out, because providers reject invalid JSON."""
    arguments = json.dumps(call.arguments, ensure_ascii=False, default=dict)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _file_parts(content: Sequence[MessageContent]) -> list[FileContent]:
    return [each for each in content if isinstance(each, FileContent)]


def _assistant_messages(message: SessionMessage, results: dict[str, SessionMessage]) -> list[dict[str, Any]]:
    text = message.text
    if message.cut is not None and text:
        text = f"{text}\n[cut off: {message.cut}]"
    if not text and not message.calls:
        return []
    assistant_message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if message.calls:
        assistant_message["tool_calls"] = [tool_call_object(call) for call in message.calls]
    return [assistant_message, *(_tool_message(call, results.get(call.id)) for call in message.calls)]


def _tool_message(call: ToolCall, message: SessionMessage | None) -> dict[str, Any]:
    content = NO_RESULT if message is None else to_openai_content(message.content)
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content}
