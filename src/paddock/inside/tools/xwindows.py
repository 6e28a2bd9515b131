"""Tools for windows: list, activate, close, resize, maximise, minimise and restore."""

from __future__ import annotations

import time

from .registry import Tool
from .results import Result, ToolError, readable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .context import Context
    from .display import Connection

MAX_WINDOWS = 200
MAX_TITLE = 200
CLOSING = 2.0
"""Seconds in which a window that was asked to close is expected to."""
MOVING = 1.0
"""Seconds in which the window manager is expected to do what it was asked."""

_ADD, _REMOVE = 1, 0
_FROM_PAGER = 2
_ICONIC = 3


class Window:
    """A window as the window manager lists it."""

    def __init__(self, connection: Connection, identifier: int) -> None:
        self.id = identifier
        self._connection = connection
        self.handle = connection.x.create_resource_object("window", identifier)
        self.title = title_of(connection, self.handle)
        names = self.handle.get_wm_class()
        self.app = _text(names[1] if names else "")
        pid = _property(connection, self.handle, "_NET_WM_PID")
        self.pid = int(pid[0]) if pid else 0
        self.states = {_atom_name(connection, atom) for atom in _property(connection, self.handle, "_NET_WM_STATE")}
        kinds = [_atom_name(connection, a) for a in _property(connection, self.handle, "_NET_WM_WINDOW_TYPE")]
        self.dialog = "_NET_WM_WINDOW_TYPE_DIALOG" in kinds
        self.dock = "_NET_WM_WINDOW_TYPE_DOCK" in kinds or "_NET_WM_WINDOW_TYPE_DESKTOP" in kinds
        owner = self.handle.get_wm_transient_for()
        self.owner = owner.id if owner is not None and owner.id != connection.root.id else 0
        geometry = self.handle.get_geometry()
        corner = self.handle.translate_coords(connection.root, 0, 0)
        self.x, self.y = -corner.x, -corner.y
        self.width, self.height = geometry.width, geometry.height

    @property
    def name(self) -> str:
        return f"0x{self.id:x}"

    @property
    def minimized(self) -> bool:
        return "_NET_WM_STATE_HIDDEN" in self.states

    @property
    def maximized(self) -> bool:
        return {"_NET_WM_STATE_MAXIMIZED_VERT", "_NET_WM_STATE_MAXIMIZED_HORZ"} <= self.states

    @property
    def modal(self) -> bool:
        return "_NET_WM_STATE_MODAL" in self.states

    def document(self, active: int) -> dict[str, Any]:
        document: dict[str, Any] = {"window": self.name, "title": self.title, "app": self.app, "pid": self.pid}
        document.update(x=self.x, y=self.y, width=self.width, height=self.height)
        document.update(active=self.id == active, minimized=self.minimized, maximized=self.maximized)
        document.update(dialog=self.dialog or bool(self.owner), modal=self.modal)
        if self.owner:
            document["dialog_of"] = f"0x{self.owner:x}"
        return document


def listed(connection: Connection) -> list[Window]:
    """Return the windows from the lowest to the topmost; panels and the desktop itself are left out."""
    found = []
    for identifier in _client_list(connection)[:MAX_WINDOWS]:
        window = _described(connection, identifier)
        if window is not None and not window.dock:
            found.append(window)
    return found


def active_id(connection: Connection) -> int:
    value = _property(connection, connection.root, "_NET_ACTIVE_WINDOW")
    return int(value[0]) if value else 0


def focus(connection: Connection) -> tuple[int, str]:
    """Return the active window and its title; 0 when there is none."""
    from Xlib import error

    identifier = active_id(connection)
    if not identifier:
        return 0, ""
    try:
        return identifier, title_of(connection, connection.x.create_resource_object("window", identifier))
    except error.BadWindow:
        return 0, ""


def title_of(connection: Connection, handle: Any) -> str:
    value = handle.get_full_text_property(connection.atom("_NET_WM_NAME"), connection.atom("UTF8_STRING"))
    if value is None:
        value = handle.get_wm_name()
    return _text(value)


def find(connection: Connection, wanted: str | None) -> Window:
    """Return the window of an id or of a part of its title; the active one when nothing is said."""
    windows = listed(connection)
    if not wanted:
        active = active_id(connection)
        for window in windows:
            if window.id == active:
                return window
        raise ToolError(f"no window is active; say which: {_names(windows)}")
    try:
        identifier = int(wanted, 0)
    except ValueError:
        identifier = -1
    for window in windows:
        if window.id == identifier:
            return window
    if identifier >= 0:
        raise ToolError(f"the window {wanted} is not there (any more); there are: {_names(windows)}")
    exact = [window for window in windows if window.title == wanted]
    matching = exact or [w for w in windows if wanted.lower() in w.title.lower() or wanted.lower() == w.app.lower()]
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise ToolError(f"no window has {wanted!r} in its title; there are: {_names(windows)}")
    raise ToolError(f"several windows have {wanted!r} in their title; take one's id: {_names(matching)}")


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
        _ask(connection, found, "_NET_ACTIVE_WINDOW", _FROM_PAGER)

    return _change(context, window, "activated", act, lambda connection, found: active_id(connection) == found.id)


def window_maximize(context: Context, window: str | None = None) -> Result:
    def act(connection: Connection, found: Window) -> None:
        if found.minimized:
            _ask(connection, found, "_NET_ACTIVE_WINDOW", _FROM_PAGER)
        _maximize(connection, found, _ADD)

    return _change(context, window, "maximised", act, lambda connection, found: found.maximized)


