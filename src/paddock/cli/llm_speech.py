"""What was said in a conversation, laid out for reading."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from paddock.cli.failure import wants_colour
from paddock.cli.output import plain, size

if TYPE_CHECKING:
    from rich.console import Console

_MOST_LINES = 16
"""Of one part, unless all is wanted."""
_MOST_LETTERS = 1600
_INDENT = "  "
_STYLES = {"system": "2", "user": "1;36", "assistant": "1;32", "tool": "1;33", "answer": "1;32"}


class Speech:
    """Writes messages to standard output, one role after the other."""

    def __init__(self, *, full: bool) -> None:
        self._full = full
        self._cut = 0
        self._colours = wants_colour(sys.stdout)
        self._console: Console | None = None
        if sys.stdout.isatty():
            from rich.console import Console

            self._console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
        self._calls: dict[str, str] = {}

    def messages(self, messages: Iterable[dict[str, Any]]) -> None:
        for message in messages:
            parts = message["parts"]
            results = [part for part in parts if part["type"] == "toolResult"]
            others = [part for part in parts if part["type"] != "toolResult"]
            for result in results:
                self._result(result)
            if others or not results:
                self._head(message["role"])
                self._parts(others)

    def answer(self, answer: dict[str, Any]) -> None:
        finish = answer.get("finish")
        self._head("answer", f"ends with {finish}" if finish else "")
        self._parts(answer["parts"])

    def end(self) -> None:
        """Say what was left out."""
        if self._cut:
            cut = "1 long text is cut" if self._cut == 1 else f"{self._cut} long texts are cut"
            self._write(f"\n{self._style('2')}{cut}; read it all with --full{self._style()}\n")

    def _parts(self, parts: Iterable[dict[str, Any]]) -> None:
        for part in parts:
            kind = part["type"]
            if kind in ("text", "refusal"):
                self._text(("refused: " if kind == "refusal" else "") + part["text"])
            elif kind == "thinking":
                sealed = "(sealed by the provider)" if part.get("redacted") or part.get("signature") else "(nothing)"
                self._text(f"thinks: {part.get('text') or sealed}", style="2;3")
            elif kind == "toolCall":
                self._calls[part["id"]] = part["name"]
                self._text(f"→ {part['name']} {_arguments(part['arguments'])}", style="33")
            else:
                self._text(_media(part), style="2")

    def _result(self, part: dict[str, Any]) -> None:
        name = part.get("name") or self._calls.get(part["callId"]) or part["callId"]
        self._head("tool", f"{name}{' failed' if part.get('isError') else ''}")
        for each in part["content"]:
            self._text(each["text"] if each["type"] == "text" else _media(each))

    def _head(self, role: str, more: str = "") -> None:
        said = f"{self._style(_STYLES.get(role, '1'))}{plain(role)}{self._style()}"
        self._write(f"\n{said}{f'  {plain(more)}' if more else ''}\n")

    def _text(self, text: str, style: str = "") -> None:
        text = text.replace("\r\n", "\n").expandtabs(4).strip("\n")
        lines = text.split("\n")
        left = 0
        if not self._full:
            shown = text[:_MOST_LETTERS].split("\n")[:_MOST_LINES]
            if len(shown) < len(lines) or len(text) > _MOST_LETTERS:
                left = len(text) - len("\n".join(shown))
                lines = shown
                self._cut += 1
        for line in self._folded(map(plain, lines)):
            self._write(f"{_INDENT}{self._style(style)}{line}{self._style() if style else ''}".rstrip() + "\n")
        if left:
            self._write(f"{_INDENT}{self._style('2')}… {left:,} more letters{self._style()}\n")

    def _folded(self, lines: Iterable[str]) -> Iterable[str]:
        """Lines that fit the terminal, if there is one; what reads a pipe wants them as they are."""
        if self._console is None:
            return lines
        from rich.text import Text

        width = max(20, self._console.width - len(_INDENT))
        return [part.plain.rstrip() for line in lines for part in Text(line).wrap(self._console, width) or [Text()]]

    def _style(self, code: str = "0") -> str:
        return f"\x1b[{code}m" if self._colours and code else ""

    def _write(self, text: str) -> None:
        sys.stdout.write(text)


def _arguments(text: str) -> str:
    """A call's arguments on one line, or its long texts below each other."""
    try:
        document = json.loads(text)
    except ValueError:
        return text
    if not isinstance(document, dict):
        return text
    short = {name: value for name, value in document.items() if not (isinstance(value, str) and "\n" in value)}
    said = [json.dumps(short, ensure_ascii=False)] if short or not document else []
    for name, value in document.items():
        if name not in short:
            said.append(f"{name}:\n" + "\n".join(f"  {line}" for line in value.rstrip("\n").split("\n")))
    return "\n".join(said)


def _media(part: dict[str, Any]) -> str:
    kind = part.get("mediaType") or part.get("kind") or part["type"]
    where = part.get("name") or part.get("url") or ""
    amount = size(len(part["data"]) * 3 / 4) if part.get("data") else ""
    return f"[{' '.join(word for word in (str(kind), where, amount) if word)}]"
