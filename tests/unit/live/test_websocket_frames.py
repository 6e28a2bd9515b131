"""WebSocket frames on a bare socket."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as some
from websockets.frames import Frame, Opcode

from paddock.live.desktop import websocket_frames
from paddock.live.desktop.websocket_frames import BINARY, CLOSE, PING, WebSocketClose, WebSocketFrameParser


def masked(opcode: Opcode, data: bytes, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin=fin).serialize(mask=True, extensions=[])


def joined(found: list[tuple[int, bytes]]) -> bytes:
    return b"".join(payload for kind, payload in found if kind == BINARY)


@given(messages=some.lists(some.binary(max_size=400), max_size=5), cuts=some.lists(some.integers(0, 2000), max_size=9))
def test_data_does_not_depend_on_chunk_boundaries(messages: list[bytes], cuts: list[int]) -> None:
    wire = b"".join(masked(Opcode.BINARY, message) for message in messages)
    reader, found, at = WebSocketFrameParser(), [], 0
    for cut in [*sorted(cuts), len(wire)]:
        if cut > at:
            found += reader.feed(wire[at:cut])
            at = cut
    assert joined(found) == b"".join(messages)


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536, 300_000])
def test_frames_of_every_size(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert joined(WebSocketFrameParser().feed(masked(Opcode.BINARY, data))) == data
    assert websocket_frames.websocket_frame_header(size) + data == Frame(Opcode.BINARY, data).serialize(
        mask=False, extensions=[]
    )


def test_ping_between_fragments_is_parsed() -> None:
    wire = masked(Opcode.BINARY, b"ab", fin=False) + masked(Opcode.PING, b"!") + masked(Opcode.CONT, b"cd")
    assert WebSocketFrameParser().feed(wire) == [(BINARY, b"ab"), (PING, b"!"), (BINARY, b"cd")]


def test_close_frame_cuts_a_long_reason() -> None:
    close_frame = websocket_frames.websocket_close_frame(1000, "ü" * 100)
    assert close_frame[1] <= 125
    assert close_frame[4:].decode() == "ü" * 61
    assert WebSocketFrameParser().feed(masked(Opcode.CLOSE, struct.pack(">H", 1000))) == [
        (CLOSE, struct.pack(">H", 1000))
    ]


@pytest.mark.parametrize(
    "wire",
    [
        Frame(Opcode.BINARY, b"x").serialize(mask=False, extensions=[]),
        b"\xc2\x81aaaax",
        masked(Opcode.TEXT, b"hello"),
        masked(Opcode.CONT, b"x"),
        masked(Opcode.BINARY, b"x", fin=False) + masked(Opcode.BINARY, b"x"),
        b"\x09\x80aaaa",
        b"\x89\xfeaaaa",
        b"\x83\x80aaaa",
        b"\x8b\x80aaaa",
    ],
    ids="unmasked reserved text stray interrupted fragmented-ping long-ping opcode-3 opcode-11".split(),
)
def test_invalid_frames_close_the_connection(wire: bytes) -> None:
    with pytest.raises(WebSocketClose):
        WebSocketFrameParser().feed(wire)
