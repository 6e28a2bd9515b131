"""What an agent program is given to read."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from paddock.model.sessions import FileContent, Message, Session, TextContent
from paddock.model.words import WORKSPACE

GO_ON = "Continue."
LONGEST_PAST = 60_000
"""Characters of what was said before that a new agent is told."""
LONGEST_PART = 4_000
Read = Callable[[str], Awaitable[bytes | None]]
"""Reads a file of the session by its SHA-256; None if it is not there."""


async def blocks_of(messages: Sequence[Message], read: Read, *, images: bool) -> list[dict[str, Any]]:
    """Messages as blocks of content. Files are put beside each other in the order in which they were written."""
    found: list[dict[str, Any]] = []
    for message in messages:
        for part in message.content:
            if isinstance(part, TextContent):
                found.append(text_block(f"[note] {part.text}" if message.role == "note" else part.text))
            else:
                found.append(await _file(part, read, images=images))
    return [block for block in found if block]


async def _file(part: FileContent, read: Read, *, images: bool) -> dict[str, Any]:
    name = part.name or part.file[:12]
    if part.type != "image":
        return text_block(f"[the file {name} is at {attachment(part)}]")
    data = await read(part.file) if images else None
    if data is None:
        return text_block(f"[the picture {name} cannot be shown]")
    return {"type": "image", "mimeType": part.mime, "data": base64.b64encode(data).decode()}


def attachment(part: FileContent) -> str:
    """Where a file that a person has attached is in the box."""
    name = part.name.replace("/", "_").replace("\0", "_").strip(". ") or part.file[:12]
    return f"{WORKSPACE}/attachments/{part.file[:8]}-{name}"


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def beginning(session: Session, history: Sequence[Message]) -> list[dict[str, Any]]:
    """What comes before the first prompt: who the agent is to be, where it works, what was said before."""
    parts = []
    if session.instructions.strip():
        parts.append(session.instructions.strip())
    parts.append(f"You work in a sandbox without network; your files are in {WORKSPACE}.")
    if past := transcript(history):
        parts.append(
            "This conversation began elsewhere. What was said until now, in its order; go on from there:\n"
            f"<transcript>\n{past}\n</transcript>"
        )
    return [text_block("\n\n".join(parts))]


def transcript(history: Sequence[Message]) -> str:
    """What was said, in words; the oldest is left out if it is too long."""
    lines: list[str] = []
    left = LONGEST_PAST
    for message in reversed(history):
        line = _line(message)
        left -= len(line)
        if left < 0:
            lines.append("[earlier messages are left out]")
            break
        if line:
            lines.append(line)
    return "\n\n".join(reversed(lines))


def _line(message: Message) -> str:
    said = [message.text] if message.text else []
    said += [
        f"[{part.type} {part.name or part.file[:12]}]" for part in message.content if isinstance(part, FileContent)
    ]
    said += [f"[uses {call.name} with {dict(call.arguments)}]" for call in message.calls]
    text = "\n".join(said)
    if len(text) > LONGEST_PART:
        text = f"{text[:LONGEST_PART]} […]"
    names = {"user": "User", "assistant": "Assistant", "tool": "Result", "note": "Note"}
    return f"{names[message.role]}: {text}" if text else ""
