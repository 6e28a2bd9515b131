"""Tools for windows: list, activate, close, resize, maximise, minimise and restore."""

from __future__ import annotations

import time

from .manager import Window, active_id, ask, called, client_list, described, find, listed
from .registry import Tool
from .results import Result, ToolError, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .context import Context
    from .display import Connection

CLOSING = 2.0
"""Seconds in which a window that was asked to close is expected to."""
MOVING = 1.0
"""Seconds in which the window manager is expected to do what it was asked."""

RESTING = 0.08
"""Seconds in which a window must not move for its place to be told: window managers show how it comes and goes."""

_ADD, _REMOVE = 1, 0
_FROM_PAGER = 2
_ICONIC = 3


def tools(context: Context) -> list[Tool]:
    window = {
        "window": {
            "type": "string",
            "maxLength": 500,
            "description": "Its id (0x…) or a part of its title; the active window if absent.",
        }
    }
    size = {"type": "integer", "minimum": 1, "maximum": 32767}
    place = {"type": "integer", "minimum": -32768, "maximum": 32767}
    return [
        Tool(
            "list_windows",
            "List the windows with ids, titles, places and sizes, from the lowest to the topmost.",
            {},
            [],
            list_windows,
            read_only=True,
        ),
        Tool(
            "activate_window",
            "Bring a window to the front and give it the keyboard.",
            window,
            [],
            activate_window,
            input=True,
            changes_screen=True,
        ),
        Tool(
            "close_window",
            "Ask a window to close, as its close button does. Programs may ask back in a dialog; the result says so.",
            window,
            [],
            close_window,
            input=True,
            changes_screen=True,
        ),
        Tool(
            "resize_window",
            "Give a window another size, place, or both.",
            {**window, "width": size, "height": size, "x": place, "y": place},
            [],
            resize_window,
            input=True,
            changes_screen=True,
        ),
        Tool(
            "window_maximize",
            "Make a window as large as the screen allows.",
            window,
            [],
            window_maximize,
            input=True,
            changes_screen=True,
        ),
        Tool(
            "window_minimize",
            "Hide a window; activate_window or window_restore brings it back.",
            window,
            [],
            window_minimize,
            input=True,
            changes_screen=True,
        ),
        Tool(
            "window_restore",
            "Undo maximising and minimising.",
            window,
            [],
            window_restore,
            input=True,
            changes_screen=True,
        ),
    ]


def list_windows(context: Context) -> Result:
    with context.display.session() as connection:
        active = active_id(connection)
        documents = [window.document(active) for window in listed(connection)]
    lines = [_line(document) for document in documents]
    return Result("\n".join(lines) or "there are no windows", structured={"windows": documents})


def activate_window(context: Context, window: str | None = None) -> Result:
    def act(connection: Connection, found: Window) -> None:
        ask(connection, found, "_NET_ACTIVE_WINDOW", _FROM_PAGER)

    return _change(context, window, "activated", act, lambda connection, found: active_id(connection) == found.id)


def window_maximize(context: Context, window: str | None = None) -> Result:
    def act(connection: Connection, found: Window) -> None:
        if found.minimized:
            ask(connection, found, "_NET_ACTIVE_WINDOW", _FROM_PAGER)
        _maximize(connection, found, _ADD)

    return _change(context, window, "maximised", act, lambda connection, found: found.maximized)


def window_minimize(context: Context, window: str | None = None) -> Result:
    def act(connection: Connection, found: Window) -> None:
        ask(connection, found, "WM_CHANGE_STATE", _ICONIC)

    return _change(context, window, "minimised", act, lambda connection, found: found.minimized)


def window_restore(context: Context, window: str | None = None) -> Result:
    def act(connection: Connection, found: Window) -> None:
        if found.minimized:
            ask(connection, found, "_NET_ACTIVE_WINDOW", _FROM_PAGER)
        _maximize(connection, found, _REMOVE)

    def done(connection: Connection, found: Window) -> bool:
        return not found.minimized and not found.maximized

    return _change(context, window, "restored", act, done)


def resize_window(
    context: Context,
    window: str | None = None,
    width: int | None = None,
    height: int | None = None,
    x: int | None = None,
    y: int | None = None,
) -> Result:
    if width is None and height is None and x is None and y is None:
        raise ToolError("say which width and height, or which x and y")

    def act(connection: Connection, found: Window) -> None:
        flags = sum(1 << (8 + bit) for bit, value in enumerate((x, y, width, height)) if value is not None)
        _maximize(connection, found, _REMOVE)
        ask(connection, found, "_NET_MOVERESIZE_WINDOW", flags | 1 << 13, x or 0, y or 0, width or 0, height or 0)

    def done(connection: Connection, found: Window) -> bool:
        # A terminal keeps to whole characters and a frame takes its place, so near is as good as there.
        pairs = ((width, found.width, 24), (height, found.height, 24), (x, found.x, 64), (y, found.y, 64))
        near = all(asked is None or abs(asked - there) <= most for asked, there, most in pairs)
        return near and not found.maximized

    return _change(context, window, "resized", act, done)


