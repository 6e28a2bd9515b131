"""Validates a call's arguments against a tool's JSON schema, with one-line error messages."""

from __future__ import annotations

from .tool_result import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
_ARTICLES = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}
_ARTICLES |= {"array": "a list", "object": "an object", "null": "null"}


def validate_tool_arguments(arguments: object, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with the schema's defaults; null counts as absent. Raises ToolError."""
    if not isinstance(arguments, dict):
        raise ToolError(f"the arguments must be an object, not {_describe_type(arguments)}")
    return _check_object(arguments, schema, "")


def _check_object(value: dict[str, Any], schema: Mapping[str, Any], where: str) -> dict[str, Any]:
    properties = schema.get("properties")
    if properties is None:
        return value
    present = {name: item for name, item in value.items() if item is not None}
    unknown = [name for name in present if name not in properties]
    if unknown and schema.get("additionalProperties") is False:
        known = ", ".join(properties) or "none"
        raise ToolError(f"unknown argument {where + unknown[0]!r}; the tool takes: {known}")
    for name in schema.get("required", ()):
        if name not in present:
            raise ToolError(f"the argument {where + name!r} is missing")
    checked = {name: present[name] for name in unknown}
    for name, rule in properties.items():
        if name in present:
            checked[name] = _check_value(present[name], rule, where + name)
        elif "default" in rule:
            checked[name] = rule["default"]
    return checked


def _check_value(value: Any, rule: Mapping[str, Any], where: str) -> Any:
    allowed = rule.get("type", ())
    kinds = [allowed] if isinstance(allowed, str) else list(allowed)
    if kinds:
        if "integer" in kinds and isinstance(value, float) and value.is_integer():
            value = int(value)
        if not any(_has_type(value, kind) for kind in kinds):
            expected = " or ".join(_ARTICLES[kind] for kind in kinds)
            raise ToolError(f"{where!r} must be {expected}, not {_describe_type(value)}")
    if "enum" in rule and value not in rule["enum"]:
        raise ToolError(f"{where!r} must be one of {', '.join(map(str, rule['enum']))}, not {_describe_value(value)}")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        _in_range(value, value, rule.get("minimum"), rule.get("maximum"), where, "")
    elif isinstance(value, str):
        _in_range(len(value), value, rule.get("minLength"), rule.get("maxLength"), where, " characters long")
    elif isinstance(value, list):
        _in_range(len(value), value, rule.get("minItems"), rule.get("maxItems"), where, " items long")
        items = rule.get("items")
        if items is not None:
            value = [_check_value(item, items, f"{where}[{number}]") for number, item in enumerate(value)]
    elif isinstance(value, dict):
        value = _check_object(value, rule, where + ".")
    return value


def _has_type(value: object, kind: str) -> bool:
    if kind != "boolean" and isinstance(value, bool):
        return False
    return isinstance(value, _TYPES[kind])


def _in_range(size: float, value: object, least: float | None, most: float | None, where: str, unit: str) -> None:
    if size != size or (least is not None and size < least) or (most is not None and size > most):
        bounds = f"{least} to {most}" if least is not None and most is not None else ""
        bounds = bounds or (f"at least {least}" if least is not None else f"at most {most}")
        shown = _describe_value(value) if not unit else str(size)
        raise ToolError(f"{where!r} must be {bounds}{unit}, not {shown}")


def _describe_type(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "an object"
    return _describe_value(value)


def _describe_value(value: object) -> str:
    text = f"the text {value!r}" if isinstance(value, str) else str(value).lower()
    return text if len(text) <= 60 else text[:59] + "…"
