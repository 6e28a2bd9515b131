"""Find values in an agent's JSON output by the paths of its rules. The output is untrusted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from paddock.runs.presets.output_rules import OutputValueCondition, ValueConditions

MAX_TEXT_BYTES = 64 * 1024
"""Maximum bytes of a text."""
MAX_NAME_BYTES = 500
MAX_DEPTH = 40
"""Maximum nesting of tool arguments."""
MAX_VALUES = 10_000
"""Maximum number of values in tool arguments."""
MAX_LIST_ITEMS = 1000
"""Maximum list items."""
_LARGE_NUMBER = re.compile(rb"\d{19}")
_MAX_SHORTENED_TEXT_BYTES = 4096
"""Maximum bytes of each text in oversized arguments."""

ValueFinder = Callable[[Any], Any]
"""Return the value at a path, or None."""
ConditionChecker = Callable[[Any], bool]


def make_value_finder(path: str) -> ValueFinder:
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


def make_first_value_finder(paths: Sequence[str] | None) -> ValueFinder:
    """Return a finder of the first existing value."""
    finders = [make_value_finder(path) for path in paths or ()]

    def find(document: Any) -> Any:
        return next((found for each in finders if (found := each(document)) is not None), None)

    return find


def make_condition_checker(when: ValueConditions) -> ConditionChecker:
    """Return a check that all conditions hold in a document."""
    checks = [(make_value_finder(path), _matcher(value)) for path, value in when.items()]

    def check(document: Any) -> bool:
        # Twice as fast as `all` with a generator, in the hottest loop.
        for find, fits in checks:  # noqa: SIM110
            if not fits(find(document)):
                return False
        return True

    return check


def make_truth_checker(rule: str | ValueConditions | None) -> ConditionChecker:
    """Return a check for a truthy value at a path, or for conditions."""
    if rule is None:
        return lambda document: False
    if isinstance(rule, str):
        find = make_value_finder(rule)
        return lambda document: bool(find(document))
    return make_condition_checker(rule)


def _matcher(value: Any) -> ConditionChecker:
    if isinstance(value, OutputValueCondition):
        if value.matches is None:
            return lambda found: (found is not None) is value.exists
        pattern = re.compile(value.matches)
        return lambda found: isinstance(found, str) and bool(pattern.search(found[:MAX_TEXT_BYTES]))
    # In Python, True equals 1; in JSON it does not.
    if not isinstance(value, tuple):
        kind = type(value)
        return lambda found: type(found) is kind and found == value
    wanted = value
    return lambda found: any(type(found) is type(each) and found == each for each in wanted)


def event_text_from_value(value: Any) -> str:
    """Convert a value to text: a string as it is, the texts of a list, or JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_part_as_text(part) for part in value[:MAX_LIST_ITEMS]) + (
            "[…]" if len(value) > MAX_LIST_ITEMS else ""
        )
    return json.dumps(value, ensure_ascii=False)


def _part_as_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and isinstance(text := part.get("text"), str):
        return text
    sort = part.get("type") if isinstance(part, dict) else None
    # Skip binary data such as images.
    return f"[{sort[:40]}]" if isinstance(sort, str) else json.dumps(part, ensure_ascii=False)


def truncate_event_text(text: str, longest: int = MAX_TEXT_BYTES, dropped: int = 0) -> str:
    """Shorten a text for an event, with a note of the omitted bytes, including `dropped` ones."""
    # Some databases cannot store NUL.
    text = text.replace("\0", "\ufffd")
    if len(text) * 4 > longest or dropped:
        encoded = text.encode("utf-8", "replace")
        dropped += max(0, len(encoded) - longest)
        if dropped:
            return f"{encoded[:longest].decode('utf-8', 'ignore')}\n[… {dropped} bytes more]"
    return text


def event_name_from_value(value: Any) -> str:
    """Convert a value to a short name, such as a tool's."""
    return truncate_event_text(event_text_from_value(value), MAX_NAME_BYTES)


def make_arguments_finder(rule: str | Mapping[str, str] | None) -> ValueFinder:
    """Return a finder of tool arguments, limited to the size of an event."""
    if rule is None:
        return lambda document: {}
    if isinstance(rule, str):
        find = make_value_finder(rule)
        return lambda document: _truncate_arguments(find(document))
    finders = {name: make_value_finder(path) for name, path in rule.items()}
    return lambda document: _truncate_arguments(
        {name: found for name, find in finders.items() if (found := find(document)) is not None}
    )


def _truncate_arguments(tree: Any) -> Any:
    if tree is None:
        return {}
    if _is_small(msgspec.json.encode(tree)):
        return tree
    for longest in (MAX_TEXT_BYTES, _MAX_SHORTENED_TEXT_BYTES):
        clean = _ValueCleaner(longest).clean(tree)
        text = json.dumps(clean, ensure_ascii=False)
        if len(text.encode()) <= MAX_TEXT_BYTES:
            return clean
    return {"json": truncate_event_text(text)}


def _is_small(written: bytes) -> bool:
    """Return whether JSON is small enough to keep without inspection."""
    return (
        len(written) <= MAX_TEXT_BYTES
        and written.count(b"{") + written.count(b"[") <= MAX_DEPTH
        and b"\\u0000" not in written
        and not _LARGE_NUMBER.search(written)
    )


class _ValueCleaner:
    """Limit an untrusted tree to storable values, in bounded time."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._left = MAX_VALUES

    def clean(self, tree: Any, levels: int = MAX_DEPTH) -> Any:
        self._left -= 1
        if isinstance(tree, str):
            return truncate_event_text(tree, self._longest)
        if not isinstance(tree, dict | list):
            # Databases cannot store larger integers.
            return str(tree)[:MAX_NAME_BYTES] if isinstance(tree, int) and abs(tree) >= 2**63 else tree
        if levels == 0 or self._left < 0:
            return "[…]"
        if isinstance(tree, list):
            kept = [self.clean(each, levels - 1) for each in islice(tree, max(0, self._left))]
            return kept if len(kept) == len(tree) else [*kept, "[…]"]
        names = islice(tree.items(), max(0, self._left))
        found = {truncate_event_text(name, MAX_NAME_BYTES): self.clean(each, levels - 1) for name, each in names}
        return found if len(tree) <= len(found) else {**found, "…": f"[{len(tree)} in all]"}
