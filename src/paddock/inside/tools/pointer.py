"""Tools for the mouse. Points are the screen's pixels, or with `shot` those of a picture that was taken."""

from __future__ import annotations

from .effects import WAIT, Effects
from .keys import held, keycodes_of, press, release
from .registry import Tool
from .results import Result, ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .context import Context
    from .display import Connection

BUTTONS = {"left": 1, "middle": 2, "right": 3, "back": 8, "forward": 9}
WHEEL = {"up": 4, "down": 5, "left": 6, "right": 7}
STEP = 0.016
"""Seconds between two movements of a drag; programs take faster ones for a jump."""


def tools(context: Context) -> list[Tool]:
    across = {"type": "number", "description": "Pixels from the left."}
    down = {"type": "number", "description": "Pixels from the top."}
    shot = {
        "type": "string",
        "maxLength": 64,
        "description": "The picture that x and y are pixels of, as screenshot names it; the screen itself if absent.",
    }
    button = {"type": "string", "enum": list(BUTTONS), "default": "left"}
    modifiers = {
        "type": "array",
        "maxItems": 8,
        "items": {"type": "string", "maxLength": 32},
        "default": [],
        "description": "Keys to hold meanwhile, such as ctrl or shift.",
    }
    optional_point: dict[str, dict[str, Any]] = {"x": across, "y": down, "shot": shot}
    return [
        Tool(
            "get_cursor_position",
            "Say where the mouse pointer is, in pixels of the screen.",
            {},
            [],
            get_cursor_position,
            read_only=True,
        ),
        Tool(
            "move_mouse",
            "Move the mouse pointer.",
            {"x": across, "y": down, "shot": shot, "wait": WAIT},
            ["x", "y"],
            move_mouse,
            input=True,
            changes_screen=True,
        ),
        Tool(
            "click_mouse",
            "Click at a point, or where the pointer is; clicks 2 is a double click.",
            {
                **optional_point,
                "button": button,
                "clicks": {"type": "integer", "minimum": 1, "maximum": 5, "default": 1},
                "modifiers": modifiers,
                "wait": WAIT,
            },
            [],
            click_mouse,
            input=True,
            changes_screen=True,
        ),
        Tool(
            "drag_mouse",
            "Press the button at one point, move to another and let go.",
            {
                "x": across,
                "y": down,
                "to_x": across,
                "to_y": down,
                "shot": shot,
                "button": button,
                "modifiers": modifiers,
                "seconds": {"type": "number", "minimum": 0, "maximum": 10, "default": 0.3},
                "wait": WAIT,
            },
            ["x", "y", "to_x", "to_y"],
            drag_mouse,
            input=True,
            changes_screen=True,
        ),
        Tool(
            "scroll",
            "Turn the mouse wheel at a point, or where the pointer is.",
            {
                **optional_point,
                "direction": {"type": "string", "enum": list(WHEEL), "default": "down"},
                "amount": {"type": "integer", "minimum": 1, "maximum": 100, "default": 3, "description": "Clicks."},
                "modifiers": modifiers,
                "wait": WAIT,
            },
            [],
            scroll,
            input=True,
            changes_screen=True,
        ),
    ]


def get_cursor_position(context: Context) -> Result:
    with context.display.session() as connection:
        x, y = _where(connection)
    return Result(f"the pointer is at {x}, {y}", structured={"x": x, "y": y})


def move_mouse(context: Context, x: float, y: float, wait: float, shot: str | None = None) -> Result:
    point = context.screen.place(x, y, shot)
    effects = Effects(context)
    with context.display.session() as connection:
        _move(connection, *point)
        connection.x.sync()
    return effects.result(f"moved the pointer to {point[0]}, {point[1]}", wait, x=point[0], y=point[1])


def click_mouse(
    context: Context,
    button: str,
    clicks: int,
    modifiers: list[str],
    wait: float,
    x: float | None = None,
    y: float | None = None,
    shot: str | None = None,
) -> Result:
    point = _point(context, x, y, shot)
    effects = Effects(context)
    _press_at(context, None if x is None else point, BUTTONS[button], clicks, modifiers)
    how = {1: "clicked", 2: "double-clicked", 3: "triple-clicked"}.get(clicks, f"clicked {clicks} times")
    what = f"{how} the {button} button at {point[0]}, {point[1]}"
    return effects.result(what, wait, x=point[0], y=point[1], button=button, clicks=clicks)


def drag_mouse(
    context: Context,
    x: float,
    y: float,
    to_x: float,
    to_y: float,
    button: str,
    modifiers: list[str],
    seconds: float,
    wait: float,
    shot: str | None = None,
) -> Result:
    from Xlib import X
    from Xlib.ext import xtest

    begin, end = context.screen.place(x, y, shot), context.screen.place(to_x, to_y, shot)
    effects = Effects(context)
    number = BUTTONS[button]
    steps = max(4, int(seconds / STEP))
    with context.display.session() as connection:
        keys = keycodes_of(connection, modifiers)
        press(connection, keys)
        _move(connection, *begin)
        xtest.fake_input(connection.x, X.ButtonPress, number)
        connection.x.sync()
    try:
        for step in range(1, steps + 1):
            context.caller.sleep(seconds / steps)
            part = step / steps
            with context.display.session() as connection:
                _move(
                    connection,
                    round(begin[0] + (end[0] - begin[0]) * part),
                    round(begin[1] + (end[1] - begin[1]) * part),
                )
                connection.x.sync()
    finally:
        with context.display.session() as connection:
            xtest.fake_input(connection.x, X.ButtonRelease, number)
            release(connection, keys)
            connection.x.sync()
    what = f"dragged with the {button} button from {begin[0]}, {begin[1]} to {end[0]}, {end[1]}"
    return effects.result(what, wait, x=begin[0], y=begin[1], to_x=end[0], to_y=end[1])


def scroll(
    context: Context,
    direction: str,
    amount: int,
    modifiers: list[str],
    wait: float,
    x: float | None = None,
    y: float | None = None,
    shot: str | None = None,
) -> Result:
    point = _point(context, x, y, shot)
    effects = Effects(context)
    _press_at(context, None if x is None else point, WHEEL[direction], amount, modifiers)
    what = f"scrolled {direction} by {amount} at {point[0]}, {point[1]}"
    return effects.result(what, wait, x=point[0], y=point[1], direction=direction, amount=amount)


def _press_at(context: Context, point: tuple[int, int] | None, number: int, times: int, modifiers: list[str]) -> None:
    """Press a button some times, at a point or where the pointer is, while keys are held."""
    with context.display.session() as connection, held(connection, keycodes_of(connection, modifiers)):
        if point is not None:
            _move(connection, *point)
        for _ in range(times):
            _press(connection, number)
        connection.x.sync()


def _point(context: Context, x: float | None, y: float | None, shot: str | None) -> tuple[int, int]:
    if x is None and y is None:
        with context.display.session() as connection:
            return _where(connection)
    if x is None or y is None:
        raise ToolError("x and y belong together; give both, or neither to stay where the pointer is")
    return context.screen.place(x, y, shot)


def _where(connection: Connection) -> tuple[int, int]:
    found: Any = connection.root.query_pointer()
    return found.root_x, found.root_y


def _move(connection: Connection, x: int, y: int) -> None:
    from Xlib import X
    from Xlib.ext import xtest

    xtest.fake_input(connection.x, X.MotionNotify, x=x, y=y)


def _press(connection: Connection, number: int) -> None:
    from Xlib import X
    from Xlib.ext import xtest

    xtest.fake_input(connection.x, X.ButtonPress, number)
    xtest.fake_input(connection.x, X.ButtonRelease, number)
