"""Writes the reference page of all commands: `python -m paddock.cli.reference > docs/reference/cli.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import typer

_INTRODUCTION = """\
<!-- Written by `python -m paddock.cli.reference`; edit the commands in src/paddock/cli instead. -->
# Commands

Every command takes `--help`, and `--json` for output that programs read: one document, or one a line where output goes
on. With `--json` errors are `{"error": {"code", "message", "hint"?}}` on standard error.

| exit code | |
|---|---|
| 0 | done |
| 1 | failed, for a reason that was printed |
| 2 | usage error |
| 124, 125 | `sandbox exec`: the command ran into `--timeout`; Paddock itself failed |
| 130 | interrupted |

Commands that need a server find it by `--server`, else `PADDOCK_URL`, else the one that uses the data directory, and
show it the key in `PADDOCK_API_KEY`, else the data directory's `local.key`. Where no server runs, commands that list or
show read the data directory themselves; they start no server and change nothing. Colours are left out when the output
is not a terminal or `NO_COLOR` is set. `paddock --install-completion` sets up completion for your shell.
"""


def reference() -> str:
    """The page, as Markdown."""
    from paddock.cli.main import build

    root = typer.main.get_command(build())
    return "\n".join([_INTRODUCTION, *_sections(root, "paddock", None)])


def _sections(command: Any, path: str, parent: Any) -> Iterator[str]:
    context = command.context_class(
        command, info_name=path if parent is None else path.rpartition(" ")[2], parent=parent
    )
    context.max_content_width = context.terminal_width = 100
    commands = getattr(command, "commands", None)
    if parent is not None and not command.hidden:
        level = "##" if commands or path.count(" ") == 1 else "###"
        yield f"{level} {path}\n\n```text\n{_without_trailing(command.get_help(context))}\n```\n"
    for name, inner in (commands or {}).items():
        if not inner.hidden:
            yield from _sections(inner, f"{path} {name}", context)


def _without_trailing(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


if __name__ == "__main__":
    sys.stdout.write(reference())
