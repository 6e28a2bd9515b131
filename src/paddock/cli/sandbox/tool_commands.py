"""`paddock tool`: lists, shows and calls the tools of sandboxes."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from paddock.cli.framework import option_parsing
from paddock.cli.framework.command_registration import command_group, register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import EXIT_FAILED, CliError, RequestRefused, UsageError, print_warning
from paddock.cli.output.errors import print_error as complain
from paddock.cli.output.formatting import format_size, sanitize_text
from paddock.cli.sandbox.sandbox_lookup import SandboxArgument
from paddock.errors import PaddockError

if TYPE_CHECKING:
    from paddock.cli.connection.server_client import ServerClient

_CALL_SECONDS = 24 * 3600.0
_NOTICE_SECONDS = 1.0
"""Time after which a waiting call says why it waits."""
_SUFFIX_BY_TYPE = {"image/jpeg": ".jpg", "image/png": ".png"}
_TYPE_WORDS = {"string": "text", "integer": "whole number", "boolean": "true or false", "array": "list"}
_TYPE_HINTS = {"boolean": "true or false", "integer": "a whole number", "number": "a number"}


def register_commands(app: typer.Typer) -> None:
    tools = command_group("List and call sandbox tools.")
    app.add_typer(tools, name="tool")
    register_command(tools, "list", server=True, examples="paddock tool list 3f2a\npaddock tool list 3f2a --json")(
        list_tools
    )
    register_command(tools, "show", server=True, examples="paddock tool show 3f2a click_mouse")(show_tool)
    register_command(
        tools,
        "call",
        server=True,
        examples="""
            paddock tool call 3f2a read_file path=/workspace/notes.txt
            paddock tool call 3f2a click_mouse x=200 y=120
            paddock tool call 3f2a screenshot --save screen.jpg
            paddock tool call 3f2a press_keys keys=ctrl+s
            paddock tool call 3f2a start_app app=mousepad arguments='["notes.txt"]'
            paddock tool call 3f2a press_keys --json-arguments '{"keys": "ctrl+s"}'
        """,
    )(call_tool)


async def list_tools(cli: CliContext, sandbox: SandboxArgument) -> None:
    """List the tools of a sandbox."""
    from paddock.cli.sandbox.sandbox_lookup import find_sandbox

    async with cli.open_client() as client:
        found = await _fetch_tools(client, await find_sandbox(client, sandbox))
    if cli.as_json:
        return cli.out.print_json(found)
    if cli.out.is_interactive:
        # Arguments would leave too little room for the description on a terminal.
        cli.out.print_table(
            ["NAME", "DESCRIPTION"],
            [[tool["name"], _first_sentence(tool["description"])] for tool in found],
            wraps=["DESCRIPTION"],
        )
        return cli.out.print_line(f"\nArguments of a tool: paddock tool show {sandbox} NAME")
    rows = [[tool["name"], " ".join(_parameter_names(tool)), _first_sentence(tool["description"])] for tool in found]
    return cli.out.print_table(["NAME", "ARGUMENTS", "DESCRIPTION"], rows)


async def show_tool(
    cli: CliContext,
    sandbox: SandboxArgument,
    name: Annotated[str, typer.Argument(metavar="TOOL", help="Name of the tool.", show_default=False)],
) -> None:
    """Show a tool and its arguments."""
    from paddock.cli.sandbox.sandbox_lookup import find_sandbox

    async with cli.open_client() as client:
        tool = _find_tool(await _fetch_tools(client, await find_sandbox(client, sandbox)), name)
    if cli.as_json:
        return cli.out.print_json(tool)
    facts = [("name", tool["name"]), ("description", tool["description"])]
    if tool["input"]:
        facts.append(("uses", "mouse or keyboard; waits while a person controls them"))
    cli.out.print_facts(facts)
    schema = tool["inputSchema"]
    needed = schema.get("required") or []
    known = _schema_properties(schema)
    rows = [
        [key, _type_text(rule), _default_text(rule, key in needed), str(rule.get("description", ""))]
        for key, rule in known.items()
    ]
    if rows:
        cli.out.print_line()
        cli.out.print_table(
            ["ARGUMENT", "TYPE", "DEFAULT", "DESCRIPTION"], rows, wraps=["TYPE", "DEFAULT", "DESCRIPTION"]
        )
    written = [f"{key}={example}" for key, rule in known.items() if (example := _json_example(rule, "…"))]
    if written:
        cli.out.print_line(f"\nLists and objects are written as JSON: {' '.join(written)}")
    return None


async def call_tool(
    cli: CliContext,
    sandbox: SandboxArgument,
    name: Annotated[str, typer.Argument(metavar="TOOL", help="Name of the tool.", show_default=False)],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Arguments; lists and objects as JSON.")
    ] = None,
    arguments: Annotated[
        str | None, typer.Option("--json-arguments", metavar="JSON", help="All arguments as one JSON object.")
    ] = None,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="File for the returned picture.")] = None,
    wait: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long to wait while a person controls mouse and keyboard.")
    ] = None,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="Timeout of the call.")] = None,
) -> int:
    """Call a tool and print its result. The exit code is 1 if the tool fails."""
    from paddock.cli.sandbox.sandbox_lookup import find_sandbox

    if words and arguments is not None:
        raise UsageError("KEY=VALUE and --json-arguments cannot be combined; give one")
    async with cli.open_client() as client:
        sandbox_id = await find_sandbox(client, sandbox)
        tool_arguments = _parse_json_object(arguments) if arguments is not None else {}
        if words:
            tool = _find_tool(await _fetch_tools(client, sandbox_id), name)
            tool_arguments = parse_tool_arguments(
                option_parsing.parse_assignments(words, "argument"), tool["inputSchema"]
            )
        query = {
            key: str(option_parsing.parse_duration_option(value, f"--{key}"))
            for key, value in (("wait", wait), ("timeout", timeout))
            if value is not None
        }
        path = f"/v1/sandboxes/{sandbox_id}/tools/{quote(name, safe='')}"
        async with _notice_of_takeover(client, sandbox, sandbox_id, name):
            result = await client.request_json("POST", path, json=tool_arguments, params=query, timeout=_CALL_SECONDS)
    return _print_result(cli, result, save)


@asynccontextmanager
async def _notice_of_takeover(client: ServerClient, shown: str, sandbox_id: str, name: str) -> AsyncIterator[None]:
    """Print a notice if a call takes long because a person has control of the sandbox."""
    import asyncio

    notice = asyncio.ensure_future(_print_takeover_notice(client, shown, sandbox_id, name))
    try:
        yield
    finally:
        notice.cancel()
        await asyncio.wait([notice])


async def _print_takeover_notice(client: ServerClient, shown: str, sandbox_id: str, name: str) -> None:
    import asyncio

    await asyncio.sleep(_NOTICE_SECONDS)
    # Without the right to read the sandbox there is no notice; the call itself reports errors.
    with suppress(PaddockError):
        holder = (await client.get(f"/v1/sandboxes/{sandbox_id}/input")).get("holder")
        if holder and _find_tool(await _fetch_tools(client, sandbox_id), name)["input"]:
            text = f"waiting: a person has control of {shown}; press Ctrl-C to stop"
            sys.stderr.write(f"{sanitize_text(text)}\n")
            sys.stderr.flush()


def parse_tool_arguments(texts: dict[str, str], schema: dict[str, Any]) -> dict[str, Any]:
    """Convert typed arguments to the types of a tool's schema; unknown arguments stay text."""
    known = _schema_properties(schema)
    return {name: _parse_value(name, text, known.get(name) or {}) for name, text in texts.items()}


