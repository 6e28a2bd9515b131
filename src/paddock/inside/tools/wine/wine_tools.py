"""Tools for Windows programs on Wine: run cmd commands, start and stop programs.

Wine derives a program's code page from the locale: one per alphabet, and UTF-8 for locales that never had a code page,
such as Hindi. Programs run in such a locale, so that they print and save UTF-8 in any language.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading

from ..desktop import app_tools
from ..tool_registry import CallableTool
from ..tool_result import ToolCallResult, ToolError
from ..workspace import shell_tools
from .windows_paths import is_windows_path, to_unix_path, to_windows_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..tool_context import ToolContext

PLAIN_LOCALE_DIRECTORY = "/usr/lib/locale/C.utf8"
LOCALES = {"LC_CTYPE": "hi_IN.UTF-8", "LC_MESSAGES": "en_US.UTF-8"}
"""LC_CTYPE decides the code page, LC_MESSAGES the format of dates and numbers."""
MAX_LINE = 8000
"""Characters per line; cmd silently cuts longer lines."""
_LOOP_VARIABLE = re.compile(r"(?<!%)%(~[A-Za-z:$]*)?([A-Za-z])(?![A-Za-z0-9_()]*%)")
_TEXT_SUFFIXES = frozenset((".txt", ".log", ".ini", ".csv", ".json", ".xml", ".md", ".py", ".yaml", ".yml"))
_PROGRAM_SUFFIXES = (".exe", ".com", ".bat", ".cmd", ".msi", ".lnk")


def wine_tools(context: ToolContext) -> list[CallableTool]:
    wine = WineRunner()
    inherited = {tool.name: tool for tool in [*shell_tools.shell_tools(context), *app_tools.app_tools(context)]}

    def adapted_tool(name: str, description: str, function: Any, **properties: dict[str, Any]) -> CallableTool:
        """Return the common tool of this name with another description and function."""
        tool = inherited[name]
        return CallableTool(
            name,
            description,
            {**tool.schema["properties"], **properties},
            tool.schema["required"],
            function,
            input=tool.input,
            changes_screen=tool.changes_screen,
            read_only=tool.read_only,
        )

    return [
        adapted_tool(
            "run_shell_command",
            "Run a Windows cmd command, or several lines of them, and return its output and exit code. Each "
            "call starts a new cmd in the working directory, which is Z:\\workspace unless cwd says otherwise.",
            wine.run_shell_command,
            shell={
                "type": "string",
                "enum": ["cmd", "bash"],
                "default": "cmd",
                "description": "bash runs the command in the Linux shell instead.",
            },
        ),
        adapted_tool(
            "start_app",
            "Start a Windows program and wait for its window: by name, such as notepad, explorer, taskmgr or regedit, "
            "or by path, such as C:\\Program Files\\App\\app.exe. A path of a document opens it with its program.",
            wine.start_app,
        ),
        adapted_tool(
            "stop_app",
            "Stop a program by asking its windows to close; with force it is killed.",
            wine.stop_app,
        ),
    ]


class WineRunner:
    """Runs Windows programs on Wine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locales: str | None = None

    def run_shell_command(
        self,
        context: ToolContext,
        command: str,
        timeout: float,
        shell: str,
        cwd: str | None = None,
        stdin: str | None = None,
    ) -> ToolCallResult:
        from ..workspace.program_runner import run_program
        from ..workspace.shell_tools import run_shell_command

        if shell == "bash":
            return run_shell_command(context, command, timeout, cwd, stdin)
        directory = context.absolute_path(cwd) if cwd else context.cwd
        if not os.path.isdir(directory):
            raise ToolError(f"the working directory does not exist: {cwd or directory}")
        if "\0" in command:
            raise ToolError("a command must not contain NUL")
        # As arguments, quotes would reach cmd escaped with backslashes, which it does not understand.
        descriptor, script = tempfile.mkstemp(suffix=".bat", prefix="command-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(render_batch_file(command))
            argv = ["wine", "cmd", "/c", to_windows_path(script)]
            data = (stdin or "").encode("utf-8", "replace")
            result = run_program(context.caller, argv, directory, timeout, data, self.environment())
        finally:
            os.unlink(script)
        return _with_unix_newlines(result)

    def start_app(self, context: ToolContext, app: str, arguments: list[str], wait: float) -> ToolCallResult:
        words = windows_program_argv(app.strip())
        if words is None:
            return app_tools.start_app(context, app, arguments, wait)
        name = re.split(r"[\\/]", app.strip())[-1]
        try:
            return app_tools.launch_app(
                context,
                [*words, *arguments],
                wait,
                name=name,
                env=self.environment(),
                adopted=True,
                document=name if words[1] == "notepad" else "",
            )
        except ToolError as error:
            if words[1] != "start":
                raise
            raise ToolError(
                f"no program is associated with {name}; start one by name with the path as argument"
            ) from error

    def stop_app(self, context: ToolContext, app: str, force: bool) -> ToolCallResult:
        name = re.split(r"[\\/]", app.strip())[-1]
        if not name.isdigit() and not name.lower().endswith(_PROGRAM_SUFFIXES):
            try:
                return app_tools.stop_app(context, f"{name}.exe", force)
            except app_tools.AppNotRunning:
                pass
        return app_tools.stop_app(context, name, force)

    def environment(self) -> dict[str, str]:
        """Return the variables for Windows programs, with a UTF-8 locale."""
        env = dict(os.environ)
        locales = self._locale_directory()
        if locales:
            env.pop("LC_ALL", None)
            env.update(LOCALES, LOCPATH=locales)
        return env

    def _locale_directory(self) -> str:
        """Create a directory with the locales that Wine needs, each a link to the plain one."""
        with self._lock:
            if self._locales is not None and not os.path.isdir(self._locales):
                self._locales = None  # The temporary directory was removed.
            if self._locales is None and os.path.isdir(PLAIN_LOCALE_DIRECTORY):
                self._locales = tempfile.mkdtemp(prefix="locales-")
                for name in {"C.utf8", *(locale.replace("UTF-8", "utf8") for locale in LOCALES.values())}:
                    os.symlink(PLAIN_LOCALE_DIRECTORY, os.path.join(self._locales, name))
            return self._locales or ""


def windows_program_argv(app: str) -> list[str] | None:
    """Return the argv that starts a Windows program or opens a document; None if `app` is neither."""
    if is_windows_path(app):
        path = to_unix_path(app)
        if not os.path.exists(path):
            raise ToolError(f"{app} does not exist; list_directory lists a drive's files")
        return _argv_for_path(path)
    if app.startswith("/"):
        return _argv_for_path(app) if app.lower().endswith(_PROGRAM_SUFFIXES) and os.path.exists(app) else None
    if re.fullmatch(r"[\w.+ -]+", app):
        for name in (app, f"{app}.exe"):
            for directory in ("C:\\windows", "C:\\windows\\system32"):
                path = to_unix_path(f"{directory}\\{name}") if name.lower().endswith(_PROGRAM_SUFFIXES) else ""
                if os.path.isfile(path):
                    return _argv_for_path(path)
    return None


def _argv_for_path(path: str) -> list[str]:
    shown, ending = to_windows_path(path), os.path.splitext(path)[1].lower()
    if os.path.isdir(path):
        return ["wine", "explorer", shown]
    if ending in (".exe", ".com"):
        return ["wine", "wineconsole", shown] if _is_console_program(path) else ["wine", shown]
    if ending in (".bat", ".cmd"):
        return ["wine", "wineconsole", "cmd", "/k", shown]
    if ending == ".msi":
        return ["wine", "msiexec", "/i", shown]
    if ending in _TEXT_SUFFIXES:
        return ["wine", "notepad", shown]
    return ["wine", "start", shown]


def _is_console_program(path: str) -> bool:
    """True if an executable is a console program, which opens no window of its own."""
    try:
        with open(path, "rb") as file:
            head = file.read(4096)
    except OSError:
        return False
    offset = int.from_bytes(head[0x3C:0x40], "little")
    return head[offset : offset + 4] == b"PE\0\0" and head[offset + 0x5C : offset + 0x5E] == b"\x03\0"


def render_batch_file(command: str) -> bytes:
    """Return a command as a batch file; loop variables get the second percent sign that batch files need."""
    lines = command.replace("\r\n", "\n").split("\n")
    if any(len(line) > MAX_LINE for line in lines):
        raise ToolError(
            f"cmd reads lines of up to {MAX_LINE} characters; split the command, or use write_file and run the file"
        )
    doubled = [_LOOP_VARIABLE.sub(lambda found: "%" + found[0], line) for line in lines]
    return "\r\n".join(["@echo off", *doubled, ""]).encode("utf-8", "replace")


def _with_unix_newlines(result: ToolCallResult) -> ToolCallResult:
    """Convert a result's line endings to Unix line endings."""
    result.text = result.text.replace("\r\n", "\n")
    if result.structured is not None:
        streams = {name: str(result.structured[name]).replace("\r\n", "\n") for name in ("stdout", "stderr")}
        result.structured = {**result.structured, **streams}
    return result
