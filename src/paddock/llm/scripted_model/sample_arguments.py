"""Sample values for JSON Schemas, for required arguments that a script omits."""

from __future__ import annotations

from typing import Any

_MAX_DEPTH = 8
_MAX_LENGTH = 100


def sample_schema_value(schema: Any, depth: int = 0, root: Any = None) -> Any:
    """Return the simplest value that a schema accepts. Exact for typical tool schemas, a guess for others."""
    root = schema if root is None else root
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return None
    schema = resolve_schema_reference(schema, root)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    if isinstance(schema.get("examples"), list) and schema["examples"]:
        return schema["examples"][0]
    for key in ("anyOf", "oneOf"):
        choices = [choice for choice in _list_or_empty(schema.get(key)) if isinstance(choice, dict)]
        if choices:
            null_choice = next((choice for choice in choices if choice.get("type") == "null"), None)
            return sample_schema_value(null_choice or choices[0], depth + 1, root)
    kinds = schema_types(schema, root)
    if "null" in kinds:
        return None
    if "object" in kinds or (not kinds and "properties" in schema):
        return fill_required_arguments({}, schema, depth, root)
    if "array" in kinds:
        least = schema.get("minItems")
        count = min(least, _MAX_LENGTH) if isinstance(least, int) and least > 0 else 0
        return [sample_schema_value(schema.get("items", {}), depth + 1, root) for _ in range(count)]
    if "boolean" in kinds:
        return False
    if kinds & {"integer", "number"}:
        return _smallest_number(schema)
    least = schema.get("minLength")
    return "-" * min(least, _MAX_LENGTH) if isinstance(least, int) and least > 0 else ""


def fill_required_arguments(arguments: dict[str, Any], schema: Any, depth: int = 0, root: Any = None) -> dict[str, Any]:
    """Add sample values for missing required arguments."""
    root = schema if root is None else root
    if not isinstance(schema, dict):
        return arguments
    properties = schema_properties(schema, root)
    wanted = [
        name for name in _list_or_empty(schema.get("required")) if isinstance(name, str) and name not in arguments
    ]
    missing = {name: sample_schema_value(properties.get(name, {"type": "string"}), depth + 1, root) for name in wanted}
    return {**arguments, **missing}


def schema_properties(schema: Any, root: Any = None) -> dict[str, Any]:
    if not isinstance(schema, dict):
        return {}
    properties = resolve_schema_reference(schema, schema if root is None else root).get("properties")
    return properties if isinstance(properties, dict) else {}


def schema_types(schema: Any, root: Any = None) -> set[str]:
    """Return the types that a schema allows; empty if it does not say."""
    if not isinstance(schema, dict):
        return set()
    root = schema if root is None else root
    schema = resolve_schema_reference(schema, root)
    kind = schema.get("type")
    kinds = {kind} if isinstance(kind, str) else {each for each in _list_or_empty(kind) if isinstance(each, str)}
    for key in ("anyOf", "oneOf"):
        for choice in _list_or_empty(schema.get(key)):
            if isinstance(choice, dict) and isinstance(choice.get("type"), str):
                kinds.add(choice["type"])
    return {kind.lower() for kind in kinds}


def resolve_schema_reference(schema: dict[str, Any], root: Any) -> dict[str, Any]:
    """Resolve a reference within the same schema document."""
    for _ in range(_MAX_DEPTH):
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        found: Any = root
        for part in reference[2:].split("/"):
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        if not isinstance(found, dict):
            return {}
        schema = found
    return {}


def _smallest_number(schema: dict[str, Any]) -> int | float:
    for key, step in (("minimum", 0), ("exclusiveMinimum", 1)):
        least = schema.get(key)
        if isinstance(least, int | float) and not isinstance(least, bool):
            return max(0, least + step) if step == 0 or least >= 0 else 0
    return 0


def _list_or_empty(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
