"""Generates the command reference: `python -m paddock.cli.reference > docs/reference/cli.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import typer

_INTRODUCTION = """\
<!-- Written by `python -m paddock.cli.reference`; edit the commands in src/paddock/cli instead. -->
# Commands

Every command takes `--help`, and `--json` for machine-readable output: one document, or one per line for streams. With
`--json`, errors are printed as `{"error": {"code", "message", "hint"?}}` on standard error.

| exit code | |
|---|---|
| 0 | success |
| 1 | failure; the reason is printed |
| 2 | usage error |
| 124, 125 | `sandbox exec`: the command reached `--timeout`; Paddock itself failed |
| 130 | interrupted |

Commands that need a server use `--server`, else `PADDOCK_URL`, else the server of the data directory. They authenticate
with `PADDOCK_API_KEY`, else with the data directory's `local.key`. If no server is running, commands that only read,
such as `list` and `show`, read the data directory directly; they start no server and change nothing. Output is not
coloured if it is not a terminal or if `NO_COLOR` is set. `paddock --install-completion` sets up completion for your
shell.
"""


def build_reference_page() -> str:
    """Return the reference page as Markdown."""
    from paddock.cli.main import build_app

    root = typer.main.get_command(build_app())
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
    sys.stdout.write(build_reference_page())
