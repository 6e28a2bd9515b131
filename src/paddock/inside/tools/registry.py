"""Which tools a box offers, and the one way to call them.

A module of tools exports `tools(context) -> list[Tool]`. Which modules a box loads follows its kind
(the variable PADDOCK_KIND); a later module's tool takes the place of an earlier one's of the same name.
"""

from __future__ import annotations

import os
import threading

from .callers import Turn
from .results import Result, ToolError, failure
from .schema import check

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from .context import Context

HANDS_FULL = 60.0
"""Seconds that a tool waits for another one to let go of mouse and keyboard."""

_EVERYWHERE = ("files", "shell")
_SCREEN = ("screen", "pointer", "keyboard", "clipboard", "xwindows", "apps", "accessibility")
_MODULES = {
    "code": (),
    "linux": _SCREEN,
    # Programs on Wine tell nothing about themselves.
    "windows": (*(name for name in _SCREEN if name != "accessibility"), "windows"),
    "browser": ("browser",),
    "mobile": ("mobile",),
}


class Tool:
    """Something an agent can do.

    `properties` and `required` are the JSON schema of the arguments. `function(context, **arguments)`
    gets arguments that were checked against it, and the defaults the schema names for those left out.
    `input` marks what moves the mouse or presses keys: it waits while a person holds them, and never runs
    beside another. `changes_screen` asks the host for a fresh picture afterwards.
    """

    def __init__(
        self,
        name: str,
        description: str,
        properties: Mapping[str, Mapping[str, Any]],
        required: Sequence[str],
        function: Callable[..., Result],
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

    def document(self) -> dict[str, Any]:
        """Return MCP's Tool, with what only Paddock asks about under `_meta`."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.schema,
            "annotations": {"readOnlyHint": self.read_only, "openWorldHint": False},
            "_meta": {"paddock": {"input": self.input, "changesScreen": self.changes_screen}},
        }


class UnknownTool(Exception):
    """There is no tool of that name here; the message names the nearest ones."""


class Registry:
    """The tools of one box."""

    def __init__(self, context: Context, kind: str) -> None:
        self._context = context
        self._kind = kind
        self._loading = threading.Lock()
        self._tools: dict[str, Tool] | None = None
        self._hands = Turn()

    @property
    def tools(self) -> dict[str, Tool]:
        with self._loading:
            if self._tools is None:
                self._tools = {tool.name: tool for tool in offered(self._kind, self._context)}
            return self._tools

    def load(self) -> None:
        """Find the tools ahead of the first call; what cannot be found is told to who calls."""
        try:
            assert self.tools is not None
        except Exception:
            return

    def find(self, name: str) -> Tool:
        tool = self.tools.get(name)
        if tool is None:
            raise UnknownTool(f"there is no tool {name!r} here; {_hint(name, sorted(self.tools))}")
        return tool

    def call(self, name: str, arguments: Mapping[str, Any]) -> Result:
        """Call a tool. What it could not do, and wrong arguments, are results that say so.

        Raises HungUp when the caller does not wait for it any more.
        """
        tool = self.find(name)
        caller = self._context.caller
        caller.check()
        try:
            checked = check(arguments, tool.schema)
            if not tool.input:
                return tool.function(self._context, **checked)
            if not self._hands.take(caller, HANDS_FULL):
                return failure("another tool still has the mouse and the keyboard; try again")
            try:
                return tool.function(self._context, **checked)
            finally:
                self._hands.give_back()
        except ToolError as error:
            return failure(str(error))
        except OSError as error:
            return failure(_explained(error))


def offered(kind: str, context: Context, screen: bool | None = None) -> list[Tool]:
    """Collect the tools of a kind of box; one without a display has none that need it.

    With `screen` said, they are those of any such box; without, those that can work in this one.
    """
    from importlib import import_module
    from importlib.util import find_spec

    names = [*_EVERYWHERE, *_MODULES.get(kind, ())]
    if screen is None and "accessibility" in names and find_spec("gi") is None:
        names.remove("accessibility")
    if not (bool(os.environ.get("DISPLAY")) if screen is None else screen):
        names = [name for name in names if name not in _SCREEN]
    found: dict[str, Tool] = {}
    for name in names:
        for tool in import_module(f".{name}", __package__).tools(context):
            found[tool.name] = tool
    return list(found.values())


def _explained(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"no such file or directory: {error.filename}"
    reason = (error.strerror or str(error)).lower()
    return f"{error.filename}: {reason}" if error.filename else reason


def _hint(name: str, names: list[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, names, 3, 0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(names)}"
