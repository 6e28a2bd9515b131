"""Tools that run code: shell commands and Python cells."""

from __future__ import annotations

import os

from ..tool_registry import CallableTool
from ..tool_result import ToolCallResult, ToolError
from .program_runner import run_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..tool_context import ToolContext

MAX_SECONDS = 3600


def shell_tools(context: ToolContext) -> list[CallableTool]:
    from .notebook import PythonNotebook

    notebook = PythonNotebook()
    seen = bool(os.environ.get("DISPLAY"))
    return [
        CallableTool(
            "run_shell_command",
            "Run a command in the shell and return its output and exit code. Each call starts a new shell in the "
            "working directory. Start long-running programs with & and redirect their output.",
            {
                "command": {"type": "string", "minLength": 1, "maxLength": 1_000_000},
                "timeout": {
                    "type": "number", "minimum": 0.1, "maximum": MAX_SECONDS, "default": 120,
                    "description": "Seconds after which it is killed.",
                },
                "cwd": {"type": "string", "description": "Where to run it; the working directory if absent."},
                "stdin": {"type": "string", "description": "Standard input of the command."},
            },
            ["command"],
            run_shell_command,
            changes_screen=seen,
        ),
        CallableTool(
            "run_ipython_cell",
            "Run Python code; variables and imports are kept for the next cell. Returns the value of the last "
            "expression, output and figures. Magics work if IPython is installed.",
            {
                "code": {"type": "string", "minLength": 1, "maxLength": 1_000_000},
                "timeout": {
                    "type": "number", "minimum": 0.1, "maximum": MAX_SECONDS, "default": 120,
                    "description": "Seconds after which it is interrupted.",
                },
                "restart": {
                    "type": "boolean", "default": False,
                    "description": "Restart the Python process first; all variables are lost.",
                },
            },
            ["code"],
            notebook.run_cell,
            changes_screen=seen,
        ),
    ]  # fmt: skip


def run_shell_command(
    context: ToolContext, command: str, timeout: float, cwd: str | None = None, stdin: str | None = None
) -> ToolCallResult:
    directory = context.absolute_path(cwd) if cwd else context.cwd
    if not os.path.isdir(directory):
        raise ToolError(f"the working directory does not exist: {directory}")
    if "\0" in command:
        raise ToolError("a command must not contain NUL")
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    data = (stdin or "").encode("utf-8", "surrogateescape")
    return run_program(context.caller, [shell, "-c", command], directory, timeout, data)
