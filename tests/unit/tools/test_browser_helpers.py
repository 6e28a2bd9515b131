"""Addresses, keys and answers of models, as people and models write them."""

from __future__ import annotations

import pytest

from paddock.inside.tools.browser.agent_tools import schema_mismatch
from paddock.inside.tools.browser.chat_model import parse_json_object
from paddock.inside.tools.browser.event_ring import EventRing, cut_text
from paddock.inside.tools.browser.key_names import playwright_combination, playwright_modifiers
from paddock.inside.tools.browser.navigation_tools import complete_address
from paddock.inside.tools.browser.page_pictures import PageShot, PageShots
from paddock.inside.tools.tool_result import ToolError


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
def test_addresses_are_completed(said: str, meant: str) -> None:
    assert complete_address(said) == meant


@pytest.mark.parametrize("said", ["", "   ", "two words", "javascript:alert(1)", "JavaScript:alert(1)"])
def test_invalid_addresses_are_refused(said: str) -> None:
    with pytest.raises(ToolError):
        complete_address(said)


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
    assert playwright_combination(said) == pressed


@pytest.mark.parametrize(
    ("said", "hint"),
    [("ctrl+entr", "enter"), ("wörd", "browser_input"), ("a+b", "all keys but the last must be"), ("ctrl+", "no key")],
)
def test_unknown_keys_are_refused_with_a_hint(said: str, hint: str) -> None:
    with pytest.raises(ToolError, match=hint):
        playwright_combination(said)


def test_only_modifiers_can_be_held() -> None:
    assert playwright_modifiers(["ctrl", "Shift"]) == ["Control", "Shift"]
    with pytest.raises(ToolError, match="not a modifier"):
        playwright_modifiers(["Enter"])


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
def test_json_object_is_found_in_a_reply(said: str, found: object) -> None:
    assert parse_json_object(said.replace("\\n", "\n")) == found


def test_schema_mismatch_is_explained() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert schema_mismatch({"n": 1}, schema) == ""
    assert "'n' must be a whole number" in schema_mismatch({"n": "one"}, schema)
    assert "must be an object" in schema_mismatch([], schema)
    assert schema_mismatch({"n": 1}, {"type": "object", "properties": {"n": {"type": "what"}}}) == ""
    assert schema_mismatch(3, {}) == ""


def test_event_ring_drops_the_oldest() -> None:
    ring = EventRing(3)
    for number in range(5):
        ring.add(text=str(number))
    assert [entry["text"] for entry in ring.entries_since(0)] == ["2", "3", "4"]
    assert [entry["text"] for entry in ring.entries_since(4)] == ["4"] and ring.last_number == 5
    assert cut_text("x" * 10, 4) == "xxxx… [6 more]"


def test_screenshot_points_map_to_the_page() -> None:
    shots = PageShots()
    name = shots.add(PageShot(100, 200, 0.5, 50, 40))
    assert shots.get(name).page_point(10, 20) == (121, 241)
    with pytest.raises(ToolError, match="outside the screenshot, which is 50x40"):
        shots.get(name).page_point(50, 0)
    for _ in range(40):
        shots.add(PageShot(0, 0, 1, 1, 1))
    with pytest.raises(ToolError, match="take a new one"):
        shots.get(name)