def close_window(context: Context, window: str | None = None) -> Result:
    with context.display.session() as connection:
        found = find(connection, window)
        before = set(client_list(connection))
        ask(connection, found, "_NET_CLOSE_WINDOW", 0, _FROM_PAGER)
    deadline = time.monotonic() + CLOSING
    while True:
        with context.display.session() as connection:
            present = client_list(connection)
            new = [described(connection, identifier) for identifier in present if identifier not in before]
            dialogs = [other for other in new if other is not None and not other.dock]
            asked = None
            if found.id not in present:
                break
            late = time.monotonic() > deadline
            asked = dialogs[-1] if dialogs else _blocking(connection, found) if late else None
            if asked is not None:
                break
            if late:
                text = f"{called(found)} was asked to close and is still there"
                return Result(text, structured={"window": found.name, "closed": False})
            serial = connection.serial
        context.display.wait(serial, 0.05, context.caller)
    if asked is not None:
        text, dialog = brought_forward(context, asked)
        text = f"{called(found)} is still there: {text}"
        return Result(text, structured={"window": found.name, "closed": False, "dialog": dialog})
    return Result(f"closed {called(found)}", structured={"window": found.name, "closed": True})


def brought_forward(context: Context, dialog: Window) -> tuple[str, dict[str, Any]]:
    """Show a dialog that somebody must answer, wherever it was; returns words on it and its description."""
    text = f"the dialog {called(dialog)} wants an answer first"
    try:
        shown = activate_window(context, dialog.name)
    except ToolError:
        return text, dialog.document(0)  # It has gone meanwhile.
    text += f"; activate {dialog.name} before" if shown.error else ", and is in front now"
    return text, dict(shown.structured or dialog.document(0))


def _change(
    context: Context,
    wanted: str | None,
    verb: str,
    act: Callable[[Connection, Window], None],
    done: Callable[[Connection, Window], bool],
) -> Result:
    """Ask the window manager for something, and see to it that it has happened before saying so."""
    with context.display.session() as connection:
        found = find(connection, wanted)
        act(connection, found)
    deadline = time.monotonic() + MOVING
    place, since = (0, 0, 0, 0), 0.0
    while True:
        with context.display.session() as connection:
            now = described(connection, found.id)
            if now is None:
                raise ToolError(f"{called(found)} has vanished")
            finished = done(connection, now)
            if now.place != place:
                place, since = now.place, time.monotonic()
            rests = now.minimized or time.monotonic() - since >= RESTING
            if (finished and rests) or time.monotonic() > deadline:
                active = active_id(connection)
                blocking = _blocking(connection, now)
                break
            serial = connection.serial
        context.display.wait(serial, 0.02, context.caller)
    text = f"{verb} {called(now)}" if finished else f"{called(now)} was not {verb}: the window manager did not do it"
    if not now.minimized:
        text += f"; it is {now.width}x{now.height} at {now.x}, {now.y}"
    structured = now.document(active)
    if blocking is not None:
        structured["blocked_by"] = blocking.document(active)
        text += f"; the modal dialog {called(blocking)} must be answered before it takes input"
    return Result(text, structured=structured, error=not finished)


def _blocking(connection: Connection, window: Window) -> Window | None:
    for other in listed(connection):
        if other.modal and other.owner == window.id:
            return other
    return None


def _maximize(connection: Connection, window: Window, action: int) -> None:
    across = connection.atom("_NET_WM_STATE_MAXIMIZED_HORZ")
    down = connection.atom("_NET_WM_STATE_MAXIMIZED_VERT")
    ask(connection, window, "_NET_WM_STATE", action, down, across, _FROM_PAGER)


def _line(document: dict[str, Any]) -> str:
    marks = [word for word in ("active", "minimized", "maximized", "dialog", "modal") if document[word]]
    shown = f"{document['window']}  {quoted(document['title'])}  {document['app']}  pid {document['pid']}  "
    place = f"{document['width']}x{document['height']}"
    if not document["minimized"]:
        place += f" at {document['x']}, {document['y']}"
    return shown + place + (f"  [{', '.join(marks)}]" if marks else "")
