"""`paddock llm replay`: a recording as a model endpoint, for as long as it is needed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from paddock.cli.commands import command
from paddock.cli.context import Cli
from paddock.cli.failure import CliError, warn

if TYPE_CHECKING:
    from paddock.cli.llm_endpoint import Endpoint

_TAKEN_AWAY = ("ANTHROPIC_AUTH_TOKEN", "GOOGLE_API_KEY")
"""Variables that clients prefer to those that we set."""


def register(models: typer.Typer) -> None:
    command(
        models,
        "replay",
        examples="""
            paddock llm replay run.jsonl
            paddock llm replay run.jsonl -- pytest -q
            paddock llm replay run.jsonl --match sequence -- claude -p 'fix the tests'
            paddock llm replay run.jsonl --miss fast -- pytest -q
        """,
    )(replay)


async def replay(
    cli: Cli,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Recording to answer from.", show_default=False)],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="What to run with it, behind --.", show_default=False),
    ] = None,
    port: Annotated[
        int, typer.Option(metavar="PORT", help="Port on 127.0.0.1; 0 takes a free one.", min=0, max=65535)
    ] = 0,
    match: Annotated[
        Literal["exact", "sequence"],
        typer.Option(metavar="exact|sequence", help="Answer requests like recorded ones, or one after the other."),
    ] = "exact",
    timing: Annotated[
        Literal["instant", "recorded"],
        typer.Option(metavar="instant|recorded", help="Answer at once, or as slowly as it was."),
    ] = "instant",
    miss: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Configured model to ask and record where the recording has no answer."),
    ] = None,
) -> int | None:
    """Serve a recording in the place of a model.

    No server is needed, and no model is asked. It answers for every model, in every format. COMMAND is run with the
    addresses and the key in its environment, and its exit code is passed on; without one they are printed, and it
    serves until Ctrl-C.
    """
    from paddock.cli.llm_endpoint import serve, settings_for

    if file.is_dir() or (miss is None and not file.exists()):
        raise CliError(f"there is no recording {file}; make one with: paddock llm record FILE")
    configured = cli.loaded.config.llm if miss else None
    settings = settings_for(file, match=match, timing=timing, miss=miss, configured=configured)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    code = None
    async with serve(settings, port, on_failure=warn) as endpoint:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        try:
            if words:
                code = await _run(words, variables(endpoint.url, endpoint.key), stop)
            else:
                _announce(cli, file, endpoint)
                await stop.wait()
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
        tally = await endpoint.tally()
    if not cli.as_json:
        sys.stderr.write(f"{file}: {tally}\n")
    return code


def variables(url: str, key: str) -> dict[str, str]:
    """What programs look for that ask models."""
    return {
        "PADDOCK_LLM_URL": url,
        "PADDOCK_LLM_KEY": key,
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": key,
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": key,
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_API_KEY": key,
    }


def _announce(cli: Cli, file: Path, endpoint: Endpoint) -> None:
    found = variables(endpoint.url, endpoint.key)
    if cli.as_json:
        document: dict[str, Any] = {"event": "ready", "url": endpoint.url, "key": endpoint.key, "environment": found}
        return cli.out.event(document)
    if cli.out.for_people:
        cli.out.line(f"{file} answers at {endpoint.url} until Ctrl-C. For programs that ask models:\n")
    return cli.out.line("\n".join(f"export {name}={value}" for name, value in found.items()))


async def _run(words: list[str], added: dict[str, str], stop: asyncio.Event) -> int:
    """Run a command and return its exit code. Being told to stop is told to it too."""
    env = {name: value for name, value in os.environ.items() if name not in _TAKEN_AWAY} | added
    for name in ("NO_PROXY", "no_proxy"):
        env[name] = ",".join(filter(None, (os.environ.get(name), "127.0.0.1")))
    try:
        process = await asyncio.create_subprocess_exec(*words, env=env)
    except OSError as error:
        exit_code = 127 if isinstance(error, FileNotFoundError) else 126
        raise CliError(f"{words[0]} cannot be run: {error.strerror}", exit_code=exit_code) from None
    told = asyncio.create_task(stop.wait())
    try:
        ended = asyncio.create_task(process.wait())
        await asyncio.wait((told, ended), return_when=asyncio.FIRST_COMPLETED)
        if not ended.done() and not _shares_terminal():
            # On a terminal, Ctrl-C has reached it already.
            process.terminate()
        code = await ended
    finally:
        told.cancel()
    return 128 - code if code < 0 else code


def _shares_terminal() -> bool:
    return sys.stdin.isatty()
