"""`paddock sandbox exec`: runs a command in a sandbox as if it ran here."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli import parse
from paddock.cli.commands import command
from paddock.cli.context import Cli
from paddock.cli.failure import (
    BROKEN_PIPE,
    INTERRUPTED,
    OURS,
    USAGE,
    CliError,
    UsageProblem,
    exit_code_of,
    report,
    warn,
)
from paddock.cli.sandbox import SandboxArgument
from paddock.errors import PaddockError

if TYPE_CHECKING:
    import asyncio

    from paddock.cli.client import Client
    from paddock.cli.execution import Ending, Execution


def register(boxes: typer.Typer) -> None:
    command(
        boxes,
        "exec",
        server=True,
        examples="""
            paddock sandbox exec 3f2a -- ls -l /workspace
            paddock sandbox exec 3f2a -c 'echo $HOME && make test' --timeout 5m
            paddock sandbox exec 3f2a -- tar -xz < source.tar.gz
            paddock sandbox exec 3f2a --detach -- ./server.sh
        """,
    )(execute)


def execute(
    cli: Cli,
    sandbox: SandboxArgument,
    words: Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="The command and its words.")] = None,
    shell: Annotated[
        str | None, typer.Option("-c", metavar="TEXT", help="Text for the sandbox's shell instead.")
    ] = None,
    cwd: Annotated[str | None, typer.Option("--cwd", "-w", metavar="DIR", help="Directory to run it in.")] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", metavar="K=V", help="Variable, more than once.")
    ] = None,
    env_file: Annotated[list[Path] | None, typer.Option(metavar="FILE", help="File of K=V lines.")] = None,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="End it after this long, with code 124.")] = None,
    user: Annotated[str | None, typer.Option(metavar="UID[:GID]", help="Who to run it as.")] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Print the command's id and leave it running.")
    ] = False,
    attached: Annotated[bool, typer.Option("--attached", help="End it when the connection does.")] = False,
    no_stdin: Annotated[bool, typer.Option("--no-stdin", "-n", help="Do not pass standard input on.")] = False,
) -> int:
    """Run a command in a sandbox.

    Its output, exit code and piped standard input are passed through. Ctrl-C and SIGTERM are passed on; a second
    one ends it (SIGTERM, two seconds later SIGKILL), a third leaves it. Exit codes: its own, 128 + N when signal N
    ended it, 124 after --timeout, 125 when Paddock itself failed.
    """
    import asyncio

    if bool(words) == (shell is not None):
        raise UsageProblem("say what to run: a command behind --, or shell text with -c")
    document: dict[str, Any] = {"argv": words} if words else {"command": shell}
    document["envs"] = parse.environment(env or [], env_file or [])
    if cwd:
        document["cwd"] = cwd
    if timeout:
        document["timeout"] = max(1, round(parse.duration(timeout, "--timeout") * 1000))
    document |= _identity(user)
    try:
        return asyncio.run(_run(cli, sandbox, document, detach, attached, no_stdin))
    except BrokenPipeError:
        return BROKEN_PIPE
    except PaddockError as error:
        if cli.debug:
            raise
        report(error, as_json=cli.as_json)
        return USAGE if exit_code_of(error) == USAGE else OURS


async def _run(cli: Cli, wanted: str, document: dict[str, Any], detach: bool, attached: bool, no_stdin: bool) -> int:
    from paddock.cli.execution import Execution, Sink
    from paddock.cli.find import find
    from paddock.cli.stdin import Feeder, Input

    async with cli.client() as client:
        sandbox_id = await find(client, wanted)
        source = None if no_stdin else Input.begin()
        feeder = None
        if source and source.complete and source.head:
            document["stdin"] = source.head.decode("utf-8", "surrogateescape")
        elif source and not source.complete:
            if detach:
                raise CliError("standard input does not end", hint="with --detach, give it none: --no-stdin")
            feeder = Feeder(client, sandbox_id, source)
            document = feeder.redirected(document)
        if detach:
            command_id = await Execution(client, sandbox_id, Sink(False)).start(document)
            cli.out.document({"id": command_id, "sandbox": sandbox_id}) if cli.as_json else cli.out.line(command_id)
            return 0
        sink = Sink(cli.as_json)
        execution = Execution(client, sandbox_id, sink)
        if attached:
            work = execution.run_attached(document)
        else:
            await execution.start(document, hold=True)
            work = execution.follow()
        ending = await _attended(client, execution, work, feeder.run() if feeder else None)
    if ending is None:
        warn(f"left; the command goes on: paddock sandbox logs {sandbox_id} --command {execution.id} --follow")
        return INTERRUPTED
    sink.tell("ended", exitCode=ending.exit_code, **({"reason": ending.reason} if ending.reason else {}))
    if ending.reason and not cli.as_json:
        warn(ending.reason)
    return ending.exit_code


async def _attended(
    client: Client, execution: Execution, work: Awaitable[Ending], feeding: Awaitable[None] | None
) -> Ending | None:
    """Wait for the command while signals and standard input are passed on. None when told to leave it."""
    import asyncio

    loop = asyncio.get_running_loop()
    following = asyncio.ensure_future(work)
    feeder = asyncio.ensure_future(feeding) if feeding else None
    helpers: set[asyncio.Future[Any]] = {feeder} if feeder else set()
    signals = 0

    def interrupted(number: signal.Signals) -> None:
        """Pass the first on, end the command at the second, leave it at the third."""
        nonlocal signals
        signals += 1
        if signals == 1:
            helpers.add(asyncio.ensure_future(execution.signal(number.name.removeprefix("SIG"))))
        elif signals == 2:
            helpers.add(asyncio.ensure_future(execution.interrupt()))
        else:
            following.cancel()

    def fed(done: asyncio.Future[None]) -> None:
        if not done.cancelled() and done.exception() and not following.done():
            helpers.add(asyncio.ensure_future(execution.interrupt()))

    if feeder:
        feeder.add_done_callback(fed)
    caught = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    _each(caught, lambda number: loop.add_signal_handler(number, interrupted, number))
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
        await execution.interrupt()
        raise
    finally:
        _each(caught, loop.remove_signal_handler)
        following.cancel()
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(following, *helpers, return_exceptions=True)


def _each(numbers: tuple[signal.Signals, ...], work: Callable[[signal.Signals], object]) -> None:
    for number in numbers:
        work(number)


def _identity(user: str | None) -> dict[str, int]:
    if user is None:
        return {}
    uid, colon, gid = user.partition(":")
    if not uid.isdigit() or (colon and not gid.isdigit()):
        raise UsageProblem(f"--user {user!r} is not UID or UID:GID in numbers")
    return {"uid": int(uid), **({"gid": int(gid)} if colon else {})}
