"""`paddock session`: lists, shows, searches, exports and removes chat sessions."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from paddock.cli.framework.command_registration import command_group, register_command
from paddock.cli.framework.context import CliContext
from paddock.cli.framework.sharing_commands import register_sharing_commands
from paddock.cli.output.errors import CliError, UsageError
from paddock.cli.output.formatting import format_age, format_pairs, format_size, parse_time

if TYPE_CHECKING:
    from paddock.cli.connection.server_client import ServerClient

SESSIONS_PATH = "/v1/sessions"
LAST_SESSION = "last"
"""Names the session that changed last."""
_IMPORT_SECONDS = 3600.0
_CHUNK = 2**20
SessionArgument = Annotated[
    str, typer.Argument(metavar="SESSION", help="ID, ID prefix, or `last`.", show_default=False)
]


def register_commands(app: typer.Typer) -> None:
    sessions = command_group("List, show, search, export and remove chat sessions.")
    app.add_typer(sessions, name="session")
    register_command(sessions, "list", server=True, examples="paddock session list\npaddock session list --json")(
        list_sessions
    )
    register_command(
        sessions, "show", server=True, examples="paddock session show last\npaddock session show 3f2a --json"
    )(show_session)
    register_command(sessions, "search", server=True, examples='paddock session search "quarterly report"')(
        search_sessions
    )
    register_command(sessions, "approvals", server=True, examples="paddock session approvals 3f2a")(list_approvals)
    register_command(sessions, "rename", server=True, examples='paddock session rename 3f2a "The quarterly report"')(
        rename_session
    )
    register_command(
        sessions,
        "fork",
        server=True,
        examples="paddock session fork 3f2a\npaddock session fork 3f2a --message msg-91c0",
    )(fork_session)
    register_command(
        sessions,
        "export",
        server=True,
        examples="paddock session export 3f2a -o report.paddock\npaddock session export 3f2a > report.paddock",
    )(export_session)
    register_command(sessions, "import", server=True, examples="paddock session import report.paddock")(import_session)
    register_sharing_commands(sessions, "session", "sessions", _open_server, _find_session_path)
    register_command(sessions, "rm", server=True, examples="paddock session rm 3f2a\npaddock session rm 3f2a 91c0")(
        remove_sessions
    )


def _open_server(cli: CliContext) -> AbstractAsyncContextManager[ServerClient]:
    """Open a client of the server, or of a temporary one."""
    from paddock.cli.connection.server_finder import open_any_server

    return open_any_server(cli)


async def find_session_id(client: ServerClient, name: str) -> str:
    """Return the id of the session with this id or id prefix; `last` is the most recently changed one."""
    if name == LAST_SESSION:
        newest = (await client.get(SESSIONS_PATH, page=1, pageSize=1))["items"]
        if not newest:
            raise CliError("there are no sessions yet", hint="start one: paddock chat")
        return str(newest[0]["id"])
    session_id = name if name.startswith("ses-") else f"ses-{name}"
    matches = [
        str(item["id"]) for item in await client.list_all(SESSIONS_PATH) if str(item["id"]).startswith(session_id)
    ]
    if session_id in matches:
        return session_id
    if not matches or not name:
        raise CliError(f"there is no session {name}", hint="list sessions: paddock session list")
    if len(matches) > 1:
        raise CliError(
            f"{name} matches several sessions: {', '.join(matches[:5])}", hint="use a longer prefix of the id"
        )
    return matches[0]


def session_api_path(session_id: str, below: str = "") -> str:
    return f"{SESSIONS_PATH}/{quote(session_id, safe='')}{below}"


async def _find_session_path(client: ServerClient, name: str) -> str:
    return session_api_path(await find_session_id(client, name))


async def list_sessions(cli: CliContext) -> None:
    """List sessions, most recently changed first."""
    async with cli.open_read_client() as client:
        sessions = await client.list_all(SESSIONS_PATH)
    if cli.as_json:
        return cli.out.print_json(sessions)
    if not sessions:
        return cli.out.print_if_interactive("No sessions. Start one: paddock chat")
    rows = [
        [
            item["id"],
            item["state"],
            item["agent"],
            item["model"],
            format_age(parse_time(item["changed_at"])),
            item["title"] or "(no title)",
        ]
        for item in sessions
    ]
    return cli.out.print_table(["ID", "STATE", "AGENT", "MODEL", "CHANGED", "TITLE"], rows)


async def show_session(cli: CliContext, session: SessionArgument) -> None:
    """Show a session's state and messages."""
    from paddock.cli.chat.chat_views import print_message_history

    async with cli.open_read_client() as client:
        session_id = await find_session_id(client, session)
        found = await client.get(session_api_path(session_id))
        messages = await client.list_all(session_api_path(session_id, "/messages"))
        pending = (await client.get(session_api_path(session_id, "/approvals"), state="pending")).get("items", [])
    if cli.as_json:
        return cli.out.print_json({**found, "messages": messages, "pending": pending})
    usage = found.get("usage") or {}
    facts = [
        ("id", found["id"]),
        ("title", found["title"] or "(no title)"),
        ("state", found["state"] + (f": {found['error']}" if found.get("error") else "")),
        ("agent", found["agent"]),
        ("model", found["model"]),
        ("kinds", ", ".join(found["kinds"])),
        ("sandboxes", format_pairs(found.get("sandboxes"))),
        ("tokens", f"{usage.get('input_tokens', 0):,} in, {usage.get('output_tokens', 0):,} out"),
        ("changed", f"{format_age(parse_time(found['changed_at']))} ago"),
    ]
    cli.out.print_facts((name, value) for name, value in facts if value)
    cli.out.print_line()
    print_message_history(cli.out, messages)
    for approval in pending:
        cli.out.print_line(
            f"pending approval: {approval['name']} ({approval['id']}); decide with: paddock chat --resume {session_id}"
        )
    return None


