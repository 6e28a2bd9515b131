"""`paddock sandbox exec`: runs a command in a sandbox as if it ran locally."""

from __future__ import annotations

import re
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.framework import option_parsing
from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import (
    EXIT_BROKEN_PIPE,
    EXIT_INTERRUPTED,
    EXIT_PADDOCK_FAILED,
    EXIT_USAGE_ERROR,
    CliError,
    UsageError,
    exit_code_for,
    print_warning,
    report_error,
)
from paddock.cli.sandbox.sandbox_lookup import SandboxArgument
from paddock.errors import PaddockError

if TYPE_CHECKING:
    import asyncio

    from paddock.cli.connection.server_client import ServerClient
    from paddock.cli.sandbox.remote_command import RemoteCommand, RemoteCommandEnd

_USER_NAME = re.compile(r"[a-z_][a-z0-9_.-]{0,31}")


def register_commands(sandboxes: typer.Typer) -> None:
    register_command(
        sandboxes,
        "exec",
        server=True,
        examples="""
            paddock sandbox exec 3f2a -- ls -l /workspace
            paddock sandbox exec 3f2a -c 'echo $HOME && make test' --timeout 5m
            paddock sandbox exec 3f2a -- tar -xz < source.tar.gz
            paddock sandbox exec 3f2a --detach -- ./server.sh
        """,
    )(execute_command)


def execute_command(
    cli: CliContext,
    sandbox: SandboxArgument,
    words: Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="Command and its arguments.")] = None,
    shell: Annotated[
        str | None, typer.Option("-c", metavar="TEXT", help="Command line for the sandbox's shell.")
    ] = None,
    cwd: Annotated[str | None, typer.Option("--cwd", "-w", metavar="DIR", help="Working directory.")] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", metavar="K=V", help="Environment variable; repeatable.")
    ] = None,
    env_file: Annotated[list[Path] | None, typer.Option(metavar="FILE", help="File of K=V lines.")] = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop after this time, with exit code 124.")
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|UID[:GID]",
            help="User to run as; another than its own needs a sandbox created with `--user root`.",
        ),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Print the command's id and return.")] = False,
    attached: Annotated[bool, typer.Option("--attached", help="Stop the command if the connection is lost.")] = False,
    no_stdin: Annotated[bool, typer.Option("--no-stdin", "-n", help="Do not forward standard input.")] = False,
) -> int:
    """Run a command in a sandbox.

    Output, exit code and piped standard input are forwarded. Ctrl-C and SIGTERM are forwarded too; a second one stops
    the command (SIGTERM, after two seconds SIGKILL), a third one detaches from it. Exit codes: the command's own,
    128 + N after signal N, 124 after --timeout, 125 if Paddock itself fails.
    """
    import asyncio

    if bool(words) == (shell is not None):
        raise UsageError("give a command after --, or a shell command line with -c")
    document: dict[str, Any] = {"argv": words} if words else {"command": shell}
    document["envs"] = option_parsing.parse_environment(env or [], env_file or [])
    if cwd:
        document["cwd"] = cwd
    if timeout:
        document["timeout"] = max(1, round(option_parsing.parse_duration_option(timeout, "--timeout") * 1000))
    document |= _parse_command_user(user)
    try:
        return asyncio.run(_run_command(cli, sandbox, document, detach, attached, no_stdin))
    except BrokenPipeError:
        return EXIT_BROKEN_PIPE
    except PaddockError as error:
        if cli.debug:
            raise
        report_error(error, as_json=cli.as_json)
        return EXIT_USAGE_ERROR if exit_code_for(error) == EXIT_USAGE_ERROR else EXIT_PADDOCK_FAILED