def _parse_value(name: str, text: str, rule: dict[str, Any]) -> Any:
    kinds = rule.get("type")
    kinds = [kinds] if isinstance(kinds, str) else list(kinds or [])
    if not kinds or kinds == ["string"]:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if isinstance(value, str) or ("string" in kinds and not isinstance(value, (dict, list))):
        if "string" in kinds:
            return text
        expected = " or ".join(_TYPE_HINTS.get(kind, "JSON") for kind in kinds)
        if example := _json_example(rule, text):
            expected += f", for example {name}={example}"
        raise UsageError(f"{name}={text}: must be {expected}")
    return value


def _print_result(cli: CliContext, result: dict[str, Any], save: Path | None) -> int:
    pictures = [part for part in result["content"] if part.get("type") == "image"]
    if save is not None and not pictures and not result["isError"]:
        raise CliError("the tool returned no picture, so nothing was saved")
    saved = _save_picture(pictures[0], save) if save is not None and pictures else None
    if cli.as_json:
        cli.out.print_json(result)
        return EXIT_FAILED if result["isError"] else 0
    for part in result["content"]:
        if part.get("type") == "text" and part.get("text"):
            if result["isError"]:
                complain("TOOL_FAILED", part["text"].strip(), None, as_json=False)
            else:
                cli.out.print_line(part["text"].rstrip("\n"))
        elif part.get("type") == "image" and save is None:
            cli.out.print_line(
                f"[{part.get('mimeType')}, {format_size(len(part.get('data', '')) * 3 // 4)}; save it with --save FILE]"
            )
    if saved is not None and cli.out.is_interactive:
        cli.out.print_line(f"saved {format_size(saved)} to {save}")
    return EXIT_FAILED if result["isError"] else 0


