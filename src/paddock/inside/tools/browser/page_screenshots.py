"""Screenshots of pages, and the mapping from their pixels to points of the page."""

from __future__ import annotations

import itertools
from collections import OrderedDict

from ..tool_result import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_REMEMBERED = 32
MAX_SIDE = 16_000
"""Maximum width and height of a full-page screenshot, in pixels."""
MAX_PIXELS = 40_000_000
VIEW_SCRIPT = """() => ({x: scrollX, y: scrollY, width: innerWidth, height: innerHeight,
    full: [Math.max(document.documentElement.scrollWidth, innerWidth),
           Math.max(document.documentElement.scrollHeight, innerHeight)]})"""


class ScreenshotGeometry:
    """The part of a page that a screenshot shows, in page coordinates."""

    def __init__(self, left: float, top: float, scale: float, width: int, height: int) -> None:
        self.left = left
        self.top = top
        self.scale = scale
        self.width = width
        self.height = height

    def page_point(self, x: float, y: float) -> tuple[float, float]:
        """Return the page coordinates of a pixel of the screenshot."""
        if not (0 <= x < self.width and 0 <= y < self.height):
            raise ToolError(f"({x:g}, {y:g}) is outside the screenshot, which is {self.width}x{self.height}")
        return self.left + (x + 0.5) / self.scale, self.top + (y + 0.5) / self.scale


class RecentScreenshots:
    """The latest screenshots, by the ids that results contain."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, ScreenshotGeometry] = OrderedDict()
        self._numbers = itertools.count(1)

    def add(self, geometry: ScreenshotGeometry) -> str:
        name = f"page-{next(self._numbers)}"
        self._known[name] = geometry
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return name

    def get(self, name: str) -> ScreenshotGeometry:
        geometry = self._known.get(name)
        if geometry is None:
            raise ToolError(f"screenshot {name!r} is unknown or too old; take a new one")
        return geometry


async def to_viewport_point(
    page: Any, screenshots: RecentScreenshots, x: float, y: float, shot: str
) -> tuple[float, float]:
    """Return a point in the viewport; a point of a screenshot is scrolled into view if necessary."""
    view = await page.evaluate(VIEW_SCRIPT)
    if not shot:
        if not (0 <= x < view["width"] and 0 <= y < view["height"]):
            size = f"{view['width']}x{view['height']}"
            raise ToolError(f"({x:g}, {y:g}) is outside the visible part of the page, which is {size}")
        return x, y
    left, top = screenshots.get(shot).page_point(x, y)
    if not (view["x"] <= left < view["x"] + view["width"] and view["y"] <= top < view["y"] + view["height"]):
        middle = [left - view["width"] / 2, top - view["height"] / 2]
        await page.evaluate("([x, y]) => scrollTo({left: x, top: y, behavior: 'instant'})", middle)
        view = await page.evaluate(VIEW_SCRIPT)
    return left - view["x"], top - view["y"]
