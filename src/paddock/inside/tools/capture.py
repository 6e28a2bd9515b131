"""What the screen shows: pictures that are only taken when something has changed, and streams of them."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import OrderedDict

from .display import Display, socket_path
from .pictures import MIMES, Area, Options, encoded, scaled
from .results import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..http import Chunks
    from .display import Connection

MAX_SHOTS = 256
MAX_SOURCES = 16
MAX_READERS = 64
YOUNG = 2.0
"""Seconds after its start in which a desktop still draws itself."""
SETTLING = 1.0
"""Seconds that a picture of such a desktop waits at most."""
QUIET = 0.35
"""Seconds without a change after which it is taken to be drawn."""
ATTENTION = 5.0
"""Seconds between two looks whether the reader of a stream is still there."""

_Z_PIXMAP = 2


class Shot:
    """One encoded picture; `area` leads from its pixels back to the screen's."""

    __slots__ = ("area", "data", "etag", "id", "mime", "screen")

    def __init__(self, data: bytes, mime: str, etag: str, area: Area, screen: tuple[int, int]) -> None:
        self.data = data
        self.mime = mime
        self.etag = etag
        self.area = area
        self.screen = screen
        self.id = ""

    @property
    def width(self) -> int:
        return self.area.shown_width

    @property
    def height(self) -> int:
        return self.area.shown_height


class Screen:
    """Takes pictures, and remembers which were shown so that points in them can be clicked on."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self._lock = threading.Lock()
        self._last: Shot | None = None
        self._shown: OrderedDict[str, tuple[Area, tuple[int, int]]] = OrderedDict()
        self._sources: dict[tuple[int, int, int], Frames] = {}

    def settle(self) -> None:
        """Let a desktop that has only just started draw itself, so that no picture shows half of it."""
        try:
            age = time.time() - os.stat(socket_path(self.display.name)).st_mtime
        except OSError:
            return
        if not 0 <= age < YOUNG:
            return
        deadline = time.monotonic() + SETTLING
        while (remaining := deadline - time.monotonic()) > 0:
            with self.display.session() as connection:
                connection.arm()
                serial = connection.serial
            if not self.display.wait(serial, min(QUIET, remaining)):
                return

    def shot(self, options: Options, unless: str = "") -> Shot | None:
        """Take a picture; None when the one with the mark `unless` still shows what is there."""
        with self.display.session() as connection:
            connection.arm()
            pointer = Pointer(connection) if options.pointer else None
            # The pointer is not part of the screen, so that its moves are no changes of it.
            seen = (options.key, pointer.key if pointer is not None else ())
            etag = f'"{connection.identity}-{connection.serial}-{abs(hash(seen)):x}"'
            if unless and unless == etag:
                return None
            last = self._last
            if last is not None and last.etag == etag:
                return last
            screen = (connection.width, connection.height)
            area = Area(options, *screen)
            image = grab(connection, area)
        if pointer is not None:
            pointer.draw(image, area)
        data = encoded(scaled(image, area), options.format, options.quality)
        shot = Shot(data, MIMES[options.format], etag, area, screen)
        self._last = shot
        return shot

    def remember(self, shot: Shot) -> str:
        """Give a picture a name that mouse tools accept."""
        with self._lock:
            name = os.urandom(4).hex()
            self._shown[name] = (shot.area, shot.screen)
            while len(self._shown) > MAX_SHOTS:
                self._shown.popitem(last=False)
        return name

    def place(self, x: float, y: float, shot: str | None) -> tuple[int, int]:
        """Return the screen's pixel that a point means. Raises ToolError when it is off the screen."""
        with self.display.session() as connection:
            width, height = connection.width, connection.height
        if shot:
            with self._lock:
                known = self._shown.get(shot)
            if known is None:
                raise ToolError(f"there is no picture {shot!r} any more; take a new screenshot")
            area, screen = known
            if screen != (width, height):
                raise ToolError(f"the screen is {width}x{height} by now; take a new screenshot")
            return area.on_screen(x, y)
        if not (0 <= x < width and 0 <= y < height):
            limits = f"x from 0 to {width - 1}, y from 0 to {height - 1}"
            raise ToolError(f"{x:g}, {y:g} is off the screen, which is {width}x{height} pixels ({limits})")
        return int(x), int(y)

    def frames(self, width: int, quality: int, fps: int) -> Frames:
        """Return the stream of changed pictures of these measures, which all its readers share."""
        key = (width, quality, fps)
        with self.display.session():
            pass  # Whoever asks for frames of a desktop that is not there is told so at once.
        with self._lock:
            if sum(source.readers for source in self._sources.values()) >= MAX_READERS:
                raise ToolError(f"{MAX_READERS} streams of this screen are open already; close some")
            if key not in self._sources:
                for idle in [k for k, source in self._sources.items() if not source.readers]:
                    del self._sources[idle]
                if len(self._sources) >= MAX_SOURCES:
                    raise ToolError("too many streams of different sizes; close some")
                self._sources[key] = Frames(self, *key)
            return self._sources[key]


