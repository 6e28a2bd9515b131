"""Takeover activity: counts of input, never the text."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

from paddock.live.desktop.rfb_filter import ClipboardPolicy, RfbClientFilter
from paddock.live.takeover_activity import Takeover, TakeoverTracker
from paddock.model.screens import InputHolder

SANDBOX, ADA = "sb-1", "ada"


class TakeoverHarness:
    """A sandbox whose input Ada holds, with the path of her messages to the display."""

    def __init__(self, viewer: str = ADA) -> None:
        self.deeds = TakeoverTracker()
        self.deeds.begin_takeover(SANDBOX, InputHolder(viewer=ADA, name="Ada", since=datetime.now(UTC)))
        self.messages = RfbClientFilter(
            lambda: viewer == ADA,
            ClipboardPolicy(),
            lambda message: self.deeds.record_rfb_message(SANDBOX, viewer, message),
        )
        self.messages.feed(b"RFB 003.008\n\x01\x01")

    def press(self, *symbols: int) -> None:
        for symbol in symbols:
            self.messages.feed(struct.pack(">BBxxI", 4, 1, symbol) + struct.pack(">BBxxI", 4, 0, symbol))

    def point(self, *buttons: int) -> None:
        for mask in buttons:
            self.messages.feed(struct.pack(">BBHH", 5, mask, 10, 10))

    def end(self) -> Takeover:
        self.deeds.end_takeover(SANDBOX, "released")
        (stint,) = self.deeds.finished_takeovers(SANDBOX)
        return stint


def test_clicks_are_counted_when_a_button_goes_down_and_not_while_it_is_held() -> None:
    desk = TakeoverHarness()
    desk.point(0, 1, 1, 1, 0, 4, 0)
    assert desk.end().clicks == 2


def test_turns_of_the_wheel_are_no_clicks() -> None:
    desk = TakeoverHarness()
    desk.point(8, 0, 8, 0, 16, 0)
    stint = desk.end()
    assert (stint.scrolls, stint.clicks) == (3, 0)


def test_typed_text_is_counted_but_not_stored() -> None:
    desk = TakeoverHarness()
    desk.press(*map(ord, "hunter2"), 0xFF0D, 0xFFE1, 0xFFBE, 0x01000416)
    stint = desk.end()
    assert stint.characters == 8
    assert stint.keys == {"Enter": 1, "F1": 1}
    assert "hunter2" not in repr(stint) and "hunter2" not in stint.describe()
    assert "8 characters typed" in stint.describe() and "Enter (1)" in stint.describe()


def test_keys_as_qemu_sends_them_count_too() -> None:
    desk = TakeoverHarness()
    desk.messages.feed(struct.pack(">BBHII", 255, 0, 1, ord("a"), 30) + struct.pack(">BBHII", 255, 0, 0, ord("a"), 30))
    assert desk.end().characters == 1


def test_clipboard_text_is_counted_but_requests_are_not() -> None:
    desk = TakeoverHarness()
    desk.messages.feed(struct.pack(">BxxxI", 6, 5) + b"paste")
    desk.messages.feed(struct.pack(">BxxxiI", 6, -4, 1 << 25))
    assert desk.end().pastes == 1


def test_input_of_other_viewers_is_not_counted() -> None:
    desk = TakeoverHarness(viewer="eve")
    desk.point(1, 0)
    desk.press(ord("x"))
    desk.deeds.record_terminal_input(SANDBOX, "eve", "main", b"rm -rf /\r")
    stint = desk.end()
    assert not stint.has_activity
    assert stint.describe() == "nothing was clicked or typed"


def test_typing_in_a_terminal_counts_characters_and_lines_but_no_cursor_keys() -> None:
    desk = TakeoverHarness()
    desk.deeds.record_terminal_input(SANDBOX, ADA, "main", b"ls\x1b[A\x1bOB\x1b[1;5C\r")
    desk.deeds.record_terminal_input(SANDBOX, ADA, "main", "größe\r".encode())
    stint = desk.end()
    assert stint.characters == 7
    assert stint.terminals == {"main": 2}
    assert "terminal main (2 lines)" in stint.describe()


def test_each_takeover_is_reported_once() -> None:
    deeds = TakeoverTracker()
    for name in ("Ada", "Bob"):
        deeds.begin_takeover(SANDBOX, InputHolder(viewer=name, name=name, since=datetime.now(UTC)))
        deeds.end_takeover(SANDBOX, "released")
    first, second = deeds.finished_takeovers(SANDBOX)
    assert (first.name, second.name) == ("Ada", "Bob")
    deeds.forget_takeovers(SANDBOX, [first])
    assert deeds.finished_takeovers(SANDBOX) == (second,)
    deeds.forget_takeovers(SANDBOX, [second])
    assert deeds.finished_takeovers(SANDBOX) == ()


def test_unreported_takeovers_are_bounded() -> None:
    deeds = TakeoverTracker()
    for _ in range(1000):
        deeds.begin_takeover(SANDBOX, InputHolder(viewer=ADA, name="Ada", since=datetime.now(UTC)))
        deeds.end_takeover(SANDBOX, "released")
    assert len(deeds.finished_takeovers(SANDBOX)) == 20
