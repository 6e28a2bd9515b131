"""`paddock mcp tools|call|test|logs`: tools of MCP servers, and records of their calls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.framework.command_registration import register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.mcp.server_commands import ServerArgument, server_path
from paddock.cli.output.errors import EXIT_FAILED, UsageError
from paddock.cli.output.formatting import format_age, parse_time
from paddock.cli.sandbox.sandbox_lookup import find_sandbox

if TYPE_CHECKING:
    from paddock.cli.connection.server_client import ServerClient

CALLS_PATH = "/v1/mcp/calls"
MAX_DESCRIPTION = 70
SandboxOption = Annotated[
    str | None, typer.Option("--sandbox", metavar="SANDBOX", help="Sandbox; programs need one, and run in it.")
]


def register_commands(app: typer.Typer) -> typer.Typer:
    register_command(
        app,
        "tools",
        server=True,
        examples="""
            paddock mcp tools
            paddock mcp tools tracker
            paddock mcp tools --set research
        """,
    )(list_tools)
    register_command(
        app,
        "call",
        server=True,
        examples="""
            paddock mcp call tracker search query=parser limit=5
            paddock mcp call tracker create --arguments '{"title": "Broken link"}'
        """,
    )(call_tool)
    register_command(app, "test", server=True, examples="paddock mcp test tracker")(try_server)
    register_command(
        app,
        "logs",
        server=True,
        examples="""
            paddock mcp logs
            paddock mcp logs tracker --outcome error
            paddock mcp logs --call mcp_0123456789abcdef01234567
        """,
    )(show_calls)
    return app


async def list_tools(
    cli: CliContext,
    name: Annotated[
        str, typer.Argument(metavar="[SERVER]", help="Name of the server.  [default: all]", show_default=False)
    ] = "",
    set_name: Annotated[str | None, typer.Option("--set", metavar="NAME", help="Tools of a set.")] = None,
    sandbox: SandboxOption = None,
) -> None:
    """List tools of an MCP server, of a set, or of all servers."""
    if name and set_name:
        raise UsageError("give the name of a server or --set, not both")
    path = f"{server_path(name)}/tools" if name else f"/v1/mcp/sets/{set_name}/tools" if set_name else "/v1/mcp/tools"
    async with cli.open_client() as client:
        found = await client.get(path, **await _sandbox_query(client, sandbox))
    if cli.as_json:
        return cli.out.print_json(found)
    rows = [[tool["name"], _parameters(tool), _first_line(tool.get("description"))] for tool in found["items"]]
    if rows:
        cli.out.print_table(["TOOL", "ARGUMENTS", "DESCRIPTION"], rows)
    else:
        cli.out.print_if_interactive("No tools.")
    for each in found.get("missing", ()):
        cli.out.print_line(f"{each['server']}: {each['reason']}")
    return None


async def call_tool(
    cli: CliContext,
    name: ServerArgument,
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="Name of the tool.", show_default=False)],
    pairs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=VALUE...]", help="Arguments; values that are JSON are passed as such."),
    ] = None,
    arguments: Annotated[
        str | None, typer.Option("--arguments", metavar="JSON", help="All arguments as one JSON object.")
    ] = None,
    sandbox: SandboxOption = None,
) -> int | None:
    """Call a tool of an MCP server. The exit code is 1 if the tool says that it failed."""
    given = _parse_object(arguments) if arguments is not None else {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"write arguments as NAME=VALUE, not {pair!r}")
        given[key] = _parse_value(value)
    async with cli.open_client() as client:
        answer = await client.request_json(
            "POST",
            f"{server_path(name)}/call",
            json={"tool": tool, "arguments": given},
            params=await _sandbox_query(client, sandbox),
            timeout=3600,
        )
    result = answer["result"]
    failed = bool(result.get("isError"))
    if cli.as_json:
        cli.out.print_json(answer)
    else:
        for part in result.get("content", ()):
            cli.out.print_line(_part_text(part))
        if not result.get("content") and result.get("structuredContent") is not None:
            cli.out.print_line(json.dumps(result["structuredContent"], indent=2, ensure_ascii=False))
    return EXIT_FAILED if failed else None


async def try_server(cli: CliContext, name: ServerArgument, sandbox: SandboxOption = None) -> int | None:
    """Connect to an MCP server, and show what it offers or why it does not work."""
    async with cli.open_client() as client:
        found = await client.request_json(
            "POST", f"{server_path(name)}/test", params=await _sandbox_query(client, sandbox), timeout=120
        )
    if cli.as_json:
        cli.out.print_json(found)
    elif found["ok"]:
        server = f" ({found['server']})" if found.get("server") else ""
        cli.out.print_line(f"{name}{server} works: {found['tools']} tools in {found['seconds']:.2f} s.")
        cli.out.print_line(f"It has: {', '.join(found['capabilities']) or 'nothing'}.")
    else:
        cli.out.print_line(f"{name} does not work: {found['error']}")
    return None if found["ok"] else EXIT_FAILED


async def show_calls(
    cli: CliContext,
    name: Annotated[
        str, typer.Argument(metavar="[SERVER]", help="Only calls of this server.", show_default=False)
    ] = "",
    tool: Annotated[str | None, typer.Option(metavar="TOOL", help="Only calls of this tool.")] = None,
    outcome: Annotated[
        str | None,
        typer.Option(metavar="OUTCOME", help="ok, tool_error, error, refused, input_required or cancelled."),
    ] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="RUN", help="Only calls of this run.")] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="SESSION", help="Only calls of this chat.")
    ] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", metavar="N", min=1, max=1000, help="Number of calls.")] = 50,
    call: Annotated[
        str | None, typer.Option("--call", metavar="ID", help="One call with its arguments and its result.")
    ] = None,
) -> None:
    """Show records of calls, the newest first."""
    filters = {"server": name, "tool": tool, "outcome": outcome, "run": run, "session": session}
    async with cli.open_client() as client:
        if call is not None:
            record = await client.get(f"{CALLS_PATH}/{call}")
            if cli.as_json:
                return cli.out.print_json(record)
            return cli.out.print_facts([(key, str(value)) for key, value in record.items()])
        query = {key: value for key, value in filters.items() if value}
        found = (await client.get(CALLS_PATH, limit=limit, **query))["items"]
    if cli.as_json:
        return cli.out.print_json(found)
    if not found:
        return cli.out.print_if_interactive("No calls.")
    rows = [
        [
            each["id"],
            format_age(parse_time(each["startedAt"])),
            each["server"],
            each["target"],
            each["outcome"],
            f"{each['seconds']:.2f} s",
            str(each["tokens"]),
            each.get("callerName") or each["caller"],
        ]
        for each in found
    ]
    return cli.out.print_table(["ID", "AGE", "SERVER", "TOOL", "OUTCOME", "TIME", "TOKENS", "CALLER"], rows)


async def _sandbox_query(client: ServerClient, sandbox: str | None) -> dict[str, str]:
    return {"sandbox": await find_sandbox(client, sandbox)} if sandbox else {}


def _parse_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise UsageError('--arguments: write one JSON object, such as \'{"query": "parser"}\'')
    return value


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _parameters(tool: dict[str, Any]) -> str:
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return ""
    required = schema.get("required") if isinstance(schema, dict) else ()
    needed = required if isinstance(required, list) else []
    return " ".join(name if name in needed else f"[{name}]" for name in properties)


def _first_line(text: Any) -> str:
    line = str(text or "").strip().partition("\n")[0]
    return line if len(line) <= MAX_DESCRIPTION else line[: MAX_DESCRIPTION - 1] + "…"


def _part_text(part: dict[str, Any]) -> str:
    match part.get("type"):
        case "text":
            return str(part.get("text", ""))
        case "image" | "audio":
            return f"[{part['type']} of the type {part.get('mimeType')}, {len(str(part.get('data', '')))} characters]"
        case "resource":
            resource = part.get("resource") or {}
            return str(resource.get("text") or f"[resource {resource.get('uri')}]")
    return json.dumps(part, ensure_ascii=False)
