"""Keep file descriptors free for the rest of the server, however many clients connect."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from paddock.telemetry.descriptor_reserve import first_reserved_descriptor

RESERVED_DESCRIPTORS = 128
"""Descriptors that connections leave free: for sandboxes, providers, the database and worker processes."""
CLOSED_AT_ONCE = 16
"""Idle connections that are closed together: finding the oldest takes a look at all."""


class AdmissionDecision(Enum):
    """The decision on a new connection."""

    ADMITTED = "admitted"
    REFUSED = "refused"
    """It gets an error, which takes a moment."""
    DROPPED = "dropped"
    """It is closed at once."""


@dataclass(frozen=True, order=True)
class IdleConnection:
    """A connection without a request."""

    since: float
    """Loop time of the end of its last request, or of its start."""
    close: Callable[[], None] = field(compare=False)


ListIdle: TypeAlias = Callable[[], Iterable[IdleConnection]]


class FileDescriptorGuard:
    """Admits new connections while descriptors are left; otherwise in place of the longest idle ones."""

    def __init__(self) -> None:
        self._sources: list[ListIdle] = []

    def add_source(self, list_idle: ListIdle) -> None:
        """Add connections that may be closed for new ones."""
        self._sources.append(list_idle)

    def admit(self, transport: asyncio.BaseTransport) -> AdmissionDecision:
        """Decide on a new connection; closes idle ones if descriptors run out."""
        raw = transport.get_extra_info("socket")
        if raw is None or raw.fileno() < first_reserved_descriptor(RESERVED_DESCRIPTORS, 8):
            return AdmissionDecision.ADMITTED
        oldest = heapq.nsmallest(CLOSED_AT_ONCE, (each for source in self._sources for each in source()))
        for each in oldest:
            each.close()
        if oldest:
            return AdmissionDecision.ADMITTED
        spare = raw.fileno() < first_reserved_descriptor(RESERVED_DESCRIPTORS // 2, 16)
        return AdmissionDecision.REFUSED if spare else AdmissionDecision.DROPPED
