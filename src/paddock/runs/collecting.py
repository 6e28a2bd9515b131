"""Brings a run's deliverables out of its box."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import structlog

from paddock.errors import BoxError, BoxGone, HostFull, InvalidInput, NotFound
from paddock.model.runs import Delivered, Missing
from paddock.model.task import Deliverable
from paddock.runs.folder import RunFolder
from paddock.runs.receiving import PARTIAL, Account, Receiver, Refused, has_wildcards, place_of
from paddock.sandbox.client import Inside

BATCH = 2 * 2**20
"""Bytes that are hashed and written while the next ones come."""
EARLIER = "came in an earlier collection; the sandbox did not answer to the end in this one"
log = structlog.get_logger()


@dataclass(frozen=True)
class Bounds:
    """How much may come out of one box, whatever the task says."""

    files: int = 100_000
    size: int = 16 * 2**30
    """Bytes, of everything that the box sends."""
    silence: float = 60.0
    """Seconds without a byte after which the box is taken for dead."""
    time: float = 3600.0
    """Seconds in all."""


ORDINARY = Bounds()


@dataclass(frozen=True)
class Collected:
    """What came back, and what did not."""

    delivered: tuple[Delivered, ...] = ()
    missing: tuple[Missing, ...] = ()
    notes: tuple[str, ...] = ()
    """What is worth knowing and no failure: links that were left out, files that changed while they were read."""
    broken: str | None = None
    """Why not everything was looked at, if the box did not answer to the end."""


async def collect(
    inside: Inside, deliverables: Sequence[Deliverable], folder: RunFolder, *, bounds: Bounds = ORDINARY
) -> Collected:
    """Copy deliverables from a box into a run's folder; they take the place of what came before.

    Never raises for what a box does: what came stays, and the rest is missing with the reason. Where the box does not
    answer to the end, what an earlier collection brought stays as well.
    """
    receiver = await asyncio.to_thread(_prepare, folder, deliverables, bounds)
    broken: str | None = None
    try:
        if deliverables:
            await _receive(inside, deliverables, receiver, bounds)
    except TimeoutError:
        broken = f"collecting took longer than {bounds.time:.0f} seconds"
    except (BoxError, HostFull, NotFound, InvalidInput) as error:
        broken = error.message
    finally:
        receiver.close()
    if broken:
        log.warning("deliverables did not come to the end", run=folder.run_id, reason=broken)
    return await asyncio.to_thread(_conclude, folder, receiver, broken)


async def _receive(inside: Inside, wanted: Sequence[Deliverable], receiver: Receiver, bounds: Bounds) -> None:
    body = {
        "deliverables": [{"path": each.path, "max_size": each.max_size} for each in wanted],
        "most_files": bounds.files,
    }
    patience = aiohttp.ClientTimeout(total=None, sock_read=bounds.silence)
    async with (
        asyncio.timeout(bounds.time),
        inside.request("POST", "/paddock/collect", json=body, timeout=patience) as answer,
    ):
        await _pour(answer.content, receiver)
    if not receiver.over:
        raise BoxGone("the sandbox broke off in the middle")


async def _pour(stream: aiohttp.StreamReader, receiver: Receiver) -> None:
    """Have what comes written in a thread, while more comes."""
    loop = asyncio.get_running_loop()
    writing: asyncio.Future[None] | None = None
    batch: list[bytes] = []
    size = 0
    try:
        async for piece in stream.iter_any():
            batch.append(piece)
            size += len(piece)
            if size >= BATCH or writing is None or writing.done():
                if writing is not None:
                    await asyncio.shield(writing)
                writing = loop.run_in_executor(None, receiver.feed, batch)
                batch, size = [], 0
        if writing is not None:
            await asyncio.shield(writing)
        writing = loop.run_in_executor(None, receiver.feed, batch)
        await asyncio.shield(writing)
    finally:
        # The thread writes on when nobody waits any more, and nothing may be cleaned up under its hands.
        if writing is not None:
            await asyncio.wait([writing])
            writing.exception()


def _prepare(folder: RunFolder, wanted: Sequence[Deliverable], bounds: Bounds) -> Receiver:
    folder.create()
    for parent, _, names in os.walk(folder.deliverables):
        if PARTIAL in names:  # A server died over it.
            os.unlink(os.path.join(parent, PARTIAL))
    return Receiver(folder.deliverables, wanted, most_files=bounds.files, most_bytes=bounds.size)


def _conclude(folder: RunFolder, receiver: Receiver, broken: str | None) -> Collected:
    files = dict(receiver.files)
    for place in _others(folder.deliverables, files):
        path = folder.deliverables / place
        if broken:
            files[place] = _earlier(path, place)
        else:
            path.unlink()
    if not broken:
        _remove_empty_directories(folder.deliverables)
    missing = []
    for account in receiver.accounts:
        if reason := _why_missing(account, broken, files):
            wanted = account.wanted
            missing.append(Missing(path=wanted.path, required=wanted.required, reason=reason))
    notes = tuple(receiver.notes)
    if receiver.more_notes:
        notes += (f"and {receiver.more_notes} more such files",)
    delivered = tuple(files[place] for place in sorted(files))
    return Collected(delivered, tuple(missing), notes, broken)


def _why_missing(account: Account, broken: str | None, files: dict[str, Delivered]) -> str | None:
    problems = list(account.problems)
    if account.more_problems:
        problems.append(f"and {account.more_problems} more")
    if not account.done and not _is_there(account.wanted, files):
        problems.append(f"{'not all of it came' if account.files else 'it did not come'}: {broken}")
    elif account.done and not problems and not account.files:
        problems.append(_why_nothing(account))
    return "; ".join(problems) or None


def _why_nothing(account: Account) -> str:
    if account.skipped:
        return "there is nothing in it but links, pipes, sockets and the like"
    return "nothing fits this pattern" if has_wildcards(account.wanted.path) else "there is no such file"


def _is_there(wanted: Deliverable, files: dict[str, Delivered]) -> bool:
    try:
        return place_of(wanted.path) in files
    except Refused:
        return False


def _others(directory: Path, known: dict[str, Delivered]) -> list[str]:
    """Files that are there and were not brought by this collection."""
    found = []
    for parent, _, names in os.walk(directory):
        above = os.path.relpath(parent, directory)
        places = (name if above == "." else f"{above}/{name}" for name in names)
        found += [place for place in places if place not in known]
    return found


def _earlier(path: Path, place: str) -> Delivered:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Delivered(path=place, size=os.fstat(file.fileno()).st_size, sha256=digest, note=EARLIER)


def _remove_empty_directories(directory: Path) -> None:
    for parent, _, _ in os.walk(directory, topdown=False):
        if parent != str(directory):
            try:
                os.rmdir(parent)
            except OSError:
                continue  # It has something in it.
