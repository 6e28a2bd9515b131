"""Which sandbox or snapshot is meant by what someone typed."""

from __future__ import annotations

import difflib
import re
from typing import Any

from paddock.cli.client import Client
from paddock.cli.failure import CliError

NAME = "name"
"""The metadata entry that `create --name` sets."""
_WHOLE_ID = re.compile(r"sb-[0-9a-f]{16}")


class NoSuchSandbox(CliError):
    """There is no such sandbox."""

    code = "SANDBOX_NOT_FOUND"


class NoSuchSnapshot(CliError):
    """There is no such snapshot."""

    code = "SNAPSHOT_NOT_FOUND"


class Ambiguous(CliError):
    """More than one thing is meant."""

    code = "AMBIGUOUS"


async def find(client: Client, wanted: str) -> str:
    """The id of the sandbox with this id, a beginning of it (with or without `sb-`), or this name."""
    if _WHOLE_ID.fullmatch(wanted):
        return wanted
    return choose(await client.items("/v1/sandboxes"), wanted)


async def find_snapshot(client: Client, wanted: str) -> str:
    """The id of the snapshot with this id, or of the only one with this name."""
    if wanted.startswith("snap-"):
        return wanted
    found = [str(item["id"]) for item in await client.items("/v1/snapshots") if item.get("name") == wanted]
    if not found:
        raise NoSuchSnapshot(f"there is no snapshot {wanted}", hint="see which there are: paddock sandbox snapshots")
    if len(found) > 1:
        raise Ambiguous(f"{wanted} means more than one snapshot: {', '.join(found[:5])}", hint="write its id")
    return found[0]


def choose(sandboxes: list[dict[str, Any]], wanted: str) -> str:
    ids = [str(sandbox["id"]) for sandbox in sandboxes]
    if wanted in ids:
        return wanted
    named = [str(sandbox["id"]) for sandbox in sandboxes if (sandbox.get("metadata") or {}).get(NAME) == wanted]
    begun = [i for i in ids if i.startswith(wanted) or i.removeprefix("sb-").startswith(wanted)]
    found = named or (begun if wanted else [])
    if not found:
        names = [str(name) for sandbox in sandboxes if (name := (sandbox.get("metadata") or {}).get(NAME))]
        near = difflib.get_close_matches(wanted, names, 1)
        hint = f"did you mean {near[0]}?" if near else "see which there are: paddock sandbox list"
        raise NoSuchSandbox(f"there is no sandbox {wanted}", hint=hint)
    if len(found) > 1:
        raise Ambiguous(
            f"{wanted} means more than one sandbox: {', '.join(found[:5])}", hint="write its id, or more of it"
        )
    return found[0]
