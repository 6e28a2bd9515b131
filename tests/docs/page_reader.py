"""Read the commands, files and expected output of a documentation page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUN, FILES = ("console", "sh"), ("yaml", "python", "html")
_FENCE = re.compile(r"^( *)```(\w*)\s*$")
_COMMENT = re.compile(r"^ *<!-- (file|run|type|exit|skip|numbers vary)(?:: (.*?))? -->$")
_INDENTED = re.compile(r"^ {4}\S")
_NAME = re.compile(r"^# ([\w./~-]+\.(?:yaml|py|json|html))\b")


@dataclass(frozen=True)
class PageCommand:
    """A command of a page and the expected output below it."""

    line: int
    text: str
    output: tuple[str, ...] = ()


@dataclass(frozen=True)
class PageBlock:
    """A code block and the comments above it."""

    line: int
    language: str
    lines: tuple[str, ...]
    setup: tuple[PageCommand, ...] = ()
    """Commands of `run` comments."""
    file: str | None = None
    typed: tuple[str, ...] = ()
    exit_code: int | None = None
    """Exit code of every command of the block, if the page names it."""
    skip: str | None = None
    numbers_vary: bool = False

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    @property
    def commands(self) -> tuple[PageCommand, ...]:
        if self.language == "console":
            return tuple(_console_commands(self))
        return tuple(_shell_commands(self)) if self.language == "sh" else ()


@dataclass
class _PendingComments:
    """Comments that belong to the next block."""

    setup: list[PageCommand] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)


def page_name(page: Path) -> str:
    """Return the path of a page, relative to the repository if the page is in it."""
    return str(page.relative_to(ROOT) if page.is_relative_to(ROOT) else page)


def read_blocks(page: Path) -> list[PageBlock]:
    """Return the blocks of a page. Raises `ValueError` with file and line for what cannot be run."""
    blocks: list[PageBlock] = []
    comments, fence = _PendingComments(), None
    inside: list[str] = []
    begin, indent = 0, 0
    for number, line in enumerate(page.read_text().splitlines(), 1):
        where = f"{page_name(page)}:{number}"
        fence_match = _FENCE.match(line)
        if fence is not None:
            if fence_match and not fence_match[2]:
                blocks.append(_parse_block(where, begin, fence, tuple(inside), comments))
                comments, fence, inside = _PendingComments(), None, []
            else:
                inside.append(line[indent:])
        elif fence_match:
            begin, indent, fence = number, len(fence_match[1]), fence_match[2]
        elif comment := _COMMENT.match(line):
            name, value = comment[1], comment[2] or ""
            if name == "run":
                comments.setup.append(PageCommand(number, value))
            else:
                comments.values[name] = value
        elif _INDENTED.match(line):
            raise ValueError(f"{where}: put code between ``` lines, so that it is tested")
        elif line.strip() and comments.values:
            raise ValueError(f"{where}: the comment above must stand right before a code block")
    if comments.setup:
        blocks.append(PageBlock(comments.setup[0].line, "sh", (), tuple(comments.setup)))
    return blocks


def _parse_block(where: str, line: int, language: str, lines: tuple[str, ...], comments: _PendingComments) -> PageBlock:
    values = comments.values
    named = _NAME.match(lines[0]) if lines else None
    file = values.get("file") or (named[1] if named else None)
    if language not in (*RUN, *FILES, "json", "text"):
        raise ValueError(f"{where}: ```{language} is none of {', '.join((*RUN, *FILES, 'json', 'text'))}")
    if language in ("yaml", "html") and not file and "skip" not in values:
        raise ValueError(f"{where}: name the file in a comment: <!-- file: NAME -->")
    typed = tuple(values["type"].split(" | ")) if "type" in values else ()
    return PageBlock(
        line,
        language,
        lines,
        tuple(comments.setup),
        file,
        typed,
        int(values["exit"]) if "exit" in values else None,
        values.get("skip"),
        numbers_vary="numbers vary" in values,
    )


def _console_commands(block: PageBlock) -> Iterator[PageCommand]:
    line, command, output = block.line, "", list[str]()
    for number, text in enumerate(block.lines, block.line + 1):
        if command.endswith("\\") and not output:
            command += f"\n{text}"
        elif text.startswith("$ "):
            if command:
                yield PageCommand(line, command, tuple(output))
            line, command, output = number, text[2:], []
        elif command:
            output.append(text)
        else:
            raise ValueError(f"line {number}: a console block begins with `$ `")
    if command:
        yield PageCommand(line, command, tuple(output))


def _shell_commands(block: PageBlock) -> Iterator[PageCommand]:
    command = ""
    for number, text in enumerate(block.lines, block.line + 1):
        command = f"{command}\n{text}" if command else text
        if not command.endswith("\\"):
            if command.strip() and not command.lstrip().startswith("#"):
                yield PageCommand(number, command)
            command = ""
