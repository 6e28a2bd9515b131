"""Turns functions into commands: adds the shared options, the examples and shell completion."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

import typer

from paddock.cli.framework.context import CliContext

P = ParamSpec("P")
R = TypeVar("R")

JsonOption = Annotated[bool, typer.Option("--json", help="Print machine-readable JSON.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show tracebacks of unexpected errors.")]
DataOption = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="Data directory; or set PADDOCK_DATA.  [default: ~/.paddock]"),
]
ConfigOption = Annotated[str | None, typer.Option("--config", metavar="FILE", help="Configuration file.")]
ServerOption = Annotated[
    str | None, typer.Option("--server", metavar="URL", help="Server URL; or set PADDOCK_URL.  [default: local server]")
]

HELP_WIDTH = {"max_content_width": 100}
"""Maximum width of help texts."""
_EXAMPLE_COLUMNS = 76
"""Columns available for an example, which is indented by four."""

CommandFunction = Callable[Concatenate[CliContext, P], R | Coroutine[Any, Any, R]]


def command_group(help: str) -> typer.Typer:
    """Return a command that has subcommands."""
    return typer.Typer(help=help, no_args_is_help=True, rich_markup_mode=None, add_completion=False)


def fold_command_example(example: str) -> list[str]:
    """Fold an example for narrow terminals, breaking before options so that it can still be copied and run."""
    lines: list[str] = []
    while len(example) > _EXAMPLE_COLUMNS:
        break_index = max(example.rfind(mark, 5, _EXAMPLE_COLUMNS - 1) for mark in (" --", " | "))
        if break_index < 0:
            break
        lines.append(f"{example[:break_index]} \\")
        example = f"    {example[break_index + 1 :]}"
    return [*lines, example]


def register_command(
    app: typer.Typer,
    name: str,
    *,
    examples: str,
    server: bool = False,
    hidden: bool = False,
) -> Callable[[CommandFunction[P, int | None]], CommandFunction[P, int | None]]:
    """Register a function as a command; it receives a `CliContext` and its arguments and may return an exit code.

    With `server`, the command also takes `--server`.
    """

    def register(function: CommandFunction[P, int | None]) -> CommandFunction[P, int | None]:
        _, *own = inspect.signature(function, eval_str=True).parameters.values()
        shared: dict[str, Any] = {"json": JsonOption, "data": DataOption, "config": ConfigOption, "debug": DebugOption}
        if server:
            shared = {"server": ServerOption, **shared}

        def run(**arguments: Any) -> int | None:
            shared_values = {key: arguments.pop(key) for key in shared}
            cli = CliContext(as_json=shared_values.pop("json"), **shared_values)
            result = function(cli, **arguments)  # type: ignore[call-arg]
            if inspect.iscoroutine(result):
                import asyncio

                result = asyncio.run(result)
            return result  # type: ignore[return-value]

        for parameter in own:
            _attach_completion(function.__module__, parameter)
        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        for key, annotation in shared.items():
            default = False if key in ("json", "debug") else None
            parameters.append(
                inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            )
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        text = inspect.cleandoc(function.__doc__ or "")
        lines = [folded for line in inspect.cleandoc(examples).splitlines() for folded in fold_command_example(line)]
        shown = "\n".join(f"  {line}" if line else "" for line in lines)
        app.command(name, help=f"{text}\n\n\b\nExamples:\n{shown}", short_help=text.splitlines()[0], hidden=hidden)(run)
        return function

    return register


def _attach_completion(module: str, parameter: inspect.Parameter) -> None:
    """Attach shell completion to an argument or option that names an object of the server."""
    from paddock.cli.framework.shell_completion import find_completer

    for info in getattr(parameter.annotation, "__metadata__", ()):
        if isinstance(info, (typer.models.ArgumentInfo, typer.models.OptionInfo)) and info.autocompletion is None:
            info.autocompletion = find_completer(module, parameter.name, info.metavar)
