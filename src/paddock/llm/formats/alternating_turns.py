"""Reshape conversations for formats that require alternating user and assistant turns."""

from __future__ import annotations

from paddock.llm.formats.neutral import MessagePart, MessageRole, ModelMessage, ModelRefusal, ModelText, ModelToolResult
from paddock.llm.formats.translation_notes import add_translation_note


def to_alternating_turns(messages: list[ModelMessage], notes: list[str]) -> tuple[list[ModelText], list[ModelMessage]]:
    """Return the system prompt and strictly alternating user and assistant turns.

    A system message in the middle becomes a marked part of the user's turn. Tool results come first in their turn,
    because providers require them right after the calls. Empty texts and turns are dropped.
    """
    system: list[ModelText] = []
    turns: list[ModelMessage] = []
    for message in messages:
        if message.role is MessageRole.SYSTEM and not turns:
            system += [part for part in message.parts if isinstance(part, ModelText) and part.text]
            continue
        role, parts = message.role, _non_empty_parts(message)
        if not parts:
            continue
        if turns and turns[-1].role is role:
            turns[-1].parts += parts
        else:
            turns.append(ModelMessage(role, parts))
    turns = _merge_system_turns(turns, notes)
    if not turns and system:
        # Providers reject an empty conversation, so the system prompt becomes the user's turn.
        turns = [ModelMessage(MessageRole.USER, [*system])]
        system = []
    for turn in turns:
        turn.parts.sort(key=lambda part: not isinstance(part, ModelToolResult))
    return system, turns


def _non_empty_parts(message: ModelMessage) -> list[MessagePart]:
    parts: list[MessagePart] = []
    for part in message.parts:
        if isinstance(part, ModelRefusal):
            part = ModelText(part.text)
        if not isinstance(part, ModelText) or part.text:
            parts.append(part)
    return parts


def _merge_system_turns(turns: list[ModelMessage], notes: list[str]) -> list[ModelMessage]:
    merged: list[ModelMessage] = []
    for turn in turns:
        role, parts = turn.role, turn.parts
        if role is MessageRole.SYSTEM:
            role, parts = MessageRole.USER, system_parts_as_user_parts(parts, notes)
        if merged and merged[-1].role is role:
            merged[-1].parts += parts
        else:
            merged.append(ModelMessage(role, parts))
    return merged


def system_parts_as_user_parts(parts: list[MessagePart], notes: list[str]) -> list[MessagePart]:
    """Convert a system message in the middle of a conversation to parts of the user's turn."""
    add_translation_note(notes, "a system message in the middle of the conversation became part of the user's turn")
    return [
        ModelText(f"<system>\n{part.text}\n</system>", part.cached) if isinstance(part, ModelText) else part
        for part in parts
    ]
