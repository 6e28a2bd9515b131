"""`paddock pool`: manages pools of pre-started sandboxes."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from paddock.cli.framework import option_parsing
from paddock.cli.framework.command_registration import command_group, register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import UsageError

PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="Name of the pool.", show_default=False)]


def register_commands(app: typer.Typer) -> None:
    pools = command_group("Manage pools of pre-started sandboxes.")
    app.add_typer(pools, name="pool")
    register_command(
        pools,
        "create",
        server=True,
        examples="paddock pool create desks --kind linux --size 2\npaddock pool create ready --image code",
    )(create_pool)
    register_command(pools, "list", server=True, examples="paddock pool list")(list_pools)
    register_command(pools, "resize", server=True, examples="paddock pool resize desks 4")(resize_pool)
    register_command(pools, "rm", server=True, examples="paddock pool rm desks")(remove_pool)


async def create_pool(
    cli: CliContext,
    name: PoolArgument,
    kind: Annotated[str | None, typer.Option("--kind", "-k", metavar="KIND", help="Kind of the sandboxes.")] = None,
    image: Annotated[
        str | None, typer.Option("--image", "-i", metavar="IMAGE", help="Image.  [default: image of the kind]")
    ] = None,
    size: Annotated[
        int, typer.Option("--size", metavar="N", min=0, max=1000, help="Number of sandboxes to keep ready.")
    ] = 2,
    cpu: Annotated[str | None, typer.Option(metavar="N", help="CPUs, such as 0.5 or 500m.")] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Memory, such as 512Mi.")] = None,
    disk: Annotated[str | None, typer.Option(metavar="SIZE", help="Limit for written data, such as 2Gi.")] = None,
    user: Annotated[
        str | None,
        typer.Option(metavar="root", help="Run programs as root of the sandbox.  [default: the image's user]"),
    ] = None,
) -> None:
    """Create a pool of ready sandboxes of a kind or image."""
    limits = option_parsing.parse_resource_limits(cpu=cpu, memory=memory, disk=disk)
    if kind is None and image is None:
        raise UsageError("give --kind KIND or --image IMAGE")
    body: dict[str, Any] = {"name": name, "capacitySpec": {"bufferMax": size}}
    if kind is not None:
        body["kind"] = kind
    if user is not None:
        body["user"] = option_parsing.require_root_user(user)
    if image is not None or limits:
        container = {"resources": {"limits": limits}} | ({} if image is None else {"image": image})
        body["template"] = {"spec": {"containers": [container]}}
    async with cli.open_client() as client:
        created = await client.post("/v1/pools", body)
    return cli.out.print_json(created) if cli.as_json else cli.out.print_line(f"{name}  keeps {size} ready")


async def list_pools(cli: CliContext) -> None:
    """List pools and their numbers of ready sandboxes."""
    async with cli.open_read_client() as client:
        found = (await client.get("/v1/pools"))["items"]
    if cli.as_json:
        return cli.out.print_json(found)
    if not found:
        return cli.out.print_if_interactive("No pools. Create one: paddock pool create NAME --kind linux --size 2")
    rows = [
        [
            pool["name"],
            pool.get("kind") or "",
            pool["status"]["revision"],
            f"{pool['status']['available']} of {pool['capacitySpec']['bufferMax']}",
            str(pool["status"]["allocated"]),
        ]
        for pool in found
    ]
    return cli.out.print_table(["NAME", "KIND", "IMAGE", "READY", "TAKEN"], rows)


async def resize_pool(
    cli: CliContext,
    name: PoolArgument,
    size: Annotated[int, typer.Argument(metavar="N", min=0, max=1000, help="Number of sandboxes to keep ready.")],
) -> None:
    """Change the size of a pool."""
    async with cli.open_client() as client:
        path = f"/v1/pools/{quote(name, safe='')}"
        changed = await client.request_json("PUT", path, json={"capacitySpec": {"bufferMax": size}})
    return cli.out.print_json(changed) if cli.as_json else cli.out.print_line(f"{name}  keeps {size} ready")


async def remove_pool(cli: CliContext, name: PoolArgument) -> None:
    """Remove a pool. Sandboxes already taken from it keep running."""
    async with cli.open_client() as client:
        await client.delete(f"/v1/pools/{quote(name, safe='')}")
    return cli.out.print_json({"removed": name}) if cli.as_json else cli.out.print_line(name)
