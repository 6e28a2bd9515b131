"""Conversations in the shape that formats with strictly alternating turns want."""

from __future__ import annotations

import json
from typing import Any

from paddock.llm.formats.notes import note
from paddock.llm.neutral import Message, Part, Refusal, Role, Text, ToolResult


def alternating(messages: list[Message], notes: list[str]) -> tuple[list[Text], list[Message]]:
    """The system prompt, and turns of user and assistant that never follow their own kind.

    A system message in the middle becomes part of the user's turn, marked as what it is. Tool results come first in
    their turn, since providers want them right after the calls. Empty texts and turns are left out.
    """
    system: list[Text] = []
    turns: list[Message] = []
    for message in messages:
        if message.role is Role.SYSTEM and not turns:
            system += [part for part in message.parts if isinstance(part, Text) and part.text]
            continue
        role, parts = message.role, _worthwhile(message)
        if not parts:
            continue
        if turns and turns[-1].role is role:
            turns[-1].parts += parts
        else:
            turns.append(Message(role, parts))
    turns = _fold_system(turns, notes)
    if not turns and system:
        # A conversation must not be empty: what there is to say is said by the user.
        turns = [Message(Role.USER, [*system])]
        system = []
    for turn in turns:
        turn.parts.sort(key=lambda part: not isinstance(part, ToolResult))
    return system, turns


def _worthwhile(message: Message) -> list[Part]:
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, Refusal):
            part = Text(part.text)
        if not isinstance(part, Text) or part.text:
            parts.append(part)
    return parts


def _fold_system(turns: list[Message], notes: list[str]) -> list[Message]:
    folded: list[Message] = []
    for turn in turns:
        role, parts = turn.role, turn.parts
        if role is Role.SYSTEM:
            role, parts = Role.USER, as_users(parts, notes)
        if folded and folded[-1].role is role:
            folded[-1].parts += parts
        else:
            folded.append(Message(role, parts))
    return folded


def as_users(parts: list[Part], notes: list[str]) -> list[Part]:
    """What a system message in the middle of a conversation says, as part of the user's turn."""
    note(notes, "a system message in the middle of the conversation became part of the user's turn")
    return [
        Text(f"<system>\n{part.text}\n</system>", part.cached) if isinstance(part, Text) else part for part in parts
    ]


def arguments_object(arguments: str) -> dict[str, Any]:
    """A call's arguments as the object some formats want. What a model wrote wrongly is kept, under `arguments`."""
    try:
        value = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        value = arguments
    return value if isinstance(value, dict) else {"arguments": value}


def arguments_text(value: Any) -> str:
    """A call's arguments as JSON text, be they that already or the object itself; nothing where there are none."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
