"""Tools for Windows programs, which run on Wine: cmd, programs by name or path, and what ends them.

Wine takes the code page of programs from the locale. There is one for every alphabet, and UTF-8 for locales that never
had one, as Hindi. So programs run in that one: what they print and save is UTF-8, whatever language it is in.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading

from . import apps, shell
from .drives import is_windows_path, unix_path, windows_path
from .registry import Tool
from .results import Result, ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .context import Context

PLAIN_LOCALE = "/usr/lib/locale/C.utf8"
LOCALES = {"LC_CTYPE": "hi_IN.UTF-8", "LC_MESSAGES": "en_US.UTF-8"}
"""The first decides on the code page, the second on how dates and numbers look."""
LONGEST_LINE = 8000
"""Characters; cmd cuts longer ones without a word."""
_LOOP_VARIABLE = re.compile(r"(?<!%)%(~[A-Za-z:$]*)?([A-Za-z])(?![A-Za-z0-9_()]*%)")
_TEXTS = frozenset((".txt", ".log", ".ini", ".csv", ".json", ".xml", ".md", ".py", ".yaml", ".yml"))
_PROGRAMS = (".exe", ".com", ".bat", ".cmd", ".msi", ".lnk")


def tools(context: Context) -> list[Tool]:
    wine = Wine()
    inherited = {tool.name: tool for tool in [*shell.tools(context), *apps.tools(context)]}

    def changed(name: str, description: str, function: Any, **properties: dict[str, Any]) -> Tool:
        """Return a tool as every box has it, that does the same in another way."""
        tool = inherited[name]
        return Tool(
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
        changed(
            "run_shell_command",
            "Run a command of Windows' cmd, or several lines of them, and return the output and the exit code. Each "
            "call starts a new cmd in the working directory, which is Z:\\workspace unless cwd says otherwise.",
            wine.run_shell_command,
            shell={
                "type": "string",
                "enum": ["cmd", "bash"],
                "default": "cmd",
                "description": "bash runs the command in the Linux shell below Wine.",
            },
        ),
        changed(
            "start_app",
            "Start a Windows program and wait for its window: by name, such as notepad, explorer, taskmgr or regedit, "
            "or by path, such as C:\\Program Files\\App\\app.exe. A path of a document opens it with its program.",
            wine.start_app,
        ),
        changed(
            "stop_app",
            "End a program: its windows are asked to close; with force it is ended whatever it says.",
            wine.stop_app,
        ),
    ]


class Wine:
    """The way to run Windows programs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locales: str | None = None

    def run_shell_command(
        self,
        context: Context,
        command: str,
        timeout: float,
        shell: str,
        cwd: str | None = None,
        stdin: str | None = None,
    ) -> Result:
        from .shell import run, run_shell_command

        if shell == "bash":
            return run_shell_command(context, command, timeout, cwd, stdin)
        directory = context.path(cwd) if cwd else context.cwd
        if not os.path.isdir(directory):
            raise ToolError(f"the working directory does not exist: {cwd or directory}")
        if "\0" in command:
            raise ToolError("a command must not contain NUL")
        # As arguments, quotes would reach cmd with backslashes that it does not understand.
        descriptor, script = tempfile.mkstemp(suffix=".bat", prefix="command-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(batch(command))
            argv = ["wine", "cmd", "/c", windows_path(script)]
            data = (stdin or "").encode("utf-8", "replace")
            result = run(context.caller, argv, directory, timeout, data, self.environment())
        finally:
            os.unlink(script)
        return _in_unix_lines(result)

    def start_app(self, context: Context, app: str, arguments: list[str], wait: float) -> Result:
        words = program(app.strip())
        if words is None:
            return apps.start_app(context, app, arguments, wait)
        name = re.split(r"[\\/]", app.strip())[-1]
        try:
            return apps.launch(
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
            raise ToolError(f"no program opens {name}; start one by name with the path as an argument") from error

    def stop_app(self, context: Context, app: str, force: bool) -> Result:
        name = re.split(r"[\\/]", app.strip())[-1]
        if not name.isdigit() and not name.lower().endswith(_PROGRAMS):
            try:
                return apps.stop_app(context, f"{name}.exe", force)
            except apps.NotRunning:
                pass
        return apps.stop_app(context, name, force)

    def environment(self) -> dict[str, str]:
        """Return what Windows programs start with: the box's variables, and a locale whose code page is UTF-8."""
        env = dict(os.environ)
        locales = self._locale_directory()
        if locales:
            env.pop("LC_ALL", None)
            env.update(LOCALES, LOCPATH=locales)
        return env

    def _locale_directory(self) -> str:
        """Make a place where the locales that Wine is told of are there, each a copy of the plain one."""
        with self._lock:
            if self._locales is not None and not os.path.isdir(self._locales):
                self._locales = None  # Somebody has cleaned up.
            if self._locales is None and os.path.isdir(PLAIN_LOCALE):
                self._locales = tempfile.mkdtemp(prefix="locales-")
                for name in {"C.utf8", *(locale.replace("UTF-8", "utf8") for locale in LOCALES.values())}:
                    os.symlink(PLAIN_LOCALE, os.path.join(self._locales, name))
            return self._locales or ""


def program(app: str) -> list[str] | None:
    """Return the words that start a Windows program or open a document; None for what is neither."""
    if is_windows_path(app):
        path = unix_path(app)
        if not os.path.exists(path):
            raise ToolError(f"there is no {app}; list_directory shows what is on a drive")
        return _opening(path)
    if app.startswith("/"):
        return _opening(app) if app.lower().endswith(_PROGRAMS) and os.path.exists(app) else None
    if re.fullmatch(r"[\w.+ -]+", app):
        for name in (app, f"{app}.exe"):
            for directory in ("C:\\windows", "C:\\windows\\system32"):
                path = unix_path(f"{directory}\\{name}") if name.lower().endswith(_PROGRAMS) else ""
                if os.path.isfile(path):
                    return _opening(path)
    return None


def _opening(path: str) -> list[str]:
    shown, ending = windows_path(path), os.path.splitext(path)[1].lower()
    if os.path.isdir(path):
        return ["wine", "explorer", shown]
    if ending in (".exe", ".com"):
        return ["wine", "wineconsole", shown] if _is_for_console(path) else ["wine", shown]
    if ending in (".bat", ".cmd"):
        return ["wine", "wineconsole", "cmd", "/k", shown]
    if ending == ".msi":
        return ["wine", "msiexec", "/i", shown]
    if ending in _TEXTS:
        return ["wine", "notepad", shown]
    return ["wine", "start", shown]


def _is_for_console(path: str) -> bool:
    """Whether a program wants a console, which shows no window by itself."""
    try:
        with open(path, "rb") as file:
            head = file.read(4096)
    except OSError:
        return False
    place = int.from_bytes(head[0x3C:0x40], "little")
    return head[place : place + 4] == b"PE\0\0" and head[place + 0x5C : place + 0x5E] == b"\x03\0"


def batch(command: str) -> bytes:
    """Return a command as a batch file, in which the variable of a loop is written with two percent signs."""
    lines = command.replace("\r\n", "\n").split("\n")
    if any(len(line) > LONGEST_LINE for line in lines):
        raise ToolError(f"cmd reads lines of up to {LONGEST_LINE} characters; use several, or write_file and a path")
    doubled = [_LOOP_VARIABLE.sub(lambda found: "%" + found[0], line) for line in lines]
    return "\r\n".join(["@echo off", *doubled, ""]).encode("utf-8", "replace")


def _in_unix_lines(result: Result) -> Result:
    """Return a result whose lines end as those of any other tool."""
    result.text = result.text.replace("\r\n", "\n")
    if result.structured is not None:
        streams = {name: str(result.structured[name]).replace("\r\n", "\n") for name in ("stdout", "stderr")}
        result.structured = {**result.structured, **streams}
    return result
