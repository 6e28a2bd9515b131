"""Compress stored bytes, and encode the pieces of a response as one byte string."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import zstandard

MIN_COMPRESSED_SIZE = 400
"""Smaller inputs hardly shrink, at ten times the cost of storing them."""
_TICK = 10_000
"""Times are stored in units of a tenth of a millisecond."""
_PLAIN, _SMALL = b"\0", b"\1"
_head = msgspec.msgpack.Decoder(tuple[list[int], list[int]])
_to_msgpack = msgspec.msgpack.Encoder().encode


class Compressor:
    """Compresses byte strings. Not thread-safe."""

    def __init__(self) -> None:
        self._compressor = zstandard.ZstdCompressor(level=3)

    def compress(self, raw: bytes) -> bytes:
        if len(raw) >= MIN_COMPRESSED_SIZE:
            small = self._compressor.compress(raw)
            if len(small) < len(raw):
                return _SMALL + small
        return _PLAIN + raw


def decompress(packed: bytes) -> bytes:
    """Return the bytes that were compressed."""
    if packed[:1] == _SMALL:
        return zstandard.ZstdDecompressor().decompress(memoryview(packed)[1:])
    return packed[1:]


def encode_archived_response(pieces: Sequence[tuple[float, bytes]]) -> bytes:
    """Encode the pieces of a response and their times."""
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
    bodies = [piece for _, piece in pieces]
    head = _to_msgpack((times, [*map(len, bodies)]))
    return b"".join((len(head).to_bytes(4, "big"), head, *bodies))


def decode_archived_response(data: bytes) -> list[tuple[float, bytes]]:
    """Decode the pieces of a response and their times."""
    offset = 4 + int.from_bytes(data[:4], "big")
    times, sizes = _head.decode(memoryview(data)[4:offset])
    pieces, tick = [], 0
    for time, size in zip(times, sizes, strict=True):
        tick += time
        pieces.append((tick / _TICK, data[offset : offset + size]))
        offset += size
    return pieces
