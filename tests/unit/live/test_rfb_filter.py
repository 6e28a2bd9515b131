"""The RFB filter: forwarded messages, dropped messages, and protocol errors."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as some

from paddock.live.desktop import rfb_filter
from paddock.live.desktop.rfb_filter import ClipboardPolicy, RfbClientFilter, can_merge_pointer_moves
from paddock.live.desktop.websocket_frames import WebSocketClose

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
CAPS_WITHOUT_UNSOLICITED_TEXT = struct.pack(">B3xiII", 6, -8, 0x1F000001, 0)
VIEW_MESSAGES = [UPDATE, PIXELS, FENCE, CONTINUOUS]
INPUT_MESSAGES = [POINTER, PRESS, KEY, KEY_UP, QEMU_KEY, RESIZE, CUT_TEXT, REQUEST, NOTIFY, PROVIDE]


class FakeLease:
    """A lease. The tests set its state."""

    def __init__(self, held: bool) -> None:
        self.held = held

    def __call__(self) -> bool:
        return self.held


def open_filter(held: bool = True, clipboard: ClipboardPolicy | None = None) -> RfbClientFilter:
    messages = RfbClientFilter(FakeLease(held), clipboard or ClipboardPolicy())
    messages.feed(HANDSHAKE)
    return messages


def encodings(*wanted: int) -> bytes:
    return struct.pack(f">BxH{len(wanted)}i", 2, len(wanted), *wanted)


@pytest.mark.parametrize(
    ("received", "passed"),
    [
        (b"RFB 003.008\n\1\0", [b"RFB 003.008\n", b"\1", b"\1"]),
        (b"RFB 003.007\n\1\1", [b"RFB 003.007\n", b"\1", b"\1"]),
        (b"RFB 003.003\n\0", [b"RFB 003.003\n", b"\1"]),
    ],
)
def test_handshake_always_requests_a_shared_display(received: bytes, passed: list[bytes]) -> None:
    messages = RfbClientFilter(FakeLease(False), ClipboardPolicy())
    assert messages.feed(received) == passed
    assert messages.handshake_done


def test_incomplete_handshake_is_not_done() -> None:
    messages = RfbClientFilter(FakeLease(True), ClipboardPolicy())
    assert messages.feed(b"RFB 003.0") == []
    assert not messages.handshake_done
    assert messages.feed(b"08\n\1") == [b"RFB 003.008\n", b"\1"]
    assert not messages.handshake_done


@pytest.mark.parametrize(
    ("received", "reason"),
    [
        (b"GET / HTTP/1.1\r\n", "this is not RFB"),
        (b"RFB 003.889\n", "this is not RFB"),
        (b"RFB 003.005\n", "3.3, 3.7 and 3.8"),
        (b"RFB 003.008\n\2", "security type"),
        (HANDSHAKE + b"\1", "message 1 is not supported"),
        (HANDSHAKE + b"\xfd", "message 253 is not supported"),
        (HANDSHAKE + b"\xff\1" + bytes(10), "only key events"),
        (HANDSHAKE + struct.pack(">B3xi", 6, 2**30), "clipboard"),
        (HANDSHAKE + struct.pack(">B3xi", 6, -(2**31)), "clipboard"),
        (HANDSHAKE + struct.pack(">B3xi2s", 6, -2, b"ab"), "too short"),
        (HANDSHAKE + struct.pack(">BxH", 2, 2**16 - 1), "encodings"),
        (HANDSHAKE + struct.pack(">B3xIB", 248, 0, 65), "fence"),
        (HANDSHAKE + struct.pack(">BxHHBx", 251, 1, 1, 255), "screens"),
    ],
)
def test_invalid_rfb_closes_the_connection_with_a_reason(received: bytes, reason: str) -> None:
    with pytest.raises(WebSocketClose, match=reason) as closing:
        RfbClientFilter(FakeLease(True), ClipboardPolicy()).feed(received)
    assert closing.value.code in (1002, 1009)
    assert len(closing.value.reason.encode()) <= 123


def test_only_input_of_the_lease_holder_passes() -> None:
    assert open_filter(True).feed(b"".join(VIEW_MESSAGES + INPUT_MESSAGES)) == VIEW_MESSAGES + INPUT_MESSAGES
    assert open_filter(False).feed(b"".join(VIEW_MESSAGES + INPUT_MESSAGES)) == VIEW_MESSAGES


def test_lease_is_checked_for_every_message() -> None:
    lease = FakeLease(True)
    messages = RfbClientFilter(lease, ClipboardPolicy())
    messages.feed(HANDSHAKE)
    assert messages.feed(POINTER) == [POINTER]
    lease.held = False
    assert messages.feed(POINTER) == []


@given(cuts=some.lists(some.integers(0, 200), max_size=20))
def test_result_does_not_depend_on_chunk_boundaries(cuts: list[int]) -> None:
    received = HANDSHAKE + b"".join(VIEW_MESSAGES + INPUT_MESSAGES)
    messages = RfbClientFilter(FakeLease(True), ClipboardPolicy())
    passed: list[bytes] = []
    at = 0
    for cut in sorted(cuts):
        passed += messages.feed(received[at:cut]) if at < cut else []
        at = max(at, cut)
    passed += messages.feed(received[at:])
    assert passed == [b"RFB 003.008\n", b"\1", b"\1", *VIEW_MESSAGES, *INPUT_MESSAGES]


@given(received=some.binary(max_size=300))
def test_only_complete_known_messages_pass(received: bytes) -> None:
    messages = open_filter(False)
    try:
        passed = messages.feed(received)
    except WebSocketClose:
        return
    assert all(message[0] in (0, 2, 3, 6, 150, 248) for message in passed)
    # Of clipboard messages, a viewer without the lease may only disable unsolicited text.
    assert all(message == CAPS_WITHOUT_UNSOLICITED_TEXT for message in passed if message[0] == 6)


def test_unknown_encodings_are_removed() -> None:
    wanted = encodings(7, 16, 0, -239, -308, -312, -313, -258, -316, -305, -309, -259, 0x12345678)
    assert open_filter().feed(wanted) == [encodings(7, 16, 0, -239, -308, -312, -313, -258)]


def test_clipboard_text_is_sent_only_on_request() -> None:
    wanted = encodings(0, rfb_filter.EXTENDED_CLIPBOARD)
    assert open_filter().feed(wanted) == [wanted + CAPS_WITHOUT_UNSOLICITED_TEXT]
    assert open_filter().feed(CAPS) == [CAPS_WITHOUT_UNSOLICITED_TEXT]


@pytest.mark.parametrize(
    ("clipboard", "passed"),
    [
        (ClipboardPolicy(to_sandbox=True, from_sandbox=True), [CUT_TEXT, REQUEST, NOTIFY, PROVIDE]),
        (ClipboardPolicy(to_sandbox=True, from_sandbox=False), [CUT_TEXT, NOTIFY, PROVIDE]),
        (ClipboardPolicy(to_sandbox=False, from_sandbox=True), [REQUEST]),
        (ClipboardPolicy(to_sandbox=False, from_sandbox=False), []),
    ],
)
def test_clipboard_passes_only_in_allowed_directions(clipboard: ClipboardPolicy, passed: list[bytes]) -> None:
    assert open_filter(True, clipboard).feed(CUT_TEXT + REQUEST + NOTIFY + PROVIDE) == passed


def test_client_without_extended_clipboard_is_rejected_if_copying_is_off() -> None:
    messages = open_filter(True, ClipboardPolicy(from_sandbox=False))
    with pytest.raises(WebSocketClose, match="extended clipboard"):
        messages.feed(encodings(0, 7))
    assert open_filter(True, ClipboardPolicy(from_sandbox=False)).feed(encodings(0, rfb_filter.EXTENDED_CLIPBOARD))


def test_screen_size_is_bounded() -> None:
    assert open_filter().feed(struct.pack(">BxHHBx", 251, 65535, 65535, 0)) == []
    assert open_filter().feed(struct.pack(">BxHHBx", 251, 0, 600, 0)) == []


def test_pressed_keys_are_released_when_the_input_is_lost() -> None:
    messages = open_filter()
    messages.feed(KEY + QEMU_KEY + PRESS)
    assert messages.release_pressed() == [KEY_UP, struct.pack(">BBHII", 255, 0, 0, ord("a"), 30), POINTER]
    assert messages.release_pressed() == []
    messages.feed(KEY + KEY_UP + PRESS + POINTER)
    assert messages.release_pressed() == []


def test_number_of_pressed_keys_is_bounded() -> None:
    messages = open_filter()
    passed = messages.feed(b"".join(struct.pack(">BBxxI", 4, 1, key) for key in range(1000)))
    assert len(passed) == len(messages.release_pressed()) == 256


def test_only_pointer_moves_are_merged() -> None:
    elsewhere = struct.pack(">BBHH", 5, 0, 11, 21)
    assert can_merge_pointer_moves(POINTER, elsewhere)
    assert can_merge_pointer_moves(PRESS, struct.pack(">BBHH", 5, 1, 11, 21))
    assert not can_merge_pointer_moves(POINTER, PRESS)
    assert not can_merge_pointer_moves(PRESS, POINTER)
    assert not can_merge_pointer_moves(KEY, POINTER)
    assert not can_merge_pointer_moves(UPDATE, UPDATE)


def test_large_message_in_small_chunks_is_parsed_in_linear_time() -> None:
    messages = open_filter()
    text = bytes(rfb_filter.MAX_CLIPBOARD)
    received = struct.pack(">B3xi", 6, len(text)) + text
    chunk_size = 64
    passed: list[bytes] = []
    for at in range(0, len(received), chunk_size):
        passed += messages.feed(received[at : at + chunk_size])
    assert passed == [received]