def _save_picture(part: dict[str, Any], path: Path) -> int:
    import base64

    data = base64.b64decode(part["data"])
    write_picture(path, data)
    ending = _SUFFIX_BY_TYPE.get(str(part.get("mimeType")))
    if ending and path.suffix.lower().replace(".jpeg", ".jpg") not in ("", ending):
        print_warning(f"the content of {path} is {part['mimeType']}, which does not match its name")
    return len(data)


def write_picture(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}") from None


async def _fetch_tools(client: ServerClient, sandbox_id: str) -> list[dict[str, Any]]:
    found = await client.get(f"/v1/sandboxes/{sandbox_id}/tools")
    items: list[dict[str, Any]] = found["items"]
    return items


def _find_tool(tools: list[dict[str, Any]], name: str) -> dict[str, Any]:
    import difflib

    for tool in tools:
        if tool["name"] == name:
            return tool
    near = difflib.get_close_matches(name, [tool["name"] for tool in tools], 1)
    hint = f"did you mean {near[0]}?" if near else "list tools: paddock tool list SANDBOX"
    raise RequestRefused(404, "NOT_FOUND", f"this sandbox has no tool {name}", hint=hint)


def _parse_json_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--json-arguments is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageError("--json-arguments must be an object, such as '{\"x\": 1}'")
    return found


def _schema_properties(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found = schema.get("properties")
    return {key: rule for key, rule in found.items() if isinstance(rule, dict)} if isinstance(found, dict) else {}


def _parameter_names(tool: dict[str, Any]) -> list[str]:
    schema = tool["inputSchema"]
    needed = schema.get("required") or []
    return [key if key in needed else f"[{key}]" for key in _schema_properties(schema)]


def _type_text(rule: dict[str, Any]) -> str:
    """Describe the values of an argument: `whole number, 0 to 10`."""
    if isinstance(rule.get("enum"), list):
        return " | ".join(map(str, rule["enum"]))
    kinds = rule.get("type", "")
    words = " or ".join(
        _TYPE_WORDS.get(str(kind), str(kind)) for kind in (kinds if isinstance(kinds, list) else [kinds])
    )
    least, most = rule.get("minimum"), rule.get("maximum")
    if least is not None and most is not None:
        return f"{words}, {least} to {most}"
    if least is not None or most is not None:
        return f"{words}, " + (f"from {least}" if most is None else f"to {most}")
    return words


def _default_text(rule: dict[str, Any], needed: bool) -> str:
    if needed:
        return "required"
    default = rule.get("default", "")
    return default if isinstance(default, str) else json.dumps(default, ensure_ascii=False)


def _json_example(rule: dict[str, Any], text: str) -> str:
    """Return a shell-quoted JSON example for a list or object argument; empty for other types."""
    import shlex

    if rule.get("type") == "array":
        items = rule.get("items")
        if not isinstance(items, dict) or items.get("type", "string") == "string":
            return shlex.quote(json.dumps([text], ensure_ascii=False))
        return "'[…]'" if items.get("type") != "object" else "'[{…}]'"
    if rule.get("type") == "object":
        return "'{" + (", ".join(f'"{key}": …' for key in _schema_properties(rule)) or "…") + "}'"
    return ""


def _first_sentence(text: str) -> str:
    """Return the first sentence of a description."""
    line = text.strip().partition("\n")[0]
    sentence, stop, _ = line.partition(". ")
    return sentence + stop.strip()
