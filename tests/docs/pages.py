"""Read the commands, files and expected output of a documentation page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUN, FILES = ("console", "sh"), ("yaml", "python", "html")
_FENCE = re.compile(r"^( *)```(\w*)\s*$")
_COMMENT = re.compile(r"^ *<!-- (file|run|type|skip|numbers vary)(?:: (.*?))? -->$")
_INDENTED = re.compile(r"^ {4}\S")
_NAME = re.compile(r"^# ([\w./~-]+\.(?:yaml|py|json|html))\b")


@dataclass(frozen=True)
class Command:
    """A command of a page and the lines that the page shows below it."""

    line: int
    text: str
    output: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """A code block and the comments above it."""

    line: int
    language: str
    lines: tuple[str, ...]
    setup: tuple[Command, ...] = ()
    """Commands of `run` comments."""
    file: str | None = None
    typed: tuple[str, ...] = ()
    skip: str | None = None
    numbers_vary: bool = False

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    @property
    def commands(self) -> tuple[Command, ...]:
        if self.language == "console":
            return tuple(_console(self))
        return tuple(_shell(self)) if self.language == "sh" else ()


@dataclass
class _Above:
    """Comments that were read and belong to the next block."""

    setup: list[Command] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)


def read(page: Path) -> list[Block]:
    """Return the blocks of a page. Raises `ValueError` with file and line for what cannot be run."""
    blocks: list[Block] = []
    above, fence = _Above(), None
    inside: list[str] = []
    begin, indent = 0, 0
    for number, line in enumerate(page.read_text().splitlines(), 1):
        where = f"{page.relative_to(ROOT)}:{number}"
        found = _FENCE.match(line)
        if fence is not None:
            if found and not found[2]:
                blocks.append(_block(where, begin, fence, tuple(inside), above))
                above, fence, inside = _Above(), None, []
            else:
                inside.append(line[indent:])
        elif found:
            begin, indent, fence = number, len(found[1]), found[2]
        elif comment := _COMMENT.match(line):
            name, value = comment[1], comment[2] or ""
            if name == "run":
                above.setup.append(Command(number, value))
            else:
                above.values[name] = value
        elif _INDENTED.match(line):
            raise ValueError(f"{where}: put code between ``` lines, so that it is tested")
        elif line.strip() and above.values:
            raise ValueError(f"{where}: the comment above must stand right before a code block")
    if above.setup:
        blocks.append(Block(above.setup[0].line, "sh", (), tuple(above.setup)))
    return blocks


def _block(where: str, line: int, language: str, lines: tuple[str, ...], above: _Above) -> Block:
    values = above.values
    named = _NAME.match(lines[0]) if lines else None
    file = values.get("file") or (named[1] if named else None)
    if language not in (*RUN, *FILES, "json", "text"):
        raise ValueError(f"{where}: ```{language} is none of {', '.join((*RUN, *FILES, 'json', 'text'))}")
    if language in ("yaml", "html") and not file and "skip" not in values:
        raise ValueError(f"{where}: name the file in a comment: <!-- file: NAME -->")
    typed = tuple(values["type"].split(" | ")) if "type" in values else ()
    return Block(
        line,
        language,
        lines,
        tuple(above.setup),
        file,
        typed,
        values.get("skip"),
        numbers_vary="numbers vary" in values,
    )


def _console(block: Block) -> Iterator[Command]:
    line, words, output = block.line, "", list[str]()
    for number, text in enumerate(block.lines, block.line + 1):
        if words.endswith("\\") and not output:
            words += f"\n{text}"
        elif text.startswith("$ "):
            if words:
                yield Command(line, words, tuple(output))
            line, words, output = number, text[2:], []
        elif words:
            output.append(text)
        else:
            raise ValueError(f"line {number}: a console block begins with `$ `")
    if words:
        yield Command(line, words, tuple(output))


def _shell(block: Block) -> Iterator[Command]:
    words = ""
    for number, text in enumerate(block.lines, block.line + 1):
        words = f"{words}\n{text}" if words else text
        if not words.endswith("\\"):
            if words.strip() and not words.lstrip().startswith("#"):
                yield Command(number, words)
            words = ""
