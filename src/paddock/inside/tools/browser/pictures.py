"""Pictures of pages, and the way back from a point in one to a point on its page."""

from __future__ import annotations

import itertools
from collections import OrderedDict

from ..results import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KEPT = 32
MAX_SIDE = 16_000
"""Pixels that a picture of a whole page may be high or wide."""
MAX_PIXELS = 40_000_000
VIEW = """() => ({x: scrollX, y: scrollY, width: innerWidth, height: innerHeight,
    full: [Math.max(document.documentElement.scrollWidth, innerWidth),
           Math.max(document.documentElement.scrollHeight, innerHeight)]})"""


class Shot:
    """Which part of a page a picture shows, in the page's own coordinates."""

    def __init__(self, left: float, top: float, scale: float, width: int, height: int) -> None:
        self.left = left
        self.top = top
        self.scale = scale
        self.width = width
        self.height = height

    def point(self, x: float, y: float) -> tuple[float, float]:
        """Return the place on the page of a pixel of the picture."""
        if not (0 <= x < self.width and 0 <= y < self.height):
            raise ToolError(f"({x:g}, {y:g}) is outside the picture, which is {self.width}x{self.height}")
        return self.left + (x + 0.5) / self.scale, self.top + (y + 0.5) / self.scale


class Shots:
    """The latest pictures, by the names that results have given them."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Shot] = OrderedDict()
        self._numbers = itertools.count(1)

    def add(self, shot: Shot) -> str:
        name = f"page-{next(self._numbers)}"
        self._known[name] = shot
        if len(self._known) > KEPT:
            self._known.popitem(last=False)
        return name

    def get(self, name: str) -> Shot:
        shot = self._known.get(name)
        if shot is None:
            raise ToolError(f"there is no picture {name!r} any more; take a new one with browser_screenshot")
        return shot


async def viewport_point(page: Any, shots: Shots, x: float, y: float, shot: str) -> tuple[float, float]:
    """Where on the visible part of the page to point; a place on a picture is scrolled into sight if need be."""
    view = await page.evaluate(VIEW)
    if not shot:
        if not (0 <= x < view["width"] and 0 <= y < view["height"]):
            size = f"{view['width']}x{view['height']}"
            raise ToolError(f"({x:g}, {y:g}) is outside the visible part of the page, which is {size}")
        return x, y
    left, top = shots.get(shot).point(x, y)
    if not (view["x"] <= left < view["x"] + view["width"] and view["y"] <= top < view["y"] + view["height"]):
        middle = [left - view["width"] / 2, top - view["height"] / 2]
        await page.evaluate("([x, y]) => scrollTo({left: x, top: y, behavior: 'instant'})", middle)
        view = await page.evaluate(VIEW)
    return left - view["x"], top - view["y"]
