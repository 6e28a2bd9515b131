from __future__ import annotations

import pytest

from paddock.cli.terminal import Escape


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