async def search_sessions(
    cli: CliContext,
    words: Annotated[str, typer.Argument(metavar="WORDS", help="Words to search for.", show_default=False)],
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Maximum number of results.")] = 20,
) -> None:
    """Search messages and tool results of all sessions."""
    async with cli.open_read_client() as client:
        hits = (await client.get(f"{SESSIONS_PATH}/search", q=words, pageSize=limit))["items"]
    if cli.as_json:
        return cli.out.print_json(hits)
    if not hits:
        return cli.out.print_line("No matches.")
    rows = [
        [
            item["session"],
            item["message"],
            item["role"],
            format_age(parse_time(item["at"])),
            " ".join(item["excerpt"].split()),
        ]
        for item in hits
    ]
    return cli.out.print_table(["SESSION", "MESSAGE", "BY", "WHEN", "TEXT"], rows)


async def list_approvals(cli: CliContext, session: SessionArgument) -> None:
    """List a session's approvals, with decisions and times."""
    async with cli.open_read_client() as client:
        approvals = await client.list_all(session_api_path(await find_session_id(client, session), "/approvals"))
    if cli.as_json:
        return cli.out.print_json(approvals)
    if not approvals:
        return cli.out.print_if_interactive(
            "No approvals in this session; the chat's policy determines which calls need one."
        )
    rows = [
        [
            item["id"],
            item["state"],
            item.get("decided_by") or "",
            format_age(parse_time(item.get("decided_at") or item["created_at"])),
            item["name"],
            " ".join(format_pairs(item.get("edited") or item.get("arguments")).split()),
        ]
        for item in approvals
    ]
    return cli.out.print_table(["ID", "STATE", "BY", "WHEN", "TOOL", "ARGUMENTS"], rows)


async def rename_session(
    cli: CliContext,
    session: SessionArgument,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="New title.", show_default=False)],
) -> None:
    """Change a session's title."""
    async with _open_server(cli) as client:
        renamed = await client.request_json(
            "PATCH", session_api_path(await find_session_id(client, session)), json={"title": title}
        )
    if cli.as_json:
        cli.out.print_json(renamed)


async def fork_session(
    cli: CliContext,
    session: SessionArgument,
    message: Annotated[
        str | None, typer.Option("--message", metavar="MESSAGE", help="Last message to copy.  [default: all]")
    ] = None,
) -> None:
    """Start a new session with the messages of another one, up to a given message."""
    async with _open_server(cli) as client:
        path = session_api_path(await find_session_id(client, session), "/fork")
        fork = await client.post(path, {"message": message} if message else {})
    if cli.as_json:
        return cli.out.print_json(fork)
    return cli.out.print_line(fork["id"])


async def export_session(
    cli: CliContext,
    session: SessionArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write.  [default: standard output]")
    ] = None,
) -> None:
    """Export a session to a file that any server can import."""
    from paddock.cli.output.atomic_file import open_atomic_file

    if output is None and sys.stdout.isatty():
        raise UsageError("cannot print a session bundle on a terminal", hint="write it to a file: --output FILE")
    async with _open_server(cli) as client:
        session_id = await find_session_id(client, session)
        async with client.request("GET", session_api_path(session_id, "/export")) as response:
            if output is None:
                async for piece in response.content.iter_chunked(_CHUNK):
                    sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
                return
            with open_atomic_file(output) as file:
                async for piece in response.content.iter_chunked(_CHUNK):
                    file.write(piece)
    if cli.as_json:
        cli.out.print_json({"session": session_id, "path": str(output), "size": output.stat().st_size})
    else:
        cli.out.print_line(f"{output} ({format_size(output.stat().st_size)})")


async def import_session(
    cli: CliContext,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File written by `export`.", show_default=False)],
) -> None:
    """Import a session from an exported file."""
    import aiohttp

    try:
        content = file.open("rb")
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    with content:
        async with _open_server(cli) as client:
            imported = await client.request_json(
                "POST",
                f"{SESSIONS_PATH}/import",
                data=aiohttp.payload.BufferedReaderPayload(content),
                timeout=_IMPORT_SECONDS,
            )
    if cli.as_json:
        return cli.out.print_json(imported)
    return cli.out.print_line(imported["id"])


async def remove_sessions(
    cli: CliContext,
    sessions: Annotated[
        list[str], typer.Argument(metavar="SESSION", help="IDs, ID prefixes, or `last`.", show_default=False)
    ],
) -> None:
    """Remove sessions with their messages, files and sandboxes."""
    async with _open_server(cli) as client:
        ids = list(dict.fromkeys([await find_session_id(client, each) for each in sessions]))
        for session_id in ids:
            await client.delete(session_api_path(session_id))
    removed: list[Any] = [{"id": session_id} for session_id in ids]
    if cli.as_json:
        cli.out.print_json(removed)
