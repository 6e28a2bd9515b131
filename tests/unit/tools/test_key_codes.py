"""Combinations of keys as people write them."""

from __future__ import annotations

import pytest

from paddock.inside.tools.desktop.key_codes import split_key_combination
from paddock.inside.tools.tool_result import ToolError


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("ctrl+shift+t", ["ctrl", "shift", "t"]),
        ("ctrl++", ["ctrl", "plus"]),
        ("+", ["plus"]),
        ("ctrl + c", ["ctrl", "c"]),
        ("ctrl+shift++", ["ctrl", "shift", "plus"]),
    ],
)
def test_combinations_are_split(text: str, names: list[str]) -> None:
    assert split_key_combination(text) == names


@pytest.mark.parametrize("text", ["ctrl+", "+c", "ctrl++c", "a+ +b"])
def test_combinations_with_gaps_are_refused(text: str) -> None:
    with pytest.raises(ToolError, match=r"write it like ctrl\+shift\+t"):
        split_key_combination(text)
