"""Prompts a person to approve, edit or reject a tool call, or to answer a question."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from paddock.cli.output.agent_text import clean_terminal_line, clean_terminal_text
from paddock.cli.output.formatting import sanitize_text

AskForLine = Callable[[str], Awaitable[str]]


_EFFECT_WORDS = {
    "reads": "reads only",
    "writes": "writes files",
    "deletes": "deletes",
    "runs": "runs a program",
    "network": "uses the network",
    "unknown": "unknown effect",
}


def describe_approval(approval: Mapping[str, Any]) -> str:
    """Describe an approval in full, so that nothing is approved unseen."""
    if approval.get("type") == "question":
        lines = [clean_terminal_text(str(approval.get("question") or ""))]
        for number, choice in enumerate(approval.get("choices") or [], 1):
            lines.append(f"  {number}) {clean_terminal_line(str(choice.get('label')))}")
        return "\n".join(lines)
    lines = [f"The agent wants to use {escape_invisible_characters(str(approval.get('name')), '')}:"]
    if summary := approval.get("summary"):
        lines.append(f"  {escape_invisible_characters(str(summary.get('text')), '')}")
        lines.append(f"  [{', '.join(_EFFECT_WORDS.get(each, str(each)) for each in summary.get('effects') or ())}]")
    if agent_words := (summary or {}).get("agent_words") or approval.get("question"):
        lines.append(f"  the agent says: {clean_terminal_line(str(agent_words))}")
    for name, value in (approval.get("arguments") or {}).items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        first_line, *more_lines = escape_invisible_characters(text).split("\n")
        lines.append(f"  {escape_invisible_characters(str(name), '')}: {first_line}")
        lines += [f"    {line}" for line in more_lines]
    return "\n".join(lines)


def escape_invisible_characters(text: str, allowed: str = "\n") -> str:
    """Escape invisible characters, so that no part of the text is approved unseen."""
    return "".join(
        character if character.isprintable() or character in allowed else character.encode("unicode_escape").decode()
        for character in text
    )


async def ask_for_approval_decision(
    approval: Mapping[str, Any], ask_for_line: AskForLine, print_text: Callable[[str], None]
) -> dict[str, Any]:
    """Ask for a decision on an approval. Raises the errors of `ask_for_line`, such as `EOFError`."""
    decision = {"approval": approval["id"], "digest": approval["digest"]}
    print_text(describe_approval(approval))
    if approval.get("type") == "question":
        return {**decision, "action": "answer", "answer": await _ask_for_answer(approval, ask_for_line)}
    actions = approval.get("actions") or ()
    options = [
        name
        for name, action in (
            ("[y]es", "approve"),
            ("[a]lways this tool", "approve"),
            ("[e]dit", "edit"),
            ("[n]o", "reject"),
        )
        if action in actions
    ]
    while True:
        reply = (await ask_for_line(f"{', '.join(options)}, or say no and why: ")).strip()
        match reply.lower():
            case "":
                continue
            case "y" | "yes":
                return {**decision, "action": "approve"}
            case "a" | "always":
                return {**decision, "action": "approve", "always": "tool"}
            case "e" | "edit" if "edit" in actions:
                edited = await asyncio.to_thread(edit_call_arguments, approval.get("arguments") or {})
                if isinstance(edited, str):
                    print_text(edited)
                    continue
                return {**decision, "action": "edit", "arguments": edited}
            case "n" | "no":
                return {**decision, "action": "reject"}
            case _:
                reason = reply[2:].lstrip(" ,:;-") if reply.lower().startswith("no") else reply
                return {**decision, "action": "reject", "reason": reason or reply}


async def _ask_for_answer(approval: Mapping[str, Any], ask_for_line: AskForLine) -> str:
    choices = approval.get("choices") or []
    while True:
        reply = (await ask_for_line("your answer: ")).strip()
        if reply.isdigit() and 0 < int(reply) <= len(choices):
            return str(choices[int(reply) - 1]["label"])
        if reply:
            return reply


def edit_call_arguments(arguments: Mapping[str, Any]) -> dict[str, Any] | str:
    """Open the arguments in an editor; return the edited arguments or an error message."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.NamedTemporaryFile("w+", suffix=".json", encoding="utf-8") as file:
        json.dump(arguments, file, indent=2, ensure_ascii=False)
        file.flush()
        try:
            subprocess.run([*shlex.split(editor), file.name], check=True, stdin=sys.stdin)
        except (OSError, subprocess.CalledProcessError, ValueError) as error:
            return sanitize_text(f"{editor} failed: {error}; set EDITOR to another editor")
        try:
            # Opened again, because editors often replace the file.
            edited = json.loads(Path(file.name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            return sanitize_text(f"invalid JSON: {error}")
    return edited if isinstance(edited, dict) else "arguments must be a JSON object: {…}"
