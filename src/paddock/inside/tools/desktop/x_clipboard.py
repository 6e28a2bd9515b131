"""The X clipboard: read, set and restore it.

X does not store the clipboard: the program that copied answers each paste. So each text that is set gets
a connection and a thread of its own, until another program copies something.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time

from ..tool_result import ToolError
from .x_display import DesktopUnavailable, open_x_display

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

READ_TIMEOUT = 1.5
"""Seconds the program that owns the clipboard gets to answer."""
MAX_CONTENTS = 16 * 1024 * 1024
MAX_TARGETS = 12
INCREMENT = 128 * 1024
"""Bytes sent at once; larger contents are sent incrementally (INCR)."""
OTHER_PROCESS_GRACE = 0.4
"""Seconds to wait for the window itself if only another process fetched the contents, as in Wine."""

_TEXT = ("UTF8_STRING", "text/plain;charset=utf-8", "TEXT", "STRING", "text/plain")
_META_TARGETS = frozenset(("TARGETS", "MULTIPLE", "TIMESTAMP", "SAVE_TARGETS", "DELETE", "INSERT_PROPERTY"))

ClipboardContents = dict


class XClipboard:
    """The clipboard of one X display."""

    def __init__(self, name: str | None = None) -> None:
        self._name = name or os.environ.get("DISPLAY") or ""
        self._owner: ClipboardOwner | None = None

    def text(self) -> str | None:
        """Return the text on the clipboard; None if it has no text."""
        found = self._read(_TEXT[:1] + _TEXT[3:4])
        if not found:
            return None
        if "UTF8_STRING" in found:
            return found["UTF8_STRING"].decode("utf-8", "replace")
        return found["STRING"].decode("latin-1")

    def contents(self) -> ClipboardContents[str, bytes]:
        """Return the clipboard in all offered formats that are small enough."""
        return self._read(())

    def own_text(self, text: str, primary: bool = False) -> ClipboardOwner:
        data = text.encode("utf-8", "surrogatepass")
        contents_by_format = dict.fromkeys(_TEXT[:3] + _TEXT[4:], data)
        try:
            contents_by_format["STRING"] = text.encode("latin-1")
        except UnicodeEncodeError:
            pass
        return self._take_ownership(contents_by_format, primary)

    def restore(self, contents: ClipboardContents[str, bytes], after: ClipboardOwner) -> None:
        """Restore earlier contents, unless another program has copied something meanwhile."""
        if not after.has_lost_ownership and contents:
            self._take_ownership(contents, False)
        after.release()

    def _take_ownership(self, contents_by_format: Mapping[str, bytes], primary: bool) -> ClipboardOwner:
        owner: ClipboardOwner = _connect(self._name, lambda x: ClipboardOwner(x, contents_by_format, primary))
        self._owner = owner
        return owner

    def _read(self, wanted: tuple[str, ...]) -> ClipboardContents[str, bytes]:
        owner = self._owner
        if owner is not None and not owner.has_lost_ownership:
            contents_by_format = dict(owner.contents_by_format)
            return (
                {name: contents_by_format[name] for name in wanted if name in contents_by_format}
                if wanted
                else contents_by_format
            )
        reader: ClipboardReader = _connect(self._name, ClipboardReader)
        try:
            return reader.read(wanted)
        finally:
            reader.close()


def _connect(name: str, make: Callable[[Any], Any]) -> Any:
    from Xlib import error

    try:
        return make(open_x_display(name))
    except (error.ConnectionClosedError, ConnectionError):
        raise DesktopUnavailable(f"the desktop on {name} has just ended") from None


class _ClipboardConnection:
    """An X connection with a window; the contents are transferred in its properties."""

    def __init__(self, x: Any) -> None:
        from Xlib import X

        self._x = x
        self._atoms: dict[str, int] = {}
        screen = x.screen()
        self._window = screen.root.create_window(0, 0, 1, 1, 0, X.CopyFromParent)
        self._window.change_attributes(event_mask=X.PropertyChangeMask)
        self._selection = self.atom("CLIPBOARD")

    def atom(self, name: str) -> int:
        if name not in self._atoms:
            self._atoms[name] = self._x.intern_atom(name)
        return self._atoms[name]

    def hang_up(self) -> None:
        try:
            self._x.display.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        self.hang_up()
        try:
            self._x.display.socket.close()
        except OSError:
            pass


class ClipboardReader(_ClipboardConnection):
    """Requests the contents from the clipboard's owner."""

    def read(self, wanted: tuple[str, ...]) -> ClipboardContents[str, bytes]:
        from Xlib import error

        try:
            if not self._x.get_selection_owner(self._selection):
                return {}
            return self._read(wanted, time.monotonic() + READ_TIMEOUT)
        except (error.ConnectionClosedError, ConnectionError):
            raise DesktopUnavailable("the desktop is not running") from None
        except error.BadAtom:
            return {}

    def _read(self, wanted: tuple[str, ...], deadline: float) -> ClipboardContents[str, bytes]:
        offered = self._fetch("TARGETS", deadline)
        if offered is None:
            raise ToolError("the program that owns the clipboard does not answer; copy again")
        numbers = [int.from_bytes(offered[at : at + 4], "little") for at in range(0, len(offered) - 3, 4)]
        names = [self._x.get_atom_name(number) for number in numbers[:64] if number]
        found: ClipboardContents[str, bytes] = {}
        left = MAX_CONTENTS
        for name in [name for name in wanted if name in names] if wanted else names:
            if name in _META_TARGETS or len(found) >= MAX_TARGETS:
                continue
            data = self._fetch(name, deadline, left)
            if data is not None:
                found[name] = data
                left -= len(data)
            if wanted and found:
                break
        return found

    def _fetch(self, target: str, deadline: float, limit: int = MAX_CONTENTS) -> bytes | None:
        from Xlib import X

        property_atom = self.atom("PADDOCK_CLIPBOARD")
        self._window.delete_property(property_atom)
        self._window.convert_selection(self._selection, self.atom(target), property_atom, X.CurrentTime)
        event = self._wait_for_event(lambda event: event.type == X.SelectionNotify, deadline)
        if event is None or event.property == X.NONE:
            return None
        data, kind = self._take_property(property_atom)
        if kind != self.atom("INCR"):
            return data if len(data) <= limit else None
        parts: list[bytes] = []
        size = 0
        while True:
            arrived = self._wait_for_event(
                lambda event: event.type == X.PropertyNotify and event.atom == property_atom and event.state == 0,
                deadline,
            )
            if arrived is None:
                return None
            data, _ = self._take_property(property_atom)
            if not data:
                return b"".join(parts)
            size += len(data)
            if size > limit:
                return None
            parts.append(data)

    def _take_property(self, property_atom: int) -> tuple[bytes, int]:
        from Xlib import X

        found = self._window.get_property(property_atom, X.AnyPropertyType, 0, MAX_CONTENTS // 4)
        self._window.delete_property(property_atom)
        self._x.flush()
        if found is None:
            return b"", 0
        value = found.value
        return (value.tobytes() if hasattr(value, "tobytes") else bytes(value)), found.property_type

    def _wait_for_event(self, wanted: Callable[[Any], bool], deadline: float) -> Any:
        while True:
            while self._x.pending_events():
                event = self._x.next_event()
                if wanted(event):
                    return event
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return None
            select.select([self._x.fileno()], [], [], remaining)


class ClipboardOwner(_ClipboardConnection):
    """Serves the contents to pasting programs until another program copies something."""

    def __init__(self, x: Any, contents_by_format: Mapping[str, bytes], primary: bool) -> None:
        from Xlib import X

        super().__init__(x)
        self.contents_by_format = dict(contents_by_format)
        self.has_lost_ownership = False
        self._names = {self.atom(name): name for name in self.contents_by_format}
        self._mask = ~x.display.info.resource_id_mask
        self._changed = threading.Condition()
        self._fetches: list[tuple[float, int]] = []
        self._transfers: dict[tuple[int, int], Any] = {}
        self._selections = [self._selection, self.atom("PRIMARY")] if primary else [self._selection]
        for selection in self._selections:
            self._window.set_selection_owner(selection, X.CurrentTime)
        x.sync()
        threading.Thread(target=self._serve, daemon=True).start()

    def wait_until_pasted(self, since: float, window: int, timeout: float) -> bool:
        """Wait until the program of `window` has fetched the contents; False on timeout."""
        deadline = since + timeout
        client = window & self._mask
        with self._changed:
            while True:
                now = time.monotonic()
                if any(at >= since and client_id == client for at, client_id in self._fetches):
                    return True
                fetched_elsewhere = any(client_id not in (0, client) for _, client_id in self._fetches)
                if fetched_elsewhere and now >= since + OTHER_PROCESS_GRACE:
                    return True
                if now >= deadline or self.has_lost_ownership:
                    return False
                self._changed.wait((since + OTHER_PROCESS_GRACE if fetched_elsewhere else deadline) - now)

    def release(self) -> None:
        """Stop serving the contents."""
        self.has_lost_ownership = True
        self.hang_up()  # The serving thread notices and closes the connection.

    def _serve(self) -> None:
        from Xlib import X, error

        try:
            while self._selections:
                event = self._x.next_event()
                if event.type == X.SelectionRequest:
                    self._answer(event)
                elif event.type == X.SelectionClear:
                    self._selections = [atom for atom in self._selections if atom != event.atom]
                elif event.type == X.PropertyNotify and event.state == X.PropertyDelete:
                    self._send_piece(event.window, event.atom)
        except (error.ConnectionClosedError, error.DisplayError, OSError, ValueError, TypeError):
            pass  # The server has ended, or this owner was released.
        finally:
            with self._changed:
                self.has_lost_ownership = True
                self._changed.notify_all()
            self.close()

    def _answer(self, event: Any) -> None:
        from Xlib import X
        from Xlib.protocol import event as events

        property_atom = event.property or event.target
        requestor = event.requestor
        name = self._names.get(event.target)
        if event.target == self.atom("TARGETS"):
            offered = [self.atom("TARGETS"), *self._names]
            requestor.change_property(property_atom, self.atom("ATOM"), 32, offered)
        elif name is None:
            property_atom = X.NONE
        elif len(self.contents_by_format[name]) > INCREMENT:
            data = self.contents_by_format[name]
            requestor.change_attributes(event_mask=X.PropertyChangeMask)
            requestor.change_property(property_atom, self.atom("INCR"), 32, [len(data)])
            self._transfers[requestor.id, property_atom] = [event.target, memoryview(data)]
        else:
            requestor.change_property(
                property_atom, self._property_type(name, event.target), 8, self.contents_by_format[name]
            )
        answer = events.SelectionNotify(
            time=event.time, requestor=requestor, selection=event.selection, target=event.target, property=property_atom
        )
        requestor.send_event(answer)
        self._x.flush()
        if name is not None and (requestor.id, property_atom) not in self._transfers:
            self._note_fetch(requestor.id)

    def _send_piece(self, window: Any, property_atom: int) -> None:
        transfer = self._transfers.get((window.id, property_atom))
        if transfer is None:
            return
        target, left = transfer
        window.change_property(property_atom, target, 8, bytes(left[:INCREMENT]))
        self._x.flush()
        if left:
            transfer[1] = left[INCREMENT:]
        else:
            del self._transfers[window.id, property_atom]
            self._note_fetch(window.id)

    def _property_type(self, name: str, target: int) -> int:
        return self.atom("UTF8_STRING") if name == "TEXT" else target

    def _note_fetch(self, requestor: int) -> None:
        with self._changed:
            self._fetches.append((time.monotonic(), requestor & self._mask))
            del self._fetches[:-100]
            self._changed.notify_all()
