"""Reads windows from the X window manager and sends it requests (EWMH)."""

from __future__ import annotations

from ..tool_result import ToolError, quote_title, replace_surrogates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .x_display import XConnection

MAX_WINDOWS = 200
MAX_TITLE = 200


class XWindow:
    """Properties of one window of the X display."""

    def __init__(self, connection: XConnection, identifier: int) -> None:
        self.id = identifier
        self._connection = connection
        self.handle = connection.x.create_resource_object("window", identifier)
        self.title = window_title(connection, self.handle)
        self.app = window_class_names(connection, self.handle)[-1]
        pid = _read_property(connection, self.handle, "_NET_WM_PID")
        self.pid = int(pid[0]) if pid else 0
        self.states = {
            _atom_name(connection, atom) for atom in _read_property(connection, self.handle, "_NET_WM_STATE")
        }
        kinds = [_atom_name(connection, a) for a in _read_property(connection, self.handle, "_NET_WM_WINDOW_TYPE")]
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
    def geometry(self) -> tuple[int, int, int, int]:
        return self.x, self.y, self.width, self.height

    @property
    def minimized(self) -> bool:
        return "_NET_WM_STATE_HIDDEN" in self.states

    @property
    def maximized(self) -> bool:
        return {"_NET_WM_STATE_MAXIMIZED_VERT", "_NET_WM_STATE_MAXIMIZED_HORZ"} <= self.states

    @property
    def modal(self) -> bool:
        return "_NET_WM_STATE_MODAL" in self.states

    def to_document(self, active: int) -> dict[str, Any]:
        document: dict[str, Any] = {"window": self.name, "title": self.title, "app": self.app, "pid": self.pid}
        document.update(x=self.x, y=self.y, width=self.width, height=self.height)
        document.update(active=self.id == active, minimized=self.minimized, maximized=self.maximized)
        document.update(dialog=self.dialog or bool(self.owner), modal=self.modal)
        if self.owner:
            document["dialog_of"] = f"0x{self.owner:x}"
        return document


def list_x_windows(connection: XConnection) -> list[XWindow]:
    """Return the windows from bottom to top, without panels and the desktop itself."""
    found = []
    for identifier in list_window_ids(connection)[:MAX_WINDOWS]:
        window = read_x_window(connection, identifier)
        if window is not None and not window.dock:
            found.append(window)
    return found


def active_window_id(connection: XConnection) -> int:
    value = _read_property(connection, connection.root, "_NET_ACTIVE_WINDOW")
    return int(value[0]) if value else 0


def focused_window(connection: XConnection) -> tuple[int, str]:
    """Return the id of the active window and its title; 0 if there is none."""
    from Xlib import error

    identifier = active_window_id(connection)
    if not identifier:
        return 0, ""
    try:
        return identifier, window_title(connection, connection.x.create_resource_object("window", identifier))
    except error.BadWindow:
        return 0, ""


def window_title(connection: XConnection, handle: Any) -> str:
    return _decode_text(_read_bytes(connection, handle, "_NET_WM_NAME") or _read_bytes(connection, handle, "WM_NAME"))


def window_class_names(connection: XConnection, handle: Any) -> list[str]:
    """Return the two names of WM_CLASS."""
    names = _read_bytes(connection, handle, "WM_CLASS").split(b"\0")
    return [_decode_text(name) for name in names[:2]]


def find_window(connection: XConnection, wanted: str | None) -> XWindow:
    """Find a window by its id or a part of its title; the active one by default."""
    windows = list_x_windows(connection)
    if not wanted:
        active = active_window_id(connection)
        for window in windows:
            if window.id == active:
                return window
        raise ToolError(f"no window is active; choose one: {_window_labels(windows)}")
    try:
        identifier = int(wanted, 0)
    except ValueError:
        identifier = -1
    for window in windows:
        if window.id == identifier:
            return window
    if identifier >= 0:
        raise ToolError(f"there is no window {wanted}; open windows: {_window_labels(windows)}")
    exact = [window for window in windows if window.title == wanted]
    matching = exact or [w for w in windows if wanted.lower() in w.title.lower() or wanted.lower() == w.app.lower()]
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise ToolError(f"no window has {wanted!r} in its title; open windows: {_window_labels(windows)}")
    raise ToolError(f"several windows have {wanted!r} in their title; use an id: {_window_labels(matching)}")


def list_window_ids(connection: XConnection) -> list[int]:
    stacked = _read_property(connection, connection.root, "_NET_CLIENT_LIST_STACKING")
    return [
        int(identifier) for identifier in stacked or _read_property(connection, connection.root, "_NET_CLIENT_LIST")
    ]


def read_x_window(connection: XConnection, identifier: int) -> XWindow | None:
    """Read a window's properties; None if it has vanished."""
    from Xlib import error

    try:
        return XWindow(connection, identifier)
    except (error.BadWindow, error.BadDrawable):
        return None


def send_window_manager_request(connection: XConnection, window: XWindow, message: str, *values: int) -> None:
    """Send the window manager a client message about a window."""
    from Xlib import X
    from Xlib.protocol import event

    data = (32, [*values, 0, 0, 0, 0, 0][:5])
    client_message = event.ClientMessage(window=window.handle, client_type=connection.atom(message), data=data)
    connection.root.send_event(client_message, event_mask=X.SubstructureRedirectMask | X.SubstructureNotifyMask)
    connection.x.sync()


def _read_property(connection: XConnection, window: Any, name: str) -> Any:
    from Xlib import X

    found = window.get_property(connection.atom(name), X.AnyPropertyType, 0, 1024)
    return found.value if found is not None and found.format == 32 else ()


def _read_bytes(connection: XConnection, window: Any, name: str) -> bytes:
    """Return the beginning of a property, which a program may have made arbitrarily long."""
    from Xlib import X

    found = window.get_property(connection.atom(name), X.AnyPropertyType, 0, MAX_TITLE)
    if found is None or found.format != 8:
        return b""
    value = found.value
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)


def _atom_name(connection: XConnection, atom: int) -> str:
    names = connection.cache.setdefault("names", {})
    if atom not in names:
        names[atom] = connection.x.get_atom_name(atom)
    return str(names[atom])


def _decode_text(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return replace_surrogates(str(value or ""))[:MAX_TITLE]


def describe_window(window: XWindow) -> str:
    return f"{quote_title(window.title)} ({window.name})"


def _window_labels(windows: list[XWindow]) -> str:
    return ", ".join(describe_window(window) for window in windows[-12:]) or "none"