class Frames:
    """Pictures of the screen as it changes; one thread takes them for all readers, while there are any."""

    def __init__(self, screen: Screen, width: int, quality: int, fps: int) -> None:
        self._screen = screen
        self._options = Options("jpeg", quality, 1.0, width)
        self._interval = 1.0 / fps
        self._changed = threading.Condition()
        self._frame = b""
        self._sequence = 0
        self._ended = False
        self._runs = False
        self.readers = 0

    def stream(self, chunks: Chunks) -> None:
        """Send each frame as a line of JSON and its bytes, until the desktop or the reader is gone."""
        with self._changed:
            self.readers += 1
            if not self._runs:
                self._runs, self._ended, self._frame = True, False, b""
                threading.Thread(target=self._produce, daemon=True).start()
        seen = 0
        try:
            while True:
                frame, sequence, ended = self._next(seen)
                if frame and sequence != seen:
                    chunks.send(frame)
                    seen = sequence
                elif ended or not chunks.wire.stays_quiet(0):
                    return
        finally:
            with self._changed:
                self.readers -= 1
                self._changed.notify_all()

    def _next(self, seen: int) -> tuple[bytes, int, bool]:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or (self._frame and self._sequence != seen), ATTENTION)
            return self._frame, self._sequence, self._ended

    def _produce(self) -> None:
        display = self._screen.display
        serial = -1
        try:
            while self.readers:
                if not display.wait(serial, ATTENTION):
                    continue
                begun = time.monotonic()
                serial = self._take()
                with self._changed:
                    left = self._interval - (time.monotonic() - begun)
                    self._changed.wait_for(lambda: not self.readers, max(0.0, left))
        except (ToolError, OSError):
            pass  # The desktop is gone: the streams end, and their readers come back when it does.
        finally:
            with self._changed:
                self._runs, self._ended = False, True
                self._changed.notify_all()

    def _take(self) -> int:
        with self._screen.display.session() as connection:
            connection.arm()
            serial = connection.serial
            area = Area(self._options, connection.width, connection.height)
            image = grab(connection, area)
        data = encoded(scaled(image, area), "jpeg", self._options.quality)
        head = {"width": area.shown_width, "height": area.shown_height, "bytes": len(data), "at": time.time()}
        with self._changed:
            self._sequence += 1
            self._frame = json.dumps({"sequence": self._sequence, **head}).encode("ascii") + b"\n" + data
            self._changed.notify_all()
        return serial


class Pointer:
    """The mouse pointer as it looks now, which pictures of the screen leave out."""

    def __init__(self, connection: Connection) -> None:
        if "pointer" not in connection.cache:
            connection.x.xfixes_query_version()
            connection.cache["pointer"] = True
        found = self._found = connection.x.xfixes_get_cursor_image(connection.root)
        self.key = (found.x, found.y, found.cursor_serial)

    def draw(self, image: Any, area: Area) -> None:
        from PIL import Image

        found = self._found
        pixels = b"".join(pixel.to_bytes(4, "little") for pixel in found.cursor_image)
        drawn = Image.frombytes("RGBA", (found.width, found.height), pixels, "raw", "BGRA")
        image.paste(drawn, (found.x - found.xhot - area.x, found.y - found.yhot - area.y), drawn)


def grab(connection: Connection, area: Area) -> Any:
    """Return a PIL image of a part of the screen, without the mouse pointer."""
    from PIL import Image

    screen = connection.x.screen()
    if screen.root_depth not in (24, 32):
        raise ToolError(f"the screen has {screen.root_depth} bits of colour; pictures need 24")
    pixels = _pixels(connection, area)
    return Image.frombuffer("RGB", (area.width, area.height), pixels, "raw", "BGRX", 0, 1)


def _pixels(connection: Connection, area: Area) -> Any:
    memory: Any = connection.cache.get("memory")
    if memory is None:
        try:
            from .memory import SharedMemory

            memory = SharedMemory(connection.x, connection.width * connection.height * 4)
        except (OSError, ImportError):
            memory = False  # Then the pixels come over the socket, which takes a little longer.
        connection.cache["memory"] = memory
    box = (area.x, area.y, area.width, area.height)
    if memory:
        return memory.capture(connection.root, *box)
    return connection.root.get_image(*box, _Z_PIXMAP, 0xFFFFFFFF).data
