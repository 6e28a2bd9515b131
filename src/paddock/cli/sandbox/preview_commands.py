"""`paddock sandbox expose`, `unexpose` and `previews`: addresses for ports of a sandbox that work in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.framework.option_parsing import parse_duration_option
from paddock.cli.output.formatting import format_time_left, parse_time
from paddock.cli.sandbox.sandbox_lookup import SandboxArgument

if TYPE_CHECKING:
    from paddock.cli.connection.server_client import ServerClient

PortArgument = Annotated[int, typer.Argument(metavar="PORT", min=1, max=65535, help="Port in the sandbox.")]


def register_commands(sandboxes: typer.Typer) -> None:
    register_command(
        sandboxes,
        "expose",
        server=True,
        examples="paddock sandbox expose 3f2a 3000\npaddock sandbox expose 3f2a 3000 --ttl 8h --public",
    )(expose_port)
    register_command(sandboxes, "unexpose", server=True, examples="paddock sandbox unexpose 3f2a 3000")(unexpose_port)
    register_command(sandboxes, "previews", server=True, examples="paddock sandbox previews 3f2a")(list_previews)


async def expose_port(
    cli: CliContext,
    sandbox: SandboxArgument,
    port: PortArgument,
    ttl: Annotated[str, typer.Option("--ttl", metavar="TIME", help="Time until the address expires.")] = "1h",
    public: Annotated[
        bool, typer.Option("--public", help="Print an address without a signature that works for everyone.")
    ] = False,
) -> None:
    """Print an address for a port of a sandbox that works in a browser.

    The address is a signed link, so treat it as a secret unless you want others to open it. It works until it expires,
    the port is unexposed or the sandbox ends. Exposing a port again changes its terms and keeps the address.
    """
    from paddock.cli.sandbox.sandbox_lookup import find_sandbox

    seconds = max(1, round(parse_duration_option(ttl, "--ttl")))
    async with cli.open_client() as client:
        path = f"/v1/sandboxes/{await find_sandbox(client, sandbox)}/previews"
        found = await client.post(path, {"port": port, "ttl": seconds, "public": public})
        preview = _with_full_addresses(client, found)
    if cli.as_json:
        return cli.out.print_json(preview)
    return cli.out.print_line(preview["link"])


async def unexpose_port(cli: CliContext, sandbox: SandboxArgument, port: PortArgument) -> None:
    """Close the preview of a port; its address never works again."""
    from paddock.cli.sandbox.sandbox_lookup import find_sandbox

    async with cli.open_client() as client:
        sandbox_id = await find_sandbox(client, sandbox)
        await client.delete(f"/v1/sandboxes/{sandbox_id}/previews/{port}")
    if cli.as_json:
        cli.out.print_json({"sandbox": sandbox_id, "port": port})
    else:
        cli.out.print_line(f"{sandbox_id}  port {port} is no longer exposed")


async def list_previews(cli: CliContext, sandbox: SandboxArgument) -> None:
    """List the exposed ports of a sandbox with their addresses."""
    from paddock.cli.sandbox.sandbox_lookup import find_sandbox

    async with cli.open_client() as client:
        found = await client.get(f"/v1/sandboxes/{await find_sandbox(client, sandbox)}/previews")
        previews = [_with_full_addresses(client, each) for each in found["items"]]
    if cli.as_json:
        return cli.out.print_json(previews)
    if not previews:
        return cli.out.print_if_interactive("No exposed ports. Expose one: paddock sandbox expose SANDBOX PORT")
    rows = [
        [
            str(each["port"]),
            "public" if each["public"] else "link",
            format_time_left(parse_time(each["expiresAt"])),
            each["link"],
        ]
        for each in previews
    ]
    return cli.out.print_table(["PORT", "ACCESS", "EXPIRES", "ADDRESS"], rows)


def _with_full_addresses(client: ServerClient, preview: dict[str, Any]) -> dict[str, Any]:
    """Return a preview with addresses that work without the server's."""
    return {**preview, **{name: _full_address(client.url, preview[name]) for name in ("address", "link")}}


def _full_address(server_url: str, address: str) -> str:
    if address.startswith("//"):
        return f"{server_url.partition('//')[0]}{address}"
    return server_url.rstrip("/") + address
