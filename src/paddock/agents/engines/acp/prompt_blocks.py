"""Content blocks of prompts to agent programs."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from paddock.model.sessions import FileContent, Session, SessionMessage, TextContent
from paddock.model.task_fields import WORKSPACE

CONTINUE_PROMPT = "Continue."
MAX_HISTORY_CHARACTERS = 60_000
"""Maximum characters of earlier messages in the first prompt."""
MAX_MESSAGE_CHARACTERS = 4_000
ReadFile = Callable[[str], Awaitable[bytes | None]]
"""Reads a file of the session by its SHA-256; None if it is not there."""


async def message_prompt_blocks(
    messages: Sequence[SessionMessage], read_file: ReadFile, *, images: bool
) -> list[dict[str, Any]]:
    """Convert messages to content blocks, in order."""
    blocks: list[dict[str, Any]] = []
    for message in messages:
        for part in message.content:
            if isinstance(part, TextContent):
                blocks.append(text_prompt_block(f"[note] {part.text}" if message.role == "note" else part.text))
            else:
                blocks.append(await _file_block(part, read_file, images=images))
    return [block for block in blocks if block]


async def _file_block(part: FileContent, read_file: ReadFile, *, images: bool) -> dict[str, Any]:
    name = part.name or part.file[:12]
    if part.type != "image":
        return text_prompt_block(f"[the file {name} is at {sandbox_attachment_path(part)}]")
    data = await read_file(part.file) if images else None
    if data is None:
        return text_prompt_block(f"[the picture {name} cannot be shown]")
    return {"type": "image", "mimeType": part.mime, "data": base64.b64encode(data).decode()}


def sandbox_attachment_path(part: FileContent) -> str:
    """Return the path of an attached file in the sandbox."""
    name = part.name.replace("/", "_").replace("\0", "_").strip(". ") or part.file[:12]
    return f"{WORKSPACE}/attachments/{part.file[:8]}-{name}"


def text_prompt_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def first_prompt_blocks(session: Session, history: Sequence[SessionMessage]) -> list[dict[str, Any]]:
    """Return the blocks before the first prompt: instructions, workspace and earlier messages."""
    parts = []
    if session.instructions.strip():
        parts.append(session.instructions.strip())
    parts.append(
        f"You work in a sandbox that reaches only what its network policy allows; your files are in {WORKSPACE}."
    )
    if earlier := history_transcript(history):
        parts.append(
            "This conversation began elsewhere. What was said until now, in its order; go on from there:\n"
            f"<transcript>\n{earlier}\n</transcript>"
        )
    return [text_prompt_block("\n\n".join(parts))]


def history_transcript(history: Sequence[SessionMessage]) -> str:
    """Return the messages as text; the oldest are left out if it is too long."""
    lines: list[str] = []
    characters_left = MAX_HISTORY_CHARACTERS
    for message in reversed(history):
        line = _transcript_line(message)
        characters_left -= len(line)
        if characters_left < 0:
            lines.append("[earlier messages are left out]")
            break
        if line:
            lines.append(line)
    return "\n\n".join(reversed(lines))


def _transcript_line(message: SessionMessage) -> str:
    lines = [message.text] if message.text else []
    lines += [
        f"[{part.type} {part.name or part.file[:12]}]" for part in message.content if isinstance(part, FileContent)
    ]
    lines += [f"[uses {call.name} with {dict(call.arguments)}]" for call in message.calls]
    text = "\n".join(lines)
    if len(text) > MAX_MESSAGE_CHARACTERS:
        text = f"{text[:MAX_MESSAGE_CHARACTERS]} […]"
    names = {"user": "User", "assistant": "Assistant", "tool": "Result", "note": "Note"}
    return f"{names[message.role]}: {text}" if text else ""