async def _run_command(
    cli: CliContext, sandbox_name: str, document: dict[str, Any], detach: bool, attached: bool, no_stdin: bool
) -> int:
    from paddock.cli.sandbox.remote_command import CommandOutputWriter, RemoteCommand
    from paddock.cli.sandbox.sandbox_lookup import find_sandbox
    from paddock.cli.sandbox.stdin_streaming import StandardInput, StdinStreamer

    async with cli.open_client() as client:
        sandbox_id = await find_sandbox(client, sandbox_name)
        source = None if no_stdin else StandardInput.read_available()
        feeder = None
        if source and source.complete and source.head:
            document["stdin"] = source.head.decode("utf-8", "surrogateescape")
        elif source and not source.complete:
            if detach:
                raise CliError("standard input is still open", hint="with --detach, add --no-stdin")
            feeder = StdinStreamer(client, sandbox_id, source)
            document = feeder.redirect_to_pipe(document)
        if detach:
            command_id = await RemoteCommand(client, sandbox_id, CommandOutputWriter(False)).start(document)
            cli.out.print_json({"id": command_id, "sandbox": sandbox_id}) if cli.as_json else cli.out.print_line(
                command_id
            )
            return 0
        sink = CommandOutputWriter(cli.as_json)
        execution = RemoteCommand(client, sandbox_id, sink)
        if attached:
            work = execution.run_attached(document)
        else:
            await execution.start(document, hold=True)
            work = execution.follow_output()
        ending = await _wait_with_signals(client, execution, work, feeder.stream() if feeder else None)
    if ending is None:
        print_warning(
            "detached; the command is still running; follow it with: "
            f"paddock sandbox logs {sandbox_id} --command {execution.id} --follow"
        )
        return EXIT_INTERRUPTED
    sink.write_event("ended", exitCode=ending.exit_code, **({"reason": ending.reason} if ending.reason else {}))
    if ending.reason and not cli.as_json:
        print_warning(ending.reason)
    return ending.exit_code


async def _wait_with_signals(
    client: ServerClient, execution: RemoteCommand, work: Awaitable[RemoteCommandEnd], feeding: Awaitable[None] | None
) -> RemoteCommandEnd | None:
    """Wait for the command while forwarding signals and standard input. Returns None after detaching."""
    import asyncio

    loop = asyncio.get_running_loop()
    following = asyncio.ensure_future(work)
    feeder = asyncio.ensure_future(feeding) if feeding else None
    helpers: set[asyncio.Future[Any]] = {feeder} if feeder else set()
    signals = 0

    def interrupted(number: signal.Signals) -> None:
        """Forward the first signal, stop the command at the second, detach at the third."""
        nonlocal signals
        signals += 1
        if signals == 1:
            helpers.add(asyncio.ensure_future(execution.send_signal(number.name.removeprefix("SIG"))))
        elif signals == 2:
            helpers.add(asyncio.ensure_future(execution.terminate()))
        else:
            following.cancel()

    def fed(done: asyncio.Future[None]) -> None:
        if not done.cancelled() and done.exception() and not following.done():
            helpers.add(asyncio.ensure_future(execution.terminate()))

    if feeder:
        feeder.add_done_callback(fed)
    caught = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    _for_each_signal(caught, lambda number: loop.add_signal_handler(number, interrupted, number))
    try:
        ending = await following
        if feeder and feeder.done() and not feeder.cancelled() and (error := feeder.exception()):
            raise error
        return ending
    except asyncio.CancelledError:
        if signals > 2:
            return None
        raise
    except BrokenPipeError:
        await execution.terminate()
        raise
    finally:
        _for_each_signal(caught, loop.remove_signal_handler)
        following.cancel()
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(following, *helpers, return_exceptions=True)


def _for_each_signal(numbers: tuple[signal.Signals, ...], work: Callable[[signal.Signals], object]) -> None:
    for number in numbers:
        work(number)


def _parse_command_user(user: str | None) -> dict[str, int | str]:
    if user is None:
        return {}
    uid, colon, gid = user.partition(":")
    if not colon and _USER_NAME.fullmatch(user):
        return {"user": user}
    if not uid.isdigit() or (colon and not gid.isdigit()):
        raise UsageError(f"--user {user!r} is not a name, UID or UID:GID in numbers")
    return {"uid": int(uid), **({"gid": int(gid)} if colon else {})}
