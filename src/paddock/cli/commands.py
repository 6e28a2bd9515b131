"""The shape of a command: its own arguments, the options all commands share, its examples."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

import typer

from paddock.cli.context import Cli

P = ParamSpec("P")
R = TypeVar("R")

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an unexpected error happened.")]
Data = Annotated[
    str | None, typer.Option("--data", metavar="DIR", help="Data directory; else PADDOCK_DATA.  [default: ~/.paddock]")
]
ConfigFile = Annotated[str | None, typer.Option("--config", metavar="FILE", help="Configuration file.")]
Server = Annotated[
    str | None, typer.Option("--server", metavar="URL", help="Server to talk to; else PADDOCK_URL, else the local one.")
]

WIDTH = {"max_content_width": 100}
"""How wide help becomes where the terminal is."""
_EXAMPLE = 76
"""Columns of an example, which is indented by four."""

Function = Callable[Concatenate[Cli, P], R | Coroutine[Any, Any, R]]


def group(help: str) -> typer.Typer:
    """A command that has commands."""
    return typer.Typer(help=help, no_args_is_help=True, rich_markup_mode=None, add_completion=False)


def fold(example: str) -> list[str]:
    """An example in lines that a narrow terminal shows whole, broken before options so that it can still be copied."""
    lines: list[str] = []
    while len(example) > _EXAMPLE:
        place = max(example.rfind(mark, 5, _EXAMPLE - 1) for mark in (" --", " | "))
        if place < 0:
            break
        lines.append(f"{example[:place]} \\")
        example = f"    {example[place + 1 :]}"
    return [*lines, example]


def command(
    app: typer.Typer,
    name: str,
    *,
    examples: str,
    server: bool = False,
    hidden: bool = False,
) -> Callable[[Function[P, int | None]], Function[P, int | None]]:
    """Make a function a command. It is called with a `Cli` and its own arguments, and may return an exit code.

    With `server`, it takes `--server` too.
    """

    def register(function: Function[P, int | None]) -> Function[P, int | None]:
        _, *own = inspect.signature(function, eval_str=True).parameters.values()
        shared: dict[str, Any] = {"json": Json, "data": Data, "config": ConfigFile, "debug": Debug}
        if server:
            shared = {"server": Server, **shared}

        def run(**arguments: Any) -> int | None:
            given = {key: arguments.pop(key) for key in shared}
            cli = Cli(as_json=given.pop("json"), **given)
            result = function(cli, **arguments)  # type: ignore[call-arg]
            if inspect.iscoroutine(result):
                import asyncio

                result = asyncio.run(result)
            return result  # type: ignore[return-value]

        for parameter in own:
            _complete(function.__module__, parameter)
        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        for key, annotation in shared.items():
            default = False if key in ("json", "debug") else None
            parameters.append(
                inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            )
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        text = inspect.cleandoc(function.__doc__ or "")
        lines = [folded for line in inspect.cleandoc(examples).splitlines() for folded in fold(line)]
        shown = "\n".join(f"  {line}" if line else "" for line in lines)
        app.command(name, help=f"{text}\n\n\b\nExamples:\n{shown}", short_help=text.splitlines()[0], hidden=hidden)(run)
        return function

    return register


def _complete(module: str, parameter: inspect.Parameter) -> None:
    """Give an argument or option that names a thing the completion of such names."""
    from paddock.cli.completion import completer

    for told in getattr(parameter.annotation, "__metadata__", ()):
        if isinstance(told, (typer.models.ArgumentInfo, typer.models.OptionInfo)) and told.autocompletion is None:
            told.autocompletion = completer(module, parameter.name, told.metavar)
