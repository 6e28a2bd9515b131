"""Takeover activity: counts of input, never the text."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

from paddock.live.desktop.rfb_filter import ClipboardPolicy, RfbClientFilter
from paddock.live.takeover_activity import Takeover, TakeoverTracker
from paddock.model.screens import InputControlHolder

SANDBOX, ADA = "sb-1", "ada"


class TakeoverHarness:
    """A sandbox with its input held by Ada, and the path of her messages to the display."""

    def __init__(self, viewer: str = ADA) -> None:
        self.tracker = TakeoverTracker()
        self.tracker.begin_takeover(SANDBOX, InputControlHolder(viewer=ADA, name="Ada", since=datetime.now(UTC)))
        self.messages = RfbClientFilter(
            lambda: viewer == ADA,
            ClipboardPolicy(),
            lambda message: self.tracker.record_rfb_message(SANDBOX, viewer, message),
        )
        self.messages.feed(b"RFB 003.008\n\x01\x01")

    def press(self, *symbols: int) -> None:
        for symbol in symbols:
            self.messages.feed(struct.pack(">BBxxI", 4, 1, symbol) + struct.pack(">BBxxI", 4, 0, symbol))

    def point(self, *buttons: int) -> None:
        for mask in buttons:
            self.messages.feed(struct.pack(">BBHH", 5, mask, 10, 10))

    def end(self) -> Takeover:
        self.tracker.end_takeover(SANDBOX, "released")
        (takeover,) = self.tracker.finished_takeovers(SANDBOX)
        return takeover


def test_held_button_counts_as_one_click() -> None:
    harness = TakeoverHarness()
    harness.point(0, 1, 1, 1, 0, 4, 0)
    assert harness.end().clicks == 2


def test_wheel_turns_are_not_counted_as_clicks() -> None:
    harness = TakeoverHarness()
    harness.point(8, 0, 8, 0, 16, 0)
    takeover = harness.end()
    assert (takeover.scrolls, takeover.clicks) == (3, 0)


def test_typed_text_is_counted_but_not_stored() -> None:
    harness = TakeoverHarness()
    harness.press(*map(ord, "hunter2"), 0xFF0D, 0xFFE1, 0xFFBE, 0x01000416)
    takeover = harness.end()
    assert takeover.characters == 8
    assert takeover.keys == {"Enter": 1, "F1": 1}
    assert "hunter2" not in repr(takeover) and "hunter2" not in takeover.describe()
    assert "8 characters typed" in takeover.describe() and "Enter (1)" in takeover.describe()


def test_qemu_key_messages_are_counted() -> None:
    harness = TakeoverHarness()
    harness.messages.feed(
        struct.pack(">BBHII", 255, 0, 1, ord("a"), 30) + struct.pack(">BBHII", 255, 0, 0, ord("a"), 30)
    )
    assert harness.end().characters == 1


def test_clipboard_text_is_counted_but_requests_are_not() -> None:
    harness = TakeoverHarness()
    harness.messages.feed(struct.pack(">BxxxI", 6, 5) + b"paste")
    harness.messages.feed(struct.pack(">BxxxiI", 6, -4, 1 << 25))
    assert harness.end().pastes == 1


def test_input_of_other_viewers_is_not_counted() -> None:
    harness = TakeoverHarness(viewer="eve")
    harness.point(1, 0)
    harness.press(ord("x"))
    harness.tracker.record_terminal_input(SANDBOX, "eve", "main", b"rm -rf /\r")
    takeover = harness.end()
    assert not takeover.has_activity
    assert takeover.describe() == "nothing was clicked or typed"


def test_terminal_input_counts_characters_and_lines_not_cursor_keys() -> None:
    harness = TakeoverHarness()
    harness.tracker.record_terminal_input(SANDBOX, ADA, "main", b"ls\x1b[A\x1bOB\x1b[1;5C\r")
    harness.tracker.record_terminal_input(SANDBOX, ADA, "main", "größe\r".encode())
    takeover = harness.end()
    assert takeover.characters == 7
    assert takeover.terminals == {"main": 2}
    assert "terminal main (2 lines)" in takeover.describe()


def test_each_takeover_is_reported_once() -> None:
    tracker = TakeoverTracker()
    for name in ("Ada", "Bob"):
        tracker.begin_takeover(SANDBOX, InputControlHolder(viewer=name, name=name, since=datetime.now(UTC)))
        tracker.end_takeover(SANDBOX, "released")
    first, second = tracker.finished_takeovers(SANDBOX)
    assert (first.name, second.name) == ("Ada", "Bob")
    tracker.forget_takeovers(SANDBOX, [first])
    assert tracker.finished_takeovers(SANDBOX) == (second,)
    tracker.forget_takeovers(SANDBOX, [second])
    assert tracker.finished_takeovers(SANDBOX) == ()


def test_unreported_takeovers_are_bounded() -> None:
    tracker = TakeoverTracker()
    for _ in range(1000):
        tracker.begin_takeover(SANDBOX, InputControlHolder(viewer=ADA, name="Ada", since=datetime.now(UTC)))
        tracker.end_takeover(SANDBOX, "released")
    assert len(tracker.finished_takeovers(SANDBOX)) == 20
