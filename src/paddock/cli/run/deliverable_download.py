"""Downloads the deliverables of runs."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from paddock.cli.connection.server_client import ServerClient
from paddock.cli.output.errors import CliError
from paddock.cli.output.formatting import sanitize_text

MAX_SHOWN_BYTES = 4096
MAX_SHOWN_LINES = 60


def local_deliverable_path(directory: Path, path: str) -> Path:
    """Return a deliverable's local path, rejecting server paths that lead outside the directory."""
    parts = PurePosixPath(path).parts
    if not parts or PurePosixPath(path).is_absolute() or ".." in parts or "\0" in path:
        raise CliError(f"the deliverable path {sanitize_text(path)!r} leads outside the target directory")
    parent = directory
    for part in parts[:-1]:
        parent = parent / part
        if parent.is_symlink():
            raise CliError(f"{parent} is a symbolic link; deliverables are not written through links")
    return directory.joinpath(*parts)


async def download_deliverables(client: ServerClient, run: dict[str, Any], directory: Path) -> dict[str, Path]:
    """Download a run's deliverables into a directory, each atomically. Returns their local paths."""
    downloaded: dict[str, Path] = {}
    for item in (run.get("result") or {}).get("deliverables") or []:
        path = str(item["path"])
        target = local_deliverable_path(directory, path)
        await asyncio.to_thread(target.parent.mkdir, parents=True, exist_ok=True)
        await download_response(client, deliverable_url_path(str(run["id"]), path), target, str(item["sha256"]))
        downloaded[path] = target
    return downloaded


async def download_response(client: ServerClient, path: str, target: Path, sha256: str | None = None) -> None:
    """Download a response to a file atomically, verifying its SHA-256 if given."""
    partial = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}")
    digest = hashlib.sha256()
    try:
        with await asyncio.to_thread(open, partial, "xb") as file:
            async with client.request("GET", path) as answer:
                async for piece in answer.content.iter_any():
                    digest.update(piece)
                    await asyncio.to_thread(file.write, piece)
        if sha256 is not None and digest.hexdigest() != sha256:
            raise CliError(f"{target.name} was corrupted in transit", hint="download it again: paddock runs get")
        partial.replace(target)
    except OSError as error:
        raise CliError(f"{target} cannot be written: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)


def deliverable_url_path(run_id: str, path: str) -> str:
    return f"/v1/runs/{quote(run_id, safe='')}/deliverables/{quote(path)}"


async def find_short_text_deliverable(client: ServerClient, run: dict[str, Any]) -> tuple[str, str] | None:
    """Return path and content of the first short text deliverable, if any."""
    for item in (run.get("result") or {}).get("deliverables") or []:
        if not 0 < int(item["size"]) <= MAX_SHOWN_BYTES:
            continue
        async with client.request("GET", deliverable_url_path(str(run["id"]), str(item["path"]))) as answer:
            content = await answer.content.read(MAX_SHOWN_BYTES + 1)
        try:
            text = content.decode()
        except UnicodeDecodeError:
            continue
        if "\0" not in text and len(text.splitlines()) <= MAX_SHOWN_LINES:
            return str(item["path"]), text
    return None


def find_run_folder(data: Path, run_id: str) -> Path | None:
    """Return a run's folder if it is on this machine."""
    folder = data / "runs" / run_id
    return folder if os.path.isdir(folder) else None
