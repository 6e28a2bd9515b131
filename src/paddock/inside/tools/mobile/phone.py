"""Interface of a phone, implemented by `AdbPhone` and `WebPhone`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..tool_result import ToolCallResult

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
    """A phone to control. Points are pixels of its screen; actions return results that describe their effect."""

    title = ""
    """Name of the kind of phone, for messages."""

    def take_remarks(self) -> list[str]:
        """Return and clear messages about side effects, such as a dismissed dialog."""
        return []

    def screen_size(self) -> tuple[int, int]:
        """Return the screen's width and height in the current orientation."""
        raise NotImplementedError

    def tap(self, point: Point, times: int) -> ToolCallResult:
        raise NotImplementedError

    def long_press(self, point: Point, seconds: float) -> ToolCallResult:
        raise NotImplementedError

    def swipe(self, start: Point, end: Point, seconds: float) -> ToolCallResult:
        raise NotImplementedError

    def enter_text(self, text: str, submit: bool) -> ToolCallResult:
        """Enter text into the focused field."""
        raise NotImplementedError

    def press_key(self, key: str) -> ToolCallResult:
        """Press one of `KEYS`."""
        raise NotImplementedError

    def start_app(self, app: str) -> ToolCallResult:
        raise NotImplementedError

    def stop_app(self, app: str) -> ToolCallResult:
        raise NotImplementedError

    def list_apps(self) -> list[dict[str, Any]]:
        """Return the apps that can be started, each with `name` and `running`."""
        raise NotImplementedError

    def screenshot(self) -> tuple[bytes, str]:
        """Return a picture of the screen and its MIME type."""
        raise NotImplementedError

    def visible_elements(self) -> list[dict[str, Any]]:
        """Return visible elements: role, text, bounds (left, top, right, bottom), clickable, and more if known."""
        raise NotImplementedError

    def rotate(self, orientation: str) -> ToolCallResult:
        raise NotImplementedError
