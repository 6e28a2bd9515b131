"""The accessibility tree: what programs say about their buttons, fields and texts.

Programs answer for themselves, and one that hangs would keep its caller, so a process of its own asks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from .registry import Tool
from .results import Result, ToolError, readable, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .context import Context

SECONDS = 10
MAX_OUTPUT = 4 * 1024 * 1024
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from inside.tools.accessibility import report; report(sys.argv[2])"
)


def tools(context: Context) -> list[Tool]:
    return [
        Tool(
            "accessibility_tree",
            "Show what programs tell about their windows: roles, names, states, texts, and where to click. Not every "
            "program does.",
            {
                "app": {"type": "string", "maxLength": 200, "description": "Only programs with this in their name."},
                "depth": {"type": "integer", "minimum": 1, "maximum": 60, "default": 30},
                "limit": {"type": "integer", "minimum": 1, "maximum": 5000, "default": 500, "description": "Elements."},
                "all": {"type": "boolean", "default": False, "description": "Also what is not on the screen."},
            },
            [],
            accessibility_tree,
            read_only=True,
        ),
    ]


def accessibility_tree(context: Context, depth: int, limit: int, all: bool, app: str = "") -> Result:
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    wanted = json.dumps({"app": app.lower(), "depth": depth, "limit": limit, "all": all})
    try:
        done = subprocess.run(
            [sys.executable or "python3", "-c", _BOOT, package, wanted],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            cwd="/",
        )
    except subprocess.TimeoutExpired:
        raise ToolError(
            f"a program did not tell about itself within {SECONDS} seconds; name another with app"
        ) from None
    try:
        told = json.loads(done.stdout[:MAX_OUTPUT])
    except ValueError:
        why = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise ToolError(f"there is no accessibility tree here: {' '.join(why) or 'nothing answered'}") from None
    if "problem" in told:
        raise ToolError(told["problem"])
    nodes = told["nodes"]
    lines = [_line(node) for node in nodes]
    if told["cut"]:
        lines.append(f"[cut after {len(nodes)} elements; ask for one app, or a higher limit]")
    text = shorten(readable("\n".join(lines))) or "no program tells about itself"
    return Result(text, structured={"elements": nodes, "complete": not told["cut"]})


def _line(node: dict[str, Any]) -> str:
    parts = ["  " * node["level"] + node["role"]]
    if node["name"]:
        parts.append(repr(node["name"]))
    if node.get("text"):
        parts.append(f"text {node['text']!r}")
    if node["states"]:
        parts.append(f"[{', '.join(node['states'])}]")
    if "x" in node:
        parts.append(f"{node['width']}x{node['height']} at {node['x']}, {node['y']}")
    return "  ".join(parts)


def report(wanted: str) -> None:
    """Print the tree as JSON; what the process that asks runs."""
    options = json.loads(wanted)
    try:
        from importlib import import_module

        gi = import_module("gi")
        gi.require_version("Atspi", "2.0")
        atspi = import_module("gi.repository.Atspi")
        atspi.set_timeout(800, 3000)
        walk = _Walk(atspi, options)
        walk.desktop()
        document: dict[str, Any] = {"nodes": walk.nodes, "cut": walk.cut}
    except (ImportError, ValueError) as error:
        document = {"problem": f"this image brings no accessibility (AT-SPI): {error}"}
    except Exception as error:
        document = {"problem": f"accessibility does not answer: {error}"}
    print(json.dumps(document))


class _Walk:
    def __init__(self, atspi: Any, options: dict[str, Any]) -> None:
        self._atspi = atspi
        self._options = options
        states = atspi.StateType
        self._shown = {
            states.FOCUSED: "focused", states.CHECKED: "checked", states.SELECTED: "selected",
            states.EDITABLE: "editable", states.EXPANDED: "expanded", states.MODAL: "modal",
            states.ACTIVE: "active", states.PRESSED: "pressed",
        }  # fmt: skip
        self.nodes: list[dict[str, Any]] = []
        self.cut = False

    def desktop(self) -> None:
        desktop = self._atspi.get_desktop(0)
        for number in range(min(desktop.get_child_count(), 200)):
            app = desktop.get_child_at_index(number)
            if app is None or self._options["app"] not in (app.get_name() or "").lower():
                continue
            self._visit(app, 0)

    def _visit(self, element: Any, level: int) -> None:
        if len(self.nodes) >= self._options["limit"]:
            self.cut = True
            return
        if level > self._options["depth"]:
            return
        try:
            states = element.get_state_set()
            if level > 0 and not self._options["all"] and not states.contains(self._atspi.StateType.SHOWING):
                return
            self.nodes.append(self._described(element, states, level))
            count = min(element.get_child_count(), 1000)
        except Exception:
            return  # An element that went away while it was looked at.
        for number in range(count):
            try:
                child = element.get_child_at_index(number)
            except Exception:
                continue
            if child is not None:
                self._visit(child, level + 1)

    def _described(self, element: Any, states: Any, level: int) -> dict[str, Any]:
        name = (element.get_name() or "").strip()[:200]
        node: dict[str, Any] = {"level": level, "role": element.get_role_name(), "name": name}
        node["states"] = [word for state, word in self._shown.items() if states.contains(state)]
        if not states.contains(self._atspi.StateType.ENABLED) and level > 1:
            node["states"].append("disabled")
        component = element.get_component_iface()
        if component is not None:
            box = component.get_extents(self._atspi.CoordType.SCREEN)
            if box.width > 0 and box.height > 0:
                node.update(x=box.x, y=box.y, width=box.width, height=box.height)
        text = element.get_text_iface()
        if text is not None:
            length = self._atspi.Text.get_character_count(text)
            said = self._atspi.Text.get_text(text, 0, min(length, 500)) if length else ""
            if said and said != node["name"]:
                node["text"] = said
        return node
