"""The X clipboard: read it, own it, and hand it back.

X has no place that keeps a clipboard: whoever copied something answers each time it is pasted. So each
text that is put there gets a connection and a thread of its own, until another program copies something.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time

from .display import DesktopGone, open_display
from .results import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

READING = 1.5
"""Seconds in which the program that owns the clipboard is expected to answer."""
MAX_CONTENTS = 16 * 1024 * 1024
MAX_TARGETS = 12
PORTION = 128 * 1024
"""Bytes that go in one piece; more are handed over piece by piece."""
ELSEWHERE = 0.4
"""Seconds given to a window whose clipboard another process fetches, as in Wine."""

_TEXT = ("UTF8_STRING", "text/plain;charset=utf-8", "TEXT", "STRING", "text/plain")
_ABOUT = frozenset(("TARGETS", "MULTIPLE", "TIMESTAMP", "SAVE_TARGETS", "DELETE", "INSERT_PROPERTY"))

Contents = dict


class Clipboard:
    """What programs copy to and paste from."""

    def __init__(self, name: str | None = None) -> None:
        self._name = name or os.environ.get("DISPLAY") or ""
        self._owner: Owner | None = None

    def text(self) -> str | None:
        """Return the text on the clipboard; None when there is none."""
        found = self._read(_TEXT[:1] + _TEXT[3:4])
        if not found:
            return None
        if "UTF8_STRING" in found:
            return found["UTF8_STRING"].decode("utf-8", "replace")
        return found["STRING"].decode("latin-1")

    def contents(self) -> Contents[str, bytes]:
        """Return the clipboard in the forms it is offered in, as far as they are small enough to keep."""
        return self._read(())

    def own_text(self, text: str, primary: bool = False) -> Owner:
        data = text.encode("utf-8", "surrogatepass")
        forms = dict.fromkeys(_TEXT[:3] + _TEXT[4:], data)
        try:
            forms["STRING"] = text.encode("latin-1")
        except UnicodeEncodeError:
            pass
        return self._own(forms, primary)

    def restore(self, contents: Contents[str, bytes], after: Owner) -> None:
        """Give the clipboard its earlier contents, unless somebody has copied something meanwhile."""
        if not after.lost and contents:
            self._own(contents, False)
        after.release()

    def _own(self, forms: Mapping[str, bytes], primary: bool) -> Owner:
        owner: Owner = _connected(self._name, lambda x: Owner(x, forms, primary))
        self._owner = owner
        return owner

    def _read(self, wanted: tuple[str, ...]) -> Contents[str, bytes]:
        owner = self._owner
        if owner is not None and not owner.lost:
            forms = dict(owner.forms)
            return {name: forms[name] for name in wanted if name in forms} if wanted else forms
        reader: Reader = _connected(self._name, Reader)
        try:
            return reader.read(wanted)
        finally:
            reader.close()


def _connected(name: str, make: Callable[[Any], Any]) -> Any:
    from Xlib import error

    try:
        return make(open_display(name))
    except (error.ConnectionClosedError, ConnectionError):
        raise DesktopGone(f"the desktop on {name} has just ended") from None


class _Party:
    """One side of a transfer: a connection with a window that properties are put on."""

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


class Reader(_Party):
    """Asks the clipboard's owner for what it has."""

    def read(self, wanted: tuple[str, ...]) -> Contents[str, bytes]:
        from Xlib import error

        try:
            if not self._x.get_selection_owner(self._selection):
                return {}
            return self._read(wanted, time.monotonic() + READING)
        except (error.ConnectionClosedError, ConnectionError):
            raise DesktopGone("the desktop is not running") from None
        except error.BadAtom:
            return {}

    def _read(self, wanted: tuple[str, ...], deadline: float) -> Contents[str, bytes]:
        offered = self._fetch("TARGETS", deadline)
        if offered is None:
            raise ToolError("the program that owns the clipboard does not answer")
        numbers = [int.from_bytes(offered[at : at + 4], "little") for at in range(0, len(offered) - 3, 4)]
        names = [self._x.get_atom_name(number) for number in numbers[:64] if number]
        found: Contents[str, bytes] = {}
        left = MAX_CONTENTS
        for name in [name for name in wanted if name in names] if wanted else names:
            if name in _ABOUT or len(found) >= MAX_TARGETS:
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

        place = self.atom("PADDOCK_CLIPBOARD")
        self._window.delete_property(place)
        self._window.convert_selection(self._selection, self.atom(target), place, X.CurrentTime)
        event = self._await(lambda event: event.type == X.SelectionNotify, deadline)
        if event is None or event.property == X.NONE:
            return None
        data, kind = self._take(place)
        if kind != self.atom("INCR"):
            return data if len(data) <= limit else None
        parts: list[bytes] = []
        size = 0
        while True:
            arrived = self._await(
                lambda event: event.type == X.PropertyNotify and event.atom == place and event.state == 0, deadline
            )
            if arrived is None:
                return None
            data, _ = self._take(place)
            if not data:
                return b"".join(parts)
            size += len(data)
            if size > limit:
                return None
            parts.append(data)

    def _take(self, place: int) -> tuple[bytes, int]:
        from Xlib import X

        found = self._window.get_property(place, X.AnyPropertyType, 0, MAX_CONTENTS // 4)
        self._window.delete_property(place)
        self._x.flush()
        if found is None:
            return b"", 0
        value = found.value
        return (value.tobytes() if hasattr(value, "tobytes") else bytes(value)), found.property_type

    def _await(self, wanted: Callable[[Any], bool], deadline: float) -> Any:
        while True:
            while self._x.pending_events():
                event = self._x.next_event()
                if wanted(event):
                    return event
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return None
            select.select([self._x.fileno()], [], [], remaining)


class Owner(_Party):
    """Answers whoever pastes, until somebody else copies something."""

    def __init__(self, x: Any, forms: Mapping[str, bytes], primary: bool) -> None:
        from Xlib import X

        super().__init__(x)
        self.forms = dict(forms)
        self.lost = False
        self._names = {self.atom(name): name for name in self.forms}
        self._mask = ~x.display.info.resource_id_mask
        self._changed = threading.Condition()
        self._fetches: list[tuple[float, int]] = []
        self._pieces: dict[tuple[int, int], Any] = {}
        self._selections = [self._selection, self.atom("PRIMARY")] if primary else [self._selection]
        for selection in self._selections:
            self._window.set_selection_owner(selection, X.CurrentTime)
        x.sync()
        threading.Thread(target=self._serve, daemon=True).start()

    def wait_taken(self, since: float, window: int, timeout: float) -> bool:
        """Wait until the program of `window` has fetched the contents; False when nobody has."""
        deadline = since + timeout
        client = window & self._mask
        with self._changed:
            while True:
                now = time.monotonic()
                if any(at >= since and who == client for at, who in self._fetches):
                    return True
                elsewhere = any(who not in (0, client) for _, who in self._fetches)
                if elsewhere and now >= since + ELSEWHERE:
                    return True
                if now >= deadline or self.lost:
                    return False
                self._changed.wait((since + ELSEWHERE if elsewhere else deadline) - now)

    def release(self) -> None:
        """Stop answering; what is not somebody else's by now is nobody's."""
        self.lost = True
        self.hang_up()  # The thread that serves notices, and closes.

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
            pass  # The server is gone, or this owner was told to stop.
        finally:
            with self._changed:
                self.lost = True
                self._changed.notify_all()
            self.close()

    def _answer(self, event: Any) -> None:
        from Xlib import X
        from Xlib.protocol import event as events

        place = event.property or event.target
        requestor = event.requestor
        name = self._names.get(event.target)
        if event.target == self.atom("TARGETS"):
            offered = [self.atom("TARGETS"), *self._names]
            requestor.change_property(place, self.atom("ATOM"), 32, offered)
        elif name is None:
            place = X.NONE
        elif len(self.forms[name]) > PORTION:
            data = self.forms[name]
            requestor.change_attributes(event_mask=X.PropertyChangeMask)
            requestor.change_property(place, self.atom("INCR"), 32, [len(data)])
            self._pieces[requestor.id, place] = [event.target, memoryview(data)]
        else:
            requestor.change_property(place, self._kind(name, event.target), 8, self.forms[name])
        answer = events.SelectionNotify(
            time=event.time, requestor=requestor, selection=event.selection, target=event.target, property=place
        )
        requestor.send_event(answer)
        self._x.flush()
        if name is not None and (requestor.id, place) not in self._pieces:
            self._fetched(requestor.id)

    def _send_piece(self, window: Any, place: int) -> None:
        transfer = self._pieces.get((window.id, place))
        if transfer is None:
            return
        target, left = transfer
        window.change_property(place, target, 8, bytes(left[:PORTION]))
        self._x.flush()
        if left:
            transfer[1] = left[PORTION:]
        else:
            del self._pieces[window.id, place]
            self._fetched(window.id)

    def _kind(self, name: str, target: int) -> int:
        return self.atom("UTF8_STRING") if name == "TEXT" else target

    def _fetched(self, requestor: int) -> None:
        with self._changed:
            self._fetches.append((time.monotonic(), requestor & self._mask))
            del self._fetches[:-100]
            self._changed.notify_all()
