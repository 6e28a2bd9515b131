"""`paddock doctor`: checks whether this machine can run sandboxes, and suggests fixes."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.connection.data_directory import create_data_directory
from paddock.cli.connection.server_address import has_running_server, running_server_url
from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import EXIT_FAILED
from paddock.errors import PaddockError

if TYPE_CHECKING:
    from pathlib import Path

    from paddock.config import Config, LoadedConfig
    from paddock.sandbox.base import HostCheck

_PROGRAMS = (
    ("mmdebstrap", "mmdebstrap", "build images"),
    ("skopeo", "skopeo", "pull OCI images"),
    ("ffmpeg", "ffmpeg", "export recordings as mp4 and gif"),
)

PROXY_CHECK_SECONDS = 3.0


def register_commands(app: typer.Typer) -> None:
    register_command(app, "doctor", examples="paddock doctor\npaddock doctor --no-trial --json")(check_machine)


async def check_machine(
    cli: CliContext,
    trial: Annotated[bool, typer.Option(help="Start a sandbox, run `true` in it and remove it.")] = True,
) -> int:
    """Check this machine and suggest fixes.

    The exit code is 1 only if a requirement for sandboxes is missing.
    """
    with _show_current_check(cli) as show:
        found = [finding async for finding in _run_checks(cli, trial, show)]
    healthy = all(finding.ok or not finding.required for finding in found)
    if cli.as_json:
        cli.out.print_json({"healthy": healthy, "findings": [finding.model_dump(mode="json") for finding in found]})
        return 0 if healthy else EXIT_FAILED
    cli.out.print_table(
        ["", "CHECK", "FOUND"],
        [[_finding_mark(finding), finding.check, _finding_text(finding)] for finding in found],
        wraps=["FOUND"],
    )
    missing = sum(not finding.ok for finding in found)
    if not healthy:
        cli.out.print_line("\nSandboxes cannot run here yet; see the suggested fixes above.")
    elif missing:
        cli.out.print_line(
            f"\nSandboxes can run here. {missing} optional {'problem' if missing == 1 else 'problems'} found."
        )
    else:
        cli.out.print_line("\nAll checks passed.")
    return 0 if healthy else EXIT_FAILED


@contextmanager
def _show_current_check(cli: CliContext) -> Iterator[Callable[[str], None]]:
    """Show the current check on a terminal."""
    if not cli.out.is_interactive or not sys.stderr.isatty():
        yield lambda check: None
        return
    from rich.console import Console

    with Console(stderr=True, highlight=False).status("Checking …") as status:
        yield lambda check: status.update(f"Checking {check} …")


async def _run_checks(cli: CliContext, trial: bool, show: Callable[[str], None]) -> AsyncIterator[HostCheck]:
    from paddock.sandbox.base import HostCheck

    show("the configuration")
    loaded = cli.repaired_config
    yield HostCheck(
        check="configuration",
        ok=not loaded.problems,
        detail="\n".join(loaded.problems) or str(loaded.file or "no file, all defaults"),
        fix="correct these settings, since the server does not start; the checks below use their defaults",
    )
    if loaded.unset:
        yield _check_variables(loaded)
    config = loaded.config
    show("the data directory")
    for finding in _check_data_directory(config.data):
        yield finding
        if not finding.ok and finding.required:
            return
    yield _check_port(config)
    show("the proxy of outgoing connections")
    for finding in _check_outgoing(config):
        yield finding
    if has_running_server(config.data):
        show("the model providers of the running server")
        for finding in await _check_providers(cli):
            yield finding
    from paddock.cli.admin.sandbox_self_test import check_sandbox_backend

    usable = True
    show("kernel, user namespaces, control groups and disk")
    try:
        for finding in await check_sandbox_backend(config):
            usable = usable and (finding.ok or not finding.required)
            yield finding
    except (PaddockError, OSError) as error:
        usable = False
        yield HostCheck(check="backend", ok=False, detail=str(error))
    for finding in _check_programs():
        yield finding
    from paddock.cli.admin.package_index_check import check_package_indexes

    show("that package indexes can be reached")
    yield await check_package_indexes(config)
    if trial and usable:
        show("that a sandbox starts")
        yield await _check_sandbox_start(cli, config)


def _check_variables(loaded: LoadedConfig) -> HostCheck:
    from paddock.sandbox.base import HostCheck

    served = has_running_server(loaded.config.data)
    needed = "the running server has its own environment; the next" if served else "the"
    return HostCheck(
        check="variables",
        ok=False,
        detail="\n".join(loaded.unset.values()),
        fix=f"export them in the shell of `paddock serve`; {needed} server does not start without them",
        required=False,
    )


def _check_data_directory(data: Path) -> Iterator[HostCheck]:
    import os
    import stat

    from paddock.sandbox.base import HostCheck

    try:
        create_data_directory(data)
        writable = os.access(data, os.R_OK | os.W_OK | os.X_OK)
    except OSError as error:
        yield HostCheck(
            check="data directory", ok=False, detail=f"{data}: {error.strerror}", fix="choose another: --data"
        )
        return
    yield HostCheck(
        check="data directory", ok=writable, detail=str(data), fix="change its owner, or choose another with --data"
    )
    mode = stat.S_IMODE(data.stat().st_mode)
    if mode & 0o077:
        yield HostCheck(
            check="permissions",
            ok=False,
            detail=f"other users can access {data} ({mode:o})",
            fix=f"chmod 700 {data}",
            required=False,
        )


def _check_port(config: Config) -> HostCheck:
    import socket

    from paddock.sandbox.base import HostCheck

    host, port = config.server.host, config.server.port
    where = f"{host}:{port}"
    if has_running_server(config.data):
        return HostCheck(check="server", ok=True, detail=f"running at {running_server_url(config.data) or where}")
    fix = "stop the program that uses it, or choose another port with --port or server.port"
    try:
        with socket.create_server((host, port)):
            return HostCheck(check="port", ok=True, detail=f"{where} is free")
    except OSError as error:
        return HostCheck(check="port", ok=False, detail=f"{where}: {error.strerror}", fix=fix, required=False)


def _check_outgoing(config: Config) -> Iterator[HostCheck]:
    """Name the proxies of the server's own connections, and check that they accept connections."""
    import os
    import socket

    from paddock.config.outgoing_proxy import check_ca_bundle, parse_proxy
    from paddock.errors import ConfigError
    from paddock.sandbox.base import HostCheck

    check = "outgoing proxy"
    try:
        proxies = config.outgoing.proxies(os.environ)
        check_ca_bundle(proxies.ca_bundle)
    except ConfigError as error:
        yield HostCheck(check=check, ok=False, detail=error.message, fix="correct it; the server does not start")
        return
    used = {"https": proxies.https, "http": proxies.http}
    for name, provider in config.llm.providers.items():
        if provider.proxy is not None:
            used[f"provider {name}"] = parse_proxy(provider.proxy.get_secret_value(), f"llm.providers.{name}.proxy")
    for proxy in dict.fromkeys(each for each in used.values() if each is not None):
        detail = f"{', '.join(purpose for purpose, each in used.items() if each == proxy)}: {proxy}"
        problem = None
        try:
            socket.create_connection((proxy.host, proxy.port), PROXY_CHECK_SECONDS).close()
        except OSError as error:
            problem = f"{detail}: {error.strerror or error}"
        if proxy.source.lower() in ("http_proxy", "https_proxy") and has_running_server(config.data):
            detail += "; the running server has its own environment"
        fix = f"check {proxy.source} and the network of this machine; list direct targets in NO_PROXY"
        yield HostCheck(check=check, ok=problem is None, detail=problem or detail, fix=fix, required=False)


