"""Masks find values in all written forms, however a stream is cut."""

from __future__ import annotations

import base64
import random

import pytest

from paddock.network.vault.secret_masking import SecretMask, StreamMask


def mask_stream(mask: SecretMask, data: bytes, cuts: list[int]) -> bytes:
    stream = StreamMask(mask)
    parts = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    return b"".join([*(stream.feed(part) for part in parts), stream.release()])


@pytest.mark.parametrize("seed", range(20))
def test_no_cut_reveals_a_value(seed: int) -> None:
    choose = random.Random(seed)
    values = ["abcabcab", "abcabcabcabd", "bcabcabx", "aaaaaaaa"]
    data = b"".join(choose.choice([*(value.encode() for value in values), b"abc", b"a", b"xyz"]) for _ in range(60))
    mask = SecretMask(values)
    for _ in range(20):
        cuts = sorted(choose.sample(range(len(data)), choose.randrange(1, 30)))
        masked = mask_stream(mask, data, cuts)
        assert len(masked) == len(data)
        assert not any(value.encode() in masked for value in values)


def test_every_single_cut_gives_the_same_result() -> None:
    mask = SecretMask(["secret-value", "secret-value-longer"])
    data = b"x secret-value-longer y secret-value z secret-valu"
    expected = b"x ******************* y ************ z secret-valu"
    assert mask.mask(data) == expected
    for cut in range(len(data)):
        assert mask_stream(mask, data, [cut]) == expected
    assert mask_stream(mask, data, list(range(1, len(data)))) == expected


def test_what_is_held_back_does_not_depend_on_the_text() -> None:
    """Otherwise a program could guess a value letter by letter in text that a server echoes."""
    lengths = set()
    for text in (b"data: secret-valu", b"data: xxxxxxxxxxx", b"data: xxxxxxxxxxs"):
        stream = StreamMask(SecretMask(["secret-value"]))
        lengths.add((len(stream.feed(text)), len(stream.release()), stream.is_holding))
    assert lengths == {(6, 11, False)}


def test_rest_of_a_value_is_masked_after_a_pause() -> None:
    stream = StreamMask(SecretMask(["secret-value"]))
    assert stream.feed(b"x secr") + stream.release() == b"x secr"
    assert stream.feed(b"et-value y") + stream.release() == b"******** y"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("pass/word+1 2", "pass%2Fword%2B1%202"),
        ("pass/word+1 2", "pass%2Fword%2B1+2"),
        ('quo"te\\back', 'quo\\"te\\\\back'),
        ("slash/es/es", "slash\\/es\\/es"),
        ("a<b>&c-long", "a&lt;b&gt;&amp;c-long"),
        (base64.b64encode(b"alice:correct-horse").decode(), "alice:correct-horse"),
        (base64.b64encode(b"alice:correct-horse").decode(), "correct-horse"),
    ],
)
def test_escaped_and_decoded_values_are_masked(value: str, written: str) -> None:
    mask = SecretMask([value])
    for text in (value, written):
        assert mask.mask(f"<{text}>".encode()) == b"<" + b"*" * len(text) + b">"
