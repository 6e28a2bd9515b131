"""Finds the element that a call means: by a snapshot's ref, a selector, its text, or a point."""

from __future__ import annotations

import re

from ..results import ToolError
from .pictures import viewport_point

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from .session import Session, Tab

ROLES = ("button", "link", "tab", "menuitem", "option", "checkbox", "radio", "textbox", "combobox")
MAX_FRAMES = 20
NAP = 0.1

ELEMENT: dict[str, dict[str, Any]] = {
    "ref": {"type": "string", "maxLength": 40, "description": "the element's ref in the latest browser_snapshot"},
    "selector": {"type": "string", "maxLength": 2000, "description": "a CSS selector, or xpath=…"},
    "text": {"type": "string", "maxLength": 1000, "description": "the visible text, label or placeholder"},
}
POINT: dict[str, dict[str, Any]] = {
    "x": {"type": "number", "description": "pixels from the left of the visible page, or of the picture `shot`"},
    "y": {"type": "number", "description": "pixels from the top of the same"},
    "shot": {"type": "string", "maxLength": 40, "description": "the picture that x and y are in", "default": ""},
}


def renamed(properties: Mapping[str, Mapping[str, Any]], prefix: str) -> dict[str, dict[str, Any]]:
    return {prefix + name: dict(rule) for name, rule in properties.items()}


class Target:
    """An element, or a point on the visible page."""

    def __init__(self, locator: Any, point: tuple[float, float] | None, name: str) -> None:
        self.locator = locator
        self.point = point
        self.name = name

    async def place(self, seconds: float) -> tuple[float, float]:
        """The middle of it, scrolled into sight."""
        if self.point is not None:
            return self.point
        await self.locator.scroll_into_view_if_needed(timeout=seconds * 1000)
        box = await self.locator.bounding_box(timeout=seconds * 1000)
        if box is None:
            raise ToolError(f"{self.name} is not visible")
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


async def find(session: Session, tab: Tab, wanted: Mapping[str, Any], seconds: float, prefix: str = "") -> Target:
    """Find what exactly one of ref, selector, text and x with y says."""
    said = {name: wanted.get(prefix + name) for name in ("ref", "selector", "text", "x", "y")}
    ways = [name for name in ("ref", "selector", "text") if said[name]]
    if said["x"] is not None or said["y"] is not None:
        ways.append("x")
    if len(ways) != 1:
        names = f"{prefix}ref, {prefix}selector, {prefix}text, or {prefix}x with {prefix}y"
        raise ToolError(f"say which element: give one of {names}" + ("" if not ways else ", not several"))
    page = tab.page
    if ways[0] == "x":
        if said["x"] is None or said["y"] is None:
            raise ToolError(f"a point needs both {prefix}x and {prefix}y")
        x, y = await viewport_point(page, session.shots, said["x"], said["y"], wanted.get(prefix + "shot") or "")
        return Target(None, (x, y), f"the point ({said['x']:g}, {said['y']:g})")
    if ways[0] == "ref":
        return await _by_ref(page, str(said["ref"]))
    if ways[0] == "selector":
        locator = await _by_selector(page, str(said["selector"]), seconds)
        return Target(locator, None, str(said["selector"])[:100])
    locator = await _by_text(page, str(said["text"]), seconds)
    return Target(locator, None, f'"{str(said["text"])[:100]}"')


async def _by_ref(page: Any, ref: str) -> Target:
    if not re.fullmatch(r"[a-z0-9]+", ref):
        raise ToolError(f"{ref!r} is no ref; browser_snapshot shows them as [ref=e12]")
    locator = page.locator(f"aria-ref={ref}")
    try:
        found = await locator.count()
    except Exception:
        found = 0  # Playwright calls a ref of no snapshot a mistake.
    if not found:
        raise ToolError(f"there is no element {ref}, or no longer; take a new browser_snapshot and use its refs")
    return Target(locator, None, ref)


async def _by_selector(page: Any, selector: str, seconds: float) -> Any:
    locator = await _first_visible([frame.locator(selector) for frame in page.frames[:MAX_FRAMES]], seconds)
    if locator is None:
        raise ToolError(f"nothing matches the selector {selector[:200]!r}; browser_snapshot shows what is there")
    return locator


async def _by_text(page: Any, text: str, seconds: float) -> Any:
    ways = []
    for exact in (True, False):
        for frame in page.frames[:MAX_FRAMES]:
            ways += [_with_role(frame, text, exact), frame.get_by_label(text, exact=exact)]
            ways += [frame.get_by_placeholder(text, exact=exact), frame.get_by_text(text, exact=exact)]
    locator = await _first_visible(ways, seconds)
    if locator is None:
        raise ToolError(f"nothing on the page has the text {text[:200]!r}; browser_snapshot shows what is there")
    return locator


def _with_role(frame: Any, text: str, exact: bool) -> Any:
    locator = frame.get_by_role(ROLES[0], name=text, exact=exact)
    for role in ROLES[1:]:
        locator = locator.or_(frame.get_by_role(role, name=text, exact=exact))
    return locator


async def _first_visible(ways: list[Any], seconds: float) -> Any:
    """The first match that can be seen, waited for; a hidden one when there is no other."""
    import asyncio

    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    hidden = None
    while True:
        for locator in ways:
            count = await locator.count()
            for number in range(min(count, 20)):
                if await locator.nth(number).is_visible():
                    return locator.nth(number)
            if count and hidden is None:
                hidden = locator.first
        if loop.time() + NAP > deadline:
            return hidden
        await asyncio.sleep(NAP)
