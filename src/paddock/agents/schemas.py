"""Checks arguments against the JSON Schema of a tool.

It knows what tools say of their arguments. What it does not know it lets pass, and the tool itself finds out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

DEEPEST = 100
"""Levels of arguments."""
_DEEPEST = 32
_MOST = 5
_PATIENCE = 100_000
"""Parts of a schema that are looked at; one that refers to itself many times would be endless."""
_SHOWN = 60

_TYPES: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "string": ("text", lambda value: isinstance(value, str)),
    "integer": ("a whole number", lambda value: _is_number(value) and value == int(value)),
    "number": ("a number", lambda value: _is_number(value)),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "array": ("a list", lambda value: isinstance(value, list | tuple)),
    "object": ("an object", lambda value: isinstance(value, Mapping)),
    "null": ("null", lambda value: value is None),
}
_BOUNDS: Sequence[tuple[str, Callable[[Any, Any], bool], str]] = (
    ("minimum", lambda value, bound: value >= bound, "must be at least {}"),
    ("maximum", lambda value, bound: value <= bound, "must be at most {}"),
    ("exclusiveMinimum", lambda value, bound: value > bound, "must be more than {}"),
    ("exclusiveMaximum", lambda value, bound: value < bound, "must be less than {}"),
)
_LENGTHS: Sequence[tuple[str, type | tuple[type, ...], bool, str]] = (
    ("minLength", str, True, "must have at least {} characters"),
    ("maxLength", str, False, "must have at most {} characters"),
    ("minItems", (list, tuple), True, "must have at least {} items"),
    ("maxItems", (list, tuple), False, "must have at most {} items"),
    ("minProperties", Mapping, True, "must have at least {} fields"),
    ("maxProperties", Mapping, False, "must have at most {} fields"),
)


def shallow(value: Any, levels: int = DEEPEST) -> bool:
    """Whether everything that keeps and shows a value can follow it to its end."""
    if not isinstance(value, Mapping | list | tuple):
        return True
    inside = value.values() if isinstance(value, Mapping) else value
    return levels > 0 and all(shallow(each, levels - 1) for each in inside)


def problems(schema: Mapping[str, Any], value: Any) -> list[str]:
    """What is wrong with a value, in words for whoever wrote it; empty if nothing is."""
    found: list[str] = []
    try:
        for problem in _check(schema, value, "", _Root(schema), 0):
            if len(found) == _MOST:
                break
            found.append(problem)
    except _TooMuch:
        found.append("they, or what the tool says of them, are too much to be checked")
    return found


class _TooMuch(Exception):
    """Nobody waits for this to end."""


class _Root:
    """The whole schema, and how much of it may still be looked at."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema
        self._left = _PATIENCE

    def look(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _TooMuch


def _check(schema: Any, value: Any, path: str, root: _Root, depth: int) -> Iterator[str]:
    root.look()
    if schema is False:
        yield f"{_named(path)} is not allowed"
    if not isinstance(schema, Mapping):
        return
    if depth > _DEEPEST:
        yield f"{_named(path)} is nested too deeply"
        return
    if (target := _referred(schema.get("$ref"), root.schema)) is not None:
        yield from _check(target, value, path, root, depth + 1)
    wrong = _wrong_type(schema.get("type"), value, path) if not (value is None and schema.get("nullable")) else None
    if wrong:
        yield wrong
        return
    yield from _check_value(schema, value, path)
    yield from _check_alternatives(schema, value, path, root, depth)
    if isinstance(value, Mapping):
        yield from _check_object(schema, value, path, root, depth)
    if isinstance(value, list | tuple) and "items" in schema:
        for place, item in enumerate(value):
            yield from _check(schema["items"], item, f"{path}[{place}]", root, depth + 1)


def _wrong_type(wanted: Any, value: Any, path: str) -> str | None:
    names = [wanted] if isinstance(wanted, str) else wanted
    if not isinstance(names, Sequence):
        return None
    known = [_TYPES[name] for name in names if name in _TYPES]
    if not known or any(fits(value) for _, fits in known):
        return None
    return f"{_named(path)} must be {' or '.join(words for words, _ in known)}, not {_what(value)}"


def _check_value(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(choices, Sequence) and not any(_same(value, choice) for choice in choices):
        yield f"{_named(path)} must be {' or '.join(_shown(choice) for choice in choices[:20])}, not {_shown(value)}"
    if _is_number(value):
        for keyword, fits, words in _BOUNDS:
            bound = schema.get(keyword)
            if _is_number(bound) and not fits(value, bound):
                yield f"{_named(path)} {words.format(bound)}"
    for keyword, kind, least, words in _LENGTHS:
        bound = schema.get(keyword)
        if isinstance(bound, int) and isinstance(value, kind):
            length = len(value)  # type: ignore[arg-type]
            if length < bound if least else length > bound:
                yield f"{_named(path)} {words.format(bound)}"


def _check_alternatives(schema: Mapping[str, Any], value: Any, path: str, root: _Root, depth: int) -> Iterator[str]:
    for part in _list(schema.get("allOf")):
        yield from _check(part, value, path, root, depth + 1)
    for keyword, several in (("anyOf", True), ("oneOf", False)):
        parts = _list(schema.get(keyword))
        if not parts:
            continue
        found = [next(_check(part, value, path, root, depth + 1), None) for part in parts]
        fitting = found.count(None)
        if not fitting:
            yield " or ".join(dict.fromkeys(problem for problem in found if problem))
        elif fitting > 1 and not several:
            yield f"{_named(path)} fits several of the forms that it may have, and must fit one"


def _check_object(
    schema: Mapping[str, Any], value: Mapping[str, Any], path: str, root: _Root, depth: int
) -> Iterator[str]:
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    for name in _list(schema.get("required")):
        if name not in value:
            yield f"{_named(_join(path, name))} is missing"
    others = schema.get("additionalProperties", True)
    for name, item in value.items():
        where = _join(path, name)
        if name in properties:
            yield from _check(properties[name], item, where, root, depth + 1)
        elif others is False and "patternProperties" not in schema:
            known = ", ".join(f"`{each}`" for each in properties) or "none"
            yield f"{_named(where)} is not known; there is {known}"
        elif isinstance(others, Mapping) and "patternProperties" not in schema:
            yield from _check(others, item, where, root, depth + 1)


def _referred(reference: Any, root: Mapping[str, Any]) -> Any:
    """What a reference within the schema stands for; `None` for those that lead elsewhere."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    place: Any = root
    for step in reference[2:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(place, Mapping) or name not in place:
            return None
        place = place[name]
    return place


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _same(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _named(path: str) -> str:
    return f"`{path[:200]}`" if path else "the whole"


def _what(value: Any) -> str:
    for words, fits in _TYPES.values():
        if fits(value):
            return words
    return "that"


def _shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, str) else f"`{value}`"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
