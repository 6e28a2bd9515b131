"""Tools for programs: start them, see which run, end them, and see which are installed."""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import threading
import time

from .display import DesktopGone
from .manager import Window, active_id, called, listed
from .menu import entries, installed
from .processes import alive, ancestors, descendants, processes, session_of
from .registry import Tool
from .results import Result, ToolError, quoted, readable
from .shell import Kept

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .context import Context

ENDING = 3.0
"""Seconds in which a program that was asked to end is expected to."""
NAMING = 0.5
"""Seconds that a new window is given to show its title."""
OWN_WINDOW = 1.5
"""Seconds after which a new window is taken for the program's although another process shows it."""
HANDED = 1.5
"""Seconds after a program's end in which one that ran before is expected to show what it was handed."""
OPENING = 2.0
"""Seconds that a new window is given to show the document it was opened for."""


class NotRunning(ToolError):
    """No program of that name runs."""


def tools(context: Context) -> list[Tool]:
    seconds = {"type": "number", "minimum": 0, "maximum": 60, "default": 15}
    return [
        Tool(
            "start_app",
            "Start a program by its name, as list_installed_apps shows it, or by a command, and wait for its window.",
            {
                "app": {"type": "string", "minLength": 1, "maxLength": 4096, "description": "A name or a command."},
                "arguments": {
                    "type": "array",
                    "maxItems": 100,
                    "items": {"type": "string", "maxLength": 4096},
                    "default": [],
                    "description": "Such as a file to open.",
                },
                "wait": {**seconds, "description": "Seconds to wait for a window; 0 waits for none."},
            },
            ["app"],
            start_app,
            input=True,
            changes_screen=True,
        ),
        Tool(
            "stop_app",
            "End a program: its windows are asked to close; with force it is ended whatever it says.",
            {
                "app": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 500,
                    "description": "Its name or process id, as list_apps shows them.",
                },
                "force": {"type": "boolean", "default": False},
            },
            ["app"],
            stop_app,
            input=True,
            changes_screen=True,
        ),
        Tool(
            "list_apps",
            "List the programs that show windows.",
            {},
            [],
            list_apps,
            read_only=True,
        ),
        Tool(
            "list_installed_apps",
            "List the programs that start_app knows by name.",
            {},
            [],
            list_installed_apps,
            read_only=True,
        ),
    ]


def start_app(context: Context, app: str, arguments: list[str], wait: float) -> Result:
    entry = installed(app)
    return launch(context, [*(entry["argv"] if entry else _command(app)), *arguments], wait)


