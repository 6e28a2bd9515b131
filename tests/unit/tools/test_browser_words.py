"""Addresses, keys and answers of models, as people and models write them."""

from __future__ import annotations

import pytest

from paddock.inside.tools.browser.agent import misfit
from paddock.inside.tools.browser.journal import Ring, cut
from paddock.inside.tools.browser.keys import combination, modifiers
from paddock.inside.tools.browser.model import parse_object
from paddock.inside.tools.browser.navigation import address_of
from paddock.inside.tools.browser.pictures import Shot, Shots
from paddock.inside.tools.results import ToolError


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("example.org", "https://example.org"),
        ("https://example.org/a b", "https://example.org/a b"),
        ("localhost:8000/x", "http://localhost:8000/x"),
        ("127.0.0.1:9", "http://127.0.0.1:9"),
        ("server:8080", "http://server:8080"),
        (" about:blank ", "about:blank"),
        ("file:///etc/hosts", "file:///etc/hosts"),
        ("/workspace/shop.html", "file:///workspace/shop.html"),
        ("/workspace/my shop.html#top", "file:///workspace/my%20shop.html#top"),
        ("data:text/html,<b>", "data:text/html,<b>"),
    ],
)
def test_addresses_are_made_whole(said: str, meant: str) -> None:
    assert address_of(said) == meant


@pytest.mark.parametrize("said", ["", "   ", "two words", "javascript:alert(1)", "JavaScript:alert(1)"])
def test_what_is_no_address_is_refused(said: str) -> None:
    with pytest.raises(ToolError):
        address_of(said)


@pytest.mark.parametrize(
    ("said", "pressed"),
    [
        ("enter", "Enter"),
        ("ctrl+A", "Control+a"),
        ("Ctrl+Shift+T", "Control+Shift+T"),
        ("alt+left", "Alt+ArrowLeft"),
        ("f5", "F5"),
        ("+", "+"),
        ("ctrl++", "Control++"),
        ("a", "a"),
        ("esc", "Escape"),
    ],
)
def test_keys_have_many_names(said: str, pressed: str) -> None:
    assert combination(said) == pressed


@pytest.mark.parametrize(
    ("said", "hint"),
    [("ctrl+entr", "enter"), ("wörd", "browser_input"), ("a+b", "only the last key"), ("ctrl+", "no key")],
)
def test_unknown_keys_are_refused_with_a_hint(said: str, hint: str) -> None:
    with pytest.raises(ToolError, match=hint):
        combination(said)


def test_only_modifiers_are_held() -> None:
    assert modifiers(["ctrl", "Shift"]) == ["Control", "Shift"]
    with pytest.raises(ToolError, match="no modifier"):
        modifiers(["Enter"])


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Of course!\\n```json\\n{"a": {"b": 2}}\\n```', {"a": {"b": 2}}),
        ('{not this} but {"a": 1} and {"c": 2}', {"a": 1}),
        ("nothing here", None),
        ("{" * 5000, None),
    ],
)
def test_finds_the_object_in_what_a_model_says(said: str, found: object) -> None:
    assert parse_object(said.replace("\\n", "\n")) == found


def test_says_why_data_do_not_fit() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert misfit({"n": 1}, schema) == ""
    assert "'n' must be a whole number" in misfit({"n": "one"}, schema)
    assert "must be an object" in misfit([], schema)
    assert misfit({"n": 1}, {"type": "object", "properties": {"n": {"type": "what"}}}) == ""
    assert misfit(3, {}) == ""


def test_rings_forget_the_oldest() -> None:
    ring = Ring(3)
    for number in range(5):
        ring.add(text=str(number))
    assert [entry["text"] for entry in ring.since(0)] == ["2", "3", "4"]
    assert [entry["text"] for entry in ring.since(4)] == ["4"] and ring.last == 5
    assert cut("x" * 10, 4) == "xxxx… [6 more]"


def test_points_of_pictures_lead_back_to_the_page() -> None:
    shots = Shots()
    name = shots.add(Shot(100, 200, 0.5, 50, 40))
    assert shots.get(name).point(10, 20) == (121, 241)
    with pytest.raises(ToolError, match="outside the picture, which is 50x40"):
        shots.get(name).point(50, 0)
    for _ in range(40):
        shots.add(Shot(0, 0, 1, 1, 1))
    with pytest.raises(ToolError, match="take a new one"):
        shots.get(name)
