"""Snapshots: what a sandbox has written, kept to start others from."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from paddock.cli.commands import command
from paddock.cli.context import Cli
from paddock.cli.failure import CliError
from paddock.cli.output import ago, moment
from paddock.cli.sandbox import SandboxArgument

_WAIT_SECONDS = 600.0


def register(boxes: typer.Typer) -> None:
    command(
        boxes,
        "snapshot",
        server=True,
        examples="""
            paddock sandbox snapshot 3f2a --name before-upgrade
            paddock sandbox create --snapshot before-upgrade
        """,
    )(snapshot)
    command(
        boxes,
        "snapshots",
        server=True,
        examples="paddock sandbox snapshots\npaddock sandbox snapshots --rm snap-0123456789abcdef",
    )(snapshots)


async def snapshot(
    cli: Cli,
    sandbox: SandboxArgument,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name to call it by.")] = None,
    wait: Annotated[bool, typer.Option(help="Wait until it is ready.")] = True,
) -> None:
    """Keep what a sandbox has written, to start others from it."""
    import asyncio

    from paddock.cli.find import find

    async with cli.client() as client:
        sandbox_id = await find(client, sandbox)
        kept = await client.post(f"/v1/sandboxes/{sandbox_id}/snapshots", {"name": name} if name else {})
        deadline = time.monotonic() + _WAIT_SECONDS
        pause = 0.05
        while wait and _state(kept) == "Creating":
            if time.monotonic() > deadline:
                raise CliError(f"snapshot {kept['id']} is not ready after {_WAIT_SECONDS:.0f} s")
            await asyncio.sleep(pause)
            pause = min(1.0, pause * 1.5)
            kept = await client.get(f"/v1/snapshots/{kept['id']}")
    if _state(kept) == "Failed":
        raise CliError(f"snapshot {kept['id']} failed: {(kept.get('status') or {}).get('message')}")
    if cli.as_json:
        return cli.out.document(kept)
    return cli.out.line(str(kept["id"]))


async def snapshots(
    cli: Cli,
    sandbox: Annotated[str | None, typer.Option("--sandbox", metavar="SANDBOX", help="Only of this one.")] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--rm", metavar="SNAPSHOT", help="Remove this one, by id or name.")
    ] = None,
) -> None:
    """List snapshots, or remove some."""
    from paddock.cli.find import find, find_snapshot

    async with cli.reading() as client:
        if remove:
            ids = [await find_snapshot(client, item) for item in remove]
            for item in ids:
                await client.delete(f"/v1/snapshots/{item}")
            return cli.out.document({"removed": ids}) if cli.as_json else cli.out.line("\n".join(ids))
        wanted = await find(client, sandbox) if sandbox else None
        found = await client.items("/v1/snapshots", sandboxId=wanted)
    if cli.as_json:
        return cli.out.document(found)
    if not found:
        return cli.out.nothing("There are no snapshots. Make one: paddock sandbox snapshot SANDBOX")
    rows = [
        [
            str(item["id"]),
            _state(item),
            str(item.get("sandboxId", "")),
            ago(moment(item.get("createdAt"))),
            item.get("name") or "",
        ]
        for item in found
    ]
    return cli.out.table(["ID", "STATE", "SANDBOX", "AGE", "NAME"], rows)


def _state(snapshot: dict[str, Any]) -> str:
    return str((snapshot.get("status") or {}).get("state", "unknown"))
