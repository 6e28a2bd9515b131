"""`paddock doctor`: checks whether this machine can run sandboxes, and suggests fixes."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.commands import command
from paddock.cli.context import Cli, is_served, server_of
from paddock.cli.failure import FAILED
from paddock.errors import PaddockError

if TYPE_CHECKING:
    from pathlib import Path

    from paddock.config import Config, Loaded
    from paddock.sandbox.base import Finding

_PROGRAMS = (
    ("mmdebstrap", "mmdebstrap", "build images"),
    ("skopeo", "skopeo", "pull OCI images"),
    ("ffmpeg", "ffmpeg", "export recordings as mp4 and gif"),
)


def register(app: typer.Typer) -> None:
    command(app, "doctor", examples="paddock doctor\npaddock doctor --no-trial --json")(doctor)


async def doctor(
    cli: Cli,
    trial: Annotated[bool, typer.Option(help="Start a sandbox, run `true` in it, remove it.")] = True,
) -> int:
    """Check this machine and suggest fixes.

    The exit code is 1 only if something is missing that sandboxes cannot run without.
    """
    with _progress(cli) as show:
        found = [finding async for finding in _examine(cli, trial, show)]
    healthy = all(finding.ok or not finding.required for finding in found)
    if cli.as_json:
        cli.out.document({"healthy": healthy, "findings": [finding.model_dump(mode="json") for finding in found]})
        return 0 if healthy else FAILED
    cli.out.table(
        ["", "CHECK", "FOUND"],
        [[_mark(finding), finding.check, _told(finding)] for finding in found],
        wraps=["FOUND"],
    )
    missing = sum(not finding.ok for finding in found)
    if not healthy:
        cli.out.line("\nSandboxes cannot run here yet; see what to do above.")
    elif missing:
        cli.out.line(f"\nSandboxes run here. {missing} {'thing' if missing == 1 else 'things'} could be better.")
    else:
        cli.out.line("\nEverything is in order.")
    return 0 if healthy else FAILED


@contextmanager
def _progress(cli: Cli) -> Iterator[Callable[[str], None]]:
    """Show on a terminal which check runs now."""
    if not cli.out.for_people or not sys.stderr.isatty():
        yield lambda check: None
        return
    from rich.console import Console

    with Console(stderr=True, highlight=False).status("Checking …") as status:
        yield lambda check: status.update(f"Checking {check} …")


async def _examine(cli: Cli, trial: bool, show: Callable[[str], None]) -> AsyncIterator[Finding]:
    from paddock.sandbox.base import Finding

    show("the configuration")
    try:
        loaded = cli.readable
    except PaddockError as error:
        yield Finding(check="configuration", ok=False, detail=error.message, fix="fix the file, then run this again")
        return
    yield Finding(check="configuration", ok=True, detail=str(loaded.file or "no file, all defaults"))
    if loaded.unset:
        yield _variables(loaded)
    config = loaded.config
    show("the data directory")
    for finding in _data_directory(config.data):
        yield finding
        if not finding.ok and finding.required:
            return
    yield _port(config)
    if is_served(config.data):
        show("the model providers of the running server")
        for finding in await _providers(cli):
            yield finding
    from paddock.cli.trial import examine

    usable = True
    show("kernel, user namespaces, control groups and disk")
    try:
        for finding in await examine(config):
            usable = usable and (finding.ok or not finding.required)
            yield finding
    except (PaddockError, OSError) as error:
        usable = False
        yield Finding(check="backend", ok=False, detail=str(error))
    for finding in _programs():
        yield finding
    if trial and usable:
        show("that a sandbox starts")
        yield await _trial(cli, config)


def _variables(loaded: Loaded) -> Finding:
    from paddock.sandbox.base import Finding

    served = is_served(loaded.config.data)
    needed = "the running server has its own environment; the next" if served else "the"
    return Finding(
        check="variables",
        ok=False,
        detail="\n".join(loaded.unset.values()),
        fix=f"export them in the shell of `paddock serve`; {needed} server does not start without them",
        required=False,
    )


def _data_directory(data: Path) -> Iterator[Finding]:
    import os
    import stat

    from paddock.sandbox.base import Finding

    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        writable = os.access(data, os.R_OK | os.W_OK | os.X_OK)
    except OSError as error:
        yield Finding(
            check="data directory", ok=False, detail=f"{data}: {error.strerror}", fix="choose another: --data"
        )
        return
    yield Finding(
        check="data directory", ok=writable, detail=str(data), fix="make it yours, or choose another with --data"
    )
    mode = stat.S_IMODE(data.stat().st_mode)
    if mode & 0o077:
        yield Finding(
            check="permissions",
            ok=False,
            detail=f"others may look into {data} ({mode:o})",
            fix=f"chmod 700 {data}",
            required=False,
        )


def _port(config: Config) -> Finding:
    import socket

    from paddock.sandbox.base import Finding

    host, port = config.server.host, config.server.port
    where = f"{host}:{port}"
    if is_served(config.data):
        return Finding(check="server", ok=True, detail=f"running at {server_of(config.data) or where}")
    fix = "stop what uses it, or choose another with --port or server.port"
    try:
        with socket.create_server((host, port)):
            return Finding(check="port", ok=True, detail=f"{where} is free")
    except OSError as error:
        return Finding(check="port", ok=False, detail=f"{where}: {error.strerror}", fix=fix, required=False)


async def _providers(cli: Cli) -> list[Finding]:
    """Ask the running server which model providers it has and how they are doing."""
    from paddock.sandbox.base import Finding

    try:
        async with cli.client() as client:
            found = await client.get("/v1/llm")
    except PaddockError as error:
        return [Finding(check="providers", ok=False, detail=error.message, required=False)]
    real = [each for each in found["providers"] if (each["name"], each["kind"]) != ("demo", "script")]
    if real:
        return [_provider(each) for each in real]
    fix = (
        "set a key such as ANTHROPIC_API_KEY or OPENAI_API_KEY in the shell of `paddock serve` and restart it, "
        "or name a provider in paddock.yaml (docs/how-to/connect-a-provider.md)"
    )
    return [Finding(check="providers", ok=False, detail="no model is connected", fix=fix, required=False)]


def _provider(found: Mapping[str, Any]) -> Finding:
    """Report whether a provider accepted its key and answers."""
    from paddock.sandbox.base import Finding

    where = found.get("foundIn") or f"llm.providers.{found['name']}.key"
    address = f" at {found['baseUrl']}" if found.get("baseUrl") else ""
    detail, fix = "", None
    if found.get("keyRefusedAt"):
        detail, fix = f"key refused{address}", f"correct {where} and restart the server"
    elif found.get("failing"):
        detail, fix = f"not reached{address}: requests kept failing", "check its address and the server's network"
    elif found.get("listProblem"):
        detail = f"no list of models{address}: {found['listProblem']}"
        fix = "check its address and the server's network; name the models in llm.models if it has no list"
    return Finding(
        check=f"provider {found['name']}", ok=not detail, detail=detail or f"OK{address}", fix=fix, required=False
    )


def _programs() -> Iterator[Finding]:
    import shutil

    from paddock.sandbox.base import Finding

    for program, package, purpose in _PROGRAMS:
        found = shutil.which(program)
        yield Finding(
            check=program,
            ok=found is not None,
            detail=found or f"not on PATH; needed to {purpose}",
            fix=f"apt-get install {package}",
            required=False,
        )


async def _trial(cli: Cli, config: Config) -> Finding:
    from paddock.cli.trial import through_server, without_server
    from paddock.sandbox.base import Finding

    try:
        if is_served(config.data):
            async with cli.client() as client:
                timings = await through_server(client)
        else:
            timings = await without_server(config)
    except (PaddockError, OSError, TimeoutError) as error:
        message = str(error) or type(error).__name__
        return Finding(check="trial", ok=False, detail=message, fix="see what failed above; run with --debug for more")
    start, run, remove = (f"{seconds * 1000:.0f} ms" for seconds in timings)
    return Finding(
        check="trial", ok=True, detail=f"a sandbox started in {start}, ran `true` in {run}, was removed in {remove}"
    )


def _mark(finding: Finding) -> str:
    if finding.ok:
        return "✓"
    return "✗" if finding.required else "!"


def _told(finding: Finding) -> str:
    return finding.detail if finding.ok or not finding.fix else f"{finding.detail}\n→ {finding.fix}"