def window_minimize(context: Context, window: str | None = None) -> Result:
    def act(connection: Connection, found: Window) -> None:
        _ask(connection, found, "WM_CHANGE_STATE", _ICONIC)

    return _change(context, window, "minimised", act, lambda connection, found: found.minimized)


def window_restore(context: Context, window: str | None = None) -> Result:
    def act(connection: Connection, found: Window) -> None:
        if found.minimized:
            _ask(connection, found, "_NET_ACTIVE_WINDOW", _FROM_PAGER)
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
        _ask(connection, found, "_NET_MOVERESIZE_WINDOW", flags | 1 << 13, x or 0, y or 0, width or 0, height or 0)

    def done(connection: Connection, found: Window) -> bool:
        # A terminal keeps to whole characters and a frame takes its place, so near is as good as there.
        pairs = ((width, found.width, 24), (height, found.height, 24), (x, found.x, 64), (y, found.y, 64))
        near = all(asked is None or abs(asked - there) <= most for asked, there, most in pairs)
        return near and not found.maximized

    return _change(context, window, "resized", act, done)


def close_window(context: Context, window: str | None = None) -> Result:
    with context.display.session() as connection:
        found = find(connection, window)
        before = set(_client_list(connection))
        _ask(connection, found, "_NET_CLOSE_WINDOW", 0, _FROM_PAGER)
    deadline = time.monotonic() + CLOSING
    while True:
        with context.display.session() as connection:
            present = _client_list(connection)
            new = [_described(connection, identifier) for identifier in present if identifier not in before]
            dialogs = [other for other in new if other is not None and not other.dock]
            if found.id not in present:
                break
            if dialogs:
                asked = dialogs[-1]
                structured = {"window": found.name, "closed": False, "dialog": asked.document(asked.id)}
                text = f"{_called(found)} is still there: the dialog {_called(asked)} wants an answer first"
                return Result(text, structured=structured)
            if time.monotonic() > deadline:
                text = f"{_called(found)} was asked to close and is still there"
                return Result(text, structured={"window": found.name, "closed": False})
            serial = connection.serial
        context.display.wait(serial, 0.05)
    return Result(f"closed {_called(found)}", structured={"window": found.name, "closed": True})


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
    while True:
        with context.display.session() as connection:
            now = _described(connection, found.id)
            if now is None:
                raise ToolError(f"{_called(found)} has vanished")
            finished = done(connection, now)
            if finished or time.monotonic() > deadline:
                active = active_id(connection)
                blocking = _blocking(connection, now)
                break
            serial = connection.serial
        context.display.wait(serial, 0.02)
    text = f"{verb} {_called(now)}" if finished else f"{_called(now)} was not {verb}: the window manager did not do it"
    text += f"; it is {now.width}x{now.height} at {now.x}, {now.y}"
    structured = now.document(active)
    if blocking is not None:
        structured["blocked_by"] = blocking.document(active)
        text += f"; the modal dialog {_called(blocking)} must be answered before it takes input"
    return Result(text, structured=structured, error=not finished)


def _blocking(connection: Connection, window: Window) -> Window | None:
    for other in listed(connection):
        if other.modal and other.owner == window.id:
            return other
    return None


def _client_list(connection: Connection) -> list[int]:
    stacked = _property(connection, connection.root, "_NET_CLIENT_LIST_STACKING")
    return [int(identifier) for identifier in stacked or _property(connection, connection.root, "_NET_CLIENT_LIST")]


def _described(connection: Connection, identifier: int) -> Window | None:
    """Return what is known of a window, or None when it has gone meanwhile."""
    from Xlib import error

    try:
        return Window(connection, identifier)
    except (error.BadWindow, error.BadDrawable):
        return None


def _ask(connection: Connection, window: Window, message: str, *values: int) -> None:
    """Send the window manager a request about a window."""
    from Xlib import X
    from Xlib.protocol import event

    data = (32, [*values, 0, 0, 0, 0, 0][:5])
    told = event.ClientMessage(window=window.handle, client_type=connection.atom(message), data=data)
    connection.root.send_event(told, event_mask=X.SubstructureRedirectMask | X.SubstructureNotifyMask)
    connection.x.sync()


def _maximize(connection: Connection, window: Window, action: int) -> None:
    across = connection.atom("_NET_WM_STATE_MAXIMIZED_HORZ")
    down = connection.atom("_NET_WM_STATE_MAXIMIZED_VERT")
    _ask(connection, window, "_NET_WM_STATE", action, down, across, _FROM_PAGER)


def _property(connection: Connection, window: Any, name: str) -> Any:
    from Xlib import X

    found = window.get_property(connection.atom(name), X.AnyPropertyType, 0, 1024)
    return found.value if found is not None and found.format == 32 else ()


def _atom_name(connection: Connection, atom: int) -> str:
    names = connection.cache.setdefault("names", {})
    if atom not in names:
        names[atom] = connection.x.get_atom_name(atom)
    return str(names[atom])


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return readable(str(value or ""))[:MAX_TITLE]


def _called(window: Window) -> str:
    return f"{window.title!r} ({window.name})"


def _names(windows: list[Window]) -> str:
    return ", ".join(_called(window) for window in windows[-12:]) or "none"


def _line(document: dict[str, Any]) -> str:
    marks = [word for word in ("active", "minimized", "maximized", "dialog", "modal") if document[word]]
    shown = f"{document['window']}  {document['title']!r}  {document['app']}  pid {document['pid']}  "
    place = f"{document['width']}x{document['height']} at {document['x']}, {document['y']}"
    return shown + place + (f"  [{', '.join(marks)}]" if marks else "")
