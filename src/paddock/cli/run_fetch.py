"""Brings back what runs have delivered."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from paddock.cli.client import Client
from paddock.cli.failure import CliError
from paddock.cli.output import plain

SHOWN_BYTES = 4096
SHOWN_LINES = 60


def place_of(directory: Path, path: str) -> Path:
    """Where a deliverable goes below a directory. What the server says is not trusted to stay there."""
    parts = PurePosixPath(path).parts
    if not parts or PurePosixPath(path).is_absolute() or ".." in parts or "\0" in path:
        raise CliError(f"the server names a deliverable {plain(path)!r}, which would lead elsewhere")
    place = directory
    for part in parts[:-1]:
        place = place / part
        if place.is_symlink():
            raise CliError(f"{place} is a link; a deliverable cannot go through it")
    return directory.joinpath(*parts)


async def download(client: Client, run: dict[str, Any], directory: Path) -> dict[str, Path]:
    """Copy the deliverables of a run into a directory, each whole or not at all. Returns where they are."""
    placed: dict[str, Path] = {}
    for item in (run.get("result") or {}).get("deliverables") or []:
        path = str(item["path"])
        place = place_of(directory, path)
        await asyncio.to_thread(place.parent.mkdir, parents=True, exist_ok=True)
        await save(client, deliverable(str(run["id"]), path), place, str(item["sha256"]))
        placed[path] = place
    return placed


async def save(client: Client, path: str, place: Path, sha256: str | None = None) -> None:
    """Write what the server answers into a file, which is whole or not there."""
    partial = place.with_name(f".{place.name[:100]}.{secrets.token_hex(4)}")
    digest = hashlib.sha256()
    try:
        with await asyncio.to_thread(open, partial, "xb") as file:
            async with client.request("GET", path) as answer:
                async for piece in answer.content.iter_any():
                    digest.update(piece)
                    await asyncio.to_thread(file.write, piece)
        if sha256 is not None and digest.hexdigest() != sha256:
            raise CliError(f"{place.name} did not arrive as it was delivered", hint="fetch it again: paddock runs get")
        partial.replace(place)
    except OSError as error:
        raise CliError(f"{place} cannot be written: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)


def deliverable(run_id: str, path: str) -> str:
    return f"/v1/runs/{quote(run_id, safe='')}/deliverables/{quote(path)}"


async def readable(client: Client, run: dict[str, Any]) -> tuple[str, str] | None:
    """The path and content of the first deliverable that is short and text, if there is one."""
    for item in (run.get("result") or {}).get("deliverables") or []:
        if not 0 < int(item["size"]) <= SHOWN_BYTES:
            continue
        async with client.request("GET", deliverable(str(run["id"]), str(item["path"]))) as answer:
            content = await answer.content.read(SHOWN_BYTES + 1)
        try:
            text = content.decode()
        except UnicodeDecodeError:
            continue
        if "\0" not in text and len(text.splitlines()) <= SHOWN_LINES:
            return str(item["path"]), text
    return None


def folder_of(data: Path, run_id: str) -> Path | None:
    """A run's folder on this machine, if it is here."""
    folder = data / "runs" / run_id
    return folder if os.path.isdir(folder) else None
