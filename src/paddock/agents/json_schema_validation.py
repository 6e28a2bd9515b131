"""Validation of tool arguments against JSON Schema.

Covers the keywords that tools use. Unknown keywords are ignored; the tool itself validates the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

MAX_DEPTH = 100
"""Maximum nesting of arguments."""
_MAX_SCHEMA_DEPTH = 32
_MAX_PROBLEMS = 5
_MAX_STEPS = 100_000
"""Maximum schema parts visited; a schema that refers to itself would be endless."""
_MAX_SHOWN = 60

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


def is_nested_at_most(value: Any, levels: int = MAX_DEPTH) -> bool:
    """Return whether a value is nested at most `levels` deep, so that it can be stored and shown."""
    if not isinstance(value, Mapping | list | tuple):
        return True
    children = value.values() if isinstance(value, Mapping) else value
    return levels > 0 and all(is_nested_at_most(each, levels - 1) for each in children)


def find_schema_problems(schema: Mapping[str, Any], value: Any) -> list[str]:
    """Return the problems of a value, as messages for its author; empty if it is valid."""
    problems: list[str] = []
    try:
        for problem in _check(schema, value, "", _CheckBudget(schema), 0):
            if len(problems) == _MAX_PROBLEMS:
                break
            problems.append(problem)
    except _TooComplex:
        problems.append("the arguments or the tool's schema are too complex to be checked")
    return problems


class _TooComplex(Exception):
    """The check needs too many steps."""


class _CheckBudget:
    """The root schema, and the number of steps left."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema
        self._steps_left = _MAX_STEPS

    def count_step(self) -> None:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise _TooComplex


def _check(schema: Any, value: Any, path: str, root: _CheckBudget, depth: int) -> Iterator[str]:
    root.count_step()
    if schema is False:
        yield f"{_quote_path(path)} is not allowed"
    if not isinstance(schema, Mapping):
        return
    if depth > _MAX_SCHEMA_DEPTH:
        yield f"{_quote_path(path)} is nested too deeply"
        return
    if (target := _follow_reference(schema.get("$ref"), root.schema)) is not None:
        yield from _check(target, value, path, root, depth + 1)
    problem = _type_problem(schema.get("type"), value, path) if not (value is None and schema.get("nullable")) else None
    if problem:
        yield problem
        return
    yield from _check_value(schema, value, path)
    yield from _check_alternatives(schema, value, path, root, depth)
    if isinstance(value, Mapping):
        yield from _check_object(schema, value, path, root, depth)
    if isinstance(value, list | tuple) and "items" in schema:
        for index, item in enumerate(value):
            yield from _check(schema["items"], item, f"{path}[{index}]", root, depth + 1)


def _type_problem(type_names: Any, value: Any, path: str) -> str | None:
    names = [type_names] if isinstance(type_names, str) else type_names
    if not isinstance(names, Sequence):
        return None
    known = [_TYPES[name] for name in names if name in _TYPES]
    if not known or any(fits(value) for _, fits in known):
        return None
    return f"{_quote_path(path)} must be {' or '.join(words for words, _ in known)}, not {_describe_type(value)}"


def _check_value(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(choices, Sequence) and not any(_equal_values(value, choice) for choice in choices):
        allowed = " or ".join(_describe_value(choice) for choice in choices[:20])
        yield f"{_quote_path(path)} must be {allowed}, not {_describe_value(value)}"
    if _is_number(value):
        for keyword, fits, template in _BOUNDS:
            bound = schema.get(keyword)
            if _is_number(bound) and not fits(value, bound):
                yield f"{_quote_path(path)} {template.format(bound)}"
    for keyword, kind, is_minimum, template in _LENGTHS:
        bound = schema.get(keyword)
        if isinstance(bound, int) and isinstance(value, kind):
            length = len(value)  # type: ignore[arg-type]
            if length < bound if is_minimum else length > bound:
                yield f"{_quote_path(path)} {template.format(bound)}"


def _check_alternatives(
    schema: Mapping[str, Any], value: Any, path: str, root: _CheckBudget, depth: int
) -> Iterator[str]:
    for part in _as_list(schema.get("allOf")):
        yield from _check(part, value, path, root, depth + 1)
    for keyword, allows_several in (("anyOf", True), ("oneOf", False)):
        parts = _as_list(schema.get(keyword))
        if not parts:
            continue
        problems = [next(_check(part, value, path, root, depth + 1), None) for part in parts]
        fitting = problems.count(None)
        if not fitting:
            yield " or ".join(dict.fromkeys(problem for problem in problems if problem))
        elif fitting > 1 and not allows_several:
            yield f"{_quote_path(path)} fits several of the forms that it may have, and must fit one"


def _check_object(
    schema: Mapping[str, Any], value: Mapping[str, Any], path: str, root: _CheckBudget, depth: int
) -> Iterator[str]:
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    for name in _as_list(schema.get("required")):
        if name not in value:
            yield f"{_quote_path(_join_path(path, name))} is missing"
    additional = schema.get("additionalProperties", True)
    for name, item in value.items():
        item_path = _join_path(path, name)
        if name in properties:
            yield from _check(properties[name], item, item_path, root, depth + 1)
        elif additional is False and "patternProperties" not in schema:
            known = ", ".join(f"`{each}`" for each in properties) or "none"
            yield f"{_quote_path(item_path)} is not known; there is {known}"
        elif isinstance(additional, Mapping) and "patternProperties" not in schema:
            yield from _check(additional, item, item_path, root, depth + 1)


def _follow_reference(reference: Any, root: Mapping[str, Any]) -> Any:
    """Return the target of a reference within the schema; None for external references."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    target: Any = root
    for step in reference[2:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(target, Mapping) or name not in target:
            return None
        target = target[name]
    return target


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _equal_values(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _join_path(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _quote_path(path: str) -> str:
    return f"`{path[:200]}`" if path else "the whole"


def _describe_type(value: Any) -> str:
    for words, fits in _TYPES.values():
        if fits(value):
            return words
    return "that"


def _describe_value(value: Any) -> str:
    text = repr(value) if not isinstance(value, str) else f"`{value}`"
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