def launch(
    context: Context,
    argv: list[str],
    wait: float,
    *,
    name: str = "",
    env: dict[str, str] | None = None,
    adopted: bool = False,
    document: str = "",
) -> Result:
    """Start a program and wait for its window; with `adopted`, which another process than its own may show.

    With `document`, its window is expected to have that in its title.
    """
    name = name or argv[0]
    before = Scene(context)
    try:
        process = subprocess.Popen(
            argv,
            cwd=context.cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise ToolError(f"cannot start {name!r}: {error.strerror}; list_installed_apps shows what there is") from None
    started = Started(process)
    structured: dict[str, Any] = {"pid": process.pid, "command": readable(shlex.join(argv))}
    if wait <= 0:
        return Result(f"started {name} as process {process.pid}", structured=structured)
    window = _await_window(context, started, before, wait, adopted)
    if window is None:
        if started.code not in (None, 0):
            told = started.complaints()
            raise ToolError(f"{name} ended at once with exit code {started.code}{': ' + told if told else ''}")
        if started.code == 0:
            taken = before.running(name)
            also = f"; {called(taken)} is of the same program and was there before" if taken else ""
            return Result(f"{name} has ended already (exit code 0), without a window{also}", structured=structured)
        return Result(f"started {name} as process {process.pid}, which shows no window yet", structured=structured)
    handed = window.id in before.titles
    window = _in_front(context, window)
    if document:
        window = _titled(context, window, document)
    structured.update(pid=window.pid or process.pid, window=window.document(window.id))
    place = f"{window.width}x{window.height} at {window.x}, {window.y}"
    if handed:
        text = f"{name} runs already, and its window {called(window)} has taken this over; it is {place}"
        return Result(text, structured=structured)
    return Result(f"started {name}: window {called(window)}, {place}", structured=structured)


class Scene:
    """The windows as they were before a program was started."""

    def __init__(self, context: Context) -> None:
        with context.display.session() as connection:
            self._windows = listed(connection)
            self._active = active_id(connection)
        self.titles = {window.id: window.title for window in self._windows}

    def changed(self, windows: list[Window], active: int) -> Window | None:
        """Return the window of then that has another title by now, or has come to the front."""
        for window in reversed(windows):
            known = window.id in self.titles
            if known and (self.titles[window.id] != window.title or (window.id == active != self._active)):
                return window
        return None

    def running(self, name: str) -> Window | None:
        """Return a window of a program that ran then already."""
        wanted = os.path.basename(name).lower()
        return next((window for window in reversed(self._windows) if window.app.lower() == wanted), None)


class Started:
    """A program that was started: collected when it ends, and its last complaints kept."""

    def __init__(self, process: Any) -> None:
        self.pid: int = process.pid
        self.code: int | None = None
        self._process = process
        self._said = Kept(4096)
        threading.Thread(target=self._follow, daemon=True).start()

    def complaints(self) -> str:
        return " ".join(self._said.text().split())[-500:]

    def _follow(self) -> None:
        stream = self._process.stderr
        ended = os.pidfd_open(self.pid)
        poller = select.poll()
        poller.register(ended, select.POLLIN)
        poller.register(stream.fileno(), select.POLLIN)
        left = {ended, stream.fileno()}
        while left:
            for descriptor, _ in poller.poll():
                if descriptor == ended:
                    self._process.wait()
                else:
                    data = os.read(descriptor, 65536)
                    self._said.add(data)
                    if data:
                        continue
                poller.unregister(descriptor)
                left.discard(descriptor)
                if stream.fileno() not in left or descriptor == ended:
                    self.code = self._process.returncode
        os.close(ended)
        stream.close()


def _await_window(context: Context, started: Started, before: Scene, wait: float, adopted: bool) -> Window | None:
    """Wait for a new window of the program, or for what one does that it handed its job to."""
    begun = time.monotonic()
    patience = 0.0 if adopted else OWN_WINDOW
    untitled: float | None = None
    ended: float | None = None
    while True:
        with context.display.session() as connection:
            windows = listed(connection)
            active = active_id(connection)
            serial = connection.serial
        new = [window for window in windows if window.id not in before.titles]
        now = time.monotonic()
        for window in reversed(new):
            own = window.pid and (window.pid == started.pid or started.pid in ancestors(window.pid))
            if own or started.code == 0 or now - begun > patience:
                untitled = untitled or now
                if window.title or now - untitled > NAMING:
                    return window
        if now - begun > wait or started.code not in (None, 0):
            return None
        if started.code == 0 and not adopted and not _leaves_others(started.pid):
            ended = ended or now
            taken = before.changed(windows, active) if now - ended > NAMING else None
            if taken is not None or now - ended > HANDED:
                return taken
        context.display.wait(serial, 0.1, context.caller)


def _leaves_others(session: int) -> bool:
    """Whether something still runs of what a program that has ended had begun."""
    return any(session_of(pid) == session and alive(pid) for pid, _ in processes())


def _titled(context: Context, window: Window, document: str) -> Window:
    """Wait until a window shows in its title what it was opened for."""
    from .manager import find

    deadline = time.monotonic() + OPENING
    while document.lower() not in window.title.lower() and time.monotonic() < deadline:
        time.sleep(0.03)
        with context.display.session() as connection:
            window = find(connection, window.name)
    return window


def _in_front(context: Context, window: Window) -> Window:
    """Give a new window the keyboard where the window manager has not; whoever starts a program means to use it."""
    from .manager import find
    from .xwindows import activate_window

    with context.display.session() as connection:
        if active_id(connection) == window.id:
            return find(connection, window.name)
    activate_window(context, window.name)
    with context.display.session() as connection:
        return find(connection, window.name)


def stop_app(context: Context, app: str, force: bool) -> Result:
    pids, windows = _find_running(context, app)
    if not force:
        refusal = _closed(context, windows)
        if refusal is not None:
            return refusal
    family = {child for pid in pids for child in (pid, *descendants(pid))}
    for number, patience in ((signal.SIGTERM, ENDING), (signal.SIGKILL, ENDING)):
        for pid in family:
            try:
                os.kill(pid, number)
            except (ProcessLookupError, PermissionError):
                pass
        deadline = time.monotonic() + (patience if not force or number == signal.SIGKILL else 0.3)
        while any(alive(pid) for pid in family) and time.monotonic() < deadline:
            time.sleep(0.02)
        if not any(alive(pid) for pid in family):
            structured = {"stopped": sorted(pids), "windows": [window.name for window in windows]}
            return Result(f"stopped {app} (process {', '.join(map(str, sorted(pids)))})", structured=structured)
    raise ToolError(f"{app} could not be ended")


def _closed(context: Context, windows: list[Window]) -> Result | None:
    """Ask windows to close; returns what stands in the way when one does not."""
    from .xwindows import brought_forward, close_window

    for window in windows:
        if window.owner and (window.modal or window.dialog):
            text, dialog = brought_forward(context, window)
            return Result(f"it still runs: {text}; force ends it", structured={"stopped": [], "dialog": dialog})
    for window in windows:
        try:
            outcome = close_window(context, window.name)
        except DesktopGone:
            raise
        except ToolError:
            continue  # It has closed together with another one.
        if outcome.structured is not None and not outcome.structured["closed"]:
            return Result(f"{outcome.text}; force ends it", structured={"stopped": [], **outcome.structured})
    return None


def _find_running(context: Context, app: str) -> tuple[set[int], list[Window]]:
    with context.display.session() as connection:
        shown = listed(connection)
    own = {os.getpid(), os.getppid(), 1}
    wanted = app.lower()
    if app.isdigit():
        pids = {int(app)}
    else:
        pids = {w.pid for w in shown if w.pid and wanted in (w.app.lower(), w.title.lower())}
        pids = pids or {pid for pid, name in processes() if name.lower() == wanted}
        pids = pids or {w.pid for w in shown if w.pid and wanted in w.title.lower()}
    pids = {pid for pid in pids if alive(pid)} - own
    if not pids:
        names = ", ".join(sorted({f"{w.app} ({w.pid})" for w in shown})) or "none"
        raise NotRunning(f"no program {app!r} is running; those with windows are: {names}")
    return pids, [window for window in shown if window.pid in pids]


def list_apps(context: Context) -> Result:
    with context.display.session() as connection:
        active = active_id(connection)
        windows = listed(connection)
    apps: dict[int, dict[str, Any]] = {}
    for window in windows:
        described = apps.setdefault(window.pid, {"app": window.app, "pid": window.pid, "active": False, "windows": []})
        described["windows"].append({"window": window.name, "title": window.title})
        described["active"] = described["active"] or window.id == active
    lines = []
    for described in apps.values():
        titles = ", ".join(quoted(window["title"]) for window in described["windows"])
        lines.append(
            f"{described['app']}  pid {described['pid']}  {titles}{'  [active]' if described['active'] else ''}"
        )
    return Result("\n".join(lines) or "no program shows a window", structured={"apps": list(apps.values())})


def list_installed_apps(context: Context) -> Result:
    apps = sorted(
        ({k: v for k, v in entry.items() if k != "argv"} for entry in entries()), key=lambda e: str(e["name"])
    )
    lines = [f"{entry['name']}  ({entry['id']})  {entry['comment']}".rstrip() for entry in apps]
    return Result("\n".join(lines) or "no program is installed by name", structured={"apps": apps})


def _command(app: str) -> list[str]:
    try:
        argv = shlex.split(app)
    except ValueError as error:
        raise ToolError(f"{app!r} is not a command: {error}") from None
    if not argv:
        raise ToolError("app must name a program")
    return argv
