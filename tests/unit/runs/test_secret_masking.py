"""Masking of secrets in agent output."""

from __future__ import annotations

import pytest

from paddock.runs.output.secret_masking import SecretMasker

SECRET = 'hunter2-"x"\n-end'
ESCAPED = b'hunter2-\\"x\\"\\n-end'


def passed(masker: SecretMasker, data: bytes, size: int) -> bytes:
    pieces = [masker.feed("stdout", data[at : at + size]) for at in range(0, len(data), size)]
    return b"".join(pieces) + masker.flush("stdout")


@pytest.mark.parametrize("size", range(1, 40))
def test_split_secrets_are_masked(size: int) -> None:
    raw = SECRET.encode()
    data = b"hunt " + raw + b" hunter2 " + ESCAPED + raw + b"!hunter"
    masked = b"hunt " + b"*" * len(raw) + b" hunter2 " + b"*" * (len(ESCAPED) + len(raw)) + b"!hunter"
    assert passed(SecretMasker([SECRET]), data, size) == masked


def test_only_a_possible_secret_start_is_held_back() -> None:
    masker = SecretMasker([SECRET, "abcdef"])
    assert masker.feed("stdout", b"plain text ab") == b"plain text "
    assert (masker.held_back_bytes("stdout"), masker.held_back_bytes("stderr")) == (2, 0)
    assert masker.feed("stderr", b"cdef") == b"cdef"
    assert masker.feed("stdout", b"x") == b"abx"
    assert masker.flush("stdout") == b""


def test_texts_are_masked_except_short_secrets() -> None:
    masker = SecretMasker(["abcdef", "1", ""])
    assert masker.mask_text("1 abcdef é") == "1 ****** é"
    assert SecretMasker().mask_text("abcdef") == "abcdef" and SecretMasker().feed("stdout", b"abcdef") == b"abcdef"
