"""The tools of a phone."""

from __future__ import annotations

import time

from ..browser.pictures import Shot, Shots
from ..registry import Tool
from ..results import Result, ToolError
from .phone import KEYS, ORIENTATIONS
from .pictures import made_smaller

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..context import Context
    from .phone import Phone

NAP = 0.15
_X = {"type": "number", "description": "pixels from the left of the screen, or of the picture `shot`"}
_Y = {"type": "number", "description": "pixels from the top of the same"}
_SHOT = {"type": "string", "maxLength": 40, "default": "", "description": "the picture that the pixels are of"}
_TEXT = {"type": "string", "maxLength": 500, "description": "instead of a point: the text of a visible element"}
_PLACE = {"x": _X, "y": _Y, "text": _TEXT, "shot": _SHOT}
_SECONDS = {"type": "number", "minimum": 0.05, "maximum": 5}
_APP = {"type": "string", "minLength": 1, "maxLength": 4000}


def tools(phone: Phone) -> list[Tool]:
    offered = _offered(Hand(phone))
    for tool in offered:
        tool.function = _telling(phone, tool.function)
    return offered


def _telling(phone: Phone, function: Callable[..., Result]) -> Callable[..., Result]:
    """Return a tool's function whose result also tells what happened besides."""

    def call(context: Context, **arguments: Any) -> Result:
        try:
            result = function(context, **arguments)
        except ToolError as error:
            raise ToolError("\n".join([str(error), *phone.remarks()])) from None
        result.text = "\n".join([result.text, *phone.remarks()])
        return result

    return call


def _offered(hand: Hand) -> list[Tool]:
    ends = {"start_x": _X, "start_y": _Y, "end_x": _X, "end_y": _Y, "shot": _SHOT}
    way = {"type": "string", "enum": ["up", "down", "left", "right"]}
    way["description"] = "instead of points: where the finger goes; up shows what is further down"
    return [
        _hands("mobile_click", "Tap a point or an element of the screen.", _PLACE, hand.click),
        _hands("mobile_double_click", "Tap twice in short order.", _PLACE, hand.double_click),
        _hands(
            "mobile_long_press",
            "Press and hold a point or an element.",
            {**_PLACE, "seconds": {**_SECONDS, "default": 0.8}},
            hand.long_press,
        ),
        _hands(
            "mobile_swipe",
            "Swipe from one point to another, or in a direction across the middle of the screen.",
            {**ends, "direction": way, "seconds": {**_SECONDS, "default": 0.3}},
            hand.swipe,
        ),
        _hands(
            "mobile_input_text",
            "Enter text, in any script, into the field that has the focus (tap it first).",
            {
                "value": {"type": "string", "maxLength": 20_000},
                "submit": {"type": "boolean", "default": False, "description": "press enter afterwards"},
            },
            hand.enter,
            "value",
        ),
        _hands(
            "mobile_send_key",
            "Press a key of the phone or of its keyboard.",
            {"key": {"type": "string", "enum": list(KEYS)}},
            hand.press,
            "key",
        ),
        _hands(
            "mobile_start_app",
            "Start an app by its name, or open an address.",
            {"app": {**_APP, "description": "a name from mobile_list_apps, or an address such as https://example.org"}},
            hand.start,
            "app",
        ),
        _hands("mobile_stop_app", "End an app.", {"app": _APP}, hand.stop, "app"),
        Tool("mobile_list_apps", "List the apps that can be started.", {}, [], hand.apps, read_only=True),
        Tool(
            "mobile_screenshot",
            "A picture of the screen. Taps can point into it by its name `shot`.",
            {
                "scale": {"type": "number", "minimum": 0.1, "maximum": 1, "default": 1},
                "format": {"type": "string", "enum": ["jpeg", "png"], "default": "jpeg"},
                "quality": {"type": "integer", "minimum": 1, "maximum": 100, "default": 80},
            },
            [],
            hand.screenshot,
            read_only=True,
        ),
        Tool(
            "mobile_ui_elements",
            "List what is on the screen: role, text, bounds, and whether it can be tapped.",
            {
                "clickable": {"type": "boolean", "default": False, "description": "only what can be tapped"},
                "contains": {"type": "string", "maxLength": 300, "default": "", "description": "only with this text"},
            },
            [],
            hand.elements,
            read_only=True,
        ),
        _hands(
            "mobile_rotate",
            "Hold the phone upright or sideways.",
            {"orientation": {"type": "string", "enum": list(ORIENTATIONS)}},
            hand.rotate,
            "orientation",
        ),
        Tool("mobile_get_size", "The size of the screen in pixels.", {}, [], hand.size, read_only=True),
        Tool(
            "mobile_wait_for",
            "Wait until an element with a text is visible, or gone.",
            {
                "text": {"type": "string", "minLength": 1, "maxLength": 500},
                "gone": {"type": "boolean", "default": False},
                "timeout": {"type": "number", "minimum": 0.1, "maximum": 120, "default": 10},
            },
            ["text"],
            hand.wait_for,
            read_only=True,
        ),
    ]


def _hands(name: str, description: str, properties: dict[str, Any], function: Any, *required: str) -> Tool:
    return Tool(name, description, properties, required, function, input=True, changes_screen=True)


