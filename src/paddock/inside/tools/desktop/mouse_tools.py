"""Tools for the mouse. Points are pixels of the screen, or with `shot` of a screenshot."""

from __future__ import annotations

from ..tool_registry import CallableTool
from ..tool_result import ToolCallResult, ToolError
from .key_codes import hold_keycodes, modifier_keycodes, press_keycodes, release_keycodes
from .screen_changes import WAIT_SCHEMA, ScreenChanges

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..tool_context import ToolContext
    from .x_display import XConnection

BUTTONS = {"left": 1, "middle": 2, "right": 3, "back": 8, "forward": 9}
WHEEL_BUTTONS = {"up": 4, "down": 5, "left": 6, "right": 7}
DRAG_STEP_SECONDS = 0.016
"""Seconds between two movements of a drag; programs treat faster ones as a jump."""


def mouse_tools(context: ToolContext) -> list[CallableTool]:
    across = {"type": "number", "description": "Pixels from the left."}
    down = {"type": "number", "description": "Pixels from the top."}
    shot = {
        "type": "string",
        "maxLength": 64,
        "description": "Id of the screenshot whose pixels x and y are; the screen itself if absent.",
    }
    button = {"type": "string", "enum": list(BUTTONS), "default": "left"}
    modifiers = {
        "type": "array",
        "maxItems": 8,
        "items": {"type": "string", "maxLength": 32},
        "default": [],
        "description": "Keys to hold during the action, such as ctrl or shift.",
    }
    optional_point: dict[str, dict[str, Any]] = {"x": across, "y": down, "shot": shot}
    return [
        CallableTool(
            "get_cursor_position",
            "Return the position of the mouse pointer in screen pixels.",
            {},
            [],
            get_cursor_position,
            read_only=True,
        ),
        CallableTool(
            "move_mouse",
            "Move the mouse pointer.",
            {"x": across, "y": down, "shot": shot, "wait": WAIT_SCHEMA},
            ["x", "y"],
            move_mouse,
            input=True,
            changes_screen=True,
        ),
        CallableTool(
            "click_mouse",
            "Click at a point, or where the pointer is; clicks 2 is a double click.",
            {
                **optional_point,
                "button": button,
                "clicks": {"type": "integer", "minimum": 1, "maximum": 5, "default": 1},
                "modifiers": modifiers,
                "wait": WAIT_SCHEMA,
            },
            [],
            click_mouse,
            input=True,
            changes_screen=True,
        ),
        CallableTool(
            "drag_mouse",
            "Press the button at one point, move to another and release it.",
            {
                "x": across,
                "y": down,
                "to_x": across,
                "to_y": down,
                "shot": shot,
                "button": button,
                "modifiers": modifiers,
                "seconds": {"type": "number", "minimum": 0, "maximum": 10, "default": 0.3},
                "wait": WAIT_SCHEMA,
            },
            ["x", "y", "to_x", "to_y"],
            drag_mouse,
            input=True,
            changes_screen=True,
        ),
        CallableTool(
            "scroll",
            "Turn the mouse wheel at a point, or where the pointer is.",
            {
                **optional_point,
                "direction": {"type": "string", "enum": list(WHEEL_BUTTONS), "default": "down"},
                "amount": {"type": "integer", "minimum": 1, "maximum": 100, "default": 3, "description": "Clicks."},
                "modifiers": modifiers,
                "wait": WAIT_SCHEMA,
            },
            [],
            scroll,
            input=True,
            changes_screen=True,
        ),
    ]


def get_cursor_position(context: ToolContext) -> ToolCallResult:
    with context.display.connection() as connection:
        x, y = _pointer_position(connection)
    return ToolCallResult(f"the pointer is at {x}, {y}", structured={"x": x, "y": y})


def move_mouse(context: ToolContext, x: float, y: float, wait: float, shot: str | None = None) -> ToolCallResult:
    point = context.screen_capture.screen_point(x, y, shot)
    effects = ScreenChanges(context)
    with context.display.connection() as connection:
        _move_pointer(connection, *point)
        connection.x.sync()
    return effects.wait_and_describe(f"moved the pointer to {point[0]}, {point[1]}", wait, x=point[0], y=point[1])


