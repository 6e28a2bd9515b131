"""What every phone can do, whatever is behind it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..results import Result

    Point = tuple[float, float]

KEYS = (
    "back",
    "home",
    "app_switch",
    "menu",
    "enter",
    "delete",
    "tab",
    "escape",
    "space",
    "search",
    "up",
    "down",
    "left",
    "right",
    "page_up",
    "page_down",
    "volume_up",
    "volume_down",
    "power",
)
ORIENTATIONS = ("portrait", "landscape")
MAX_ELEMENTS = 300
MAX_LABEL = 300


class Phone:
    """A phone that can be touched. Points are in pixels of its screen; actions say what came of them."""

    title = ""
    """What it is, in honest words."""

    def remarks(self) -> list[str]:
        """What happened besides since this was asked last, such as a dialog that was dismissed."""
        return []

    def size(self) -> tuple[int, int]:
        """Its screen's width and height as it is held now."""
        raise NotImplementedError

    def tap(self, point: Point, times: int) -> Result:
        raise NotImplementedError

    def hold(self, point: Point, seconds: float) -> Result:
        raise NotImplementedError

    def swipe(self, start: Point, end: Point, seconds: float) -> Result:
        raise NotImplementedError

    def enter(self, text: str, submit: bool) -> Result:
        """Enter text where the focus is."""
        raise NotImplementedError

    def press(self, key: str) -> Result:
        """Press one of `KEYS`."""
        raise NotImplementedError

    def start(self, app: str) -> Result:
        raise NotImplementedError

    def stop(self, app: str) -> Result:
        raise NotImplementedError

    def apps(self) -> list[dict[str, Any]]:
        """What can be started, each with `name`, and whether it is `running`."""
        raise NotImplementedError

    def picture(self) -> tuple[bytes, str]:
        """The screen as it is, and the type of the picture."""
        raise NotImplementedError

    def elements(self) -> list[dict[str, Any]]:
        """What is visible: role, text, bounds (left, top, right, bottom), clickable, and more where it is known."""
        raise NotImplementedError

    def rotate(self, orientation: str) -> Result:
        raise NotImplementedError
