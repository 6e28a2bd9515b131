"""Tools that read the screen: screenshot, size, and waiting until it is still."""

from __future__ import annotations

import time

from ..tool_registry import CallableTool
from ..tool_result import ToolCallResult, ToolError
from .screen_images import MIME_TYPES, ScreenCaptureOptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..tool_context import ToolContext


def screenshot_tools(context: ToolContext) -> list[CallableTool]:
    pixel = {"type": "integer", "minimum": 0, "maximum": 32767}
    length = {"type": "integer", "minimum": 1, "maximum": 32767}
    return [
        CallableTool(
            "screenshot",
            "Take a screenshot of the screen or a region of it; a scale above 1 enlarges it. Pass its shot id to a "
            "mouse tool to give x and y in pixels of the screenshot.",
            {
                "scale": {"type": "number", "minimum": 0.05, "maximum": 4, "default": 1},
                "max_width": {
                    "type": "integer",
                    "minimum": 16,
                    "maximum": 16384,
                    "description": "Scale down to this width.",
                },
                "region": {
                    "type": "object",
                    "properties": {"x": pixel, "y": pixel, "width": length, "height": length},
                    "required": ["x", "y", "width", "height"],
                    "additionalProperties": False,
                    "description": "In pixels of the screen.",
                },
                "format": {"type": "string", "enum": list(MIME_TYPES), "default": "jpeg"},
                "quality": {"type": "integer", "minimum": 1, "maximum": 95, "default": 80},
                "pointer": {"type": "boolean", "default": False, "description": "Show the mouse pointer."},
                "path": {"type": "string", "maxLength": 4096, "description": "Save it to this file as well."},
            },
            [],
            screenshot,
            read_only=True,
        ),
        CallableTool(
            "get_screen_size",
            "Return the size of the screen in pixels.",
            {},
            [],
            get_screen_size,
            read_only=True,
        ),
        CallableTool(
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
    context: ToolContext,
    scale: float,
    format: str,
    quality: int,
    pointer: bool,
    max_width: int = 0,
    region: dict[str, Any] | None = None,
    path: str | None = None,
) -> ToolCallResult:
    bounds = (region["x"], region["y"], region["width"], region["height"]) if region else None
    target = context.absolute_path(path) if path else None
    context.screen_capture.wait_until_drawn()
    shot = context.screen_capture.take_screenshot(
        ScreenCaptureOptions(format, quality, scale, max_width, bounds, pointer)
    )
    if shot is None:
        raise ToolError("the screen could not be read")
    name = context.screen_capture.remember_screenshot(shot)
    area = shot.area
    structured = {"shot": name, "width": shot.width, "height": shot.height, "format": format}
    structured["screen"] = {"width": shot.screen[0], "height": shot.screen[1]}
    structured["region"] = {"x": area.x, "y": area.y, "width": area.width, "height": area.height}
    text = f"shot {name}: {shot.width}x{shot.height} pixels of a screen of {shot.screen[0]}x{shot.screen[1]}"
    if (area.width, area.height) != shot.screen:
        text += f", showing {area.width}x{area.height} at {area.x}, {area.y}"
    if target is not None:
        from ..workspace.file_tools import write_file_atomically

        write_file_atomically(target, shot.data)
        text += f"; saved to {target}"
    files = [target] if target is not None else []
    return ToolCallResult(text, images=[(shot.data, shot.mime)], structured=structured, files=files, shot=name)


def get_screen_size(context: ToolContext) -> ToolCallResult:
    with context.display.connection() as connection:
        connection.request_change_event()
        width, height = connection.width, connection.height
    return ToolCallResult(f"the screen is {width}x{height} pixels", structured={"width": width, "height": height})


def wait_for_settled_screen(context: ToolContext, quiet: float, timeout: float) -> ToolCallResult:
    started_at = time.monotonic()
    deadline = started_at + timeout
    changes = 0
    while True:
        with context.display.connection() as connection:
            connection.request_change_event()
            serial = connection.change_serial
        remaining = deadline - time.monotonic()
        if not context.display.wait_for_change(serial, min(quiet, max(0.0, remaining)), context.caller):
            settled = remaining >= quiet
            break
        changes += 1
        if changes > 1000:
            time.sleep(0.01)  # The screen changes constantly: poll at most a hundred times a second.
    seconds = round(time.monotonic() - started_at, 2)
    text = (
        f"the screen settled after {seconds} seconds" if settled else f"the screen is still changing after {seconds} s"
    )
    structured = {"settled": settled, "seconds": seconds, "changed": changes > 0}
    return ToolCallResult(text, structured=structured)
