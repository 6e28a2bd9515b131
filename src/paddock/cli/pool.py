"""Pools: sandboxes that are started ahead of need."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from paddock.cli import parse
from paddock.cli.commands import command, group
from paddock.cli.context import Cli
from paddock.cli.failure import UsageProblem

PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="Its name.", show_default=False)]


def register(app: typer.Typer) -> None:
    pools = group("Keep sandboxes ready ahead of need.")
    app.add_typer(pools, name="pool")
    command(
        pools,
        "create",
        server=True,
        examples="paddock pool create desks --kind linux --size 2\npaddock pool create ready --image code",
    )(create)
    command(pools, "list", server=True, examples="paddock pool list")(list_)
    command(pools, "resize", server=True, examples="paddock pool resize desks 4")(resize)
    command(pools, "rm", server=True, examples="paddock pool rm desks")(remove)


async def create(
    cli: Cli,
    name: PoolArgument,
    kind: Annotated[str | None, typer.Option("--kind", "-k", metavar="KIND", help="Kind of its sandboxes.")] = None,
    image: Annotated[
        str | None, typer.Option("--image", "-i", metavar="IMAGE", help="Image; that of the kind if left out.")
    ] = None,
    size: Annotated[int, typer.Option("--size", metavar="N", min=0, max=1000, help="How many are kept ready.")] = 2,
    cpu: Annotated[str | None, typer.Option(metavar="N", help="CPUs, such as 0.5 or 500m.")] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Memory, such as 512Mi.")] = None,
    disk: Annotated[str | None, typer.Option(metavar="SIZE", help="What each may write, such as 2Gi.")] = None,
) -> None:
    """Keep sandboxes of a kind or an image ready."""
    limits = parse.resource_limits(cpu=cpu, memory=memory, disk=disk)
    if kind is None and image is None:
        raise UsageProblem("say of what: --kind KIND, or --image IMAGE")
    body: dict[str, Any] = {"name": name, "capacitySpec": {"bufferMax": size}}
    if kind is not None:
        body["kind"] = kind
    if image is not None or limits:
        container = {"resources": {"limits": limits}} | ({} if image is None else {"image": image})
        body["template"] = {"spec": {"containers": [container]}}
    async with cli.client() as client:
        made = await client.post("/v1/pools", body)
    return cli.out.document(made) if cli.as_json else cli.out.line(f"{name}  keeps {size} ready")


async def list_(cli: Cli) -> None:
    """List pools, and how many of each are ready."""
    async with cli.reading() as client:
        found = (await client.get("/v1/pools"))["items"]
    if cli.as_json:
        return cli.out.document(found)
    if not found:
        return cli.out.nothing("There are no pools. Create one: paddock pool create NAME --kind linux --size 2")
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
    return cli.out.table(["NAME", "KIND", "IMAGE", "READY", "TAKEN"], rows)


async def resize(
    cli: Cli,
    name: PoolArgument,
    size: Annotated[int, typer.Argument(metavar="N", min=0, max=1000, help="How many are kept ready.")],
) -> None:
    """Keep more or fewer ready."""
    async with cli.client() as client:
        path = f"/v1/pools/{quote(name, safe='')}"
        changed = await client.ask("PUT", path, json={"capacitySpec": {"bufferMax": size}})
    return cli.out.document(changed) if cli.as_json else cli.out.line(f"{name}  keeps {size} ready")


async def remove(cli: Cli, name: PoolArgument) -> None:
    """Keep none ready any more. Sandboxes taken from it go on."""
    async with cli.client() as client:
        await client.delete(f"/v1/pools/{quote(name, safe='')}")
    return cli.out.document({"removed": name}) if cli.as_json else cli.out.line(name)
