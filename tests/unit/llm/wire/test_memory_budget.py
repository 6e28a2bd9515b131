"""Bounds on the total memory of large requests."""

from __future__ import annotations

from paddock.llm.wire.memory_budget import UNCOUNTED_BYTES, MemoryBudget, MemoryReservation
from paddock.llm.wire.request_parser import ConnectionRequestParser, HttpRequestRefusal, ParsedHttpRequest

LARGE = UNCOUNTED_BYTES + 1000


def post(length: int) -> bytes:
    return b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (length, b"x" * length)


def test_reservation_counts_against_all_parent_budgets() -> None:
    parent = MemoryBudget(100)
    mine, theirs = MemoryBudget(80, parent), MemoryBudget(80, parent)
    assert mine.claim(80) and not mine.claim(1)
    assert not theirs.claim(21) and theirs.claim(20)
    mine.release(80)
    assert (parent.free, mine.free, theirs.free) == (80, 80, 60)


def test_small_requests_reserve_nothing() -> None:
    budget = MemoryBudget(0)
    held = MemoryReservation(budget)
    assert held.grow(UNCOUNTED_BYTES) and not held.grow(1)


def test_large_requests_are_refused_if_memory_is_exhausted() -> None:
    budget = MemoryBudget(1500)

    def read(data: bytes) -> tuple[ConnectionRequestParser, ParsedHttpRequest | HttpRequestRefusal]:
        reader = ConnectionRequestParser(65536, 2**20, None, budget)
        for start in range(0, len(data), 1000):
            reader.feed(data[start : start + 1000])
        return reader, reader.take_next()

    _, first = read(post(LARGE))
    assert isinstance(first, ParsedHttpRequest) and len(first.request.body) == LARGE and budget.free == 500
    _, second = read(post(LARGE))
    assert isinstance(second, HttpRequestRefusal) and second.status == 503 and budget.free == 500
    assert first.reservation is not None
    first.reservation.release()
    assert budget.free == 1500


def test_closed_connection_releases_its_memory() -> None:
    budget = MemoryBudget(10_000)
    reader = ConnectionRequestParser(65536, 2**20, None, budget)
    reader.feed(post(LARGE) + post(LARGE)[:-10])
    assert budget.free == 10_000 - 1000 - 990
    reader.close()
    assert budget.free == 10_000
