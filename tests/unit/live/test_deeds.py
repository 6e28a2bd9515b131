"""What is noted of persons who have mouse and keyboard: how much of what, never the text."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

from paddock.live.deeds import Deeds, Stint
from paddock.live.rfb import ClientMessages, Clipboard
from paddock.model.screens import Holder

BOX, ADA = "sb-1", "ada"


class Desk:
    """One sandbox whose input Ada has, with her messages on their way to the display."""

    def __init__(self, viewer: str = ADA) -> None:
        self.deeds = Deeds()
        self.deeds.began(BOX, Holder(viewer=ADA, name="Ada", since=datetime.now(UTC)))
        self.messages = ClientMessages(
            lambda: viewer == ADA, Clipboard(), lambda message: self.deeds.passed(BOX, viewer, message)
        )
        self.messages.feed(b"RFB 003.008\n\x01\x01")

    def press(self, *symbols: int) -> None:
        for symbol in symbols:
            self.messages.feed(struct.pack(">BBxxI", 4, 1, symbol) + struct.pack(">BBxxI", 4, 0, symbol))

    def point(self, *buttons: int) -> None:
        for mask in buttons:
            self.messages.feed(struct.pack(">BBHH", 5, mask, 10, 10))

    def end(self) -> Stint:
        self.deeds.ended(BOX, "released")
        (stint,) = self.deeds.finished(BOX)
        return stint


def test_clicks_are_counted_when_a_button_goes_down_and_not_while_it_is_held() -> None:
    desk = Desk()
    desk.point(0, 1, 1, 1, 0, 4, 0)
    assert desk.end().clicks == 2


def test_turns_of_the_wheel_are_no_clicks() -> None:
    desk = Desk()
    desk.point(8, 0, 8, 0, 16, 0)
    stint = desk.end()
    assert (stint.scrolls, stint.clicks) == (3, 0)


def test_what_is_typed_is_counted_and_never_kept() -> None:
    desk = Desk()
    desk.press(*map(ord, "hunter2"), 0xFF0D, 0xFFE1, 0xFFBE, 0x01000416)
    stint = desk.end()
    assert stint.characters == 8
    assert stint.keys == {"Enter": 1, "F1": 1}
    assert "hunter2" not in repr(stint) and "hunter2" not in stint.words()
    assert "8 characters typed" in stint.words() and "Enter (1)" in stint.words()


def test_keys_as_qemu_sends_them_count_too() -> None:
    desk = Desk()
    desk.messages.feed(struct.pack(">BBHII", 255, 0, 1, ord("a"), 30) + struct.pack(">BBHII", 255, 0, 0, ord("a"), 30))
    assert desk.end().characters == 1


def test_text_put_into_the_clipboard_is_noted_and_questions_about_it_are_not() -> None:
    desk = Desk()
    desk.messages.feed(struct.pack(">BxxxI", 6, 5) + b"paste")
    desk.messages.feed(struct.pack(">BxxxiI", 6, -4, 1 << 25))
    assert desk.end().pastes == 1


def test_a_viewer_who_does_not_have_the_input_does_nothing() -> None:
    desk = Desk(viewer="eve")
    desk.point(1, 0)
    desk.press(ord("x"))
    desk.deeds.typed(BOX, "eve", "main", b"rm -rf /\r")
    stint = desk.end()
    assert not stint.touched
    assert stint.words() == "nothing was clicked or typed"


def test_typing_in_a_terminal_counts_characters_and_lines_but_no_cursor_keys() -> None:
    desk = Desk()
    desk.deeds.typed(BOX, ADA, "main", b"ls\x1b[A\x1bOB\x1b[1;5C\r")
    desk.deeds.typed(BOX, ADA, "main", "größe\r".encode())
    stint = desk.end()
    assert stint.characters == 7
    assert stint.terminals == {"main": 2}
    assert "terminal main (2 lines)" in stint.words()


def test_each_stint_is_told_of_once() -> None:
    deeds = Deeds()
    for name in ("Ada", "Bob"):
        deeds.began(BOX, Holder(viewer=name, name=name, since=datetime.now(UTC)))
        deeds.ended(BOX, "released")
    first, second = deeds.finished(BOX)
    assert (first.name, second.name) == ("Ada", "Bob")
    deeds.forget(BOX, [first])
    assert deeds.finished(BOX) == (second,)
    deeds.forget(BOX, [second])
    assert deeds.finished(BOX) == ()


def test_what_nobody_asks_about_does_not_pile_up() -> None:
    deeds = Deeds()
    for _ in range(1000):
        deeds.began(BOX, Holder(viewer=ADA, name="Ada", since=datetime.now(UTC)))
        deeds.ended(BOX, "released")
    assert len(deeds.finished(BOX)) == 20
