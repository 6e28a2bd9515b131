from __future__ import annotations

import pytest

from paddock.cli.terminal import NOTICE_SECONDS, Escape, Notice, without_questions


@pytest.mark.parametrize(
    ("typed", "passed", "left"),
    [
        ([b"ls\r"], b"ls\r", False),
        ([b"~."], b"", True),
        ([b"~", b"."], b"", True),
        ([b"ls\r~.rest"], b"ls\r", True),
        ([b"~~/x\r"], b"~/x\r", False),
        ([b"cd ~.\r"], b"cd ~.\r", False),
        ([b"~x\r~."], b"~x\r", True),
        ([b"abc\x03~."], b"abc\x03", True),
        (["日本~.".encode()], "日本~.".encode(), False),
    ],
)
def test_the_escape_counts_only_at_the_start_of_a_line(typed: list[bytes], passed: bytes, left: bool) -> None:
    escape = Escape()
    collected, gone = b"", False
    for piece in typed:
        more, gone = escape.feed(piece)
        collected += more
    assert (collected, gone) == (passed, left)


@pytest.mark.parametrize(
    "question",
    [
        b"\x1b[c",
        b"\x1b[>c",
        b"\x1b[6n",
        b"\x1b[?6n",
        b"\x1b[?u",
        b"\x1b[?2026$p",
        b"\x1b[>0q",
        b"\x1b[18t",
        b"\x1b]11;?\x07",
        b"\x1b]4;1;?\x1b\\",
        b"\x1bP+q436f\x1b\\",
        b"\x1bP$qm\x1b\\",
    ],
)
def test_what_is_shown_again_asks_the_terminal_nothing(question: bytes) -> None:
    assert without_questions(b"before" + question + b"after") == b"beforeafter"


def test_what_is_shown_again_is_otherwise_the_same() -> None:
    shown = (
        b"\x1b[1;31mred\x1b[0m \x1b[2J\x1b[H\x1b[s\x1b[u\x1b[?25l\x1b]0;title\x07\x1b[22;0;0t\x1b[2 q text ? c n\r\n"
    )
    assert without_questions(shown) == shown


def test_who_types_in_vain_is_told_why_and_then_reminded() -> None:
    notice = Notice()
    told = b"\a\r\n[Ann has control; what you type goes nowhere]\r\n"
    assert notice.typed("Ann", 0.0) == told
    assert notice.typed("Ann", 1.0) == b"\a"
    assert notice.typed("Ann", NOTICE_SECONDS) == told
    assert b"[Bob has control" in notice.typed("Bob", NOTICE_SECONDS)


def test_a_name_in_the_notice_cannot_steer_the_terminal() -> None:
    assert b"\x1b" not in Notice().typed("\x1b[2J", 0.0)


def test_a_program_that_has_the_whole_screen_is_not_written_over() -> None:
    notice = Notice()
    notice.shown(b"\x1b[?1049h\x1b[2J")
    assert notice.typed("Ann", 0.0) == b"\a"
    notice.shown(b"\x1b[?1049l$ ")
    assert b"Ann has control" in notice.typed("Ann", 0.1)
