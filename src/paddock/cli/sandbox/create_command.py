"""`paddock sandbox create`: makes a sandbox and waits until it runs."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.framework import option_parsing
from paddock.cli.framework.command_registration import command_group, register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import RequestRefused, UsageError, print_warning
from paddock.cli.output.formatting import format_time_left, parse_time
from paddock.cli.sandbox.sandbox_commands import format_sandbox_state, wait_until_settled

if TYPE_CHECKING:
    from paddock.cli.connection.server_client import ServerClient


def register_commands(app: typer.Typer) -> typer.Typer:
    sandboxes = command_group("Create, use and remove sandboxes.")
    app.add_typer(sandboxes, name="sandbox")
    register_command(
        sandboxes,
        "create",
        server=True,
        examples="""
            paddock sandbox create --image code
            paddock sandbox create --kind linux --name desk
            paddock sandbox create --kind mobile --device pixel
            paddock sandbox create --image host --timeout 30m --memory 512Mi --env DEBUG=1
            paddock sandbox create --network packages --network "allow *.example.com:443"
            paddock sandbox create --image code --user root --network packages
            paddock sandbox create --image code --network api.example.com:443 --vault
            paddock sandbox create --image code -- python3 -m http.server 8000
            id=$(paddock sandbox create --image host -q)
        """,
    )(create_sandbox)
    return sandboxes


async def create_sandbox(
    cli: CliContext,
    entrypoint: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="Command that the sandbox runs as its entrypoint.", show_default=False),
    ] = None,
    image: Annotated[
        str | None, typer.Option("--image", "-i", metavar="IMAGE", help="Image.  [default: configured image]")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--kind", "-k", metavar="KIND", help="Kind of sandbox: linux, browser, windows, mobile or code."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="Android device to connect to, for kind mobile.")
    ] = None,
    snapshot: Annotated[
        str | None, typer.Option(metavar="SNAPSHOT", help="Start from a snapshot instead, by id or name.")
    ] = None,
    pool: Annotated[str | None, typer.Option(metavar="NAME", help="Take a ready sandbox from this pool.")] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the sandbox.")] = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Lifetime, such as 30m; `none` for no expiry.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", metavar="K=V", help="Environment variable; repeatable.")
    ] = None,
    env_file: Annotated[list[Path] | None, typer.Option(metavar="FILE", help="File of K=V lines.")] = None,
    cpu: Annotated[str | None, typer.Option(metavar="N", help="CPUs, such as 0.5 or 500m.")] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Memory, such as 512Mi.")] = None,
    disk: Annotated[str | None, typer.Option(metavar="SIZE", help="Limit for written data, such as 2Gi.")] = None,
    volume: Annotated[
        list[str] | None,
        typer.Option("--volume", "-v", metavar="SRC:/DIR[:ro]", help="Mount a host directory or a named volume."),
    ] = None,
    network: Annotated[
        list[str] | None,
        typer.Option(
            "--network",
            metavar="RULE",
            help="Network policy: none, open, web, packages, git or a rule such as `allow pypi.org:443`; repeatable.",
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(metavar="root", help="Run programs as root of the sandbox.  [default: the image's user]"),
    ] = None,
    vault: Annotated[
        bool, typer.Option("--vault", help="Allow credentials that the sandbox does not have (paddock sandbox vault).")
    ] = False,
    metadata: Annotated[
        list[str] | None, typer.Option("--metadata", "-m", metavar="K=V", help="Metadata label; repeatable.")
    ] = None,
    extension: Annotated[
        list[str] | None,
        typer.Option("--extension", "-x", metavar="K=V", help="Extension, such as paddock.llm.budget-cost=2."),
    ] = None,
    words: Annotated[str | None, typer.Option("--entrypoint", metavar="WORDS", help="COMMAND as one argument.")] = None,
    wait: Annotated[bool, typer.Option(help="Wait until the sandbox is running.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the id, as in a pipe.")] = False,
) -> None:
    """Create a sandbox and print its id.

    Each kind has its own image, which is built first if it is missing; --image selects another one.
    """
    request: dict[str, Any] = {
        **option_parsing.parse_lifetime(timeout),
        "env": option_parsing.parse_environment(env or [], env_file or []),
        "metadata": option_parsing.parse_assignments(metadata or [], "--metadata"),
        "resourceLimits": option_parsing.parse_resource_limits(cpu=cpu, memory=memory, disk=disk),
        "volumes": option_parsing.parse_volumes(volume or []),
        "extensions": option_parsing.parse_assignments(extension or [], "--extension"),
    }
    if sum(item is not None for item in (image, snapshot)) > 1:
        raise UsageError("--image and --snapshot cannot be combined; give one")
    if image:
        request["image"] = {"uri": image}
    if network:
        request["network"] = option_parsing.join_rules(network)
    if user is not None:
        request["user"] = option_parsing.require_root_user(user)
    if vault:
        request["credentialProxy"] = {"enabled": True}
    if device is not None:
        request["extensions"]["paddock.device"] = device
        kind = kind or "mobile"
    if kind:
        request["extensions"]["paddock.kind"] = kind
    if pool:
        request["extensions"]["poolRef"] = pool
    if name:
        request["name"] = name
    if words and entrypoint:
        raise UsageError("--entrypoint and COMMAND cannot be combined; give one")
    if words or entrypoint:
        request["entrypoint"] = entrypoint or _split_entrypoint(words or "")
    started_at = time.monotonic()
    async with cli.open_client() as client:
        if snapshot:
            from paddock.cli.sandbox.sandbox_lookup import find_snapshot

            request["snapshotId"] = await find_snapshot(client, snapshot)
        body = {key: value for key, value in request.items() if value or key == "timeout"}
        sandbox = await _request_sandbox(cli, client, body, kind if not (image or snapshot or pool) else None)
        if wait:
            sandbox = await wait_until_settled(cli, client, sandbox)
            if request.get("entrypoint"):
                await _warn_if_entrypoint_failed(client, sandbox["id"], request["entrypoint"][0])
    if cli.as_json:
        cli.out.print_json(sandbox)
    elif quiet or not sys.stdout.isatty():
        cli.out.print_line(str(sandbox["id"]))
    else:
        seconds = time.monotonic() - started_at
        expires = format_time_left(parse_time(sandbox.get("expiresAt")))
        cli.out.print_line(f"{sandbox['id']}  {format_sandbox_state(sandbox)} in {seconds:.2f} s, expires {expires}")


async def _request_sandbox(
    cli: CliContext, client: ServerClient, request: dict[str, Any], kind: str | None
) -> dict[str, Any]:
    """Request a sandbox; if the image of its kind is missing, build the image first if possible."""
    from paddock.cli.image.kind_command import build_kind_image

    try:
        created: dict[str, Any] = await client.post("/v1/sandboxes", request)
    except RequestRefused as error:
        if error.server_code == "NAME_TAKEN":
            error.hint = f"remove that one with: paddock sandbox rm {request['name']}"
        if kind is None or error.server_code != "IMAGE_NOT_FOUND" or not await build_kind_image(cli, client, kind):
            raise
        created = await client.post("/v1/sandboxes", request)
    return created


async def _warn_if_entrypoint_failed(client: ServerClient, sandbox_id: str, program: str) -> None:
    """Warn if the entrypoint could not be started; the sandbox runs without it."""
    from paddock.cli.sandbox.logs_command import ENTRYPOINT_COMMAND
    from paddock.cli.sandbox.remote_command import CommandOutputWriter, RemoteCommand

    execution = RemoteCommand(client, sandbox_id, CommandOutputWriter(False))
    execution.id = ENTRYPOINT_COMMAND
    try:
        reason = await execution.failure_reason()
    except RequestRefused:
        return  # The sandbox has ended, or the key may not read it.
    if reason.startswith(f"{program}: "):
        print_warning(f"{reason}; the sandbox runs without an entrypoint (to name an image, use --image)")


def _split_entrypoint(words: str) -> list[str]:
    import shlex

    try:
        return shlex.split(words)
    except ValueError as error:
        raise UsageError(f"--entrypoint: {error}") from None
