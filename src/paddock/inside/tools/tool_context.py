"""Shared state of a sandbox's tools: display, clipboard, working directory."""

from __future__ import annotations

import os
import threading

from .caller_connection import CallerConnection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .desktop.screen_capture import ScreenCapture
    from .desktop.x_clipboard import XClipboard
    from .desktop.x_display import XDisplay

_NO_CLIENT = CallerConnection()


class ToolContext:
    """Passed to every tool; components are created on first use. Relative paths start at `cwd`."""

    def __init__(self, cwd: str = "", kind: str = "code") -> None:
        self.cwd = cwd or os.getcwd()
        self.kind = kind
        self._lock = threading.RLock()
        self._thread_state = threading.local()
        self._display: XDisplay | None = None
        self._screen_capture: ScreenCapture | None = None
        self._clipboard: XClipboard | None = None

    @property
    def caller(self) -> CallerConnection:
        """The client that waits for the call this thread handles."""
        found: CallerConnection = getattr(self._thread_state, "caller", _NO_CLIENT)
        return found

    @caller.setter
    def caller(self, caller: CallerConnection) -> None:
        self._thread_state.caller = caller

    def replace_environment(self, env: Mapping[str, str], cwd: str) -> None:
        """Replace the environment variables and the working directory for all later programs."""
        for name in [name for name in os.environ if name not in env]:
            del os.environ[name]
        os.environ.update(env)
        self.cwd = cwd

    def take_first_screenshot(self) -> None:
        """Take a small screenshot, so that imaging libraries are loaded before the first call."""
        from .desktop.screen_images import ScreenCaptureOptions
        from .tool_result import ToolError

        try:
            self.screen_capture.take_screenshot(ScreenCaptureOptions(max_width=16))
        except (ToolError, ImportError, OSError):
            pass  # The first call reports it.

    def absolute_path(self, path: str) -> str:
        """Return the absolute path of a path argument; `~` is the user's home."""
        from .tool_result import ToolError

        if not path or "\0" in path:
            raise ToolError("a path must not be empty or contain NUL")
        if self.kind == "windows":
            from .wine.windows_paths import to_unix_path

            path = to_unix_path(path)
        return os.path.normpath(os.path.join(self.cwd, os.path.expanduser(path)))

    def display_path(self, path: str, given: str) -> str:
        """Return a path for display: in Windows notation if the argument `given` was."""
        if self.kind == "windows":
            from .wine.windows_paths import is_windows_path, to_windows_path

            if is_windows_path(given):
                return to_windows_path(path)
        return path

    @property
    def display(self) -> XDisplay:
        """Connection to the X server."""
        with self._lock:
            if self._display is None:
                from .desktop.x_display import XDisplay

                self._display = XDisplay()
            return self._display

    @property
    def screen_capture(self) -> ScreenCapture:
        """Screenshots of the X server's screen."""
        with self._lock:
            if self._screen_capture is None:
                from .desktop.screen_capture import ScreenCapture

                self._screen_capture = ScreenCapture(self.display)
            return self._screen_capture

    @property
    def clipboard(self) -> XClipboard:
        with self._lock:
            if self._clipboard is None:
                from .desktop.x_clipboard import XClipboard

                self._clipboard = XClipboard()
            return self._clipboard
