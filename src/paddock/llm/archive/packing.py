"""Makes bytes small for storing, and an answer in pieces one run of bytes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import zstandard

WORTHWHILE = 400
"""What is shorter gets hardly smaller, for ten times the work of storing it."""
_TICK = 10_000
"""Moments are kept to a tenth of a millisecond."""
_PLAIN, _SMALL = b"\0", b"\1"
_head = msgspec.msgpack.Decoder(tuple[list[int], list[int]])
_to_msgpack = msgspec.msgpack.Encoder().encode


class Packer:
    """Compresses. Not for several threads at a time."""

    def __init__(self) -> None:
        self._compressor = zstandard.ZstdCompressor(level=3)

    def pack(self, raw: bytes) -> bytes:
        if len(raw) >= WORTHWHILE:
            small = self._compressor.compress(raw)
            if len(small) < len(raw):
                return _SMALL + small
        return _PLAIN + raw


def unpack(packed: bytes) -> bytes:
    """What `pack` was given."""
    if packed[:1] == _SMALL:
        return zstandard.ZstdDecompressor().decompress(memoryview(packed)[1:])
    return packed[1:]


def to_bytes(pieces: Sequence[tuple[float, bytes]]) -> bytes:
    """An answer's pieces and when they came."""
    if len(pieces) == 1:
        moment, piece = pieces[0]
        head = _to_msgpack(([round(moment * _TICK)], [len(piece)]))
        return len(head).to_bytes(4, "big") + head + piece
    times, last = [], 0
    for moment, _ in pieces:
        tick = int(moment * _TICK + 0.5)
        if tick < last:
            tick = last
        times.append(tick - last)
        last = tick
    said = [piece for _, piece in pieces]
    head = _to_msgpack((times, [*map(len, said)]))
    return b"".join((len(head).to_bytes(4, "big"), head, *said))


def to_pieces(data: bytes) -> list[tuple[float, bytes]]:
    """What `to_bytes` was given."""
    place = 4 + int.from_bytes(data[:4], "big")
    times, sizes = _head.decode(memoryview(data)[4:place])
    pieces, tick = [], 0
    for time, size in zip(times, sizes, strict=True):
        tick += time
        pieces.append((tick / _TICK, data[place : place + size]))
        place += size
    return pieces
