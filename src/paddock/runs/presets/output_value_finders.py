"""Find values in an agent's JSON output by the paths of its rules. The output is untrusted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from paddock.runs.presets.output_rules import ValueCondition, When

LONGEST = 64 * 1024
"""Maximum bytes of a text."""
LONGEST_NAME = 500
DEEPEST = 40
"""Maximum nesting of tool arguments."""
MOST = 10_000
"""Maximum number of values in tool arguments."""
MOST_PARTS = 1000
"""Maximum list items."""
_LARGE = re.compile(rb"\d{19}")
_SHORT = 4096
"""Maximum bytes of each text in oversized arguments."""

Find = Callable[[Any], Any]
"""Return the value at a path, or None."""
Check = Callable[[Any], bool]


def make_value_finder(path: str) -> Find:
    """Return a finder for a path or a constant written with `=`."""
    if path.startswith("="):
        word = path[1:]
        return lambda document: word
    if path == ".":
        return lambda document: document
    steps = tuple(path.split("."))
    if len(steps) == 1:
        # Fast path: most rules use a single key, on every line.
        return lambda document: document.get(path) if type(document) is dict else _value_at(document, steps)
    return lambda document: _value_at(document, steps)


def _value_at(document: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        if isinstance(document, dict):
            document = document.get(step)
        elif isinstance(document, list) and step.isascii() and step.isdigit() and len(step) < 10:
            document = document[int(step)] if int(step) < len(document) else None
        else:
            return None
    return document


def make_first_value_finder(paths: Sequence[str] | None) -> Find:
    """Return a finder of the first existing value."""
    finders = [make_value_finder(path) for path in paths or ()]

    def find(document: Any) -> Any:
        return next((found for each in finders if (found := each(document)) is not None), None)

    return find


def make_condition_checker(when: When) -> Check:
    """Return a check that all conditions hold in a document."""
    checks = [(make_value_finder(path), _matcher(value)) for path, value in when.items()]

    def check(document: Any) -> bool:
        # Twice as fast as `all` with a generator, in the hottest loop.
        for find, fits in checks:  # noqa: SIM110
            if not fits(find(document)):
                return False
        return True

    return check


def make_truth_checker(said: str | When | None) -> Check:
    """Return a check for a truthy value at a path, or for conditions."""
    if said is None:
        return lambda document: False
    if isinstance(said, str):
        find = make_value_finder(said)
        return lambda document: bool(find(document))
    return make_condition_checker(said)


def _matcher(value: Any) -> Check:
    if isinstance(value, ValueCondition):
        if value.matches is None:
            return lambda found: (found is not None) is value.exists
        pattern = re.compile(value.matches)
        return lambda found: isinstance(found, str) and bool(pattern.search(found[:LONGEST]))
    # In Python, True equals 1; in JSON it does not.
    if not isinstance(value, tuple):
        kind = type(value)
        return lambda found: type(found) is kind and found == value
    wanted = value
    return lambda found: any(type(found) is type(each) and found == each for each in wanted)


def value_as_text(value: Any) -> str:
    """Convert a value to text: a string as it is, the texts of a list, or JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_part_as_text(part) for part in value[:MOST_PARTS]) + ("[…]" if len(value) > MOST_PARTS else "")
    return json.dumps(value, ensure_ascii=False)


def _part_as_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and isinstance(text := part.get("text"), str):
        return text
    sort = part.get("type") if isinstance(part, dict) else None
    # Skip binary data such as images.
    return f"[{sort[:40]}]" if isinstance(sort, str) else json.dumps(part, ensure_ascii=False)


def truncate_text(text: str, longest: int = LONGEST, dropped: int = 0) -> str:
    """Shorten a text for an event, with a note of the omitted bytes, including `dropped` ones."""
    # Some databases cannot store NUL.
    text = text.replace("\0", "\ufffd")
    if len(text) * 4 > longest or dropped:
        encoded = text.encode("utf-8", "replace")
        dropped += max(0, len(encoded) - longest)
        if dropped:
            return f"{encoded[:longest].decode('utf-8', 'ignore')}\n[… {dropped} bytes more]"
    return text


def value_as_name(value: Any) -> str:
    """Convert a value to a short name, such as a tool's."""
    return truncate_text(value_as_text(value), LONGEST_NAME)


def make_arguments_finder(said: str | Mapping[str, str] | None) -> Find:
    """Return a finder of tool arguments, limited to the size of an event."""
    if said is None:
        return lambda document: {}
    if isinstance(said, str):
        find = make_value_finder(said)
        return lambda document: _truncate_arguments(find(document))
    finders = {name: make_value_finder(path) for name, path in said.items()}
    return lambda document: _truncate_arguments(
        {name: found for name, find in finders.items() if (found := find(document)) is not None}
    )


def _truncate_arguments(tree: Any) -> Any:
    if tree is None:
        return {}
    if _is_small(msgspec.json.encode(tree)):
        return tree
    for longest in (LONGEST, _SHORT):
        clean = _ValueCleaner(longest).clean(tree)
        text = json.dumps(clean, ensure_ascii=False)
        if len(text.encode()) <= LONGEST:
            return clean
    return {"json": truncate_text(text)}


def _is_small(written: bytes) -> bool:
    """Return whether JSON is small enough to keep without inspection."""
    return (
        len(written) <= LONGEST
        and written.count(b"{") + written.count(b"[") <= DEEPEST
        and b"\\u0000" not in written
        and not _LARGE.search(written)
    )


class _ValueCleaner:
    """Limit an untrusted tree to storable values, in bounded time."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._left = MOST

    def clean(self, tree: Any, levels: int = DEEPEST) -> Any:
        self._left -= 1
        if isinstance(tree, str):
            return truncate_text(tree, self._longest)
        if not isinstance(tree, dict | list):
            # Databases cannot store larger integers.
            return str(tree)[:LONGEST_NAME] if isinstance(tree, int) and abs(tree) >= 2**63 else tree
        if levels == 0 or self._left < 0:
            return "[…]"
        if isinstance(tree, list):
            kept = [self.clean(each, levels - 1) for each in islice(tree, max(0, self._left))]
            return kept if len(kept) == len(tree) else [*kept, "[…]"]
        names = islice(tree.items(), max(0, self._left))
        found = {truncate_text(name, LONGEST_NAME): self.clean(each, levels - 1) for name, each in names}
        return found if len(tree) <= len(found) else {**found, "…": f"[{len(tree)} in all]"}
