"""Tools for programs: start, stop, list running and installed ones."""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import threading
import time

from ..tool_registry import CallableTool
from ..tool_result import ToolCallResult, ToolError, quote_title, replace_surrogates
from ..workspace.process_list import (
    ancestor_pids,
    descendant_pids,
    is_process_alive,
    list_processes,
    process_session_id,
)
from ..workspace.program_runner import HeadAndTailBuffer
from .app_menu import find_app_menu_entry, list_app_menu_entries
from .window_manager import XWindow, active_window_id, describe_window, list_x_windows
from .x_display import DesktopUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..tool_context import ToolContext

STOP_TIMEOUT = 3.0
"""Seconds a program gets to end after a signal."""
TITLE_TIMEOUT = 0.5
"""Seconds a new window gets to set its title."""
OWN_WINDOW_TIMEOUT = 1.5
"""Seconds after which a new window of another process is attributed to the started program."""
HANDOVER_TIMEOUT = 1.5
"""Seconds after a program's exit in which a running instance may take over and show its arguments."""
DOCUMENT_TIMEOUT = 2.0
"""Seconds a new window gets to show the name of the opened document in its title."""


class AppNotRunning(ToolError):
    """No program of that name is running."""


def app_tools(context: ToolContext) -> list[CallableTool]:
    seconds = {"type": "number", "minimum": 0, "maximum": 60, "default": 15}
    return [
        CallableTool(
            "start_app",
            "Start a program by its name, as list_installed_apps shows it, or by a command, and wait for its window.",
            {
                "app": {"type": "string", "minLength": 1, "maxLength": 4096, "description": "A name or a command."},
                "arguments": {
                    "type": "array",
                    "maxItems": 100,
                    "items": {"type": "string", "maxLength": 4096},
                    "default": [],
                    "description": "Arguments, such as a file to open.",
                },
                "wait": {**seconds, "description": "Seconds to wait for a window; 0 does not wait."},
            },
            ["app"],
            start_app,
            input=True,
            changes_screen=True,
        ),
        CallableTool(
            "stop_app",
            "Stop a program by asking its windows to close; with force it is killed.",
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
        CallableTool(
            "list_apps",
            "List the running programs that have windows.",
            {},
            [],
            list_apps,
            read_only=True,
        ),
        CallableTool(
            "list_installed_apps",
            "List the installed programs that start_app can start by name.",
            {},
            [],
            list_installed_apps,
            read_only=True,
        ),
    ]


def start_app(context: ToolContext, app: str, arguments: list[str], wait: float) -> ToolCallResult:
    entry = find_app_menu_entry(app)
    return launch_app(context, [*(entry["argv"] if entry else _parse_command(app)), *arguments], wait)


def launch_app(
    context: ToolContext,
    argv: list[str],
    wait: float,
    *,
    name: str = "",
    env: dict[str, str] | None = None,
    adopted: bool = False,
    document: str = "",
) -> ToolCallResult:
    """Start a program and wait for its window.

    With `adopted`, the window may belong to another process from the start. With `document`, wait until the
    window's title has that name.
    """
    name = name or argv[0]
    before = WindowsBeforeLaunch(context)
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
        raise ToolError(
            f"cannot start {name!r}: {error.strerror}; list_installed_apps lists the installed programs"
        ) from None
    started = StartedProgram(process)
    structured: dict[str, Any] = {"pid": process.pid, "command": replace_surrogates(shlex.join(argv))}
    if wait <= 0:
        return ToolCallResult(f"started {name} as process {process.pid}", structured=structured)
    window = _await_window(context, started, before, wait, adopted)
    if window is None:
        if started.code not in (None, 0):
            errors = started.error_output()
            raise ToolError(f"{name} exited at once with code {started.code}{': ' + errors if errors else ''}")
        if started.code == 0:
            instance_window = before.window_of_program(name)
            also = (
                f"; {describe_window(instance_window)} belongs to the same program and was open before"
                if instance_window
                else ""
            )
            return ToolCallResult(
                f"{name} has already exited (exit code 0) without a window{also}", structured=structured
            )
        return ToolCallResult(
            f"started {name} as process {process.pid}, which has no window yet", structured=structured
        )
    handed_over = window.id in before.titles
    window = _activate_new(context, window)
    if document:
        window = _wait_for_title(context, window, document)
    structured.update(pid=window.pid or process.pid, window=window.to_document(window.id))
    geometry = f"{window.width}x{window.height} at {window.x}, {window.y}"
    if handed_over:
        text = f"{name} was already running; its window {describe_window(window)} handles this start; it is {geometry}"
        return ToolCallResult(text, structured=structured)
    return ToolCallResult(f"started {name}: window {describe_window(window)}, {geometry}", structured=structured)


class WindowsBeforeLaunch:
    """The windows that were open before a program was started."""

    def __init__(self, context: ToolContext) -> None:
        with context.display.connection() as connection:
            self._windows = list_x_windows(connection)
            self._active = active_window_id(connection)
        self.titles = {window.id: window.title for window in self._windows}

    def changed_window(self, windows: list[XWindow], active: int) -> XWindow | None:
        """Return an earlier window that has another title or has become active."""
        for window in reversed(windows):
            known = window.id in self.titles
            if known and (self.titles[window.id] != window.title or (window.id == active != self._active)):
                return window
        return None

    def window_of_program(self, name: str) -> XWindow | None:
        """Return an earlier window of the named program."""
        wanted = os.path.basename(name).lower()
        return next((window for window in reversed(self._windows) if window.app.lower() == wanted), None)


class StartedProgram:
    """A started program: reaped when it ends, with the end of its error output."""

    def __init__(self, process: Any) -> None:
        self.pid: int = process.pid
        self.code: int | None = None
        self._process = process
        self._errors = HeadAndTailBuffer(4096)
        threading.Thread(target=self._read_errors, daemon=True).start()

    def error_output(self) -> str:
        return " ".join(self._errors.text().split())[-500:]

    def _read_errors(self) -> None:
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
                    self._errors.append(data)
                    if data:
                        continue
                poller.unregister(descriptor)
                left.discard(descriptor)
                if stream.fileno() not in left or descriptor == ended:
                    self.code = self._process.returncode
        os.close(ended)
        stream.close()


def _await_window(
    context: ToolContext, started: StartedProgram, before: WindowsBeforeLaunch, wait: float, adopted: bool
) -> XWindow | None:
    """Wait for a new window of the program, or for a running instance that takes over its job."""
    started_at = time.monotonic()
    timeout = 0.0 if adopted else OWN_WINDOW_TIMEOUT
    untitled: float | None = None
    ended: float | None = None
    while True:
        with context.display.connection() as connection:
            windows = list_x_windows(connection)
            active = active_window_id(connection)
            serial = connection.change_serial
        new = [window for window in windows if window.id not in before.titles]
        now = time.monotonic()
        for window in reversed(new):
            own = window.pid and (window.pid == started.pid or started.pid in ancestor_pids(window.pid))
            if own or started.code == 0 or now - started_at > timeout:
                untitled = untitled or now
                if window.title or now - untitled > TITLE_TIMEOUT:
                    return window
        if now - started_at > wait or started.code not in (None, 0):
            return None
        if started.code == 0 and not adopted and not _has_running_children(started.pid):
            ended = ended or now
            instance_window = before.changed_window(windows, active) if now - ended > TITLE_TIMEOUT else None
            if instance_window is not None or now - ended > HANDOVER_TIMEOUT:
                return instance_window
        context.display.wait_for_change(serial, 0.1, context.caller)


def _has_running_children(session: int) -> bool:
    """True if processes that an ended program started still run."""
    return any(process_session_id(pid) == session and is_process_alive(pid) for pid, _ in list_processes())


def _wait_for_title(context: ToolContext, window: XWindow, document: str) -> XWindow:
    """Wait until a window's title contains the document's name."""
    from .window_manager import find_window

    deadline = time.monotonic() + DOCUMENT_TIMEOUT
    while document.lower() not in window.title.lower() and time.monotonic() < deadline:
        time.sleep(0.03)
        with context.display.connection() as connection:
            window = find_window(connection, window.name)
    return window


def _activate_new(context: ToolContext, window: XWindow) -> XWindow:
    """Activate a new window if the window manager has not."""
    from .window_manager import find_window
    from .window_tools import activate_window

    with context.display.connection() as connection:
        if active_window_id(connection) == window.id:
            return find_window(connection, window.name)
    activate_window(context, window.name)
    with context.display.connection() as connection:
        return find_window(connection, window.name)


def stop_app(context: ToolContext, app: str, force: bool) -> ToolCallResult:
    pids, windows = _find_running(context, app)
    if not force:
        refusal = _close_windows(context, windows)
        if refusal is not None:
            return refusal
    family = {child for pid in pids for child in (pid, *descendant_pids(pid))}
    for number, timeout in ((signal.SIGTERM, STOP_TIMEOUT), (signal.SIGKILL, STOP_TIMEOUT)):
        for pid in family:
            try:
                os.kill(pid, number)
            except (ProcessLookupError, PermissionError):
                pass
        deadline = time.monotonic() + (timeout if not force or number == signal.SIGKILL else 0.3)
        while any(is_process_alive(pid) for pid in family) and time.monotonic() < deadline:
            time.sleep(0.02)
        if not any(is_process_alive(pid) for pid in family):
            structured = {"stopped": sorted(pids), "windows": [window.name for window in windows]}
            return ToolCallResult(f"stopped {app} (process {', '.join(map(str, sorted(pids)))})", structured=structured)
    raise ToolError(f"{app} could not be stopped")


def _close_windows(context: ToolContext, windows: list[XWindow]) -> ToolCallResult | None:
    """Ask windows to close; return the result to report if one does not, None otherwise."""
    from .window_tools import activate_dialog, close_window

    for window in windows:
        if window.owner and (window.modal or window.dialog):
            text, dialog = activate_dialog(context, window)
            return ToolCallResult(
                f"it is still running: {text}; force kills it", structured={"stopped": [], "dialog": dialog}
            )
    for window in windows:
        try:
            outcome = close_window(context, window.name)
        except DesktopUnavailable:
            raise
        except ToolError:
            continue  # It closed together with another window.
        if outcome.structured is not None and not outcome.structured["closed"]:
            return ToolCallResult(f"{outcome.text}; force kills it", structured={"stopped": [], **outcome.structured})
    return None


def _find_running(context: ToolContext, app: str) -> tuple[set[int], list[XWindow]]:
    with context.display.connection() as connection:
        shown = list_x_windows(connection)
    own = {os.getpid(), os.getppid(), 1}
    wanted = app.lower()
    if app.isdigit():
        pids = {int(app)}
    else:
        pids = {w.pid for w in shown if w.pid and wanted in (w.app.lower(), w.title.lower())}
        pids = pids or {pid for pid, name in list_processes() if name.lower() == wanted}
        pids = pids or {w.pid for w in shown if w.pid and wanted in w.title.lower()}
    pids = {pid for pid in pids if is_process_alive(pid)} - own
    if not pids:
        names = ", ".join(sorted({f"{w.app} ({w.pid})" for w in shown})) or "none"
        raise AppNotRunning(f"no program {app!r} is running; programs with windows: {names}")
    return pids, [window for window in shown if window.pid in pids]


def list_apps(context: ToolContext) -> ToolCallResult:
    with context.display.connection() as connection:
        active = active_window_id(connection)
        windows = list_x_windows(connection)
    apps: dict[int, dict[str, Any]] = {}
    for window in windows:
        described = apps.setdefault(window.pid, {"app": window.app, "pid": window.pid, "active": False, "windows": []})
        described["windows"].append({"window": window.name, "title": window.title})
        described["active"] = described["active"] or window.id == active
    lines = []
    for described in apps.values():
        titles = ", ".join(quote_title(window["title"]) for window in described["windows"])
        lines.append(
            f"{described['app']}  pid {described['pid']}  {titles}{'  [active]' if described['active'] else ''}"
        )
    return ToolCallResult("\n".join(lines) or "no program has a window", structured={"apps": list(apps.values())})


def list_installed_apps(context: ToolContext) -> ToolCallResult:
    apps = sorted(
        ({k: v for k, v in entry.items() if k != "argv"} for entry in list_app_menu_entries()),
        key=lambda e: str(e["name"]),
    )
    lines = [f"{entry['name']}  ({entry['id']})  {entry['comment']}".rstrip() for entry in apps]
    return ToolCallResult("\n".join(lines) or "no installed programs", structured={"apps": apps})


def _parse_command(app: str) -> list[str]:
    try:
        argv = shlex.split(app)
    except ValueError as error:
        raise ToolError(f"{app!r} is not a command: {error}") from None
    if not argv:
        raise ToolError("app must name a program")
    return argv