async def _check_providers(cli: CliContext) -> list[HostCheck]:
    """Check the model providers of the running server."""
    from paddock.sandbox.base import HostCheck

    try:
        async with cli.open_client() as client:
            found = await client.get("/v1/llm")
    except PaddockError as error:
        return [HostCheck(check="providers", ok=False, detail=error.message, required=False)]
    real = [each for each in found["providers"] if (each["name"], each["kind"]) != ("demo", "script")]
    if real:
        return [_provider_finding(each) for each in real]
    fix = (
        "set a key such as ANTHROPIC_API_KEY or OPENAI_API_KEY in the shell of `paddock serve` and restart it, "
        "or name a provider in paddock.yaml; `paddock llm list` shows how"
    )
    return [HostCheck(check="providers", ok=False, detail="no model is connected", fix=fix, required=False)]


def _provider_finding(found: Mapping[str, Any]) -> HostCheck:
    """Report whether a provider accepted its key and answers."""
    from paddock.sandbox.base import HostCheck

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
    return HostCheck(
        check=f"provider {found['name']}", ok=not detail, detail=detail or f"OK{address}", fix=fix, required=False
    )


def _check_programs() -> Iterator[HostCheck]:
    import shutil

    from paddock.sandbox.base import HostCheck

    for program, package, purpose in _PROGRAMS:
        found = shutil.which(program)
        yield HostCheck(
            check=program,
            ok=found is not None,
            detail=found or f"not on PATH; needed to {purpose}",
            fix=f"apt-get install {package}",
            required=False,
        )


async def _check_sandbox_start(cli: CliContext, config: Config) -> HostCheck:
    from paddock.cli.admin.sandbox_self_test import measure_sandbox_through_server, measure_sandbox_without_server
    from paddock.sandbox.base import HostCheck

    try:
        if has_running_server(config.data):
            async with cli.open_client() as client:
                timings = await measure_sandbox_through_server(client)
        else:
            timings = await measure_sandbox_without_server(config)
    except (PaddockError, OSError, TimeoutError) as error:
        message = str(error) or type(error).__name__
        return HostCheck(
            check="trial", ok=False, detail=message, fix="see the failed checks above; run with --debug for details"
        )
    start, run, remove = (f"{seconds * 1000:.0f} ms" for seconds in timings)
    return HostCheck(
        check="trial", ok=True, detail=f"a sandbox started in {start}, ran `true` in {run}, was removed in {remove}"
    )


def _finding_mark(finding: HostCheck) -> str:
    if finding.ok:
        return "✓"
    return "✗" if finding.required else "!"


def _finding_text(finding: HostCheck) -> str:
    return finding.detail if finding.ok or not finding.fix else f"{finding.detail}\n→ {finding.fix}"
