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
    PARTIAL_FILE_NAME,
    DeliverableReceiver,
    DeliverableReport,
    DeliveredFileRefused,
    deliverable_path,
    has_wildcards,
)
from paddock.runs.results.run_folder import RunFolder
from paddock.sandbox.daemon.client import DaemonClient

BATCH_BYTES = 2 * 2**20
"""Size of a batch that is hashed and written during reception."""
EARLIER_COLLECTION_NOTE = "came in an earlier collection; the sandbox did not answer to the end in this one"
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


DEFAULT_LIMITS = DeliverableLimits()


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
    daemon: DaemonClient,
    deliverables: Sequence[Deliverable],
    folder: RunFolder,
    *,
    limits: DeliverableLimits = DEFAULT_LIMITS,
) -> CollectedDeliverables:
    """Copy deliverables from a sandbox into the run folder, replacing earlier ones.

    Sandbox errors are not raised: received files stay, the others are missing with a reason. If the sandbox stops
    answering, files of an earlier collection stay as well.
    """
    receiver = await asyncio.to_thread(_prepare, folder, deliverables, limits)
    broken: str | None = None
    try:
        if deliverables:
            await _receive(daemon, deliverables, receiver, limits)
    except TimeoutError:
        broken = f"collecting took longer than {limits.time:.0f} seconds"
    except (SandboxError, HostFull, NotFound, InvalidInput) as error:
        broken = error.message
    finally:
        receiver.close()
    if broken:
        log.warning("collection of deliverables incomplete", run=folder.run_id, reason=broken)
    return await asyncio.to_thread(_finish_collection, folder, receiver, broken)


async def _receive(
    daemon: DaemonClient, wanted: Sequence[Deliverable], receiver: DeliverableReceiver, limits: DeliverableLimits
) -> None:
    body = {
        "deliverables": [{"path": each.path, "max_size": each.max_size} for each in wanted],
        "most_files": limits.files,
    }
    timeout = aiohttp.ClientTimeout(total=None, sock_read=limits.silence)
    async with (
        asyncio.timeout(limits.time),
        daemon.request("POST", "/paddock/collect", json=body, timeout=timeout) as answer,
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
            if size >= BATCH_BYTES or writing is None or writing.done():
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


def _prepare(folder: RunFolder, wanted: Sequence[Deliverable], limits: DeliverableLimits) -> DeliverableReceiver:
    folder.create()
    for parent, _, names in os.walk(folder.deliverables):
        if PARTIAL_FILE_NAME in names:  # Left by a server that died.
            os.unlink(os.path.join(parent, PARTIAL_FILE_NAME))
    return DeliverableReceiver(folder.deliverables, wanted, most_files=limits.files, most_bytes=limits.size)


def _finish_collection(folder: RunFolder, receiver: DeliverableReceiver, broken: str | None) -> CollectedDeliverables:
    files = dict(receiver.files)
    for relative in _other_files(folder.deliverables, files):
        path = folder.deliverables / relative
        if broken:
            files[relative] = _earlier_file(path, relative)
        else:
            path.unlink()
    if not broken:
        _remove_empty_directories(folder.deliverables)
    missing = []
    for report in receiver.reports:
        if reason := _missing_reason(report, broken, files):
            wanted = report.wanted
            missing.append(MissingDeliverable(path=wanted.path, required=wanted.required, reason=reason))
    notes = tuple(receiver.notes)
    if receiver.more_notes:
        notes += (f"and {receiver.more_notes} more such files",)
    delivered = tuple(files[relative] for relative in sorted(files))
    return CollectedDeliverables(delivered, tuple(missing), notes, broken)


def _missing_reason(report: DeliverableReport, broken: str | None, files: dict[str, DeliveredFile]) -> str | None:
    problems = list(report.problems)
    if report.more_problems:
        problems.append(f"and {report.more_problems} more")
    if not report.done and not _is_complete(report.wanted, files):
        problems.append(f"{'not all of it came' if report.files else 'it did not come'}: {broken}")
    elif report.done and not problems and not report.files:
        problems.append(_no_match_reason(report))
    return "; ".join(problems) or None


def _no_match_reason(report: DeliverableReport) -> str:
    if report.skipped:
        return "there is nothing in it but links, pipes, sockets and the like"
    return "nothing fits this pattern" if has_wildcards(report.wanted.path) else "there is no such file"


def _is_complete(wanted: Deliverable, files: dict[str, DeliveredFile]) -> bool:
    try:
        return deliverable_path(wanted.path) in files
    except DeliveredFileRefused:
        return False


def _other_files(directory: Path, known: dict[str, DeliveredFile]) -> list[str]:
    """Return files of earlier collections."""
    found = []
    for parent, _, names in os.walk(directory):
        above = os.path.relpath(parent, directory)
        relative_paths = (name if above == "." else f"{above}/{name}" for name in names)
        found += [relative for relative in relative_paths if relative not in known]
    return found


def _earlier_file(path: Path, relative: str) -> DeliveredFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return DeliveredFile(
            path=relative, size=os.fstat(file.fileno()).st_size, sha256=digest, note=EARLIER_COLLECTION_NOTE
        )


def _remove_empty_directories(directory: Path) -> None:
    for parent, _, _ in os.walk(directory, topdown=False):
        if parent != str(directory):
            try:
                os.rmdir(parent)
            except OSError:
                continue  # Not empty.
