"""What a person types in a chat: messages, and decisions about what the agent wants to do."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from paddock.cli.output import plain
from paddock.cli.run_progress import one_line, tidy

PROMPT = "\001\x1b[1;32m\002you>\001\x1b[0m\002 "
_HISTORY = 1000
Ask = Callable[[str], Awaitable[str]]


class Keyboard:
    """Lines that are typed, with a history of their own where the terminal knows how."""

    def __init__(self, history: Path) -> None:
        self._history = history
        self._ready = False

    async def line(self, prompt: str = PROMPT) -> str:
        """One line. Raises `EOFError` at ctrl-d, `KeyboardInterrupt` at ctrl-c."""
        self._prepare()
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            # In this thread, though it blocks: ctrl-c reaches no other, and what happens meanwhile would be
            # written into the line that is being typed.
            return input(prompt)  # noqa: ASYNC250
        finally:
            signal.signal(signal.SIGINT, before)

    def _prepare(self) -> None:
        if self._ready:
            return
        self._ready = True
        try:
            import readline
        except ImportError:
            return
        try:
            readline.read_history_file(self._history)
        except OSError:
            pass
        readline.set_history_length(_HISTORY)

    def close(self) -> None:
        try:
            import readline

            self._history.touch(mode=0o600)
            readline.write_history_file(self._history)
        except (ImportError, OSError):
            pass


_EFFECTS = {
    "reads": "reads only",
    "writes": "writes files",
    "deletes": "deletes",
    "runs": "runs a program",
    "network": "reaches the network",
    "unknown": "its effect is not known",
}


def describe(approval: Mapping[str, Any]) -> str:
    """What is asked, whole: nobody shall approve what they have not seen."""
    if approval.get("type") == "question":
        lines = [tidy(str(approval.get("question") or ""))]
        for number, choice in enumerate(approval.get("choices") or [], 1):
            lines.append(f"  {number}) {one_line(str(choice.get('label')))}")
        return "\n".join(lines)
    lines = [f"It wants to use {to_the_letter(str(approval.get('name')), '')}:"]
    if summary := approval.get("summary"):
        lines.append(f"  {to_the_letter(str(summary.get('text')), '')}")
        lines.append(f"  [{', '.join(_EFFECTS.get(each, str(each)) for each in summary.get('effects') or ())}]")
    if said := (summary or {}).get("agent_words") or approval.get("question"):
        lines.append(f"  the agent says: {one_line(str(said))}")
    for name, value in (approval.get("arguments") or {}).items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        first, *more = to_the_letter(text).split("\n")
        lines.append(f"  {to_the_letter(str(name), '')}: {first}")
        lines += [f"    {line}" for line in more]
    return "\n".join(lines)


def to_the_letter(text: str, kept: str = "\n") -> str:
    """Text with everything in it that cannot be seen: what is left out, or written over, would be approved unseen."""
    return "".join(
        letter if letter.isprintable() or letter in kept else letter.encode("unicode_escape").decode()
        for letter in text
    )


async def decide(approval: Mapping[str, Any], ask: Ask, say: Callable[[str], None]) -> dict[str, Any]:
    """Have a person decide. Raises what `ask` raises when they leave."""
    decision = {"approval": approval["id"], "digest": approval["digest"]}
    say(describe(approval))
    if approval.get("type") == "question":
        return {**decision, "action": "answer", "answer": await _answer(approval, ask)}
    actions = approval.get("actions") or ()
    offered = [
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
        said = (await ask(f"{', '.join(offered)}, or say no and why: ")).strip()
        match said.lower():
            case "":
                continue
            case "y" | "yes":
                return {**decision, "action": "approve"}
            case "a" | "always":
                return {**decision, "action": "approve", "always": "tool"}
            case "e" | "edit" if "edit" in actions:
                edited = await asyncio.to_thread(edit, approval.get("arguments") or {})
                if isinstance(edited, str):
                    say(edited)
                    continue
                return {**decision, "action": "edit", "arguments": edited}
            case "n" | "no":
                return {**decision, "action": "reject"}
            case _:
                reason = said[2:].lstrip(" ,:;-") if said.lower().startswith("no") else said
                return {**decision, "action": "reject", "reason": reason or said}


async def _answer(approval: Mapping[str, Any], ask: Ask) -> str:
    choices = approval.get("choices") or []
    while True:
        said = (await ask("your answer: ")).strip()
        if said.isdigit() and 0 < int(said) <= len(choices):
            return str(choices[int(said) - 1]["label"])
        if said:
            return said


def edit(arguments: Mapping[str, Any]) -> dict[str, Any] | str:
    """The arguments as a person leaves them in their editor, or what is wrong with them."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.NamedTemporaryFile("w+", suffix=".json", encoding="utf-8") as file:
        json.dump(arguments, file, indent=2, ensure_ascii=False)
        file.flush()
        try:
            subprocess.run([*shlex.split(editor), file.name], check=True, stdin=sys.stdin)
        except (OSError, subprocess.CalledProcessError, ValueError) as error:
            return plain(f"{editor} did not work: {error}; set EDITOR to another")
        try:
            # Anew: editors like to put another file in its place.
            edited = json.loads(Path(file.name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            return plain(f"that is no JSON: {error}")
    return edited if isinstance(edited, dict) else "arguments are a JSON object: {…}"
