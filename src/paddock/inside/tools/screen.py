"""Tools that look at the screen."""

from __future__ import annotations

import time

from .pictures import MIMES, Options
from .registry import Tool
from .results import Result, ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .context import Context


def tools(context: Context) -> list[Tool]:
    pixel = {"type": "integer", "minimum": 0, "maximum": 32767}
    length = {"type": "integer", "minimum": 1, "maximum": 32767}
    return [
        Tool(
            "screenshot",
            "Take a picture of the screen, or of a region of it, enlarged with a scale above 1. Its shot id, given to "
            "a mouse tool, makes x and y pixels of this picture.",
            {
                "scale": {"type": "number", "minimum": 0.05, "maximum": 4, "default": 1},
                "max_width": {"type": "integer", "minimum": 16, "maximum": 16384, "description": "Scale down to it."},
                "region": {
                    "type": "object",
                    "properties": {"x": pixel, "y": pixel, "width": length, "height": length},
                    "required": ["x", "y", "width", "height"],
                    "additionalProperties": False,
                    "description": "In pixels of the screen.",
                },
                "format": {"type": "string", "enum": list(MIMES), "default": "jpeg"},
                "quality": {"type": "integer", "minimum": 1, "maximum": 95, "default": 80},
                "pointer": {"type": "boolean", "default": False, "description": "Show the mouse pointer."},
                "path": {"type": "string", "maxLength": 4096, "description": "Save it to this file as well."},
            },
            [],
            screenshot,
            read_only=True,
        ),
        Tool(
            "get_screen_size",
            "Say how many pixels the screen has.",
            {},
            [],
            get_screen_size,
            read_only=True,
        ),
        Tool(
            "wait_for_settled_screen",
            "Wait until nothing on the screen has changed for a while.",
            {
                "quiet": {"type": "number", "minimum": 0.05, "maximum": 30, "default": 0.5, "description": "Seconds."},
                "timeout": {"type": "number", "minimum": 0.05, "maximum": 60, "default": 10, "description": "Seconds."},
            },
            [],
            wait_for_settled_screen,
            read_only=True,
        ),
    ]


def screenshot(
    context: Context,
    scale: float,
    format: str,
    quality: int,
    pointer: bool,
    max_width: int = 0,
    region: dict[str, Any] | None = None,
    path: str | None = None,
) -> Result:
    box = (region["x"], region["y"], region["width"], region["height"]) if region else None
    target = context.path(path) if path else None
    context.screen.settle()
    shot = context.screen.shot(Options(format, quality, scale, max_width, box, pointer))
    if shot is None:
        raise ToolError("the screen could not be read")
    name = context.screen.remember(shot)
    area = shot.area
    structured = {"shot": name, "width": shot.width, "height": shot.height, "format": format}
    structured["screen"] = {"width": shot.screen[0], "height": shot.screen[1]}
    structured["region"] = {"x": area.x, "y": area.y, "width": area.width, "height": area.height}
    text = f"shot {name}: {shot.width}x{shot.height} pixels of a screen of {shot.screen[0]}x{shot.screen[1]}"
    if (area.width, area.height) != shot.screen:
        text += f", showing {area.width}x{area.height} at {area.x}, {area.y}"
    if target is not None:
        from .files import write_bytes

        write_bytes(target, shot.data)
        text += f"; saved to {target}"
    files = [target] if target is not None else []
    return Result(text, images=[(shot.data, shot.mime)], structured=structured, files=files, shot=name)


def get_screen_size(context: Context) -> Result:
    with context.display.session() as connection:
        connection.arm()
        width, height = connection.width, connection.height
    return Result(f"the screen is {width}x{height} pixels", structured={"width": width, "height": height})


def wait_for_settled_screen(context: Context, quiet: float, timeout: float) -> Result:
    begun = time.monotonic()
    deadline = begun + timeout
    changes = 0
    while True:
        with context.display.session() as connection:
            connection.arm()
            serial = connection.serial
        remaining = deadline - time.monotonic()
        if not context.display.wait(serial, min(quiet, max(0.0, remaining)), context.caller):
            settled = remaining >= quiet
            break
        changes += 1
        if changes > 1000:
            time.sleep(0.01)  # A film plays: looking a hundred times a second is often enough.
    seconds = round(time.monotonic() - begun, 2)
    text = f"the screen settled after {seconds} seconds" if settled else f"the screen still changes after {seconds} s"
    structured = {"settled": settled, "seconds": seconds, "changed": changes > 0}
    return Result(text, structured=structured)
