"""What the window manager knows: the windows, which is active, and how it is asked to change them."""

from __future__ import annotations

from .results import ToolError, quoted, readable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .display import Connection

MAX_WINDOWS = 200
MAX_TITLE = 200


class Window:
    """A window as the window manager lists it."""

    def __init__(self, connection: Connection, identifier: int) -> None:
        self.id = identifier
        self._connection = connection
        self.handle = connection.x.create_resource_object("window", identifier)
        self.title = title_of(connection, self.handle)
        self.app = app_of(connection, self.handle)[-1]
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
    def place(self) -> tuple[int, int, int, int]:
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
    for identifier in client_list(connection)[:MAX_WINDOWS]:
        window = described(connection, identifier)
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
    return _text(_bytes(connection, handle, "_NET_WM_NAME") or _bytes(connection, handle, "WM_NAME"))


def app_of(connection: Connection, handle: Any) -> list[str]:
    """Return the two names that a program's windows carry."""
    names = _bytes(connection, handle, "WM_CLASS").split(b"\0")
    return [_text(name) for name in names[:2]]


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


def client_list(connection: Connection) -> list[int]:
    stacked = _property(connection, connection.root, "_NET_CLIENT_LIST_STACKING")
    return [int(identifier) for identifier in stacked or _property(connection, connection.root, "_NET_CLIENT_LIST")]


def described(connection: Connection, identifier: int) -> Window | None:
    """Return what is known of a window, or None when it has gone meanwhile."""
    from Xlib import error

    try:
        return Window(connection, identifier)
    except (error.BadWindow, error.BadDrawable):
        return None


def ask(connection: Connection, window: Window, message: str, *values: int) -> None:
    """Send the window manager a request about a window."""
    from Xlib import X
    from Xlib.protocol import event

    data = (32, [*values, 0, 0, 0, 0, 0][:5])
    told = event.ClientMessage(window=window.handle, client_type=connection.atom(message), data=data)
    connection.root.send_event(told, event_mask=X.SubstructureRedirectMask | X.SubstructureNotifyMask)
    connection.x.sync()


def _property(connection: Connection, window: Any, name: str) -> Any:
    from Xlib import X

    found = window.get_property(connection.atom(name), X.AnyPropertyType, 0, 1024)
    return found.value if found is not None and found.format == 32 else ()


def _bytes(connection: Connection, window: Any, name: str) -> bytes:
    """Return the beginning of a property; whoever owns the window may have made it as long as they like."""
    from Xlib import X

    found = window.get_property(connection.atom(name), X.AnyPropertyType, 0, MAX_TITLE)
    if found is None or found.format != 8:
        return b""
    value = found.value
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)


def _atom_name(connection: Connection, atom: int) -> str:
    names = connection.cache.setdefault("names", {})
    if atom not in names:
        names[atom] = connection.x.get_atom_name(atom)
    return str(names[atom])


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return readable(str(value or ""))[:MAX_TITLE]


def called(window: Window) -> str:
    return f"{quoted(window.title)} ({window.name})"


def _names(windows: list[Window]) -> str:
    return ", ".join(called(window) for window in windows[-12:]) or "none"