class Hand:
    """Touches a phone for an agent."""

    def __init__(self, phone: Phone) -> None:
        self._phone = phone
        self._shots = Shots()

    def click(self, context: Context, **place: Any) -> Result:
        return self._phone.tap(self._point(**place), 1)

    def double_click(self, context: Context, **place: Any) -> Result:
        return self._phone.tap(self._point(**place), 2)

    def long_press(self, context: Context, seconds: float, **place: Any) -> Result:
        return self._phone.hold(self._point(**place), seconds)

    def swipe(self, context: Context, seconds: float, shot: str, direction: str = "", **ends: float) -> Result:
        if direction:
            if ends:
                raise ToolError("give a direction, or the points of start and end, not both")
            start, end = self._across(direction)
        else:
            missing = [name for name in ("start_x", "start_y", "end_x", "end_y") if name not in ends]
            if missing:
                raise ToolError(f"a swipe needs a direction, or the points of start and end; {missing[0]} is missing")
            start = self._point(x=ends["start_x"], y=ends["start_y"], shot=shot)
            end = self._point(x=ends["end_x"], y=ends["end_y"], shot=shot)
        return self._phone.swipe(start, end, seconds)

    def enter(self, context: Context, value: str, submit: bool) -> Result:
        return self._phone.enter(value, submit)

    def press(self, context: Context, key: str) -> Result:
        return self._phone.press(key)

    def start(self, context: Context, app: str) -> Result:
        return self._phone.start(app)

    def stop(self, context: Context, app: str) -> Result:
        return self._phone.stop(app)

    def apps(self, context: Context) -> Result:
        found = self._phone.apps()
        lines = [f"{one['name']}{' (running)' if one.get('running') else ''} {one.get('url', '')}" for one in found]
        return Result("\n".join(line.rstrip() for line in lines) or "There are no apps.", structured={"apps": found})

    def screenshot(self, context: Context, scale: float, format: str, quality: int) -> Result:
        data, mime = self._phone.picture()
        data, mime, width, height = made_smaller(data, mime, scale, format, quality)
        shot = self._shots.add(Shot(0, 0, scale, width, height))
        text = f"{width}x{height} pixels at scale {scale:g}. Point into it with x, y and shot={shot}."
        structured = {"shot": shot, "width": width, "height": height, "scale": scale}
        return Result(text, images=[(data, mime)], structured=structured, shot=shot)

    def elements(self, context: Context, clickable: bool, contains: str) -> Result:
        wanted = contains.lower()
        found = [
            one
            for one in self._phone.elements()
            if (one["clickable"] or not clickable) and wanted in str(one["text"]).lower()
        ]
        lines = [_line(one) for one in found]
        return Result("\n".join(lines) or "Nothing of that is on the screen.", structured={"elements": found})

    def rotate(self, context: Context, orientation: str) -> Result:
        return self._phone.rotate(orientation)

    def size(self, context: Context) -> Result:
        width, height = self._phone.size()
        return Result(f"{width}x{height} ({self._phone.title})", structured={"width": width, "height": height})

    def wait_for(self, context: Context, text: str, gone: bool, timeout: float) -> Result:
        deadline = time.monotonic() + timeout
        while True:
            found = self._named(text)
            if bool(found) is not gone:
                said = f'"{text}" is gone.' if gone else f'"{text}" is on the screen: {_line(found[0])}'
                return Result(said, structured={"elements": found})
            if time.monotonic() + NAP > deadline:
                raise ToolError(f'"{text}" {"is still" if gone else "is not"} on the screen after {timeout:g} s')
            context.caller.sleep(NAP)

    def _named(self, text: str) -> list[dict[str, Any]]:
        """Elements with a text, the ones that say exactly that first, and of those the ones that can be tapped."""
        wanted = text.strip().lower()
        found = [one for one in self._phone.elements() if wanted in str(one["text"]).lower()]
        return sorted(found, key=lambda one: (str(one["text"]).strip().lower() != wanted, not one["clickable"]))

    def _point(
        self, x: float | None = None, y: float | None = None, text: str = "", shot: str = ""
    ) -> tuple[float, float]:
        if text:
            if x is not None or y is not None:
                raise ToolError("give a point, or a text, not both")
            found = self._named(text)
            if not found:
                raise ToolError(f"nothing on the screen has the text {text!r}; mobile_ui_elements lists what is there")
            left, top, right, bottom = found[0]["bounds"]
            return (left + right) / 2, (top + bottom) / 2
        if x is None or y is None:
            raise ToolError("say where: give x and y, or the text of an element")
        if shot:
            x, y = self._shots.get(shot).point(x, y)
        width, height = self._phone.size()
        if not (0 <= x < width and 0 <= y < height):
            raise ToolError(f"({x:g}, {y:g}) is outside the screen, which is {width}x{height}")
        return x, y

    def _across(self, direction: str) -> tuple[tuple[float, float], tuple[float, float]]:
        width, height = self._phone.size()
        middle = (width / 2, height / 2)
        near, far = 0.25, 0.75
        return {
            "up": ((middle[0], height * far), (middle[0], height * near)),
            "down": ((middle[0], height * near), (middle[0], height * far)),
            "left": ((width * far, middle[1]), (width * near, middle[1])),
            "right": ((width * near, middle[1]), (width * far, middle[1])),
        }[direction]


def _line(one: dict[str, Any]) -> str:
    left, top, right, bottom = one["bounds"]
    marks = [name for name in ("clickable", "editable", "focused", "checked") if one.get(name)]
    return f'{one["role"]} "{one["text"]}" [{left},{top},{right},{bottom}]{" " + " ".join(marks) if marks else ""}'
