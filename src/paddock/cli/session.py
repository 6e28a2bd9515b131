"""`paddock session`: chats with agents, from outside them."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from paddock.cli.commands import command, group
from paddock.cli.context import Cli
from paddock.cli.failure import CliError, UsageProblem
from paddock.cli.output import ago, moment, pairs, size
from paddock.cli.sharing import register_sharing

if TYPE_CHECKING:
    from paddock.cli.client import Client

SESSIONS = "/v1/sessions"
LAST = "last"
"""Means the session that changed last."""
_LONG = 3600.0
_PIECE = 2**20
SessionArgument = Annotated[
    str, typer.Argument(metavar="SESSION", help="Its id, the beginning of it, or `last`.", show_default=False)
]


def register(app: typer.Typer) -> None:
    sessions = group("List, show, search, keep and remove chats with agents.")
    app.add_typer(sessions, name="session")
    command(sessions, "list", server=True, examples="paddock session list\npaddock session list --json")(list_)
    command(sessions, "show", server=True, examples="paddock session show last\npaddock session show 3f2a --json")(show)
    command(sessions, "search", server=True, examples='paddock session search "quarterly report"')(search)
    command(sessions, "approvals", server=True, examples="paddock session approvals 3f2a")(approvals)
    command(sessions, "rename", server=True, examples='paddock session rename 3f2a "The quarterly report"')(rename)
    command(
        sessions,
        "fork",
        server=True,
        examples="paddock session fork 3f2a\npaddock session fork 3f2a --message msg-91c0",
    )(fork)
    command(
        sessions,
        "export",
        server=True,
        examples="paddock session export 3f2a -o report.paddock\npaddock session export 3f2a > report.paddock",
    )(export)
    command(sessions, "import", server=True, examples="paddock session import report.paddock")(import_)
    register_sharing(sessions, "session", "sessions", _server, _found)
    command(sessions, "rm", server=True, examples="paddock session rm 3f2a\npaddock session rm 3f2a 91c0")(rm)


def _server(cli: Cli) -> AbstractAsyncContextManager[Client]:
    """The server; where none runs, one that is there for the moment."""
    from paddock.cli.run_server import any_server

    return any_server(cli)


async def find_session(client: Client, wanted: str) -> str:
    """The id of the session that somebody means."""
    if wanted == LAST:
        newest = (await client.get(SESSIONS, page=1, pageSize=1))["items"]
        if not newest:
            raise CliError("there is no session yet", hint="begin one: paddock chat")
        return str(newest[0]["id"])
    whole = wanted if wanted.startswith("ses-") else f"ses-{wanted}"
    found = [str(item["id"]) for item in await client.items(SESSIONS) if str(item["id"]).startswith(whole)]
    if whole in found:
        return whole
    if not found or not wanted:
        raise CliError(f"there is no session {wanted}", hint="see which there are: paddock session list")
    if len(found) > 1:
        raise CliError(f"{wanted} means more than one session: {', '.join(found[:5])}", hint="write more of its id")
    return found[0]


def path_of(session_id: str, below: str = "") -> str:
    return f"{SESSIONS}/{quote(session_id, safe='')}{below}"


async def _found(client: Client, wanted: str) -> str:
    return path_of(await find_session(client, wanted))


async def list_(cli: Cli) -> None:
    """List sessions, the one that changed last first."""
    async with cli.reading() as client:
        found = await client.items(SESSIONS)
    if cli.as_json:
        return cli.out.document(found)
    if not found:
        return cli.out.nothing("There are no sessions. Begin one: paddock chat")
    rows = [
        [
            item["id"],
            item["state"],
            item["agent"],
            item["model"],
            ago(moment(item["changed_at"])),
            item["title"] or "(no title)",
        ]
        for item in found
    ]
    return cli.out.table(["ID", "STATE", "AGENT", "MODEL", "CHANGED", "TITLE"], rows)


async def show(cli: Cli, session: SessionArgument) -> None:
    """Show a session: how it stands, and what was said in it."""
    from paddock.cli.chat_view import print_history

    async with cli.reading() as client:
        session_id = await find_session(client, session)
        found = await client.get(path_of(session_id))
        messages = await client.items(path_of(session_id, "/messages"))
        pending = (await client.get(path_of(session_id, "/approvals"), state="pending")).get("items", [])
    if cli.as_json:
        return cli.out.document({**found, "messages": messages, "pending": pending})
    usage = found.get("usage") or {}
    facts = [
        ("id", found["id"]),
        ("title", found["title"] or "(no title)"),
        ("state", found["state"] + (f": {found['error']}" if found.get("error") else "")),
        ("agent", found["agent"]),
        ("model", found["model"]),
        ("kinds", ", ".join(found["kinds"])),
        ("sandboxes", pairs(found.get("sandboxes"))),
        ("tokens", f"{usage.get('input_tokens', 0):,} in, {usage.get('output_tokens', 0):,} out"),
        ("changed", f"{ago(moment(found['changed_at']))} ago"),
    ]
    cli.out.facts((name, value) for name, value in facts if value)
    cli.out.line()
    print_history(cli.out, messages)
    for approval in pending:
        cli.out.line(
            f"waits for you: {approval['name']} ({approval['id']}); answer it with: paddock chat --resume {session_id}"
        )
    return None


async def search(
    cli: Cli,
    words: Annotated[str, typer.Argument(metavar="WORDS", help="What to look for.", show_default=False)],
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Most that are shown.")] = 20,
) -> None:
    """Search what was said in sessions, and what tools answered."""
    async with cli.reading() as client:
        found = (await client.get(f"{SESSIONS}/search", q=words, pageSize=limit))["items"]
    if cli.as_json:
        return cli.out.document(found)
    if not found:
        return cli.out.line("Nothing found.")
    rows = [
        [item["session"], item["message"], item["role"], ago(moment(item["at"])), " ".join(item["excerpt"].split())]
        for item in found
    ]
    return cli.out.table(["SESSION", "MESSAGE", "BY", "WHEN", "WHAT"], rows)


async def approvals(cli: Cli, session: SessionArgument) -> None:
    """List what was asked of people in a session, and who decided what and when."""
    async with cli.reading() as client:
        found = await client.items(path_of(await find_session(client, session), "/approvals"))
    if cli.as_json:
        return cli.out.document(found)
    if not found:
        return cli.out.nothing("There are no approvals in this session; the policy of a chat says what needs one.")
    rows = [
        [
            item["id"],
            item["state"],
            item.get("decided_by") or "",
            ago(moment(item.get("decided_at") or item["created_at"])),
            item["name"],
            " ".join(pairs(item.get("edited") or item.get("arguments")).split()),
        ]
        for item in found
    ]
    return cli.out.table(["ID", "STATE", "BY", "WHEN", "TOOL", "ARGUMENTS"], rows)


async def rename(
    cli: Cli,
    session: SessionArgument,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="Its new title.", show_default=False)],
) -> None:
    """Give a session another title."""
    async with _server(cli) as client:
        found = await client.ask("PATCH", path_of(await find_session(client, session)), json={"title": title})
    if cli.as_json:
        cli.out.document(found)


async def fork(
    cli: Cli,
    session: SessionArgument,
    message: Annotated[
        str | None, typer.Option("--message", metavar="MESSAGE", help="The last message to take along.  [default: all]")
    ] = None,
) -> None:
    """Begin a new session with what was said in another, up to a message."""
    async with _server(cli) as client:
        path = path_of(await find_session(client, session), "/fork")
        found = await client.post(path, {"message": message} if message else {})
    if cli.as_json:
        return cli.out.document(found)
    return cli.out.line(found["id"])


async def export(
    cli: Cli,
    session: SessionArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to; else standard output.")
    ] = None,
) -> None:
    """Write a session into one file that another server can open."""
    from paddock.cli.whole import whole_file

    if output is None and sys.stdout.isatty():
        raise UsageProblem("a bundle is no text for a terminal", hint="name a file: --output FILE")
    async with _server(cli) as client:
        session_id = await find_session(client, session)
        async with client.request("GET", path_of(session_id, "/export")) as answer:
            if output is None:
                async for piece in answer.content.iter_chunked(_PIECE):
                    sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
                return
            with whole_file(output) as file:
                async for piece in answer.content.iter_chunked(_PIECE):
                    file.write(piece)
    if cli.as_json:
        cli.out.document({"session": session_id, "path": str(output), "size": output.stat().st_size})
    else:
        cli.out.line(f"{output} ({size(output.stat().st_size)})")


async def import_(
    cli: Cli,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `export` has written.", show_default=False)],
) -> None:
    """Open a session that was exported, here or elsewhere."""
    import aiohttp

    try:
        content = file.open("rb")
    except OSError as error:
        raise UsageProblem(f"{file} cannot be read: {error.strerror}") from None
    with content:
        async with _server(cli) as client:
            found = await client.ask(
                "POST", f"{SESSIONS}/import", data=aiohttp.payload.BufferedReaderPayload(content), timeout=_LONG
            )
    if cli.as_json:
        return cli.out.document(found)
    return cli.out.line(found["id"])


async def rm(
    cli: Cli,
    sessions: Annotated[list[str], typer.Argument(metavar="SESSION", help="Their ids, or `last`.", show_default=False)],
) -> None:
    """Remove sessions with their messages, files and sandboxes."""
    async with _server(cli) as client:
        ids = list(dict.fromkeys([await find_session(client, each) for each in sessions]))
        for session_id in ids:
            await client.delete(path_of(session_id))
    removed: list[Any] = [{"id": session_id} for session_id in ids]
    if cli.as_json:
        cli.out.document(removed)
