"""Finds the element for a call by snapshot ref, selector, text or point."""

from __future__ import annotations

import re

from ..tool_result import ToolError
from .page_screenshots import to_viewport_point

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from .browser_session import BrowserSession, BrowserTab

ROLES = ("button", "link", "tab", "menuitem", "option", "checkbox", "radio", "textbox", "combobox")
MAX_FRAMES = 20
POLL_SECONDS = 0.1

ELEMENT_SCHEMA: dict[str, dict[str, Any]] = {
    "ref": {"type": "string", "maxLength": 40, "description": "the element's ref in the latest browser_snapshot"},
    "selector": {"type": "string", "maxLength": 2000, "description": "a CSS selector, or xpath=…"},
    "text": {"type": "string", "maxLength": 1000, "description": "the visible text, label or placeholder"},
}
POINT_SCHEMA: dict[str, dict[str, Any]] = {
    "x": {"type": "number", "description": "pixels from the left of the viewport, or of the screenshot `shot`"},
    "y": {"type": "number", "description": "pixels from the top of the same"},
    "shot": {
        "type": "string",
        "maxLength": 40,
        "description": "id of the screenshot that x and y refer to",
        "default": "",
    },
}


def prefix_schema_properties(properties: Mapping[str, Mapping[str, Any]], prefix: str) -> dict[str, dict[str, Any]]:
    return {prefix + name: dict(rule) for name, rule in properties.items()}


class ElementOrPoint:
    """An element, or a point in the viewport."""

    def __init__(self, locator: Any, point: tuple[float, float] | None, name: str) -> None:
        self.locator = locator
        self.point = point
        self.name = name

    async def center(self, seconds: float) -> tuple[float, float]:
        """Return its centre, scrolled into view."""
        if self.point is not None:
            return self.point
        await self.locator.scroll_into_view_if_needed(timeout=seconds * 1000)
        bounds = await self.locator.bounding_box(timeout=seconds * 1000)
        if bounds is None:
            raise ToolError(f"{self.name} is not visible")
        return bounds["x"] + bounds["width"] / 2, bounds["y"] + bounds["height"] / 2


async def find_element_or_point(
    session: BrowserSession, tab: BrowserTab, arguments: Mapping[str, Any], seconds: float, prefix: str = ""
) -> ElementOrPoint:
    """Find the target given by exactly one of ref, selector, text, or x and y."""
    values = {name: arguments.get(prefix + name) for name in ("ref", "selector", "text", "x", "y")}
    target_names = [name for name in ("ref", "selector", "text") if values[name]]
    if values["x"] is not None or values["y"] is not None:
        target_names.append("x")
    if len(target_names) != 1:
        names = f"{prefix}ref, {prefix}selector, {prefix}text, or {prefix}x with {prefix}y"
        raise ToolError(f"give one of {names} to choose the element" + ("" if not target_names else ", not several"))
    page = tab.page
    if target_names[0] == "x":
        if values["x"] is None or values["y"] is None:
            raise ToolError(f"a point needs both {prefix}x and {prefix}y")
        x, y = await to_viewport_point(
            page, session.screenshots, values["x"], values["y"], arguments.get(prefix + "shot") or ""
        )
        return ElementOrPoint(None, (x, y), f"the point ({values['x']:g}, {values['y']:g})")
    if target_names[0] == "ref":
        return await _by_ref(page, str(values["ref"]))
    if target_names[0] == "selector":
        locator = await _by_selector(page, str(values["selector"]), seconds)
        return ElementOrPoint(locator, None, str(values["selector"])[:100])
    locator = await _by_text(page, str(values["text"]), seconds)
    return ElementOrPoint(locator, None, f'"{str(values["text"])[:100]}"')


async def _by_ref(page: Any, ref: str) -> ElementOrPoint:
    if not re.fullmatch(r"[a-z0-9]+", ref):
        raise ToolError(f"{ref!r} is not a ref; browser_snapshot shows refs as [ref=e12]")
    locator = page.locator(f"aria-ref={ref}")
    try:
        found = await locator.count()
    except Exception:
        found = 0  # Playwright raises for an unknown ref.
    if not found:
        raise ToolError(f"element {ref} does not exist (any more); take a new browser_snapshot and use its refs")
    return ElementOrPoint(locator, None, ref)


async def _by_selector(page: Any, selector: str, seconds: float) -> Any:
    locator = await _first_visible([frame.locator(selector) for frame in page.frames[:MAX_FRAMES]], seconds)
    if locator is None:
        raise ToolError(f"no element matches the selector {selector[:200]!r}; browser_snapshot shows the elements")
    return locator


async def _by_text(page: Any, text: str, seconds: float) -> Any:
    target_names = []
    for exact in (True, False):
        for frame in page.frames[:MAX_FRAMES]:
            target_names += [_with_role(frame, text, exact), frame.get_by_label(text, exact=exact)]
            target_names += [frame.get_by_placeholder(text, exact=exact), frame.get_by_text(text, exact=exact)]
    locator = await _first_visible(target_names, seconds)
    if locator is None:
        raise ToolError(f"no element has the text {text[:200]!r}; browser_snapshot shows the elements")
    return locator


def _with_role(frame: Any, text: str, exact: bool) -> Any:
    locator = frame.get_by_role(ROLES[0], name=text, exact=exact)
    for role in ROLES[1:]:
        locator = locator.or_(frame.get_by_role(role, name=text, exact=exact))
    return locator


async def _first_visible(target_names: list[Any], seconds: float) -> Any:
    """Wait for the first visible match and return it; on timeout a hidden match or None."""
    import asyncio

    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    hidden = None
    while True:
        for locator in target_names:
            count = await locator.count()
            for number in range(min(count, 20)):
                if await locator.nth(number).is_visible():
                    return locator.nth(number)
            if count and hidden is None:
                hidden = locator.first
        if loop.time() + POLL_SECONDS > deadline:
            return hidden
        await asyncio.sleep(POLL_SECONDS)
