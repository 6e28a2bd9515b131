"""Which sandbox is meant by what someone typed."""

from __future__ import annotations

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


class Ambiguous(CliError):
    """More than one sandbox is meant."""

    code = "AMBIGUOUS"


async def find(client: Client, wanted: str) -> str:
    """The id of the sandbox with this id, a beginning of it (with or without `sb-`), or this name."""
    if _WHOLE_ID.fullmatch(wanted):
        return wanted
    return choose(await client.items("/v1/sandboxes"), wanted)


def choose(sandboxes: list[dict[str, Any]], wanted: str) -> str:
    ids = [str(sandbox["id"]) for sandbox in sandboxes]
    if wanted in ids:
        return wanted
    named = [str(sandbox["id"]) for sandbox in sandboxes if (sandbox.get("metadata") or {}).get(NAME) == wanted]
    begun = [i for i in ids if i.startswith(wanted) or i.removeprefix("sb-").startswith(wanted)]
    found = named or (begun if wanted else [])
    if not found:
        raise NoSuchSandbox(f"there is no sandbox {wanted}", hint="see which there are: paddock sandbox list")
    if len(found) > 1:
        raise Ambiguous(f"{wanted} means more than one sandbox: {', '.join(found[:5])}", hint="write more of the id")
    return found[0]
