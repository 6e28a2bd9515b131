"""Tools that touch and read a phone: taps, swipes, text, keys, apps and screenshots."""

from __future__ import annotations

import time

from ..browser.page_screenshots import RecentScreenshots, ScreenshotGeometry
from ..tool_registry import CallableTool
from ..tool_result import ToolCallResult, ToolError
from .phone import KEYS, ORIENTATIONS
from .phone_choice import choose_phone
from .phone_pictures import convert_phone_picture

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..tool_context import ToolContext
    from .phone import Phone

POLL_SECONDS = 0.15
_X = {"type": "number", "description": "pixels from the left of the screen, or of the picture `shot`"}
_Y = {"type": "number", "description": "pixels from the top of the same"}
_SHOT = {"type": "string", "maxLength": 40, "default": "", "description": "the picture that the pixels are of"}
_TEXT = {"type": "string", "maxLength": 500, "description": "instead of a point: the text of a visible element"}
_POINT_OR_TEXT = {"x": _X, "y": _Y, "text": _TEXT, "shot": _SHOT}
_SECONDS = {"type": "number", "minimum": 0.05, "maximum": 5}
_APP = {"type": "string", "minLength": 1, "maxLength": 4000}


def phone_tools(context: ToolContext) -> list[CallableTool]:
    phone = choose_phone(context)
    tools = _create_tools(PhoneToolFunctions(phone))
    for tool in tools:
        tool.function = _with_remarks(phone, tool.function)
    return tools


def _with_remarks(phone: Phone, function: Callable[..., ToolCallResult]) -> Callable[..., ToolCallResult]:
    """Wrap a tool's function so that its result includes the phone's remarks."""

    def call(context: ToolContext, **arguments: Any) -> ToolCallResult:
        try:
            result = function(context, **arguments)
        except ToolError as error:
            raise ToolError("\n".join([str(error), *phone.take_remarks()])) from None
        result.text = "\n".join([result.text, *phone.take_remarks()])
        return result

    return call


def _create_tools(functions: PhoneToolFunctions) -> list[CallableTool]:
    ends = {"start_x": _X, "start_y": _Y, "end_x": _X, "end_y": _Y, "shot": _SHOT}
    way = {"type": "string", "enum": ["up", "down", "left", "right"]}
    way["description"] = "instead of points: direction of the finger; up scrolls down"
    return [
        _action_tool("mobile_click", "Tap a point or an element of the screen.", _POINT_OR_TEXT, functions.click),
        _action_tool("mobile_double_click", "Tap twice in short order.", _POINT_OR_TEXT, functions.double_click),
        _action_tool(
            "mobile_long_press",
            "Press and hold a point or an element.",
            {**_POINT_OR_TEXT, "seconds": {**_SECONDS, "default": 0.8}},
            functions.long_press,
        ),
        _action_tool(
            "mobile_swipe",
            "Swipe from one point to another, or in a direction across the middle of the screen.",
            {**ends, "direction": way, "seconds": {**_SECONDS, "default": 0.3}},
            functions.swipe,
        ),
        _action_tool(
            "mobile_input_text",
            "Enter text, in any script, into the focused field (tap it first).",
            {
                "value": {"type": "string", "maxLength": 20_000},
                "submit": {"type": "boolean", "default": False, "description": "press enter afterwards"},
            },
            functions.enter_text,
            "value",
        ),
        _action_tool(
            "mobile_send_key",
            "Press a key of the phone or of its keyboard.",
            {"key": {"type": "string", "enum": list(KEYS)}},
            functions.press_key,
            "key",
        ),
        _action_tool(
            "mobile_start_app",
            "Start an app by its name, or open an address.",
            {"app": {**_APP, "description": "a name from mobile_list_apps, or an address such as https://example.org"}},
            functions.start_app,
            "app",
        ),
        _action_tool("mobile_stop_app", "End an app.", {"app": _APP}, functions.stop_app, "app"),
        CallableTool(
            "mobile_list_apps", "List the apps that can be started.", {}, [], functions.list_apps, read_only=True
        ),
        CallableTool(
            "mobile_screenshot",
            "Take a screenshot. Taps can use its pixels by passing its `shot` id.",
            {
                "scale": {"type": "number", "minimum": 0.1, "maximum": 1, "default": 1},
                "format": {"type": "string", "enum": ["jpeg", "png"], "default": "jpeg"},
                "quality": {"type": "integer", "minimum": 1, "maximum": 100, "default": 80},
            },
            [],
            functions.screenshot,
            read_only=True,
        ),
        CallableTool(
            "mobile_ui_elements",
            "List the elements on the screen: role, text, bounds, and whether they can be tapped.",
            {
                "clickable": {"type": "boolean", "default": False, "description": "only elements that can be tapped"},
                "contains": {"type": "string", "maxLength": 300, "default": "", "description": "only with this text"},
            },
            [],
            functions.list_elements,
            read_only=True,
        ),
        _action_tool(
            "mobile_rotate",
            "Hold the phone upright or sideways.",
            {"orientation": {"type": "string", "enum": list(ORIENTATIONS)}},
            functions.rotate,
            "orientation",
        ),
        CallableTool(
            "mobile_get_size", "Return the size of the screen in pixels.", {}, [], functions.screen_size, read_only=True
        ),
        CallableTool(
            "mobile_wait_for",
            "Wait until an element with a text is visible, or gone.",
            {
                "text": {"type": "string", "minLength": 1, "maxLength": 500},
                "gone": {"type": "boolean", "default": False},
                "timeout": {"type": "number", "minimum": 0.1, "maximum": 120, "default": 10},
            },
            ["text"],
            functions.wait_for,
            read_only=True,
        ),
    ]


