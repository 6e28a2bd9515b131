"""`paddock sandbox list`, `show`, `pause`, `resume`, `renew`, `rm`, `metrics` and `port`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.framework import option_parsing
from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.framework.sharing_commands import register_sharing_commands
from paddock.cli.output.errors import CliError, UsageError
from paddock.cli.output.formatting import format_age, format_pairs, format_size, format_time_left, parse_time
from paddock.cli.sandbox.sandbox_lookup import SandboxArgument

if TYPE_CHECKING:
    from paddock.cli.connection.server_client import ServerClient

_CHANGING_STATES = ("Pending", "Resuming", "Pausing")
_ENDED_STATES = ("Terminated", "Failed")
_WAIT_SECONDS = 120.0


def register_commands(sandboxes: typer.Typer) -> None:
    register_command(
        sandboxes,
        "list",
        server=True,
        examples="paddock sandbox list\npaddock sandbox list --state Running --metadata team=a",
    )(list_sandboxes)
    register_command(
        sandboxes, "show", server=True, examples="paddock sandbox show 3f2a\npaddock sandbox show builder --json"
    )(show_sandbox)
    register_command(sandboxes, "pause", server=True, examples="paddock sandbox pause 3f2a")(pause_sandbox)
    register_command(sandboxes, "resume", server=True, examples="paddock sandbox resume 3f2a")(resume_sandbox)
    register_sharing_commands(sandboxes, "sandbox", "sandboxes", CliContext.open_client, _find_sandbox_path)
    register_command(sandboxes, "renew", server=True, examples="paddock sandbox renew 3f2a --for 2h")(renew_sandbox)
    register_command(
        sandboxes,
        "rm",
        server=True,
        examples="paddock sandbox rm 3f2a 77b1\npaddock sandbox rm --all",
    )(remove_sandboxes)
    register_command(sandboxes, "metrics", server=True, examples="paddock sandbox metrics 3f2a")(show_metrics)
    register_command(
        sandboxes,
        "port",
        server=True,
        examples="curl http://$(paddock sandbox port 3f2a 8000)/",
    )(print_port_address)


async def list_sandboxes(
    cli: CliContext,
    state: Annotated[list[str] | None, typer.Option(metavar="STATE", help="Filter by state.")] = None,
    metadata: Annotated[
        list[str] | None, typer.Option("--metadata", "-m", metavar="K=V", help="Filter by metadata label.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only ids.")] = False,
) -> None:
    """List sandboxes, newest first."""
    from urllib.parse import urlencode

    metadata_filter = option_parsing.parse_assignments(metadata or [], "--metadata")
    async with cli.open_read_client() as client:
        found = await client.list_all("/v1/sandboxes", metadata=urlencode(metadata_filter) or None)
    if state:
        known = {item.lower() for item in state}
        found = [sandbox for sandbox in found if format_sandbox_state(sandbox).lower() in known]
    if cli.as_json:
        return cli.out.print_json(found)
    if quiet:
        for sandbox in found:
            cli.out.print_line(str(sandbox["id"]))
        return None
    if not found:
        return cli.out.print_if_interactive("No sandboxes. Create one: paddock sandbox create --image host")
    named = any((sandbox.get("metadata") or {}).get("name") for sandbox in found)
    columns = ["ID", "STATE", "KIND", "IMAGE", "AGE", "EXPIRES", *(["NAME"] if named else [])]
    return cli.out.print_table(columns, [_table_row(sandbox, named) for sandbox in found])


async def show_sandbox(cli: CliContext, sandbox: SandboxArgument) -> None:
    """Show a sandbox's details."""
    from paddock.cli.sandbox.sandbox_lookup import find_sandbox

    async with cli.open_read_client() as client:
        found = await client.get(f"/v1/sandboxes/{await find_sandbox(client, sandbox)}")
    if cli.as_json:
        return cli.out.print_json(found)
    return cli.out.print_facts(_sandbox_facts(found))


async def _find_sandbox_path(client: ServerClient, name: str) -> str:
    from paddock.cli.sandbox.sandbox_lookup import find_sandbox

    return f"/v1/sandboxes/{await find_sandbox(client, name)}"


async def pause_sandbox(cli: CliContext, sandbox: SandboxArgument) -> None:
    """Pause a sandbox: freeze all its processes."""
    await _change_state(cli, sandbox, "pause", "Paused")


