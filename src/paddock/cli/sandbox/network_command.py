"""`paddock sandbox net`: shows the connections of a sandbox and changes its network policy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.framework.option_parsing import join_rules
from paddock.cli.output.errors import RequestRefused, UsageError
from paddock.cli.output.formatting import format_latency, format_size, parse_time
from paddock.cli.sandbox.sandbox_lookup import SandboxArgument

if TYPE_CHECKING:
    from paddock.cli.connection.server_client import ServerClient

_ENDED_STATES = ("Terminated", "Failed")
_FOLLOW_SECONDS = 0.5
_FOLLOW_PAGE = 200
_MAX_FOLLOW_PAGES = 50
_COLUMNS = ["TIME", "TARGET", "DECISION", "SENT", "RECEIVED", "FOR", "REASON"]


def register_commands(sandboxes: typer.Typer) -> None:
    register_command(
        sandboxes,
        "net",
        server=True,
        examples="""
            paddock sandbox net 3f2a
            paddock sandbox net 3f2a --follow --denied
            paddock sandbox net 3f2a --allow pypi.org:443 --allow "*.example.com"
            paddock sandbox net 3f2a --policy packages
            paddock sandbox net 3f2a --policy none
        """,
    )(show_or_change_network)


async def show_or_change_network(
    cli: CliContext,
    sandbox: SandboxArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow new connections until Ctrl-C.")] = False,
    denied: Annotated[bool, typer.Option("--denied", help="Only denied connections.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, max=1000, help="Maximum number.")] = 100,
    allow: Annotated[
        list[str] | None, typer.Option("--allow", metavar="HOST[:PORT]", help="Allow this target; repeatable.")
    ] = None,
    deny: Annotated[
        list[str] | None, typer.Option("--deny", metavar="HOST[:PORT]", help="Deny this target; repeatable.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="HOST[:PORT]", help="Remove its rules; repeatable.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", metavar="RULE", help="Replace the policy: none, open, web, packages, git or rules."),
    ] = None,
) -> None:
    """List connections of a sandbox to the network, or change its network policy.

    Without options for the policy, connections are listed, the latest first; denied ones have the reason. New rules are
    put in front of the others, and a changed policy applies at once: connections that it does not allow are closed.
    """
    from paddock.cli.sandbox.sandbox_lookup import find_sandbox

    changes = {name: targets for name, targets in (("allow", allow), ("deny", deny), ("remove", remove)) if targets}
    if policy and changes:
        raise UsageError("--policy replaces all rules; it cannot be combined with --allow, --deny and --remove")
    if (policy or changes) and (follow or denied):
        raise UsageError("--follow and --denied list connections; change the policy with another command")
    if policy or changes:
        async with cli.open_client() as client:
            path = f"/v1/sandboxes/{await find_sandbox(client, sandbox)}/network"
            method, body = ("PUT", {"policy": join_rules(policy)}) if policy else ("PATCH", changes)
            return _print_network(cli, await client.request_json(method, path, json=body))
    query = {"decision": "denied"} if denied else {}
    async with cli.open_client() if follow else cli.open_read_client() as client:
        path = f"/v1/sandboxes/{await find_sandbox(client, sandbox)}"
        if follow:
            return await _follow_connections(cli, client, path, query)
        return await _print_connections(cli, client, path, {**query, "limit": limit})


def _print_network(cli: CliContext, network: dict[str, Any]) -> None:
    if cli.as_json:
        return cli.out.print_json(network)
    for rule in network["policy"] or ["none"]:
        cli.out.print_line(rule)
    return None


async def _print_connections(cli: CliContext, client: ServerClient, path: str, query: Mapping[str, Any]) -> None:
    page = await client.get(f"{path}/connections", **query)
    if cli.as_json:
        return cli.out.print_json(page)
    if not page["items"]:
        return cli.out.print_if_interactive(await _no_connections_text(client, path))
    return cli.out.print_table(
        _COLUMNS, [_table_row(each) for each in page["items"]], right=("SENT", "RECEIVED", "FOR")
    )


async def _no_connections_text(client: ServerClient, path: str) -> str:
    try:
        policy = (await client.get(f"{path}/network"))["policy"]
    except RequestRefused:
        return "No connections."  # The sandbox was deleted.
    return f"No connections. Network policy: {', '.join(policy) or 'none; change it with --allow or --policy'}"


async def _follow_connections(cli: CliContext, client: ServerClient, path: str, query: Mapping[str, Any]) -> None:
    """Print each connection when it is new, and again when it has ended."""
    import asyncio

    known: dict[str, bool] = {}
    """Whether each printed connection was open."""
    while True:
        # Read before the connections, so that the list of an ended sandbox is complete.
        has_ended = await _has_ended(client, path)
        news = [each async for each in _new_connections(client, f"{path}/connections", query, known)]
        for connection in reversed(news):
            known[connection["id"]] = connection["open"]
            if cli.as_json:
                cli.out.print_json_line(connection)
            else:
                cli.out.print_line("  ".join(filter(None, _table_row(connection))))
        if has_ended:
            return
        await asyncio.sleep(_FOLLOW_SECONDS)


async def _new_connections(
    client: ServerClient, path: str, query: Mapping[str, Any], known: Mapping[str, bool]
) -> AsyncIterator[dict[str, Any]]:
    """Yield connections that are unknown or have ended, the latest first."""
    # A connection that ended now may have started long ago.
    unseen = {connection_id for connection_id, is_open in known.items() if is_open}
    before: dict[str, str] = {}
    for _ in range(_MAX_FOLLOW_PAGES):
        page = await client.get(path, **query, **before, limit=_FOLLOW_PAGE)
        news = [each for each in page["items"] if known.get(each["id"]) is None or known[each["id"]] != each["open"]]
        for each in news:
            yield each
        unseen -= {each["id"] for each in page["items"]}
        if "next" not in page or not (news or unseen):
            return
        before = {"before": page["next"]}


async def _has_ended(client: ServerClient, path: str) -> bool:
    try:
        sandbox = await client.get(path)
    except RequestRefused as error:
        if error.status != 404:
            raise
        return True
    return (sandbox.get("status") or {}).get("state") in _ENDED_STATES


def _table_row(connection: Mapping[str, Any]) -> list[str]:
    started_at = parse_time(connection["startedAt"])
    host = connection.get("name") or connection.get("address") or "?"
    decision = "open" if connection["open"] else connection["decision"]
    is_relayed = connection["decision"] == "allowed"
    return [
        f"{started_at.astimezone():%m-%d %H:%M:%S}" if started_at else "",
        f"[{host}]:{connection['port']}" if ":" in host else f"{host}:{connection['port']}",
        decision,
        format_size(connection["sentBytes"]) if is_relayed else "",
        format_size(connection["receivedBytes"]) if is_relayed else "",
        format_latency(connection["seconds"]) if is_relayed else "",
        connection.get("message") or connection.get("rule") or "",
    ]
