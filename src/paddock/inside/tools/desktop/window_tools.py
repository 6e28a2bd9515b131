"""Tools for windows: list, activate, close, resize, maximise, minimise and restore."""

from __future__ import annotations

import time

from ..tool_registry import CallableTool
from ..tool_result import ToolCallResult, ToolError, quote_title
from .window_manager import (
    XWindow,
    active_window_id,
    describe_window,
    find_window,
    list_window_ids,
    list_x_windows,
    read_x_window,
    send_window_manager_request,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..tool_context import ToolContext
    from .x_display import XConnection

CLOSE_TIMEOUT = 2.0
"""Seconds a window gets to close."""
CHANGE_TIMEOUT = 1.0
"""Seconds the window manager gets to apply a change."""

STILL_SECONDS = 0.08
"""Seconds a window must not move before its position is reported; window managers animate changes."""

_ADD, _REMOVE = 1, 0
_FROM_PAGER = 2
_ICONIC = 3


def window_tools(context: ToolContext) -> list[CallableTool]:
    window = {
        "window": {
            "type": "string",
            "maxLength": 500,
            "description": "Its id (0x…) or a part of its title; the active window if absent.",
        }
    }
    size = {"type": "integer", "minimum": 1, "maximum": 32767}
    position_schema = {"type": "integer", "minimum": -32768, "maximum": 32767}
    return [
        CallableTool(
            "list_windows",
            "List the windows with ids, titles, positions and sizes, from bottom to top.",
            {},
            [],
            list_windows,
            read_only=True,
        ),
        CallableTool(
            "activate_window",
            "Bring a window to the front and give it the keyboard focus.",
            window,
            [],
            activate_window,
            input=True,
            changes_screen=True,
        ),
        CallableTool(
            "close_window",
            "Ask a window to close, as its close button does. The result says if the program shows a dialog instead.",
            window,
            [],
            close_window,
            input=True,
            changes_screen=True,
        ),
        CallableTool(
            "resize_window",
            "Change the size or position of a window.",
            {**window, "width": size, "height": size, "x": position_schema, "y": position_schema},
            [],
            resize_window,
            input=True,
            changes_screen=True,
        ),
        CallableTool(
            "window_maximize",
            "Maximise a window.",
            window,
            [],
            window_maximize,
            input=True,
            changes_screen=True,
        ),
        CallableTool(
            "window_minimize",
            "Hide a window; activate_window or window_restore brings it back.",
            window,
            [],
            window_minimize,
            input=True,
            changes_screen=True,
        ),
        CallableTool(
            "window_restore",
            "Undo maximising and minimising.",
            window,
            [],
            window_restore,
            input=True,
            changes_screen=True,
        ),
    ]


def list_windows(context: ToolContext) -> ToolCallResult:
    with context.display.connection() as connection:
        active = active_window_id(connection)
        documents = [window.to_document(active) for window in list_x_windows(connection)]
    lines = [_window_line(document) for document in documents]
    return ToolCallResult("\n".join(lines) or "there are no windows", structured={"windows": documents})


def activate_window(context: ToolContext, window: str | None = None) -> ToolCallResult:
    def act(connection: XConnection, found: XWindow) -> None:
        send_window_manager_request(connection, found, "_NET_ACTIVE_WINDOW", _FROM_PAGER)

    return _request_change(
        context, window, "activated", act, lambda connection, found: active_window_id(connection) == found.id
    )


def window_maximize(context: ToolContext, window: str | None = None) -> ToolCallResult:
    def act(connection: XConnection, found: XWindow) -> None:
        if found.minimized:
            send_window_manager_request(connection, found, "_NET_ACTIVE_WINDOW", _FROM_PAGER)
        _maximize(connection, found, _ADD)

    return _request_change(context, window, "maximised", act, lambda connection, found: found.maximized)


def window_minimize(context: ToolContext, window: str | None = None) -> ToolCallResult:
    def act(connection: XConnection, found: XWindow) -> None:
        send_window_manager_request(connection, found, "WM_CHANGE_STATE", _ICONIC)

    return _request_change(context, window, "minimised", act, lambda connection, found: found.minimized)


def window_restore(context: ToolContext, window: str | None = None) -> ToolCallResult:
    def act(connection: XConnection, found: XWindow) -> None:
        if found.minimized:
            send_window_manager_request(connection, found, "_NET_ACTIVE_WINDOW", _FROM_PAGER)
        _maximize(connection, found, _REMOVE)

    def done(connection: XConnection, found: XWindow) -> bool:
        return not found.minimized and not found.maximized

    return _request_change(context, window, "restored", act, done)


def resize_window(
    context: ToolContext,
    window: str | None = None,
    width: int | None = None,
    height: int | None = None,
    x: int | None = None,
    y: int | None = None,
) -> ToolCallResult:
    if width is None and height is None and x is None and y is None:
        raise ToolError("give width and height, x and y, or all of them")

    def act(connection: XConnection, found: XWindow) -> None:
        flags = sum(1 << (8 + bit) for bit, value in enumerate((x, y, width, height)) if value is not None)
        _maximize(connection, found, _REMOVE)
        send_window_manager_request(
            connection, found, "_NET_MOVERESIZE_WINDOW", flags | 1 << 13, x or 0, y or 0, width or 0, height or 0
        )

    def done(connection: XConnection, found: XWindow) -> bool:
        # Terminals snap to whole characters and frames take space, so an approximate result is accepted.
        pairs = ((width, found.width, 24), (height, found.height, 24), (x, found.x, 64), (y, found.y, 64))
        near = all(wanted is None or abs(wanted - actual) <= tolerance for wanted, actual, tolerance in pairs)
        return near and not found.maximized

    return _request_change(context, window, "resized", act, done)


def close_window(context: ToolContext, window: str | None = None) -> ToolCallResult:
    with context.display.connection() as connection:
        found = find_window(connection, window)
        before = set(list_window_ids(connection))
        send_window_manager_request(connection, found, "_NET_CLOSE_WINDOW", 0, _FROM_PAGER)
    deadline = time.monotonic() + CLOSE_TIMEOUT
    while True:
        with context.display.connection() as connection:
            present = list_window_ids(connection)
            new = [read_x_window(connection, identifier) for identifier in present if identifier not in before]
            dialogs = [other for other in new if other is not None and not other.dock]
            opened_dialog = None
            if found.id not in present:
                break
            late = time.monotonic() > deadline
            opened_dialog = dialogs[-1] if dialogs else _blocking_dialog(connection, found) if late else None
            if opened_dialog is not None:
                break
            if late:
                text = f"{describe_window(found)} was asked to close and is still there"
                return ToolCallResult(text, structured={"window": found.name, "closed": False})
            serial = connection.change_serial
        context.display.wait_for_change(serial, 0.05, context.caller)
    if opened_dialog is not None:
        text, dialog = activate_dialog(context, opened_dialog)
        text = f"{describe_window(found)} is still there: {text}"
        return ToolCallResult(text, structured={"window": found.name, "closed": False, "dialog": dialog})
    return ToolCallResult(f"closed {describe_window(found)}", structured={"window": found.name, "closed": True})


def activate_dialog(context: ToolContext, dialog: XWindow) -> tuple[str, dict[str, Any]]:
    """Activate a dialog that must be answered; return a message about it and its description."""
    text = f"the dialog {describe_window(dialog)} must be answered first"
    try:
        shown = activate_window(context, dialog.name)
    except ToolError:
        return text, dialog.to_document(0)  # It has vanished meanwhile.
    text += f"; activate {dialog.name} before" if shown.error else " and is now in front"
    return text, dict(shown.structured or dialog.to_document(0))


def _request_change(
    context: ToolContext,
    wanted: str | None,
    verb: str,
    act: Callable[[XConnection, XWindow], None],
    done: Callable[[XConnection, XWindow], bool],
) -> ToolCallResult:
    """Request a change from the window manager and wait until it is applied."""
    with context.display.connection() as connection:
        found = find_window(connection, wanted)
        act(connection, found)
    deadline = time.monotonic() + CHANGE_TIMEOUT
    last_geometry, since = (0, 0, 0, 0), 0.0
    while True:
        with context.display.connection() as connection:
            now = read_x_window(connection, found.id)
            if now is None:
                raise ToolError(f"{describe_window(found)} has vanished")
            finished = done(connection, now)
            if now.geometry != last_geometry:
                last_geometry, since = now.geometry, time.monotonic()
            rests = now.minimized or time.monotonic() - since >= STILL_SECONDS
            if (finished and rests) or time.monotonic() > deadline:
                active = active_window_id(connection)
                blocking = _blocking_dialog(connection, now)
                break
            serial = connection.change_serial
        context.display.wait_for_change(serial, 0.02, context.caller)
    text = (
        f"{verb} {describe_window(now)}"
        if finished
        else f"{describe_window(now)} was not {verb}: the window manager did not apply it"
    )
    if not now.minimized:
        text += f"; it is {now.width}x{now.height} at {now.x}, {now.y}"
    structured = now.to_document(active)
    if blocking is not None:
        structured["blocked_by"] = blocking.to_document(active)
        text += f"; the modal dialog {describe_window(blocking)} must be answered before the window takes input"
    return ToolCallResult(text, structured=structured, error=not finished)


def _blocking_dialog(connection: XConnection, window: XWindow) -> XWindow | None:
    for other in list_x_windows(connection):
        if other.modal and other.owner == window.id:
            return other
    return None


def _maximize(connection: XConnection, window: XWindow, action: int) -> None:
    across = connection.atom("_NET_WM_STATE_MAXIMIZED_HORZ")
    down = connection.atom("_NET_WM_STATE_MAXIMIZED_VERT")
    send_window_manager_request(connection, window, "_NET_WM_STATE", action, down, across, _FROM_PAGER)


def _window_line(document: dict[str, Any]) -> str:
    marks = [word for word in ("active", "minimized", "maximized", "dialog", "modal") if document[word]]
    shown = f"{document['window']}  {quote_title(document['title'])}  {document['app']}  pid {document['pid']}  "
    geometry = f"{document['width']}x{document['height']}"
    if not document["minimized"]:
        geometry += f" at {document['x']}, {document['y']}"
    return shown + geometry + (f"  [{', '.join(marks)}]" if marks else "")
