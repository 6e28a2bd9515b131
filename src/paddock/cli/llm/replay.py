"""`paddock llm replay`: serves a recording as a model endpoint, for a command or until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.llm.agent_cli_settings import write_agent_cli_settings
from paddock.cli.output.errors import CliError, print_warning

if TYPE_CHECKING:
    from paddock.cli.llm.replay_server import ReplayEndpoint

_REMOVED_VARIABLES = ("ANTHROPIC_AUTH_TOKEN", "GOOGLE_API_KEY")
"""Variables that clients prefer over the ones set here."""


def register_commands(models: typer.Typer) -> None:
    register_command(
        models,
        "replay",
        examples="""
            paddock llm replay run.jsonl
            paddock llm replay run.jsonl -- pytest -q
            paddock llm replay run.jsonl --match sequence -- claude -p 'fix the tests'
            paddock llm replay run.jsonl --miss fast -- pytest -q
        """,
    )(replay_recording)


async def replay_recording(
    cli: CliContext,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Recording to replay.", show_default=False)],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="Command to run, after --.", show_default=False),
    ] = None,
    port: Annotated[
        int, typer.Option(metavar="PORT", help="Port on 127.0.0.1; 0 chooses a free one.", min=0, max=65535)
    ] = 0,
    match: Annotated[
        Literal["exact", "sequence"],
        typer.Option(metavar="exact|sequence", help="Match requests exactly, or answer in recorded order."),
    ] = "exact",
    timing: Annotated[
        Literal["instant", "recorded"],
        typer.Option(metavar="instant|recorded", help="Answer at once, or with the recorded delays."),
    ] = "instant",
    miss: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Configured model to use and record if the recording has no answer."),
    ] = None,
) -> int | None:
    """Serve a recording in place of a model.

    Needs no server and no model; answers for every model name in every format. COMMAND runs with the addresses and the
    key in its environment, and its exit code is returned. Without COMMAND they are printed, and the recording is served
    until Ctrl-C.
    """
    from paddock.cli.llm.replay_server import build_replay_config, serve_recording

    if file.is_dir() or (miss is None and not file.exists()):
        raise CliError(f"there is no recording {file}; create one with: paddock llm record FILE")
    config = cli.strict_config.config if miss else None
    configured, outgoing = (config.llm, config.outgoing) if config else (None, None)
    settings = build_replay_config(file, match=match, timing=timing, miss=miss, configured=configured)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    code = None
    async with AsyncExitStack() as held:
        endpoint = await held.enter_async_context(
            serve_recording(settings, port, on_failure=print_warning, outgoing=outgoing)
        )
        directory = held.enter_context(tempfile.TemporaryDirectory(prefix="paddock-replay-"))
        environment = model_endpoint_environment(endpoint.url, endpoint.key) | write_agent_cli_settings(Path(directory))
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        try:
            if words:
                code = await _run_command(words, environment, stop)
            else:
                _print_endpoint(cli, file, endpoint, environment)
                await stop.wait()
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
        tally = await endpoint.summarize_requests()
    if not cli.as_json:
        sys.stderr.write(f"{file}: {tally}\n")
    return code


def model_endpoint_environment(url: str, key: str) -> dict[str, str]:
    """Return the environment variables that point model clients to the endpoint."""
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


def _print_endpoint(cli: CliContext, file: Path, endpoint: ReplayEndpoint, environment: dict[str, str]) -> None:
    if cli.as_json:
        document: dict[str, Any] = {
            "event": "ready",
            "url": endpoint.url,
            "key": endpoint.key,
            "environment": environment,
        }
        return cli.out.print_json_line(document)
    if cli.out.is_interactive:
        cli.out.print_line(f"Replaying {file} at {endpoint.url} until Ctrl-C. Environment for clients:\n")
    return cli.out.print_line("\n".join(f"export {name}={value}" for name, value in environment.items()))


async def _run_command(words: list[str], added: dict[str, str], stop: asyncio.Event) -> int:
    """Run a command and return its exit code; terminate it if `stop` is set."""
    env = {name: value for name, value in os.environ.items() if name not in _REMOVED_VARIABLES} | added
    for name in ("NO_PROXY", "no_proxy"):
        env[name] = ",".join(filter(None, (os.environ.get(name), "127.0.0.1")))
    try:
        process = await asyncio.create_subprocess_exec(*words, env=env)
    except OSError as error:
        exit_code = 127 if isinstance(error, FileNotFoundError) else 126
        raise CliError(f"{words[0]} cannot be run: {error.strerror}", exit_code=exit_code) from None
    stop_waiter = asyncio.create_task(stop.wait())
    try:
        ended = asyncio.create_task(process.wait())
        await asyncio.wait((stop_waiter, ended), return_when=asyncio.FIRST_COMPLETED)
        if not ended.done() and not _shares_terminal():
            # On a terminal, Ctrl-C has already reached the command.
            process.terminate()
        code = await ended
    finally:
        stop_waiter.cancel()
    return 128 - code if code < 0 else code


def _shares_terminal() -> bool:
    return sys.stdin.isatty()
