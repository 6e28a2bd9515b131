"""What the tools of one box share, made when it is first asked for."""

from __future__ import annotations

import os
import threading

from .callers import Caller

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .capture import Screen
    from .display import Display
    from .selections import Clipboard

_NOBODY = Caller()


class Context:
    """Handed to every tool. `cwd` is where relative paths begin."""

    def __init__(self, cwd: str = "", kind: str = "code") -> None:
        self.cwd = cwd or os.getcwd()
        self.kind = kind
        self._lock = threading.RLock()
        self._answering = threading.local()
        self._display: Display | None = None
        self._screen: Screen | None = None
        self._clipboard: Clipboard | None = None

    @property
    def caller(self) -> Caller:
        """Whoever waits for what this thread is at."""
        found: Caller = getattr(self._answering, "caller", _NOBODY)
        return found

    @caller.setter
    def caller(self, caller: Caller) -> None:
        self._answering.caller = caller

    def surround(self, env: Mapping[str, str], cwd: str) -> None:
        """Let what starts from now on see these variables and begin in this directory."""
        for name in [name for name in os.environ if name not in env]:
            del os.environ[name]
        os.environ.update(env)
        self.cwd = cwd

    def warm(self) -> None:
        """Load what looking at the screen takes ahead of the first look."""
        from .pictures import Options
        from .results import ToolError

        try:
            self.screen.shot(Options(max_width=16))
        except (ToolError, ImportError, OSError):
            pass  # Whoever wants to see the screen will hear of it.

    def path(self, path: str) -> str:
        """Return the absolute path that an argument means; `~` is the user's home."""
        from .results import ToolError

        if not path or "\0" in path:
            raise ToolError("a path must be text without NUL, and not empty")
        if self.kind == "windows":
            from .drives import unix_path

            path = unix_path(path)
        return os.path.normpath(os.path.join(self.cwd, os.path.expanduser(path)))

    def shown(self, path: str, given: str) -> str:
        """Return how a path is told to whoever has given it: as on Windows, if they wrote it so."""
        if self.kind == "windows":
            from .drives import is_windows_path, windows_path

            if is_windows_path(given):
                return windows_path(path)
        return path

    @property
    def display(self) -> Display:
        """The X server: windows, mouse and keys."""
        with self._lock:
            if self._display is None:
                from .display import Display

                self._display = Display()
            return self._display

    @property
    def screen(self) -> Screen:
        """What the X server shows."""
        with self._lock:
            if self._screen is None:
                from .capture import Screen

                self._screen = Screen(self.display)
            return self._screen

    @property
    def clipboard(self) -> Clipboard:
        with self._lock:
            if self._clipboard is None:
                from .selections import Clipboard

                self._clipboard = Clipboard()
            return self._clipboard
