"""`paddock mcp add|list|show|rm|approve`: MCP servers of the tenant, and their held tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import EXIT_FAILED, CliError, UsageError
from paddock.cli.output.formatting import format_age, parse_time

SERVERS_PATH = "/v1/mcp/servers"
ServerArgument = Annotated[str, typer.Argument(metavar="SERVER", help="Name of the server.", show_default=False)]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header", metavar="NAME=VALUE", help="Header of every request; ${NAME} stands for a secret of the server."
    ),
]


def register_commands(app: typer.Typer) -> typer.Typer:
    register_command(
        app,
        "add",
        server=True,
        examples="""
            paddock mcp add tracker --url https://tracker.example.org/mcp --header 'Authorization=Bearer ${TOKEN}'
            paddock mcp add files --command 'mcp-server-filesystem /workspace'
            paddock mcp add tracker --file tracker.yaml --replace
        """,
    )(add_server)
    register_command(app, "list", server=True, examples="paddock mcp list")(list_servers)
    register_command(app, "show", server=True, examples="paddock mcp show tracker")(show_server)
    register_command(app, "rm", server=True, examples="paddock mcp rm tracker")(remove_servers)
    register_command(
        app,
        "approve",
        server=True,
        examples="""
            paddock mcp approve tracker
            paddock mcp approve tracker search --yes
        """,
    )(approve_tools)
    return app


def server_path(name: str) -> str:
    """Return the path of a server in the API."""
    return f"{SERVERS_PATH}/{quote(name, safe='')}"


async def add_server(
    cli: CliContext,
    name: ServerArgument,
    url: Annotated[str | None, typer.Option(metavar="URL", help="Address of a server.")] = None,
    command: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="Command of a program, which runs in the sandbox.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="remote, local or internet.  [default: remote for a URL]"),
    ] = None,
    header: Headers = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="Variable of the command.")
    ] = None,
    allow: Annotated[
        list[str] | None, typer.Option(metavar="TOOL", help="Tool or pattern to offer.  [default: all]")
    ] = None,
    deny: Annotated[list[str] | None, typer.Option(metavar="TOOL", help="Tool or pattern to leave out.")] = None,
    description: Annotated[str | None, typer.Option(metavar="TEXT", help="What the server is for.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="YAML file with the declaration, as in mcp.servers."),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Change a server of this name.")] = False,
) -> None:
    """Add an MCP server for your tenant. Servers for all tenants belong into the configuration."""
    document = _read_declaration(file) if file is not None else {}
    document |= {
        key: value
        for key, value in {
            "url": url,
            "command": command,
            "kind": kind,
            "description": description,
            "headers": _parse_pairs(header, "--header"),
            "env": _parse_pairs(env, "--env"),
        }.items()
        if value
    }
    if allow or deny:
        rules = {"allow": allow or [], "deny": deny or []}
        document["tools"] = {**document.get("tools", {}), **{key: value for key, value in rules.items() if value}}
    if not document.get("url") and not document.get("command"):
        raise UsageError("give --url, --command or --file")
    document["name"] = name
    async with cli.open_client() as client:
        if replace:
            added = await client.request_json("PUT", server_path(name), json=document)
        else:
            added = await client.post(SERVERS_PATH, document)
    if cli.as_json:
        return cli.out.print_json(added)
    cli.out.print_line(f"{'Changed' if replace else 'Added'} {name} ({added['kind']}).")
    hint = f"paddock mcp test {name}" + (" --sandbox SANDBOX" if added["kind"] == "local" else "")
    return cli.out.print_if_interactive(f"Try it: {hint}")


async def list_servers(cli: CliContext) -> None:
    """List the MCP servers of the configuration and of your tenant."""
    async with cli.open_client() as client:
        found = (await client.get(SERVERS_PATH))["items"]
    if cli.as_json:
        return cli.out.print_json(found)
    if not found:
        return cli.out.print_if_interactive("No MCP servers. Add one: paddock mcp add NAME --url URL")
    rows = [
        [
            each["name"],
            each["kind"],
            _state_text(each),
            each["source"],
            str(each["held"] or ""),
            each.get("description") or _address(each),
        ]
        for each in found
    ]
    return cli.out.print_table(["NAME", "KIND", "STATE", "FROM", "HELD", "DESCRIPTION"], rows)


async def show_server(cli: CliContext, name: ServerArgument) -> None:
    """Show an MCP server: its declaration, its state, and recent changes of it."""
    async with cli.open_client() as client:
        server = await client.get(server_path(name))
    if cli.as_json:
        return cli.out.print_json(server)
    facts = [("name", server["name"]), ("kind", server["kind"]), ("from", server["source"])]
    facts += [(key, _fact_text(value)) for key, value in server["declaration"].items() if key not in ("name", "kind")]
    facts.append(("state", _state_text(server)))
    if server["held"]:
        facts.append(("held tools", f"{server['held']}; see: paddock mcp approve {name}"))
    for change in (server.get("health") or [])[-5:]:
        if change.get("since"):
            reason = f": {change['reason']}" if change.get("reason") else ""
            facts.append((f"{format_age(parse_time(change['since']))} ago", f"{change['status']}{reason}"))
    return cli.out.print_facts(facts)


async def remove_servers(
    cli: CliContext,
    names: Annotated[list[str], typer.Argument(metavar="SERVER...", help="Names of servers.", show_default=False)],
) -> None:
    """Remove MCP servers of your tenant."""
    async with cli.open_client() as client:
        for name in names:
            await client.delete(server_path(name))
            if not cli.as_json:
                cli.out.print_line(f"Removed {name}.")
    if cli.as_json:
        cli.out.print_json({"removed": names})


async def approve_tools(
    cli: CliContext,
    name: ServerArgument,
    tools: Annotated[
        list[str] | None, typer.Argument(metavar="[TOOL...]", help="Tools to approve.  [default: all held]")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Approve without asking.")] = False,
) -> int | None:
    """Show the tools of a server that changed and are held, and approve them."""
    async with cli.open_client() as client:
        held = (await client.get(f"{server_path(name)}/changes"))["items"]
        chosen = [each for each in held if not tools or each["tool"] in tools]
        if missing := sorted(set(tools or ()) - {each["tool"] for each in held}):
            raise CliError(f"{missing[0]} is not held; held are: {', '.join(each['tool'] for each in held) or 'none'}")
        if cli.as_json and not yes:
            cli.out.print_json(chosen)
            return None
        if not chosen:
            cli.out.print_line(f"No tool of {name} is held.")
            return None
        if not cli.as_json:
            for each in chosen:
                cli.out.print_text(f"{each['tool']}\n{each['difference']}\n\n")
        if not yes and not (cli.out.is_interactive and typer.confirm(f"Approve {len(chosen)} tools?")):
            cli.out.print_line("Nothing was approved. Approve with: --yes")
            return EXIT_FAILED
        # Exactly the versions that were shown.
        body = {"digests": [each["digest"] for each in chosen]}
        approved = await client.post(f"{server_path(name)}/changes/approve", body)
    if cli.as_json:
        cli.out.print_json(approved)
    else:
        cli.out.print_line(f"Approved {', '.join(approved['approved'])}.")
    return None


def _read_declaration(file: Path) -> dict[str, Any]:
    import yaml

    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CliError(f"{file} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise CliError(f"{file} must have a mapping such as url: https://tracker.example.org/mcp")
    return document


def _parse_pairs(pairs: list[str] | None, option: str) -> dict[str, str]:
    found = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"{option}: write NAME=VALUE, not {pair!r}")
        found[name] = value
    return found


def _state_text(server: dict[str, Any]) -> str:
    if not server["usable"] and server["kind"] != "local":
        return f"not usable: {server.get('reason')}"
    state = server["state"]
    return f"{state['status']}: {state['reason']}" if state.get("reason") else str(state["status"])


def _address(server: dict[str, Any]) -> str:
    declaration = server["declaration"]
    return str(declaration.get("url") or " ".join(declaration.get("command", ())))


def _fact_text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_fact_text(each)}" for key, each in value.items())
    return str(value)
