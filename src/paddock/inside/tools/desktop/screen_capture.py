"""Screenshots and frame streams of the X screen, taken only when something has changed."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import OrderedDict

from ..tool_result import ToolError
from .screen_images import MIME_TYPES, ScreenArea, ScreenCaptureOptions, encode_image, scale_image
from .x_display import XDisplay, x_socket_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...http.http11 import ChunkedWriter
    from .x_display import XConnection

MAX_REMEMBERED = 256
MAX_SOURCES = 16
MAX_READERS = 64
NEW_DESKTOP_SECONDS = 2.0
"""Seconds after its start in which a desktop may still be drawing itself."""
MAX_DRAW_WAIT = 1.0
"""Seconds a screenshot of a new desktop waits at most."""
QUIET_SECONDS = 0.35
"""Seconds without a change after which a new desktop counts as drawn."""
READER_CHECK_SECONDS = 5.0
"""Seconds between two checks whether the reader of a stream is still connected."""

_Z_PIXMAP = 2


class EncodedScreenshot:
    """One encoded picture; `area` maps its pixels back to the screen."""

    __slots__ = ("area", "data", "etag", "id", "mime", "screen")

    def __init__(self, data: bytes, mime: str, etag: str, area: ScreenArea, screen: tuple[int, int]) -> None:
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


class ScreenCapture:
    """Takes screenshots and remembers their areas, so that mouse tools can point into them."""

    def __init__(self, display: XDisplay) -> None:
        self.display = display
        self._lock = threading.Lock()
        self._last: EncodedScreenshot | None = None
        self._remembered: OrderedDict[str, tuple[ScreenArea, tuple[int, int]]] = OrderedDict()
        self._sources: dict[tuple[int, int, int], ScreenFrameStream] = {}

    def wait_until_drawn(self) -> None:
        """Wait until a desktop that has just started has drawn itself."""
        try:
            age = time.time() - os.stat(x_socket_path(self.display.name)).st_mtime
        except OSError:
            return
        if not 0 <= age < NEW_DESKTOP_SECONDS:
            return
        deadline = time.monotonic() + MAX_DRAW_WAIT
        while (remaining := deadline - time.monotonic()) > 0:
            with self.display.connection() as connection:
                connection.request_change_event()
                serial = connection.change_serial
            if not self.display.wait_for_change(serial, min(QUIET_SECONDS, remaining)):
                return

    def take_screenshot(self, options: ScreenCaptureOptions, unless: str = "") -> EncodedScreenshot | None:
        """Take a screenshot; None if the one with the ETag `unless` is still current."""
        with self.display.connection() as connection:
            connection.request_change_event()
            pointer = CursorImage(connection) if options.pointer else None
            # The server does not report pointer moves as changes, so the ETag includes the pointer.
            seen = (options.key, pointer.key if pointer is not None else ())
            etag = f'"{connection.identity}-{connection.change_serial}-{abs(hash(seen)):x}"'
            if unless and unless == etag:
                return None
            last = self._last
            if last is not None and last.etag == etag:
                return last
            screen = (connection.width, connection.height)
            area = ScreenArea(options, *screen)
            image = capture_screen_area(connection, area)
        if pointer is not None:
            pointer.draw_onto(image, area)
        data = encode_image(scale_image(image, area), options.format, options.quality)
        shot = EncodedScreenshot(data, MIME_TYPES[options.format], etag, area, screen)
        self._last = shot
        return shot

    def remember_screenshot(self, shot: EncodedScreenshot) -> str:
        """Return an id for a screenshot that mouse tools accept."""
        with self._lock:
            name = os.urandom(4).hex()
            self._remembered[name] = (shot.area, shot.screen)
            while len(self._remembered) > MAX_REMEMBERED:
                self._remembered.popitem(last=False)
        return name

    def screen_point(self, x: float, y: float, shot: str | None) -> tuple[int, int]:
        """Return the screen pixel of a point, which may be given in pixels of a screenshot. Raises ToolError."""
        with self.display.connection() as connection:
            width, height = connection.width, connection.height
        if shot:
            with self._lock:
                known = self._remembered.get(shot)
            if known is None:
                raise ToolError(f"screenshot {shot!r} is unknown or too old; take a new one")
            area, screen = known
            if screen != (width, height):
                raise ToolError(f"the screen is now {width}x{height}; take a new screenshot")
            return area.to_screen_point(x, y)
        if not (0 <= x < width and 0 <= y < height):
            limits = f"x from 0 to {width - 1}, y from 0 to {height - 1}"
            raise ToolError(f"{x:g}, {y:g} is off the screen, which is {width}x{height} pixels ({limits})")
        return int(x), int(y)

    def frame_stream(self, width: int, quality: int, fps: int) -> ScreenFrameStream:
        """Return the frame stream of this size, quality and rate; all its readers share it."""
        key = (width, quality, fps)
        with self.display.connection():
            pass  # Raise at once if there is no desktop.
        with self._lock:
            if sum(source.readers for source in self._sources.values()) >= MAX_READERS:
                raise ToolError(f"{MAX_READERS} streams of this screen are open already; close some")
            if key not in self._sources:
                for idle in [k for k, source in self._sources.items() if not source.readers]:
                    del self._sources[idle]
                if len(self._sources) >= MAX_SOURCES:
                    raise ToolError("too many streams of different sizes; close some")
                self._sources[key] = ScreenFrameStream(self, *key)
            return self._sources[key]


class ScreenFrameStream:
    """Frames of the changing screen; one thread captures them while there are readers."""

    def __init__(self, screen: ScreenCapture, width: int, quality: int, fps: int) -> None:
        self._screen = screen
        self._options = ScreenCaptureOptions("jpeg", quality, 1.0, width)
        self._interval = 1.0 / fps
        self._changed = threading.Condition()
        self._frame = b""
        self._sequence = 0
        self._ended = False
        self._is_capturing = False
        self.readers = 0

    def send_frames(self, chunks: ChunkedWriter) -> None:
        """Send each frame as a JSON line and its bytes, until the desktop ends or the reader disconnects."""
        with self._changed:
            self.readers += 1
            if not self._is_capturing:
                self._is_capturing, self._ended, self._frame = True, False, b""
                threading.Thread(target=self._capture_frames, daemon=True).start()
        seen = 0
        try:
            while True:
                frame, sequence, ended = self._next_frame(seen)
                if frame and sequence != seen:
                    chunks.send(frame)
                    seen = sequence
                elif ended or not chunks.client.stays_connected(0):
                    return
        finally:
            with self._changed:
                self.readers -= 1
                self._changed.notify_all()

    def _next_frame(self, seen: int) -> tuple[bytes, int, bool]:
        with self._changed:
            self._changed.wait_for(
                lambda: self._ended or (self._frame and self._sequence != seen), READER_CHECK_SECONDS
            )
            return self._frame, self._sequence, self._ended

    def _capture_frames(self) -> None:
        display = self._screen.display
        serial = -1
        try:
            while self.readers:
                if not display.wait_for_change(serial, READER_CHECK_SECONDS):
                    continue
                started_at = time.monotonic()
                serial = self._capture_frame()
                with self._changed:
                    left = self._interval - (time.monotonic() - started_at)
                    self._changed.wait_for(lambda: not self.readers, max(0.0, left))
        except (ToolError, OSError):
            pass  # The desktop is gone: the streams end; readers reconnect when it is back.
        finally:
            with self._changed:
                self._is_capturing, self._ended = False, True
                self._changed.notify_all()

    def _capture_frame(self) -> int:
        with self._screen.display.connection() as connection:
            connection.request_change_event()
            serial = connection.change_serial
            area = ScreenArea(self._options, connection.width, connection.height)
            image = capture_screen_area(connection, area)
        data = encode_image(scale_image(image, area), "jpeg", self._options.quality)
        head = {"width": area.shown_width, "height": area.shown_height, "bytes": len(data), "at": time.time()}
        with self._changed:
            self._sequence += 1
            self._frame = json.dumps({"sequence": self._sequence, **head}).encode("ascii") + b"\n" + data
            self._changed.notify_all()
        return serial


class CursorImage:
    """Image of the mouse pointer, which screenshots do not contain."""

    def __init__(self, connection: XConnection) -> None:
        if "pointer" not in connection.cache:
            connection.x.xfixes_query_version()
            connection.cache["pointer"] = True
        found = self._cursor = connection.x.xfixes_get_cursor_image(connection.root)
        self.key = (found.x, found.y, found.cursor_serial)

    def draw_onto(self, image: Any, area: ScreenArea) -> None:
        from PIL import Image

        found = self._cursor
        pixels = b"".join(pixel.to_bytes(4, "little") for pixel in found.cursor_image)
        drawn = Image.frombytes("RGBA", (found.width, found.height), pixels, "raw", "BGRA")
        image.paste(drawn, (found.x - found.xhot - area.x, found.y - found.yhot - area.y), drawn)


def capture_screen_area(connection: XConnection, area: ScreenArea) -> Any:
    """Return a PIL image of an area of the screen, without the mouse pointer."""
    from PIL import Image

    screen = connection.x.screen()
    if screen.root_depth not in (24, 32):
        raise ToolError(f"the screen has a colour depth of {screen.root_depth} bits; screenshots need 24")
    pixels = _read_pixels(connection, area)
    return Image.frombuffer("RGB", (area.width, area.height), pixels, "raw", "BGRX", 0, 1)


def _read_pixels(connection: XConnection, area: ScreenArea) -> Any:
    memory: Any = connection.cache.get("memory")
    if memory is None:
        try:
            from .x_shared_memory import XSharedMemory

            memory = XSharedMemory(connection.x, connection.width * connection.height * 4)
        except (OSError, ImportError):
            memory = False  # The pixels then come over the socket, which is slower.
        connection.cache["memory"] = memory
    bounds = (area.x, area.y, area.width, area.height)
    if memory:
        return memory.capture(connection.root, *bounds)
    return connection.root.get_image(*bounds, _Z_PIXMAP, 0xFFFFFFFF).data
