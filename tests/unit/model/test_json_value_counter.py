"""Values of JSON are counted as they come in, wherever the pieces are cut."""

from __future__ import annotations

import json

import pytest

from paddock.model.json_value_counter import JsonValueCounter

TEXTS = {
    '{"a": 1, "b": [1, 2, {}]}': 6,
    '{"text": "a,b,[c],{d}"}': 1,
    json.dumps({"text": 'she said "x, y" \\ and [left], {then}', "n": [1, 2]}): 4,
    json.dumps(["\\", '\\"', "\\\\,", '","', "\u00e4,"]): 5,
    "[[[[[": 5,
    '"never closed, [': 0,
}


@pytest.mark.parametrize(("text", "values"), TEXTS.items())
def test_value_count_does_not_depend_on_piece_boundaries(text: str, values: int) -> None:
    raw = text.encode()
    assert JsonValueCounter().feed(raw) == values
    for width in (1, 2, 3, 7):
        counter = JsonValueCounter()
        for start in range(0, len(raw), width):
            counter.feed(raw[start : start + width])
        assert counter.values == values, (text, width)
    for cut in range(len(raw)):
        counter = JsonValueCounter()
        counter.feed(raw[:cut])
        counter.feed(b"")
        assert counter.feed(raw[cut:]) == values, (text, cut)
