from __future__ import annotations

import pytest

from paddock.cli.sandbox.terminal_session import (
    NOTICE_SECONDS,
    EscapeSequenceDetector,
    InputHolderNotice,
    strip_terminal_queries,
)


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
    escape = EscapeSequenceDetector()
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
def test_replayed_output_has_no_terminal_queries(question: bytes) -> None:
    assert strip_terminal_queries(b"before" + question + b"after") == b"beforeafter"


def test_replayed_output_is_otherwise_unchanged() -> None:
    shown = (
        b"\x1b[1;31mred\x1b[0m \x1b[2J\x1b[H\x1b[s\x1b[u\x1b[?25l\x1b]0;title\x07\x1b[22;0;0t\x1b[2 q text ? c n\r\n"
    )
    assert strip_terminal_queries(shown) == shown


def test_rejected_input_shows_a_notice_then_rings_the_bell() -> None:
    notice = InputHolderNotice()
    expected = b"\a\r\n[Ann has control; your input is ignored]\r\n"
    assert notice.rejected_input_notice("Ann", 0.0) == expected
    assert notice.rejected_input_notice("Ann", 1.0) == b"\a"
    assert notice.rejected_input_notice("Ann", NOTICE_SECONDS) == expected
    assert b"[Bob has control" in notice.rejected_input_notice("Bob", NOTICE_SECONDS)


def test_control_characters_in_the_notice_are_replaced() -> None:
    assert b"\x1b" not in InputHolderNotice().rejected_input_notice("\x1b[2J", 0.0)


def test_no_notice_is_printed_over_the_alternate_screen() -> None:
    notice = InputHolderNotice()
    notice.observe_output(b"\x1b[?1049h\x1b[2J")
    assert notice.rejected_input_notice("Ann", 0.0) == b"\a"
    notice.observe_output(b"\x1b[?1049l$ ")
    assert b"Ann has control" in notice.rejected_input_notice("Ann", 0.1)
