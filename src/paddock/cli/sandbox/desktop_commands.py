"""`paddock sandbox desktop`: shows, starts and stops a sandbox's desktop."""

from __future__ import annotations

from typing import Any, Literal

import typer

from paddock.cli.framework.command_registration import command_group, register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import CliError
from paddock.cli.sandbox.sandbox_lookup import SandboxArgument

_REQUEST_SECONDS = 180.0


def register_commands(sandboxes: typer.Typer) -> None:
    desktops = command_group("Show, start and stop a sandbox's desktop.")
    sandboxes.add_typer(desktops, name="desktop")
    register_command(desktops, "show", server=True, examples="paddock sandbox desktop show 3f2a")(show_desktop_services)
    register_command(desktops, "start", server=True, examples="paddock sandbox desktop start 3f2a")(start_desktop)
    register_command(desktops, "stop", server=True, examples="paddock sandbox desktop stop 3f2a")(stop_desktop)


async def show_desktop_services(cli: CliContext, sandbox: SandboxArgument) -> None:
    """Show the services of a sandbox's desktop."""
    _, found = await _request_desktop(cli, sandbox, "GET")
    if cli.as_json:
        return cli.out.print_json(found)
    rows = [[str(each["name"]), str(each["state"]), str(each["starts"])] for each in found["services"]]
    return cli.out.print_table(["NAME", "STATE", "STARTS"], rows)


async def start_desktop(cli: CliContext, sandbox: SandboxArgument) -> None:
    """Start a sandbox's desktop and wait until it is ready."""
    sandbox_id, found = await _request_desktop(cli, sandbox, "POST")
    if cli.as_json:
        return cli.out.print_json(found)
    if not found["up"]:
        raise CliError(f"the desktop of {sandbox_id} did not start; see: paddock sandbox desktop show {sandbox}")
    return cli.out.print_line(f"{sandbox_id}  desktop started")


async def stop_desktop(cli: CliContext, sandbox: SandboxArgument) -> None:
    """Stop a sandbox's desktop and every program that has a window."""
    sandbox_id, found = await _request_desktop(cli, sandbox, "DELETE")
    return cli.out.print_json(found) if cli.as_json else cli.out.print_line(f"{sandbox_id}  desktop stopped")


async def _request_desktop(
    cli: CliContext, sandbox_name: str, method: Literal["GET", "POST", "DELETE"]
) -> tuple[str, dict[str, Any]]:
    from paddock.cli.sandbox.sandbox_lookup import find_sandbox

    async with cli.open_client() as client:
        sandbox_id = await find_sandbox(client, sandbox_name)
        found = await client.request_json(method, f"/v1/sandboxes/{sandbox_id}/desktop", timeout=_REQUEST_SECONDS)
    return sandbox_id, found