async def resume_sandbox(cli: CliContext, sandbox: SandboxArgument) -> None:
    """Resume a paused sandbox."""
    await _change_state(cli, sandbox, "resume", "Running")


async def renew_sandbox(
    cli: CliContext,
    sandbox: SandboxArgument,
    time: Annotated[str, typer.Option("--for", metavar="TIME", help="New lifetime, counted from now.")] = "1h",
) -> None:
    """Extend the lifetime of a sandbox."""
    from paddock.cli.sandbox.sandbox_lookup import find_sandbox

    expires = option_parsing.parse_expiry(time)
    async with cli.open_client() as client:
        sandbox_id = await find_sandbox(client, sandbox)
        answer = await client.post(f"/v1/sandboxes/{sandbox_id}/renew-expiration", {"expiresAt": expires})
    expires = (answer or {}).get("expiresAt") or expires
    if cli.as_json:
        return cli.out.print_json({"id": sandbox_id, "expiresAt": expires})
    return cli.out.print_line(f"{sandbox_id}  expires {format_time_left(parse_time(expires))}")


async def remove_sandboxes(
    cli: CliContext,
    sandboxes: Annotated[
        list[str] | None, typer.Argument(metavar="SANDBOX", help="IDs, ID prefixes, or names.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove all sandboxes.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before removing all.")] = False,
) -> None:
    """Remove sandboxes and all their files."""
    import asyncio

    from paddock.cli.sandbox.sandbox_lookup import choose_sandbox

    if bool(sandboxes) == everything:
        raise UsageError("name the sandboxes to remove, or use --all")
    async with cli.open_client() as client:
        known = await client.list_all("/v1/sandboxes")
        ids = (
            [str(item["id"]) for item in known]
            if everything
            else [choose_sandbox(known, item) for item in sandboxes or []]
        )
        if everything and ids and not yes and sys.stdin.isatty():
            typer.confirm(f"Remove {len(ids)} sandboxes?", abort=True)
        await asyncio.gather(*(client.delete(f"/v1/sandboxes/{item}") for item in dict.fromkeys(ids)))
    if cli.as_json:
        return cli.out.print_json({"removed": list(dict.fromkeys(ids))})
    for item in dict.fromkeys(ids):
        cli.out.print_line(item)
    return None


async def show_metrics(cli: CliContext, sandbox: SandboxArgument) -> None:
    """Show a sandbox's current CPU and memory use."""
    from paddock.cli.sandbox.sandbox_lookup import find_sandbox

    async with cli.open_client() as client:
        found = await client.get(client.daemon_path(await find_sandbox(client, sandbox), "/metrics"))
    if cli.as_json:
        return cli.out.print_json(found)
    used, total = found.get("mem_used_mib"), found.get("mem_total_mib")
    facts = [("CPU", f"{found.get('cpu_used_pct', 0):.1f} % of {found.get('cpu_count', '?')} CPUs")]
    if used is not None and total is not None:
        facts.append(("memory", f"{format_size(used * 2**20)} of {format_size(total * 2**20)}"))
    return cli.out.print_facts(facts)


async def print_port_address(
    cli: CliContext,
    sandbox: SandboxArgument,
    number: Annotated[int, typer.Argument(metavar="PORT", min=1, max=65535, help="Port in the sandbox.")],
    proxy: Annotated[
        bool, typer.Option("--proxy", help="Route through the server, for access from other machines.")
    ] = False,
) -> None:
    """Print the address of a port of a sandbox."""
    from paddock.cli.sandbox.sandbox_lookup import find_sandbox

    async with cli.open_client() as client:
        found = await client.get(
            f"/v1/sandboxes/{await find_sandbox(client, sandbox)}/endpoints/{number}",
            use_server_proxy=str(proxy).lower(),
        )
    if cli.as_json:
        return cli.out.print_json(found)
    return cli.out.print_line(str(found["endpoint"]))


