"""Collect a run's deliverables from its sandbox."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import structlog

from paddock.errors import HostFull, InvalidInput, NotFound, SandboxError, SandboxGone
from paddock.model.runs import DeliveredFile, MissingDeliverable
from paddock.model.task import Deliverable
from paddock.runs.results.deliverable_receiver import (
    PARTIAL,
    DeliverableReceiver,
    DeliverableReport,
    FileRefused,
    deliverable_path,
    has_wildcards,
)
from paddock.runs.results.run_folder import RunFolder
from paddock.sandbox.daemon.client import DaemonClient

BATCH = 2 * 2**20
"""Size of a batch that is hashed and written during reception."""
EARLIER = "came in an earlier collection; the sandbox did not answer to the end in this one"
log = structlog.get_logger()


@dataclass(frozen=True)
class DeliverableLimits:
    """Limits of a collection, independent of the task."""

    files: int = 100_000
    size: int = 16 * 2**30
    """Total bytes received from the sandbox."""
    silence: float = 60.0
    """Seconds without data before the sandbox counts as dead."""
    time: float = 3600.0
    """Total seconds."""


ORDINARY = DeliverableLimits()


@dataclass(frozen=True)
class CollectedDeliverables:
    """Collected and missing deliverables."""

    delivered: tuple[DeliveredFile, ...] = ()
    missing: tuple[MissingDeliverable, ...] = ()
    notes: tuple[str, ...] = ()
    """Remarks that are not failures: omitted links, files that changed while they were read."""
    broken: str | None = None
    """Why the collection is incomplete, if the sandbox stopped answering."""


async def collect_deliverables(
    inside: DaemonClient,
    deliverables: Sequence[Deliverable],
    folder: RunFolder,
    *,
    bounds: DeliverableLimits = ORDINARY,
) -> CollectedDeliverables:
    """Copy deliverables from a sandbox into the run folder, replacing earlier ones.

    Sandbox errors are not raised: received files stay, the others are missing with a reason. If the sandbox stops
    answering, files of an earlier collection stay as well.
    """
    receiver = await asyncio.to_thread(_prepare, folder, deliverables, bounds)
    broken: str | None = None
    try:
        if deliverables:
            await _receive(inside, deliverables, receiver, bounds)
    except TimeoutError:
        broken = f"collecting took longer than {bounds.time:.0f} seconds"
    except (SandboxError, HostFull, NotFound, InvalidInput) as error:
        broken = error.message
    finally:
        receiver.close()
    if broken:
        log.warning("collection of deliverables incomplete", run=folder.run_id, reason=broken)
    return await asyncio.to_thread(_finish_collection, folder, receiver, broken)


async def _receive(
    inside: DaemonClient, wanted: Sequence[Deliverable], receiver: DeliverableReceiver, bounds: DeliverableLimits
) -> None:
    body = {
        "deliverables": [{"path": each.path, "max_size": each.max_size} for each in wanted],
        "most_files": bounds.files,
    }
    patience = aiohttp.ClientTimeout(total=None, sock_read=bounds.silence)
    async with (
        asyncio.timeout(bounds.time),
        inside.request("POST", "/paddock/collect", json=body, timeout=patience) as answer,
    ):
        await _feed_receiver(answer.content, receiver)
    if not receiver.over:
        raise SandboxGone("the sandbox stopped sending in the middle")


async def _feed_receiver(stream: aiohttp.StreamReader, receiver: DeliverableReceiver) -> None:
    """Write received data in a thread while more data arrives."""
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
        # The thread continues after a cancellation; wait for it before cleaning up.
        if writing is not None:
            await asyncio.wait([writing])
            writing.exception()


def _prepare(folder: RunFolder, wanted: Sequence[Deliverable], bounds: DeliverableLimits) -> DeliverableReceiver:
    folder.create()
    for parent, _, names in os.walk(folder.deliverables):
        if PARTIAL in names:  # Left by a server that died.
            os.unlink(os.path.join(parent, PARTIAL))
    return DeliverableReceiver(folder.deliverables, wanted, most_files=bounds.files, most_bytes=bounds.size)


def _finish_collection(folder: RunFolder, receiver: DeliverableReceiver, broken: str | None) -> CollectedDeliverables:
    files = dict(receiver.files)
    for place in _other_files(folder.deliverables, files):
        path = folder.deliverables / place
        if broken:
            files[place] = _earlier_file(path, place)
        else:
            path.unlink()
    if not broken:
        _remove_empty_directories(folder.deliverables)
    missing = []
    for account in receiver.accounts:
        if reason := _missing_reason(account, broken, files):
            wanted = account.wanted
            missing.append(MissingDeliverable(path=wanted.path, required=wanted.required, reason=reason))
    notes = tuple(receiver.notes)
    if receiver.more_notes:
        notes += (f"and {receiver.more_notes} more such files",)
    delivered = tuple(files[place] for place in sorted(files))
    return CollectedDeliverables(delivered, tuple(missing), notes, broken)


def _missing_reason(account: DeliverableReport, broken: str | None, files: dict[str, DeliveredFile]) -> str | None:
    problems = list(account.problems)
    if account.more_problems:
        problems.append(f"and {account.more_problems} more")
    if not account.done and not _is_complete(account.wanted, files):
        problems.append(f"{'not all of it came' if account.files else 'it did not come'}: {broken}")
    elif account.done and not problems and not account.files:
        problems.append(_no_match_reason(account))
    return "; ".join(problems) or None


def _no_match_reason(account: DeliverableReport) -> str:
    if account.skipped:
        return "there is nothing in it but links, pipes, sockets and the like"
    return "nothing fits this pattern" if has_wildcards(account.wanted.path) else "there is no such file"


def _is_complete(wanted: Deliverable, files: dict[str, DeliveredFile]) -> bool:
    try:
        return deliverable_path(wanted.path) in files
    except FileRefused:
        return False


def _other_files(directory: Path, known: dict[str, DeliveredFile]) -> list[str]:
    """Return files of earlier collections."""
    found = []
    for parent, _, names in os.walk(directory):
        above = os.path.relpath(parent, directory)
        places = (name if above == "." else f"{above}/{name}" for name in names)
        found += [place for place in places if place not in known]
    return found


def _earlier_file(path: Path, place: str) -> DeliveredFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return DeliveredFile(path=place, size=os.fstat(file.fileno()).st_size, sha256=digest, note=EARLIER)


def _remove_empty_directories(directory: Path) -> None:
    for parent, _, _ in os.walk(directory, topdown=False):
        if parent != str(directory):
            try:
                os.rmdir(parent)
            except OSError:
                continue  # Not empty.
