"""`paddock tool`: what sandboxes can do, and having it done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from paddock.cli import parse
from paddock.cli.commands import command, group
from paddock.cli.context import Cli
from paddock.cli.failure import FAILED, CliError, Refused, UsageProblem, warn
from paddock.cli.failure import show as complain
from paddock.cli.output import size
from paddock.cli.sandbox import SandboxArgument

if TYPE_CHECKING:
    from paddock.cli.client import Client

_CALL_SECONDS = 24 * 3600.0
_ENDINGS = {"image/jpeg": ".jpg", "image/png": ".png"}
_TYPES = {"string": "text", "integer": "whole number", "boolean": "true or false", "array": "list"}
_HINTS = {"boolean": "true or false", "integer": "a whole number", "number": "a number"}


def register(app: typer.Typer) -> None:
    tools = group("List and call the tools of sandboxes.")
    app.add_typer(tools, name="tool")
    command(tools, "list", server=True, examples="paddock tool list 3f2a\npaddock tool list 3f2a --json")(list_)
    command(tools, "show", server=True, examples="paddock tool show 3f2a click_mouse")(show)
    command(
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
    )(call)


async def list_(cli: Cli, sandbox: SandboxArgument) -> None:
    """List what a sandbox can do."""
    from paddock.cli.find import find

    async with cli.client() as client:
        found = await _tools(client, await find(client, sandbox))
    if cli.as_json:
        return cli.out.document(found)
    if cli.out.for_people:
        # Arguments would leave a terminal no room for what the tools do.
        cli.out.table(
            ["NAME", "DESCRIPTION"],
            [[tool["name"], _first(tool["description"])] for tool in found],
            wraps=["DESCRIPTION"],
        )
        return cli.out.line(f"\nWhat one takes: paddock tool show {sandbox} NAME")
    rows = [[tool["name"], " ".join(_parameters(tool)), _first(tool["description"])] for tool in found]
    return cli.out.table(["NAME", "ARGUMENTS", "DESCRIPTION"], rows)


async def show(
    cli: Cli,
    sandbox: SandboxArgument,
    name: Annotated[str, typer.Argument(metavar="TOOL", help="Its name.", show_default=False)],
) -> None:
    """Show a tool and what it takes."""
    from paddock.cli.find import find

    async with cli.client() as client:
        tool = _find(await _tools(client, await find(client, sandbox)), name)
    if cli.as_json:
        return cli.out.document(tool)
    facts = [("name", tool["name"]), ("description", tool["description"])]
    if tool["input"]:
        facts.append(("uses", "mouse or keyboard, so it waits while a person has them"))
    cli.out.facts(facts)
    schema = tool["inputSchema"]
    needed = schema.get("required") or []
    known = _properties(schema)
    rows = [
        [key, _kind(rule), _default(rule, key in needed), str(rule.get("description", ""))]
        for key, rule in known.items()
    ]
    if rows:
        cli.out.line()
        cli.out.table(["ARGUMENT", "TYPE", "DEFAULT", "DESCRIPTION"], rows, wraps=["TYPE", "DEFAULT", "DESCRIPTION"])
    written = [f"{key}={example}" for key, rule in known.items() if (example := _example(rule, "…"))]
    if written:
        cli.out.line(f"\nLists and objects are written as JSON: {' '.join(written)}")
    return None


async def call(
    cli: Cli,
    sandbox: SandboxArgument,
    name: Annotated[str, typer.Argument(metavar="TOOL", help="Its name.", show_default=False)],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Arguments; lists and objects as JSON.")
    ] = None,
    arguments: Annotated[
        str | None, typer.Option("--json-arguments", metavar="JSON", help="All arguments as one object.")
    ] = None,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to put the picture that comes back.")] = None,
    wait: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long to wait for a person who has mouse and keyboard.")
    ] = None,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="How long it may take.")] = None,
) -> int:
    """Call a tool, and print what it says. The exit code is 1 when it fails."""
    from paddock.cli.find import find

    if words and arguments is not None:
        raise UsageProblem("KEY=VALUE and --json-arguments say the same; give one")
    async with cli.client() as client:
        sandbox_id = await find(client, sandbox)
        given = _object(arguments) if arguments is not None else {}
        if words:
            tool = _find(await _tools(client, sandbox_id), name)
            given = read_arguments(parse.assignments(words, "argument"), tool["inputSchema"])
        query = {
            key: str(parse.duration(value, f"--{key}"))
            for key, value in (("wait", wait), ("timeout", timeout))
            if value is not None
        }
        path = f"/v1/sandboxes/{sandbox_id}/tools/{quote(name, safe='')}"
        result = await client.ask("POST", path, json=given, params=query, timeout=_CALL_SECONDS)
    return _show_result(cli, result, save)


def read_arguments(given: dict[str, str], schema: dict[str, Any]) -> dict[str, Any]:
    """Arguments as a tool takes them, from what somebody typed. Those it does not know stay text."""
    known = _properties(schema)
    return {name: _value(name, text, known.get(name) or {}) for name, text in given.items()}


def _value(name: str, text: str, rule: dict[str, Any]) -> Any:
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
        wanted = " or ".join(_HINTS.get(kind, "JSON") for kind in kinds)
        if example := _example(rule, text):
            wanted += f", as in {name}={example}"
        raise UsageProblem(f"{name}={text}: must be {wanted}")
    return value


def _show_result(cli: Cli, result: dict[str, Any], save: Path | None) -> int:
    pictures = [part for part in result["content"] if part.get("type") == "image"]
    if save is not None and not pictures and not result["isError"]:
        raise CliError("the tool gave no picture, so nothing was saved")
    saved = _save(pictures[0], save) if save is not None and pictures else None
    if cli.as_json:
        cli.out.document(result)
        return FAILED if result["isError"] else 0
    for part in result["content"]:
        if part.get("type") == "text" and part.get("text"):
            if result["isError"]:
                complain("TOOL_FAILED", part["text"].strip(), None, as_json=False)
            else:
                cli.out.line(part["text"].rstrip("\n"))
        elif part.get("type") == "image" and save is None:
            cli.out.line(f"[{part.get('mimeType')}, {size(len(part.get('data', '')) * 3 // 4)}; --save FILE keeps it]")
    if saved is not None and cli.out.for_people:
        cli.out.line(f"saved {size(saved)} to {save}")
    return FAILED if result["isError"] else 0


def _save(part: dict[str, Any], path: Path) -> int:
    import base64

    data = base64.b64decode(part["data"])
    write_picture(path, data)
    ending = _ENDINGS.get(str(part.get("mimeType")))
    if ending and path.suffix.lower().replace(".jpeg", ".jpg") not in ("", ending):
        warn(f"{path} is {part['mimeType']}, whatever its name says")
    return len(data)


def write_picture(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}") from None


async def _tools(client: Client, sandbox_id: str) -> list[dict[str, Any]]:
    found = await client.get(f"/v1/sandboxes/{sandbox_id}/tools")
    items: list[dict[str, Any]] = found["items"]
    return items


def _find(tools: list[dict[str, Any]], name: str) -> dict[str, Any]:
    import difflib

    for tool in tools:
        if tool["name"] == name:
            return tool
    near = difflib.get_close_matches(name, [tool["name"] for tool in tools], 1)
    hint = f"did you mean {near[0]}?" if near else "see which there are: paddock tool list SANDBOX"
    raise Refused(404, "NOT_FOUND", f"this sandbox has no tool {name}", hint=hint)


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UsageProblem(f"--json-arguments is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageProblem("--json-arguments must be an object, such as '{\"x\": 1}'")
    return found


def _properties(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found = schema.get("properties")
    return {key: rule for key, rule in found.items() if isinstance(rule, dict)} if isinstance(found, dict) else {}


def _parameters(tool: dict[str, Any]) -> list[str]:
    schema = tool["inputSchema"]
    needed = schema.get("required") or []
    return [key if key in needed else f"[{key}]" for key in _properties(schema)]


def _kind(rule: dict[str, Any]) -> str:
    """What an argument may be, in words: `whole number, 0 to 10`."""
    if isinstance(rule.get("enum"), list):
        return " | ".join(map(str, rule["enum"]))
    kinds = rule.get("type", "")
    words = " or ".join(_TYPES.get(str(kind), str(kind)) for kind in (kinds if isinstance(kinds, list) else [kinds]))
    least, most = rule.get("minimum"), rule.get("maximum")
    if least is not None and most is not None:
        return f"{words}, {least} to {most}"
    if least is not None or most is not None:
        return f"{words}, " + (f"from {least}" if most is None else f"to {most}")
    return words


def _default(rule: dict[str, Any], needed: bool) -> str:
    if needed:
        return "required"
    default = rule.get("default", "")
    return default if isinstance(default, str) else json.dumps(default, ensure_ascii=False)


def _example(rule: dict[str, Any], text: str) -> str:
    """How a list or an object is written in a shell, with `text` where text may stand; empty for all else."""
    import shlex

    if rule.get("type") == "array":
        items = rule.get("items")
        if not isinstance(items, dict) or items.get("type", "string") == "string":
            return shlex.quote(json.dumps([text], ensure_ascii=False))
        return "'[…]'" if items.get("type") != "object" else "'[{…}]'"
    if rule.get("type") == "object":
        return "'{" + (", ".join(f'"{key}": …' for key in _properties(rule)) or "…") + "}'"
    return ""


def _first(text: str) -> str:
    """The first sentence of a description."""
    line = text.strip().partition("\n")[0]
    sentence, stop, _ = line.partition(". ")
    return sentence + stop.strip()