async def _change_state(cli: CliContext, name: str, verb: str, new_state: str) -> None:
    from paddock.cli.sandbox.sandbox_lookup import find_sandbox

    async with cli.open_client() as client:
        sandbox_id = await find_sandbox(client, name)
        await client.post(f"/v1/sandboxes/{sandbox_id}/{verb}")
        sandbox = await wait_until_settled(cli, client, {"id": sandbox_id})
    if cli.as_json:
        return cli.out.print_json(sandbox)
    if format_sandbox_state(sandbox) != new_state:
        raise CliError(f"sandbox {sandbox_id} is {format_sandbox_state(sandbox)}, not {new_state}")
    return cli.out.print_line(f"{sandbox_id}  {format_sandbox_state(sandbox)}")


async def wait_until_settled(cli: CliContext, client: ServerClient, sandbox: dict[str, Any]) -> dict[str, Any]:
    """Wait until the sandbox is no longer changing its state, and return it."""
    import asyncio

    deadline = time.monotonic() + _WAIT_SECONDS
    pause = 0.05
    while True:
        found: dict[str, Any] = await client.get(f"/v1/sandboxes/{sandbox['id']}")
        if format_sandbox_state(found) not in _CHANGING_STATES:
            break
        if time.monotonic() > deadline:
            raise CliError(f"sandbox {found['id']} is still {format_sandbox_state(found)} after {_WAIT_SECONDS:.0f} s")
        await asyncio.sleep(pause)
        pause = min(1.0, pause * 1.5)
    if format_sandbox_state(found) == "Failed":
        reason = (found.get("status") or {}).get("message") or (found.get("status") or {}).get("reason") or "no reason"
        raise CliError(f"sandbox {found['id']} failed: {reason}")
    return found


def _table_row(sandbox: dict[str, Any], named: bool) -> list[str]:
    row = [
        str(sandbox["id"]),
        format_sandbox_state(sandbox),
        _kind_text(sandbox),
        _image_or_snapshot(sandbox),
        format_age(parse_time(sandbox.get("createdAt"))),
        format_time_left(parse_time(sandbox.get("expiresAt")))
        if format_sandbox_state(sandbox) not in _ENDED_STATES
        else "",
    ]
    return [*row, (sandbox.get("metadata") or {}).get("name", "")] if named else row


def _sandbox_facts(sandbox: dict[str, Any]) -> list[tuple[str, str]]:
    status = sandbox.get("status") or {}
    created, expires = parse_time(sandbox.get("createdAt")), parse_time(sandbox.get("expiresAt"))
    facts = [("id", str(sandbox["id"])), ("state", format_sandbox_state(sandbox))]
    facts += [(name, str(status[name])) for name in ("reason", "message") if status.get(name)]
    if _kind_text(sandbox):
        facts.append(("kind", _kind_text(sandbox)))
    facts.append(("image", _image_or_snapshot(sandbox)))
    if created:
        facts.append(("created", f"{created:%Y-%m-%d %H:%M:%S %Z} ({format_age(created)} ago)"))
    if format_sandbox_state(sandbox) in _ENDED_STATES:
        facts.append(("expires", "already ended; the record is deleted later (sandboxes.keep_ended)"))
    else:
        facts.append(
            ("expires", f"{expires:%Y-%m-%d %H:%M:%S %Z} ({format_time_left(expires)})" if expires else "never")
        )
    if "network" in sandbox:
        rules = [rule.removeprefix("allow ") for rule in sandbox["network"]]
        facts.append(("network", ", ".join(rules) or "none"))
    if sandbox.get("snapshotId"):
        facts.append(("snapshot", str(sandbox["snapshotId"])))
    if sandbox.get("entrypoint"):
        import shlex

        facts.append(("entrypoint", shlex.join(sandbox["entrypoint"])))
    for name, key in (("limits", "resourceLimits"), ("metadata", "metadata"), ("extensions", "extensions")):
        if sandbox.get(key):
            facts.append((name, format_pairs(sandbox[key])))
    return facts


def format_sandbox_state(sandbox: dict[str, Any]) -> str:
    return str((sandbox.get("status") or {}).get("state", "unknown"))


def _kind_text(sandbox: dict[str, Any]) -> str:
    extensions = sandbox.get("extensions") or {}
    return f"{extensions.get('paddock.kind', '')}{' (Android)' if 'paddock.device' in extensions else ''}"


def _image_or_snapshot(sandbox: dict[str, Any]) -> str:
    image = sandbox.get("image") or {}
    return str(image.get("uri") or sandbox.get("snapshotId") or "")
