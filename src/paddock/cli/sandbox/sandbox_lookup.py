"""Finds sandboxes and snapshots by id, id prefix or name."""

from __future__ import annotations

import difflib
import re
from typing import Annotated, Any

import typer

from paddock.cli.connection.server_client import ServerClient
from paddock.cli.output.errors import CliError

SandboxArgument = Annotated[str, typer.Argument(metavar="SANDBOX", help="ID, ID prefix, or name.", show_default=False)]
NAME_METADATA_KEY = "name"
"""Metadata key set by `create --name`."""
_FULL_ID = re.compile(r"sb-[0-9a-f]{16}")


class NoSuchSandbox(CliError):
    """No sandbox has this id, id prefix or name."""

    code = "SANDBOX_NOT_FOUND"


class NoSuchSnapshot(CliError):
    """No snapshot has this id or name."""

    code = "SNAPSHOT_NOT_FOUND"


class AmbiguousName(CliError):
    """An id prefix or name matches several objects."""

    code = "AMBIGUOUS"


async def find_sandbox(client: ServerClient, text: str) -> str:
    """Return the id of the sandbox with this id, id prefix (with or without `sb-`) or name."""
    if _FULL_ID.fullmatch(text):
        return text
    return choose_sandbox(await client.list_all("/v1/sandboxes"), text)


async def find_snapshot(client: ServerClient, text: str) -> str:
    """Return the id of the snapshot with this id or unique name."""
    if text.startswith("snap-"):
        return text
    matches = [str(item["id"]) for item in await client.list_all("/v1/snapshots") if item.get("name") == text]
    if not matches:
        raise NoSuchSnapshot(f"there is no snapshot {text}", hint="list snapshots: paddock sandbox snapshots")
    if len(matches) > 1:
        raise AmbiguousName(f"{text} matches several snapshots: {', '.join(matches[:5])}", hint="use the id")
    return matches[0]


def choose_sandbox(sandboxes: list[dict[str, Any]], text: str) -> str:
    ids = [str(sandbox["id"]) for sandbox in sandboxes]
    if text in ids:
        return text
    named = [
        str(sandbox["id"]) for sandbox in sandboxes if (sandbox.get("metadata") or {}).get(NAME_METADATA_KEY) == text
    ]
    prefix_matches = [i for i in ids if i.startswith(text) or i.removeprefix("sb-").startswith(text)]
    matches = named or (prefix_matches if text else [])
    if not matches:
        names = [str(name) for sandbox in sandboxes if (name := (sandbox.get("metadata") or {}).get(NAME_METADATA_KEY))]
        similar = difflib.get_close_matches(text, names, 1)
        hint = f"did you mean {similar[0]}?" if similar else "list sandboxes: paddock sandbox list"
        raise NoSuchSandbox(f"there is no sandbox {text}", hint=hint)
    if len(matches) > 1:
        raise AmbiguousName(
            f"{text} matches several sandboxes: {', '.join(matches[:5])}", hint="use the id or a longer prefix"
        )
    return matches[0]
