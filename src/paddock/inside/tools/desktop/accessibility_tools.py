"""Tool for the accessibility tree: the buttons, fields and texts that programs expose.

The tree is read in a separate process, because a program that hangs would block the reader.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from ..tool_registry import CallableTool
from ..tool_result import ToolCallResult, ToolError, omit_middle_of_text, replace_surrogates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..tool_context import ToolContext

TREE_TIMEOUT = 10
MAX_OUTPUT = 4 * 1024 * 1024
_READER_SCRIPT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from inside.tools.desktop import accessibility_tools; "
    "accessibility_tools.print_accessibility_tree(sys.argv[2])"
)


def accessibility_tools(context: ToolContext) -> list[CallableTool]:
    return [
        CallableTool(
            "accessibility_tree",
            "Show the accessibility tree of windows: roles, names, states, texts, and where to click. Not every "
            "program exposes one.",
            {
                "app": {"type": "string", "maxLength": 200, "description": "Only programs with this in their name."},
                "depth": {"type": "integer", "minimum": 1, "maximum": 60, "default": 30},
                "limit": {"type": "integer", "minimum": 1, "maximum": 5000, "default": 500, "description": "Elements."},
                "all": {
                    "type": "boolean",
                    "default": False,
                    "description": "Include elements that are not on the screen.",
                },
            },
            [],
            accessibility_tree,
            read_only=True,
        ),
    ]


def accessibility_tree(context: ToolContext, depth: int, limit: int, all: bool, app: str = "") -> ToolCallResult:
    package = os.path.abspath(__file__).rpartition("/inside/")[0]
    query = json.dumps({"app": app.lower(), "depth": depth, "limit": limit, "all": all})
    try:
        done = subprocess.run(
            [sys.executable or "python3", "-c", _READER_SCRIPT, package, query],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TREE_TIMEOUT,
            cwd="/",
        )
    except subprocess.TimeoutExpired:
        raise ToolError(
            f"a program did not answer within {TREE_TIMEOUT} seconds; choose another one with app"
        ) from None
    try:
        tree = json.loads(done.stdout[:MAX_OUTPUT])
    except ValueError:
        reason = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise ToolError(f"no accessibility tree: {' '.join(reason) or 'no answer'}") from None
    if "problem" in tree:
        raise ToolError(tree["problem"])
    nodes = tree["nodes"]
    lines = [_element_line(node) for node in nodes]
    if tree["cut"]:
        lines.append(f"[cut after {len(nodes)} elements; choose one app, or raise the limit]")
    text = omit_middle_of_text(replace_surrogates("\n".join(lines))) or "no program exposes an accessibility tree"
    return ToolCallResult(text, structured={"elements": nodes, "complete": not tree["cut"]})


def _element_line(node: dict[str, Any]) -> str:
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


def print_accessibility_tree(query: str) -> None:
    """Print the tree as JSON; runs in the separate process."""
    options = json.loads(query)
    try:
        from importlib import import_module

        gi = import_module("gi")
        gi.require_version("Atspi", "2.0")
        atspi = import_module("gi.repository.Atspi")
        atspi.set_timeout(800, 3000)
        walk = _TreeReader(atspi, options)
        walk.desktop()
        document: dict[str, Any] = {"nodes": walk.nodes, "cut": walk.cut}
    except (ImportError, ValueError) as error:
        document = {"problem": f"this image has no accessibility support (AT-SPI): {error}"}
    except Exception as error:
        document = {"problem": f"the accessibility bus does not answer: {error}"}
    print(json.dumps(document))


class _TreeReader:
    """Collects the elements of all programs, depth first."""

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
            self.nodes.append(self._describe(element, states, level))
            count = min(element.get_child_count(), 1000)
        except Exception:
            return  # The element vanished while it was read.
        for number in range(count):
            try:
                child = element.get_child_at_index(number)
            except Exception:
                continue
            if child is not None:
                self._visit(child, level + 1)

    def _describe(self, element: Any, states: Any, level: int) -> dict[str, Any]:
        name = (element.get_name() or "").strip()[:200]
        node: dict[str, Any] = {"level": level, "role": element.get_role_name(), "name": name}
        node["states"] = [word for state, word in self._shown.items() if states.contains(state)]
        if not states.contains(self._atspi.StateType.ENABLED) and level > 1:
            node["states"].append("disabled")
        component = element.get_component_iface()
        if component is not None:
            extents = component.get_extents(self._atspi.CoordType.SCREEN)
            if extents.width > 0 and extents.height > 0:
                node.update(x=extents.x, y=extents.y, width=extents.width, height=extents.height)
        text = element.get_text_iface()
        if text is not None:
            length = self._atspi.Text.get_character_count(text)
            content = self._atspi.Text.get_text(text, 0, min(length, 500)) if length else ""
            if content and content != node["name"]:
                node["text"] = content
        return node
