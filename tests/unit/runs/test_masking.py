"""Secrets in what agents print."""

from __future__ import annotations

import pytest

from paddock.runs.masking import Masker

SECRET = 'hunter2-"x"\n-end'
ESCAPED = b'hunter2-\\"x\\"\\n-end'


def passed(masker: Masker, data: bytes, size: int) -> bytes:
    pieces = [masker.feed("stdout", data[at : at + size]) for at in range(0, len(data), size)]
    return b"".join(pieces) + masker.flush("stdout")


@pytest.mark.parametrize("size", range(1, 40))
def test_a_secret_is_masked_wherever_it_is_cut(size: int) -> None:
    raw = SECRET.encode()
    data = b"hunt " + raw + b" hunter2 " + ESCAPED + raw + b"!hunter"
    masked = b"hunt " + b"*" * len(raw) + b" hunter2 " + b"*" * (len(ESCAPED) + len(raw)) + b"!hunter"
    assert passed(Masker([SECRET]), data, size) == masked


def test_only_the_beginning_of_a_secret_is_held_back() -> None:
    masker = Masker([SECRET, "abcdef"])
    assert masker.feed("stdout", b"plain text ab") == b"plain text "
    assert (masker.held("stdout"), masker.held("stderr")) == (2, 0)
    assert masker.feed("stderr", b"cdef") == b"cdef"
    assert masker.feed("stdout", b"x") == b"abx"
    assert masker.flush("stdout") == b""


def test_texts_are_masked_and_short_secrets_left() -> None:
    masker = Masker(["abcdef", "1", ""])
    assert masker.text("1 abcdef é") == "1 ****** é"
    assert Masker().text("abcdef") == "abcdef" and Masker().feed("stdout", b"abcdef") == b"abcdef"
