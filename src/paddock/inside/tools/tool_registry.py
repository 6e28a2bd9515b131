"""The tools that a sandbox offers, by its kind, and calls to them.

A tool module exports a function with the module's own name, such as `mouse_tools(context)`, that returns its
tools. The sandbox's kind (variable PADDOCK_KIND) selects the modules; a later module's tool replaces an
earlier one of the same name.
"""

from __future__ import annotations

import os
import threading

from .argument_schema import validate_tool_arguments
from .caller_connection import FairLock
from .tool_result import ToolCallResult, ToolError, failed_tool_result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from .tool_context import ToolContext

INPUT_LOCK_TIMEOUT = 60.0
"""Seconds an input tool waits for another one to finish."""

_WORKSPACE = ("workspace.file_tools", "workspace.shell_tools")
_ACCESSIBILITY = "desktop.accessibility_tools"
_DESKTOP = (
    "desktop.screenshot_tools",
    "desktop.mouse_tools",
    "desktop.keyboard_tools",
    "desktop.clipboard_tools",
    "desktop.window_tools",
    "desktop.app_tools",
    _ACCESSIBILITY,
)
_MODULES = {
    "code": (),
    "linux": _DESKTOP,
    # Programs on Wine expose no accessibility tree.
    "windows": (*(name for name in _DESKTOP if name != _ACCESSIBILITY), "wine.wine_tools"),
    "browser": ("browser.browser_tools",),
    "mobile": ("mobile.phone_tools",),
}


class CallableTool:
    """A tool that an agent can call in the sandbox.

    `properties` and `required` are the JSON schema of the arguments. `function(context, **arguments)`
    gets validated arguments, with the schema's defaults for absent ones. `input` marks tools that use the
    mouse or the keyboard: they wait while a person has control, and run one at a time. `changes_screen`
    asks the host for a new screenshot after the call.
    """

    def __init__(
        self,
        name: str,
        description: str,
        properties: Mapping[str, Mapping[str, Any]],
        required: Sequence[str],
        function: Callable[..., ToolCallResult],
        *,
        input: bool = False,
        changes_screen: bool = False,
        read_only: bool = False,
    ) -> None:
        self.name = name
        self.description = description
        self.function = function
        self.input = input
        self.changes_screen = changes_screen
        self.read_only = read_only
        self.schema: dict[str, Any] = {
            "type": "object",
            "properties": dict(properties),
            "required": list(required),
            "additionalProperties": False,
        }

    def mcp_document(self) -> dict[str, Any]:
        """Return the tool as an MCP `Tool`, with Paddock's own fields under `_meta`."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.schema,
            "annotations": {"readOnlyHint": self.read_only, "openWorldHint": False},
            "_meta": {"paddock": {"input": self.input, "changesScreen": self.changes_screen}},
        }


class UnknownTool(Exception):
    """There is no tool of that name; the message suggests similar names."""


class ToolRegistry:
    """The tools of one sandbox, loaded on first use."""

    def __init__(self, context: ToolContext, kind: str) -> None:
        self._context = context
        self._kind = kind
        self._loading = threading.Lock()
        self._tools: dict[str, CallableTool] | None = None
        self._input_lock = FairLock()

    @property
    def tools(self) -> dict[str, CallableTool]:
        with self._loading:
            if self._tools is None:
                self._tools = {tool.name: tool for tool in tools_for_kind(self._kind, self._context)}
            return self._tools

    def load_tools(self) -> None:
        """Load the tools ahead of the first call; errors are reported by the first call."""
        try:
            assert self.tools is not None
        except Exception:
            return

    def find_tool(self, name: str) -> CallableTool:
        tool = self.tools.get(name)
        if tool is None:
            raise UnknownTool(f"there is no tool {name!r} here; {_similar_names(name, sorted(self.tools))}")
        return tool

    def call_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolCallResult:
        """Call a tool. Failures and invalid arguments are returned as error results.

        Raises CallerDisconnected if the client does not wait for the result any more.
        """
        tool = self.find_tool(name)
        caller = self._context.caller
        caller.raise_if_disconnected()
        try:
            checked = validate_tool_arguments(arguments, tool.schema)
            if not tool.input:
                return tool.function(self._context, **checked)
            if not self._input_lock.acquire(caller, INPUT_LOCK_TIMEOUT):
                return failed_tool_result("another tool still uses the mouse and keyboard; try again")
            try:
                return tool.function(self._context, **checked)
            finally:
                self._input_lock.release()
        except ToolError as error:
            return failed_tool_result(str(error))
        except OSError as error:
            return failed_tool_result(_os_error_message(error))


def tools_for_kind(kind: str, context: ToolContext, screen: bool | None = None) -> list[CallableTool]:
    """Return the tools for a kind of sandbox; without a display, the desktop tools are left out.

    `screen` says whether to assume a display; None checks what this sandbox has.
    """
    from importlib import import_module
    from importlib.util import find_spec

    modules = [*_WORKSPACE, *_MODULES.get(kind, ())]
    if screen is None and _ACCESSIBILITY in modules and find_spec("gi") is None:
        modules.remove(_ACCESSIBILITY)
    if not (bool(os.environ.get("DISPLAY")) if screen is None else screen):
        modules = [module for module in modules if module not in _DESKTOP]
    found: dict[str, CallableTool] = {}
    for module in modules:
        make_tools = getattr(import_module(f".{module}", __package__), module.rpartition(".")[2])
        for tool in make_tools(context):
            found[tool.name] = tool
    return list(found.values())


def _os_error_message(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"no such file or directory: {error.filename}"
    reason = (error.strerror or str(error)).lower()
    return f"{error.filename}: {reason}" if error.filename else reason


def _similar_names(name: str, names: list[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, names, 3, 0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(names)}"