def click_mouse(
    context: ToolContext,
    button: str,
    clicks: int,
    modifiers: list[str],
    wait: float,
    x: float | None = None,
    y: float | None = None,
    shot: str | None = None,
) -> ToolCallResult:
    point = _target_point(context, x, y, shot)
    effects = ScreenChanges(context)
    _click_at(context, None if x is None else point, BUTTONS[button], clicks, modifiers)
    how = {1: "clicked", 2: "double-clicked", 3: "triple-clicked"}.get(clicks, f"clicked {clicks} times")
    what = f"{how} the {button} button at {point[0]}, {point[1]}"
    return effects.wait_and_describe(what, wait, x=point[0], y=point[1], button=button, clicks=clicks)


def drag_mouse(
    context: ToolContext,
    x: float,
    y: float,
    to_x: float,
    to_y: float,
    button: str,
    modifiers: list[str],
    seconds: float,
    wait: float,
    shot: str | None = None,
) -> ToolCallResult:
    from Xlib import X
    from Xlib.ext import xtest

    begin, end = context.screen_capture.screen_point(x, y, shot), context.screen_capture.screen_point(to_x, to_y, shot)
    effects = ScreenChanges(context)
    number = BUTTONS[button]
    steps = max(4, int(seconds / DRAG_STEP_SECONDS))
    with context.display.connection() as connection:
        keys = modifier_keycodes(connection, modifiers)
        press_keycodes(connection, keys)
        _move_pointer(connection, *begin)
        xtest.fake_input(connection.x, X.ButtonPress, number)
        connection.x.sync()
    try:
        for step in range(1, steps + 1):
            context.caller.sleep(seconds / steps)
            part = step / steps
            with context.display.connection() as connection:
                _move_pointer(
                    connection,
                    round(begin[0] + (end[0] - begin[0]) * part),
                    round(begin[1] + (end[1] - begin[1]) * part),
                )
                connection.x.sync()
    finally:
        with context.display.connection() as connection:
            xtest.fake_input(connection.x, X.ButtonRelease, number)
            release_keycodes(connection, keys)
            connection.x.sync()
    what = f"dragged with the {button} button from {begin[0]}, {begin[1]} to {end[0]}, {end[1]}"
    return effects.wait_and_describe(what, wait, x=begin[0], y=begin[1], to_x=end[0], to_y=end[1])


def scroll(
    context: ToolContext,
    direction: str,
    amount: int,
    modifiers: list[str],
    wait: float,
    x: float | None = None,
    y: float | None = None,
    shot: str | None = None,
) -> ToolCallResult:
    point = _target_point(context, x, y, shot)
    effects = ScreenChanges(context)
    _click_at(context, None if x is None else point, WHEEL_BUTTONS[direction], amount, modifiers)
    what = f"scrolled {direction} by {amount} at {point[0]}, {point[1]}"
    return effects.wait_and_describe(what, wait, x=point[0], y=point[1], direction=direction, amount=amount)


def _click_at(
    context: ToolContext, point: tuple[int, int] | None, number: int, times: int, modifiers: list[str]
) -> None:
    """Click a button `times` times, at a point or at the pointer, with modifiers held."""
    with (
        context.display.connection() as connection,
        hold_keycodes(connection, modifier_keycodes(connection, modifiers)),
    ):
        if point is not None:
            _move_pointer(connection, *point)
        for _ in range(times):
            _click_button(connection, number)
        connection.x.sync()


def _target_point(context: ToolContext, x: float | None, y: float | None, shot: str | None) -> tuple[int, int]:
    if x is None and y is None:
        with context.display.connection() as connection:
            return _pointer_position(connection)
    if x is None or y is None:
        raise ToolError("give both x and y, or neither to use the pointer's position")
    return context.screen_capture.screen_point(x, y, shot)


def _pointer_position(connection: XConnection) -> tuple[int, int]:
    found: Any = connection.root.query_pointer()
    return found.root_x, found.root_y


def _move_pointer(connection: XConnection, x: int, y: int) -> None:
    from Xlib import X
    from Xlib.ext import xtest

    xtest.fake_input(connection.x, X.MotionNotify, x=x, y=y)


def _click_button(connection: XConnection, number: int) -> None:
    from Xlib import X
    from Xlib.ext import xtest

    xtest.fake_input(connection.x, X.ButtonPress, number)
    xtest.fake_input(connection.x, X.ButtonRelease, number)
