"""`paddock sandbox snapshot` and `snapshots`: saves the files of a sandbox to start others from."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import CliError
from paddock.cli.output.formatting import format_age, parse_time
from paddock.cli.sandbox.sandbox_lookup import SandboxArgument

_WAIT_SECONDS = 600.0


def register_commands(sandboxes: typer.Typer) -> None:
    register_command(
        sandboxes,
        "snapshot",
        server=True,
        examples="""
            paddock sandbox snapshot 3f2a --name before-upgrade
            paddock sandbox create --snapshot before-upgrade
        """,
    )(create_snapshot)
    register_command(
        sandboxes,
        "snapshots",
        server=True,
        examples="paddock sandbox snapshots\npaddock sandbox snapshots --rm snap-0123456789abcdef",
    )(list_snapshots)


async def create_snapshot(
    cli: CliContext,
    sandbox: SandboxArgument,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the snapshot.")] = None,
    wait: Annotated[bool, typer.Option(help="Wait until the snapshot is ready.")] = True,
) -> None:
    """Save a sandbox's files as a snapshot to start others from."""
    import asyncio

    from paddock.cli.sandbox.sandbox_lookup import find_sandbox

    async with cli.open_client() as client:
        sandbox_id = await find_sandbox(client, sandbox)
        created = await client.post(f"/v1/sandboxes/{sandbox_id}/snapshots", {"name": name} if name else {})
        deadline = time.monotonic() + _WAIT_SECONDS
        pause = 0.05
        while wait and _snapshot_state(created) == "Creating":
            if time.monotonic() > deadline:
                raise CliError(f"snapshot {created['id']} is not ready after {_WAIT_SECONDS:.0f} s")
            await asyncio.sleep(pause)
            pause = min(1.0, pause * 1.5)
            created = await client.get(f"/v1/snapshots/{created['id']}")
    if _snapshot_state(created) == "Failed":
        raise CliError(f"snapshot {created['id']} failed: {(created.get('status') or {}).get('message')}")
    if cli.as_json:
        return cli.out.print_json(created)
    return cli.out.print_line(str(created["id"]))


async def list_snapshots(
    cli: CliContext,
    sandbox: Annotated[str | None, typer.Option("--sandbox", metavar="SANDBOX", help="Filter by sandbox.")] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--rm", metavar="SNAPSHOT", help="Remove this snapshot, by id or name.")
    ] = None,
) -> None:
    """List or remove snapshots."""
    from paddock.cli.sandbox.sandbox_lookup import find_sandbox, find_snapshot

    async with cli.open_read_client() as client:
        if remove:
            ids = [await find_snapshot(client, item) for item in remove]
            for item in ids:
                await client.delete(f"/v1/snapshots/{item}")
            return cli.out.print_json({"removed": ids}) if cli.as_json else cli.out.print_line("\n".join(ids))
        sandbox_id = await find_sandbox(client, sandbox) if sandbox else None
        found = await client.list_all("/v1/snapshots", sandboxId=sandbox_id)
    if cli.as_json:
        return cli.out.print_json(found)
    if not found:
        return cli.out.print_if_interactive("No snapshots. Create one: paddock sandbox snapshot SANDBOX")
    rows = [
        [
            str(item["id"]),
            _snapshot_state(item),
            str(item.get("sandboxId", "")),
            format_age(parse_time(item.get("createdAt"))),
            item.get("name") or "",
        ]
        for item in found
    ]
    return cli.out.print_table(["ID", "STATE", "SANDBOX", "AGE", "NAME"], rows)


def _snapshot_state(snapshot: dict[str, Any]) -> str:
    return str((snapshot.get("status") or {}).get("state", "unknown"))
