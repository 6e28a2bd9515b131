"""`paddock sandbox desktop`: a sandbox's screen, started and stopped."""

from __future__ import annotations

from typing import Any, Literal

import typer

from paddock.cli.commands import command, group
from paddock.cli.context import Cli
from paddock.cli.failure import CliError
from paddock.cli.sandbox import SandboxArgument

_SECONDS = 180.0


def register(boxes: typer.Typer) -> None:
    desktops = group("Start, stop and show the programs of a sandbox's screen.")
    boxes.add_typer(desktops, name="desktop")
    command(desktops, "show", server=True, examples="paddock sandbox desktop show 3f2a")(show)
    command(desktops, "start", server=True, examples="paddock sandbox desktop start 3f2a")(start)
    command(desktops, "stop", server=True, examples="paddock sandbox desktop stop 3f2a")(stop)


async def show(cli: Cli, sandbox: SandboxArgument) -> None:
    """Show the programs that a sandbox's screen is made of."""
    _, found = await _ask(cli, sandbox, "GET")
    if cli.as_json:
        return cli.out.document(found)
    rows = [[str(each["name"]), str(each["state"]), str(each["starts"])] for each in found["services"]]
    return cli.out.table(["NAME", "STATE", "STARTS"], rows)


async def start(cli: Cli, sandbox: SandboxArgument) -> None:
    """Start what does not run of a sandbox's screen, and wait until it is there."""
    sandbox_id, found = await _ask(cli, sandbox, "POST")
    if cli.as_json:
        return cli.out.document(found)
    if not found["up"]:
        raise CliError(f"the screen of {sandbox_id} is not there; see: paddock sandbox desktop show {sandbox}")
    return cli.out.line(f"{sandbox_id}  its screen is there")


async def stop(cli: Cli, sandbox: SandboxArgument) -> None:
    """Stop a sandbox's screen, and with it every program that has a window."""
    sandbox_id, found = await _ask(cli, sandbox, "DELETE")
    return cli.out.document(found) if cli.as_json else cli.out.line(f"{sandbox_id}  its screen is stopped")


async def _ask(cli: Cli, wanted: str, method: Literal["GET", "POST", "DELETE"]) -> tuple[str, dict[str, Any]]:
    from paddock.cli.find import find

    async with cli.client() as client:
        sandbox_id = await find(client, wanted)
        found = await client.ask(method, f"/v1/sandboxes/{sandbox_id}/desktop", timeout=_SECONDS)
    return sandbox_id, found
