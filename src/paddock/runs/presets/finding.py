"""Finds values in what an agent wrote, by the paths of its rules. What it wrote is only data, and may be anything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from paddock.runs.presets.rules import Probe, When

LONGEST = 64 * 1024
"""Bytes of one text that are kept."""
LONGEST_NAME = 500
DEEPEST = 40
"""Levels of a tool's arguments that are kept as they are."""
MOST = 10_000
"""Values in a tool's arguments that are looked at."""
MOST_PARTS = 1000
"""Parts of a list that are."""
_LARGE = re.compile(rb"\d{19}")
_SHORT = 4096
"""Bytes of each text in arguments that are too long together."""

Find = Callable[[Any], Any]
"""What is at a place in a document; None where nothing is."""
Check = Callable[[Any], bool]


def finder(path: str) -> Find:
    """Looks for what a path or a word with `=` stands for."""
    if path.startswith("="):
        word = path[1:]
        return lambda document: word
    if path == ".":
        return lambda document: document
    steps = tuple(path.split("."))
    if len(steps) == 1:
        # Most rules look at nothing else, on every line.
        return lambda document: document.get(path) if type(document) is dict else _deep(document, steps)
    return lambda document: _deep(document, steps)


def _deep(document: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        if isinstance(document, dict):
            document = document.get(step)
        elif isinstance(document, list) and step.isascii() and step.isdigit() and len(step) < 10:
            document = document[int(step)] if int(step) < len(document) else None
        else:
            return None
    return document


def first(paths: Sequence[str] | None) -> Find:
    """Looks for the first of several that is there."""
    finders = [finder(path) for path in paths or ()]

    def find(document: Any) -> Any:
        return next((found for each in finders if (found := each(document)) is not None), None)

    return find


def checker(when: When) -> Check:
    """Whether all that is asked for holds in a document."""
    checks = [(finder(path), _wanted(value)) for path, value in when.items()]

    def check(document: Any) -> bool:
        # Twice as quick as `all` with a generator, and it is most of what is done for a line.
        for find, fits in checks:  # noqa: SIM110
            if not fits(find(document)):
                return False
        return True

    return check


def truth(said: str | When | None) -> Check:
    """Whether there is something other than nothing at a path, or all that is asked for holds."""
    if said is None:
        return lambda document: False
    if isinstance(said, str):
        find = finder(said)
        return lambda document: bool(find(document))
    return checker(said)


def _wanted(value: Any) -> Check:
    if isinstance(value, Probe):
        if value.matches is None:
            return lambda found: (found is not None) is value.exists
        pattern = re.compile(value.matches)
        return lambda found: isinstance(found, str) and bool(pattern.search(found[:LONGEST]))
    # True is 1 to Python, but not to JSON.
    if not isinstance(value, tuple):
        kind = type(value)
        return lambda found: type(found) is kind and found == value
    wanted = value
    return lambda found: any(type(found) is type(each) and found == each for each in wanted)


def text_of(value: Any) -> str:
    """What a value says: the text itself, the texts of a list's parts, or JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_part(part) for part in value[:MOST_PARTS]) + ("[…]" if len(value) > MOST_PARTS else "")
    return json.dumps(value, ensure_ascii=False)


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and isinstance(text := part.get("text"), str):
        return text
    sort = part.get("type") if isinstance(part, dict) else None
    # Pictures and the like would be thousands of letters that mean nothing.
    return f"[{sort[:40]}]" if isinstance(sort, str) else json.dumps(part, ensure_ascii=False)


def cut(text: str, longest: int = LONGEST, dropped: int = 0) -> str:
    """A text that fits into an event, with a note where something is left out: `dropped` bytes and what is too long."""
    # NUL cannot be stored everywhere.
    text = text.replace("\0", "\ufffd")
    if len(text) * 4 > longest or dropped:
        encoded = text.encode("utf-8", "replace")
        dropped += max(0, len(encoded) - longest)
        if dropped:
            return f"{encoded[:longest].decode('utf-8', 'ignore')}\n[… {dropped} bytes more]"
    return text


def name_of(value: Any) -> str:
    """A short text, such as a tool's name."""
    return cut(text_of(value), LONGEST_NAME)


def arguments_of(said: str | Mapping[str, str] | None) -> Find:
    """Looks for a tool's arguments, and makes of them what fits into an event."""
    if said is None:
        return lambda document: {}
    if isinstance(said, str):
        find = finder(said)
        return lambda document: _fitting(find(document))
    finders = {name: finder(path) for name, path in said.items()}
    return lambda document: _fitting(
        {name: found for name, find in finders.items() if (found := find(document)) is not None}
    )


def _fitting(tree: Any) -> Any:
    if tree is None:
        return {}
    if _fits(msgspec.json.encode(tree)):
        return tree
    for longest in (LONGEST, _SHORT):
        clean = _Cleaning(longest).clean(tree)
        text = json.dumps(clean, ensure_ascii=False)
        if len(text.encode()) <= LONGEST:
            return clean
    return {"json": cut(text)}


def _fits(written: bytes) -> bool:
    """Whether it is plain at once that a tree can stay as it is."""
    return (
        len(written) <= LONGEST
        and written.count(b"{") + written.count(b"[") <= DEEPEST
        and b"\\u0000" not in written
        and not _LARGE.search(written)
    )


class _Cleaning:
    """Makes of a tree what can be stored, and what is soon done: its writer may want to keep us busy."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._left = MOST

    def clean(self, tree: Any, levels: int = DEEPEST) -> Any:
        self._left -= 1
        if isinstance(tree, str):
            return cut(tree, self._longest)
        if not isinstance(tree, dict | list):
            # Databases have no larger numbers.
            return str(tree)[:LONGEST_NAME] if isinstance(tree, int) and abs(tree) >= 2**63 else tree
        if levels == 0 or self._left < 0:
            return "[…]"
        if isinstance(tree, list):
            kept = [self.clean(each, levels - 1) for each in islice(tree, max(0, self._left))]
            return kept if len(kept) == len(tree) else [*kept, "[…]"]
        names = islice(tree.items(), max(0, self._left))
        found = {cut(name, LONGEST_NAME): self.clean(each, levels - 1) for name, each in names}
        return found if len(tree) <= len(found) else {**found, "…": f"[{len(tree)} in all]"}