def _action_tool(
    name: str, description: str, properties: dict[str, Any], function: Any, *required: str
) -> CallableTool:
    return CallableTool(name, description, properties, required, function, input=True, changes_screen=True)


class PhoneToolFunctions:
    """Functions of the phone tools, on one phone."""

    def __init__(self, phone: Phone) -> None:
        self._phone = phone
        self._screenshots = RecentScreenshots()

    def click(self, context: ToolContext, **target: Any) -> ToolCallResult:
        return self._phone.tap(self._target_point(**target), 1)

    def double_click(self, context: ToolContext, **target: Any) -> ToolCallResult:
        return self._phone.tap(self._target_point(**target), 2)

    def long_press(self, context: ToolContext, seconds: float, **target: Any) -> ToolCallResult:
        return self._phone.long_press(self._target_point(**target), seconds)

    def swipe(
        self, context: ToolContext, seconds: float, shot: str, direction: str = "", **ends: float
    ) -> ToolCallResult:
        if direction:
            if ends:
                raise ToolError("give a direction, or the points of start and end, not both")
            start, end = self._swipe_across(direction)
        else:
            missing = [name for name in ("start_x", "start_y", "end_x", "end_y") if name not in ends]
            if missing:
                raise ToolError(f"a swipe needs a direction, or the points of start and end; {missing[0]} is missing")
            start = self._target_point(x=ends["start_x"], y=ends["start_y"], shot=shot)
            end = self._target_point(x=ends["end_x"], y=ends["end_y"], shot=shot)
        return self._phone.swipe(start, end, seconds)

    def enter_text(self, context: ToolContext, value: str, submit: bool) -> ToolCallResult:
        return self._phone.enter_text(value, submit)

    def press_key(self, context: ToolContext, key: str) -> ToolCallResult:
        return self._phone.press_key(key)

    def start_app(self, context: ToolContext, app: str) -> ToolCallResult:
        return self._phone.start_app(app)

    def stop_app(self, context: ToolContext, app: str) -> ToolCallResult:
        return self._phone.stop_app(app)

    def list_apps(self, context: ToolContext) -> ToolCallResult:
        found = self._phone.list_apps()
        lines = [f"{one['name']}{' (running)' if one.get('running') else ''} {one.get('url', '')}" for one in found]
        return ToolCallResult(
            "\n".join(line.rstrip() for line in lines) or "There are no apps.", structured={"apps": found}
        )

    def screenshot(self, context: ToolContext, scale: float, format: str, quality: int) -> ToolCallResult:
        data, mime = self._phone.screenshot()
        data, mime, width, height = convert_phone_picture(data, mime, scale, format, quality)
        shot = self._screenshots.add(ScreenshotGeometry(0, 0, scale, width, height))
        text = f"{width}x{height} pixels at scale {scale:g}. Use its pixels with x, y and shot={shot}."
        structured = {"shot": shot, "width": width, "height": height, "scale": scale}
        return ToolCallResult(text, images=[(data, mime)], structured=structured, shot=shot)

    def list_elements(self, context: ToolContext, clickable: bool, contains: str) -> ToolCallResult:
        wanted = contains.lower()
        found = [
            one
            for one in self._phone.visible_elements()
            if (one["clickable"] or not clickable) and wanted in str(one["text"]).lower()
        ]
        lines = [_element_line(one) for one in found]
        return ToolCallResult("\n".join(lines) or "No matching elements on the screen.", structured={"elements": found})

    def rotate(self, context: ToolContext, orientation: str) -> ToolCallResult:
        return self._phone.rotate(orientation)

    def screen_size(self, context: ToolContext) -> ToolCallResult:
        width, height = self._phone.screen_size()
        return ToolCallResult(f"{width}x{height} ({self._phone.title})", structured={"width": width, "height": height})

    def wait_for(self, context: ToolContext, text: str, gone: bool, timeout: float) -> ToolCallResult:
        deadline = time.monotonic() + timeout
        while True:
            found = self._elements_with_text(text)
            if bool(found) is not gone:
                message = f'"{text}" is gone.' if gone else f'"{text}" is on the screen: {_element_line(found[0])}'
                return ToolCallResult(message, structured={"elements": found})
            if time.monotonic() + POLL_SECONDS > deadline:
                raise ToolError(f'"{text}" {"is still" if gone else "is not"} on the screen after {timeout:g} s')
            context.caller.sleep(POLL_SECONDS)

    def _elements_with_text(self, text: str) -> list[dict[str, Any]]:
        """Return elements that contain a text: exact matches first, then clickable ones."""
        wanted = text.strip().lower()
        found = [one for one in self._phone.visible_elements() if wanted in str(one["text"]).lower()]
        return sorted(found, key=lambda one: (str(one["text"]).strip().lower() != wanted, not one["clickable"]))

    def _target_point(
        self, x: float | None = None, y: float | None = None, text: str = "", shot: str = ""
    ) -> tuple[float, float]:
        if text:
            if x is not None or y is not None:
                raise ToolError("give a point, or a text, not both")
            found = self._elements_with_text(text)
            if not found:
                raise ToolError(
                    f"no element on the screen has the text {text!r}; mobile_ui_elements lists the elements"
                )
            left, top, right, bottom = found[0]["bounds"]
            return (left + right) / 2, (top + bottom) / 2
        if x is None or y is None:
            raise ToolError("give x and y, or the text of an element")
        if shot:
            x, y = self._screenshots.get(shot).page_point(x, y)
        width, height = self._phone.screen_size()
        if not (0 <= x < width and 0 <= y < height):
            raise ToolError(f"({x:g}, {y:g}) is outside the screen, which is {width}x{height}")
        return x, y

    def _swipe_across(self, direction: str) -> tuple[tuple[float, float], tuple[float, float]]:
        width, height = self._phone.screen_size()
        middle = (width / 2, height / 2)
        near, far = 0.25, 0.75
        return {
            "up": ((middle[0], height * far), (middle[0], height * near)),
            "down": ((middle[0], height * near), (middle[0], height * far)),
            "left": ((width * far, middle[1]), (width * near, middle[1])),
            "right": ((width * near, middle[1]), (width * far, middle[1])),
        }[direction]


def _element_line(one: dict[str, Any]) -> str:
    left, top, right, bottom = one["bounds"]
    marks = [name for name in ("clickable", "editable", "focused", "checked") if one.get(name)]
    return f'{one["role"]} "{one["text"]}" [{left},{top},{right},{bottom}]{" " + " ".join(marks) if marks else ""}'
