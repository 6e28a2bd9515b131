"""Masks find values in all written forms, however a stream is cut."""

from __future__ import annotations

import base64
import random

import pytest

from paddock.network.vault.secret_masking import SecretMask, StreamMask


def mask_stream(mask: SecretMask, data: bytes, cuts: list[int]) -> bytes:
    stream = StreamMask(mask)
    parts = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    return b"".join([*(stream.feed(part) for part in parts), stream.finish()])


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


def test_only_possible_beginnings_are_held_back() -> None:
    stream = StreamMask(SecretMask(["secret-value"]))
    assert stream.feed(b"data: token\n\n") == b"data: token\n\n"
    assert stream.feed(b"data: sec") == b"data: "
    assert stream.feed(b"ond\n\n") == b"second\n\n"


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
