"""Parses the dump of Android's uiautomator, which lists the elements on the screen."""

from __future__ import annotations

import re

from ..tool_result import ToolError
from .phone import MAX_ELEMENTS, MAX_LABEL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_XML = 8 * 1024 * 1024
_BOUNDS = re.compile(r"\[(-?\d+),(-?\d+)\]\[(-?\d+),(-?\d+)\]")


def parse_uiautomator_dump(text: str) -> list[dict[str, Any]]:
    """Return the elements of a dump that have a text or are clickable; the dump is untrusted."""
    import xml.etree.ElementTree as ElementTree

    start, end = text.find("<?xml"), text.rfind("</hierarchy>")
    if start < 0 or end < 0:
        raise ToolError(f"the device returned no element list: {text.strip()[:200] or 'no output'}; try again")
    document = text[start : end + len("</hierarchy>")]
    if len(document) > MAX_XML or "<!DOCTYPE" in document or "<!ENTITY" in document:
        raise ToolError("the device's element list cannot be parsed")
    try:
        # Drop the XML declaration: the text is decoded already.
        root = ElementTree.fromstring(document.partition("?>")[2])
    except (ElementTree.ParseError, RecursionError):
        raise ToolError("the device's element list is malformed; try again") from None
    found = []
    for node in root.iter("node"):
        element = _element(node.attrib)
        if element is not None:
            found.append(element)
            if len(found) == MAX_ELEMENTS:
                break
    return found


def _element(node: dict[str, str]) -> dict[str, Any] | None:
    bounds = _BOUNDS.fullmatch(node.get("bounds", ""))
    text = node.get("text") or node.get("content-desc") or ""
    clickable = node.get("clickable") == "true" or node.get("long-clickable") == "true"
    if bounds is None or not (text or clickable):
        return None
    left, top, right, bottom = (int(number) for number in bounds.groups())
    if right <= left or bottom <= top:
        return None
    role = node.get("class", "").rpartition(".")[2] or "view"
    element: dict[str, Any] = {
        "role": role[:60],
        "text": text[:MAX_LABEL],
        "bounds": [left, top, right, bottom],
        "clickable": clickable,
        "editable": role.endswith("EditText"),
        "focused": node.get("focused") == "true",
        "checked": node.get("checked") == "true",
    }
    if node.get("resource-id"):
        element["id"] = node["resource-id"][:200]
    return element
