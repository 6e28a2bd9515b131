"""Addresses, key names and JSON in replies of models."""

from __future__ import annotations

import pytest

from paddock.inside.tools.browser.browser_agent_tools import find_schema_mismatch
from paddock.inside.tools.browser.chat_model import find_json_object
from paddock.inside.tools.browser.event_ring_buffer import EventRingBuffer, truncate_with_note
from paddock.inside.tools.browser.key_names import playwright_key_combination, playwright_modifiers
from paddock.inside.tools.browser.navigation_tools import add_url_scheme
from paddock.inside.tools.browser.page_screenshots import RecentScreenshots, ScreenshotGeometry
from paddock.inside.tools.tool_result import ToolError


@pytest.mark.parametrize(
    ("address", "completed"),
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
def test_missing_url_scheme_is_added(address: str, completed: str) -> None:
    assert add_url_scheme(address) == completed


@pytest.mark.parametrize("address", ["", "   ", "two words", "javascript:alert(1)", "JavaScript:alert(1)"])
def test_invalid_addresses_are_refused(address: str) -> None:
    with pytest.raises(ToolError):
        add_url_scheme(address)


@pytest.mark.parametrize(
    ("combination", "playwright_keys"),
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
def test_key_aliases_are_translated(combination: str, playwright_keys: str) -> None:
    assert playwright_key_combination(combination) == playwright_keys


@pytest.mark.parametrize(
    ("combination", "hint"),
    [("ctrl+entr", "enter"), ("wörd", "browser_input"), ("a+b", "all keys but the last must be"), ("ctrl+", "no key")],
)
def test_unknown_keys_are_refused_with_a_hint(combination: str, hint: str) -> None:
    with pytest.raises(ToolError, match=hint):
        playwright_key_combination(combination)


def test_only_modifiers_can_be_held() -> None:
    assert playwright_modifiers(["ctrl", "Shift"]) == ["Control", "Shift"]
    with pytest.raises(ToolError, match="not a modifier"):
        playwright_modifiers(["Enter"])


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Of course!\\n```json\\n{"a": {"b": 2}}\\n```', {"a": {"b": 2}}),
        ('{not this} but {"a": 1} and {"c": 2}', {"a": 1}),
        ("nothing here", None),
        ("{" * 5000, None),
    ],
)
def test_json_object_is_found_in_a_reply(reply: str, expected: object) -> None:
    assert find_json_object(reply.replace("\\n", "\n")) == expected


def test_schema_mismatch_is_explained() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert find_schema_mismatch({"n": 1}, schema) == ""
    assert "'n' must be a whole number" in find_schema_mismatch({"n": "one"}, schema)
    assert "must be an object" in find_schema_mismatch([], schema)
    assert find_schema_mismatch({"n": 1}, {"type": "object", "properties": {"n": {"type": "what"}}}) == ""
    assert find_schema_mismatch(3, {}) == ""


def test_event_ring_buffer_drops_the_oldest() -> None:
    ring = EventRingBuffer(3)
    for number in range(5):
        ring.add(text=str(number))
    assert [entry["text"] for entry in ring.entries_since(0)] == ["2", "3", "4"]
    assert [entry["text"] for entry in ring.entries_since(4)] == ["4"] and ring.last_number == 5
    assert truncate_with_note("x" * 10, 4) == "xxxx… [6 more]"


def test_screenshot_points_map_to_the_page() -> None:
    shots = RecentScreenshots()
    name = shots.add(ScreenshotGeometry(100, 200, 0.5, 50, 40))
    assert shots.get(name).page_point(10, 20) == (121, 241)
    with pytest.raises(ToolError, match="outside the screenshot, which is 50x40"):
        shots.get(name).page_point(50, 0)
    for _ in range(40):
        shots.add(ScreenshotGeometry(0, 0, 1, 1, 1))
    with pytest.raises(ToolError, match="take a new one"):
        shots.get(name)
