"""How much memory large requests may take together."""

from __future__ import annotations

from paddock.llm.wire.requests import Received, Refusal, RequestReader
from paddock.llm.wire.rooms import UNCOUNTED, Held, Room

LARGE = UNCOUNTED + 1000


def post(length: int) -> bytes:
    return b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (length, b"x" * length)


def test_what_is_taken_is_taken_from_all_rooms_around() -> None:
    house = Room(100)
    mine, theirs = Room(80, house), Room(80, house)
    assert mine.claim(80) and not mine.claim(1)
    assert not theirs.claim(21) and theirs.claim(20)
    mine.release(80)
    assert (house.free, mine.free, theirs.free) == (80, 80, 60)


def test_small_requests_take_none() -> None:
    room = Room(0)
    held = Held(room)
    assert held.grow(UNCOUNTED) and not held.grow(1)


def test_large_requests_are_refused_when_there_is_no_room_and_give_it_back() -> None:
    room = Room(1500)

    def read(data: bytes) -> tuple[RequestReader, Received | Refusal]:
        reader = RequestReader(65536, 2**20, None, room)
        for start in range(0, len(data), 1000):
            reader.feed(data[start : start + 1000])
        return reader, reader.take()

    _, first = read(post(LARGE))
    assert isinstance(first, Received) and len(first.request.body) == LARGE and room.free == 500
    _, second = read(post(LARGE))
    assert isinstance(second, Refusal) and second.status == 503 and room.free == 500
    assert first.held is not None
    first.held.release()
    assert room.free == 1500


def test_a_connection_that_ends_early_gives_back_what_it_took() -> None:
    room = Room(10_000)
    reader = RequestReader(65536, 2**20, None, room)
    reader.feed(post(LARGE) + post(LARGE)[:-10])
    assert room.free == 10_000 - 1000 - 990
    reader.close()
    assert room.free == 10_000
