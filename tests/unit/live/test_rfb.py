"""What of a viewer's RFB reaches a display, and what ends the connection."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as some

from paddock.live import rfb
from paddock.live.frames import Closing
from paddock.live.rfb import ClientMessages, Clipboard, merges

HANDSHAKE = b"RFB 003.008\n" + b"\1" + b"\0"
POINTER = struct.pack(">BBHH", 5, 0, 10, 20)
PRESS = struct.pack(">BBHH", 5, 1, 10, 20)
KEY = struct.pack(">BBxxI", 4, 1, ord("a"))
KEY_UP = struct.pack(">BBxxI", 4, 0, ord("a"))
QEMU_KEY = struct.pack(">BBHII", 255, 0, 1, ord("a"), 30)
UPDATE = struct.pack(">BBHHHH", 3, 1, 0, 0, 100, 100)
PIXELS = struct.pack(">B3x16s", 0, bytes(16))
FENCE = struct.pack(">B3xIB3s", 248, 1, 3, b"abc")
CONTINUOUS = struct.pack(">BBHHHH", 150, 1, 0, 0, 100, 100)
RESIZE = struct.pack(">BxHHBxIHHHHI", 251, 800, 600, 1, 0, 0, 0, 800, 600, 0)
CUT_TEXT = struct.pack(">B3xi5s", 6, 5, b"hello")
REQUEST = struct.pack(">B3xiI", 6, -4, 1 << 25 | 1)
NOTIFY = struct.pack(">B3xiI", 6, -4, 1 << 27 | 1)
PROVIDE = struct.pack(">B3xiI6s", 6, -10, 1 << 28 | 1, b"zipped")
CAPS = struct.pack(">B3xiII", 6, -8, 1 << 24 | 1 << 28 | 1, 20 * 2**20)
NO_UNASKED_TEXT = struct.pack(">B3xiII", 6, -8, 0x1F000001, 0)
WATCHING = [UPDATE, PIXELS, FENCE, CONTINUOUS]
TOUCHING = [POINTER, PRESS, KEY, KEY_UP, QEMU_KEY, RESIZE, CUT_TEXT, REQUEST, NOTIFY, PROVIDE]


class Lease:
    """Whether the viewer has the input, as the tests say."""

    def __init__(self, held: bool) -> None:
        self.held = held

    def __call__(self) -> bool:
        return self.held


def opened(held: bool = True, clipboard: Clipboard | None = None) -> ClientMessages:
    messages = ClientMessages(Lease(held), clipboard or Clipboard())
    messages.feed(HANDSHAKE)
    return messages


def encodings(*wanted: int) -> bytes:
    return struct.pack(f">BxH{len(wanted)}i", 2, len(wanted), *wanted)


@pytest.mark.parametrize(
    ("said", "passed"),
    [
        (b"RFB 003.008\n\1\0", [b"RFB 003.008\n", b"\1", b"\1"]),
        (b"RFB 003.007\n\1\1", [b"RFB 003.007\n", b"\1", b"\1"]),
        (b"RFB 003.003\n\0", [b"RFB 003.003\n", b"\1"]),
    ],
)
def test_every_handshake_ends_in_a_shared_display(said: bytes, passed: list[bytes]) -> None:
    messages = ClientMessages(Lease(False), Clipboard())
    assert messages.feed(said) == passed
    assert messages.ready


def test_half_a_handshake_is_not_ready() -> None:
    messages = ClientMessages(Lease(True), Clipboard())
    assert messages.feed(b"RFB 003.0") == []
    assert not messages.ready
    assert messages.feed(b"08\n\1") == [b"RFB 003.008\n", b"\1"]
    assert not messages.ready


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"GET / HTTP/1.1\r\n", "this is not RFB"),
        (b"RFB 003.889\n", "this is not RFB"),
        (b"RFB 003.005\n", "3.3, 3.7 and 3.8"),
        (b"RFB 003.008\n\2", "security type"),
        (HANDSHAKE + b"\1", "no message 1"),
        (HANDSHAKE + b"\xfd", "no message 253"),
        (HANDSHAKE + b"\xff\1" + bytes(10), "only that of keys"),
        (HANDSHAKE + struct.pack(">B3xi", 6, 2**30), "clipboard"),
        (HANDSHAKE + struct.pack(">B3xi", 6, -(2**31)), "clipboard"),
        (HANDSHAKE + struct.pack(">B3xi2s", 6, -2, b"ab"), "too short"),
        (HANDSHAKE + struct.pack(">BxH", 2, 2**16 - 1), "encodings"),
        (HANDSHAKE + struct.pack(">B3xIB", 248, 0, 65), "fence"),
        (HANDSHAKE + struct.pack(">BxHHBx", 251, 1, 1, 255), "screens"),
    ],
)
def test_garbage_ends_the_connection_and_says_why(said: bytes, reason: str) -> None:
    with pytest.raises(Closing, match=reason) as closing:
        ClientMessages(Lease(True), Clipboard()).feed(said)
    assert closing.value.code in (1002, 1009)
    assert len(closing.value.reason.encode()) <= 123


def test_the_holder_touches_and_all_others_watch() -> None:
    assert opened(True).feed(b"".join(WATCHING + TOUCHING)) == WATCHING + TOUCHING
    assert opened(False).feed(b"".join(WATCHING + TOUCHING)) == WATCHING


def test_the_lease_counts_at_each_message() -> None:
    lease = Lease(True)
    messages = ClientMessages(lease, Clipboard())
    messages.feed(HANDSHAKE)
    assert messages.feed(POINTER) == [POINTER]
    lease.held = False
    assert messages.feed(POINTER) == []


@given(cuts=some.lists(some.integers(0, 200), max_size=20))
def test_it_does_not_matter_how_the_bytes_are_cut(cuts: list[int]) -> None:
    said = HANDSHAKE + b"".join(WATCHING + TOUCHING)
    messages = ClientMessages(Lease(True), Clipboard())
    passed: list[bytes] = []
    at = 0
    for cut in sorted(cuts):
        passed += messages.feed(said[at:cut]) if at < cut else []
        at = max(at, cut)
    passed += messages.feed(said[at:])
    assert passed == [b"RFB 003.008\n", b"\1", b"\1", *WATCHING, *TOUCHING]


@given(said=some.binary(max_size=300))
def test_whatever_is_said_nothing_but_whole_known_messages_pass(said: bytes) -> None:
    messages = opened(False)
    try:
        passed = messages.feed(said)
    except Closing:
        return
    assert all(message[0] in (0, 2, 3, 6, 150, 248) for message in passed)
    # All that a viewer without the lease gets through of the clipboard is that they want none unasked.
    assert all(message == NO_UNASKED_TEXT for message in passed if message[0] == 6)


def test_only_encodings_whose_messages_are_known_are_asked_for() -> None:
    wanted = encodings(7, 16, 0, -239, -308, -312, -313, -258, -316, -305, -309, -259, 0x12345678)
    assert opened().feed(wanted) == [encodings(7, 16, 0, -239, -308, -312, -313, -258)]


def test_no_text_comes_out_unasked() -> None:
    wanted = encodings(0, rfb.EXTENDED_CLIPBOARD)
    assert opened().feed(wanted) == [wanted + NO_UNASKED_TEXT]
    assert opened().feed(CAPS) == [NO_UNASKED_TEXT]


@pytest.mark.parametrize(
    ("clipboard", "passed"),
    [
        (Clipboard(into=True, out=True), [CUT_TEXT, REQUEST, NOTIFY, PROVIDE]),
        (Clipboard(into=True, out=False), [CUT_TEXT, NOTIFY, PROVIDE]),
        (Clipboard(into=False, out=True), [REQUEST]),
        (Clipboard(into=False, out=False), []),
    ],
)
def test_the_clipboard_goes_the_ways_it_may(clipboard: Clipboard, passed: list[bytes]) -> None:
    assert opened(True, clipboard).feed(CUT_TEXT + REQUEST + NOTIFY + PROVIDE) == passed


def test_a_client_that_would_get_the_clipboard_unasked_is_refused_where_none_may_come_out() -> None:
    messages = opened(True, Clipboard(out=False))
    with pytest.raises(Closing, match="extended clipboard"):
        messages.feed(encodings(0, 7))
    assert opened(True, Clipboard(out=False)).feed(encodings(0, rfb.EXTENDED_CLIPBOARD))


def test_no_screen_is_made_larger_than_any_there_is() -> None:
    assert opened().feed(struct.pack(">BxHHBx", 251, 65535, 65535, 0)) == []
    assert opened().feed(struct.pack(">BxHHBx", 251, 0, 600, 0)) == []


def test_what_is_down_is_lifted_when_the_input_is_lost() -> None:
    messages = opened()
    messages.feed(KEY + QEMU_KEY + PRESS)
    assert messages.let_go() == [KEY_UP, struct.pack(">BBHII", 255, 0, 0, ord("a"), 30), POINTER]
    assert messages.let_go() == []
    messages.feed(KEY + KEY_UP + PRESS + POINTER)
    assert messages.let_go() == []


def test_a_thousand_keys_are_not_held_down() -> None:
    messages = opened()
    passed = messages.feed(b"".join(struct.pack(">BBxxI", 4, 1, key) for key in range(1000)))
    assert len(passed) == len(messages.let_go()) == 256


def test_only_moves_give_way_to_later_ones() -> None:
    elsewhere = struct.pack(">BBHH", 5, 0, 11, 21)
    assert merges(POINTER, elsewhere)
    assert merges(PRESS, struct.pack(">BBHH", 5, 1, 11, 21))
    assert not merges(POINTER, PRESS)
    assert not merges(PRESS, POINTER)
    assert not merges(KEY, POINTER)
    assert not merges(UPDATE, UPDATE)


def test_a_large_message_that_comes_in_crumbs_costs_no_more_than_its_bytes() -> None:
    messages = opened()
    text = bytes(rfb.MAX_CLIPBOARD)
    said = struct.pack(">B3xi", 6, len(text)) + text
    crumb = 64
    passed: list[bytes] = []
    for at in range(0, len(said), crumb):
        passed += messages.feed(said[at : at + crumb])
    assert passed == [said]
