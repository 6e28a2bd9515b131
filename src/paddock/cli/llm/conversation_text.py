"""Prints the messages of a conversation for reading."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from paddock.cli.output.errors import supports_colour
from paddock.cli.output.formatting import format_size, sanitize_text

if TYPE_CHECKING:
    from rich.console import Console

_MAX_LINES = 16
"""Limit of lines per part, unless `full`."""
_MAX_TEXT_CHARACTERS = 1600
_INDENT = "  "
_STYLES = {"system": "2", "user": "1;36", "assistant": "1;32", "tool": "1;33", "answer": "1;32"}


class ConversationPrinter:
    """Writes messages to standard output with a heading for each role."""

    def __init__(self, *, full: bool) -> None:
        self._full = full
        self._cut = 0
        self._colours = supports_colour(sys.stdout)
        self._console: Console | None = None
        if sys.stdout.isatty():
            from rich.console import Console

            self._console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
        self._calls: dict[str, str] = {}

    def print_messages(self, messages: Iterable[dict[str, Any]]) -> None:
        for message in messages:
            parts = message["parts"]
            results = [part for part in parts if part["type"] == "toolResult"]
            other_parts = [part for part in parts if part["type"] != "toolResult"]
            for result in results:
                self._print_tool_result(result)
            if other_parts or not results:
                self._print_role(message["role"])
                self._print_parts(other_parts)

    def print_answer(self, answer: dict[str, Any]) -> None:
        finish = answer.get("finish")
        self._print_role("answer", f"ends with {finish}" if finish else "")
        self._print_parts(answer["parts"])

    def print_cut_note(self) -> None:
        """Print how many texts were cut."""
        if self._cut:
            cut = "1 long text is cut" if self._cut == 1 else f"{self._cut} long texts are cut"
            self._write(f"\n{self._style('2')}{cut}; use --full to print everything{self._style()}\n")

    def _print_parts(self, parts: Iterable[dict[str, Any]]) -> None:
        for part in parts:
            kind = part["type"]
            if kind in ("text", "refusal"):
                self._print_text(("refused: " if kind == "refusal" else "") + part["text"])
            elif kind == "thinking":
                sealed = "(encrypted by the provider)" if part.get("redacted") or part.get("signature") else "(empty)"
                self._print_text(f"thinks: {part.get('text') or sealed}", style="2;3")
            elif kind == "toolCall":
                self._calls[part["id"]] = part["name"]
                self._print_text(f"→ {part['name']} {_format_arguments(part['arguments'])}", style="33")
            else:
                self._print_text(_format_media(part), style="2")

    def _print_tool_result(self, part: dict[str, Any]) -> None:
        name = part.get("name") or self._calls.get(part["callId"]) or part["callId"]
        self._print_role("tool", f"{name}{' failed' if part.get('isError') else ''}")
        for each in part["content"]:
            self._print_text(each["text"] if each["type"] == "text" else _format_media(each))

    def _print_role(self, role: str, more: str = "") -> None:
        heading = f"{self._style(_STYLES.get(role, '1'))}{sanitize_text(role)}{self._style()}"
        self._write(f"\n{heading}{f'  {sanitize_text(more)}' if more else ''}\n")

    def _print_text(self, text: str, style: str = "") -> None:
        text = text.replace("\r\n", "\n").expandtabs(4).strip("\n")
        lines = text.split("\n")
        cut_count = 0
        if not self._full:
            shown = text[:_MAX_TEXT_CHARACTERS].split("\n")[:_MAX_LINES]
            if len(shown) < len(lines) or len(text) > _MAX_TEXT_CHARACTERS:
                cut_count = len(text) - len("\n".join(shown))
                lines = shown
                self._cut += 1
        for line in self._fold_lines(map(sanitize_text, lines)):
            self._write(f"{_INDENT}{self._style(style)}{line}{self._style() if style else ''}".rstrip() + "\n")
        if cut_count:
            self._write(f"{_INDENT}{self._style('2')}… {cut_count:,} more characters{self._style()}\n")

    def _fold_lines(self, lines: Iterable[str]) -> Iterable[str]:
        """Fold lines to the terminal's width; lines in a pipe are not changed."""
        if self._console is None:
            return lines
        from rich.text import Text

        width = max(20, self._console.width - len(_INDENT))
        return [part.plain.rstrip() for line in lines for part in Text(line).wrap(self._console, width) or [Text()]]

    def _style(self, code: str = "0") -> str:
        return f"\x1b[{code}m" if self._colours and code else ""

    def _write(self, text: str) -> None:
        sys.stdout.write(text)


def _format_arguments(text: str) -> str:
    """Format a call's arguments on one line, with multi-line texts below."""
    try:
        document = json.loads(text)
    except ValueError:
        return text
    if not isinstance(document, dict):
        return text
    short = {name: value for name, value in document.items() if not (isinstance(value, str) and "\n" in value)}
    lines = [json.dumps(short, ensure_ascii=False)] if short or not document else []
    for name, value in document.items():
        if name not in short:
            lines.append(f"{name}:\n" + "\n".join(f"  {line}" for line in value.rstrip("\n").split("\n")))
    return "\n".join(lines)


def _format_media(part: dict[str, Any]) -> str:
    kind = part.get("mediaType") or part.get("kind") or part["type"]
    name_or_url = part.get("name") or part.get("url") or ""
    amount = format_size(len(part["data"]) * 3 / 4) if part.get("data") else ""
    return f"[{' '.join(word for word in (str(kind), name_or_url, amount) if word)}]"
