"""Values that a JSON Schema accepts, for whatever a tool requires and a scenario does not say."""

from __future__ import annotations

from typing import Any

_DEEPEST = 8
_LONGEST = 100


def sample(schema: Any, depth: int = 0, root: Any = None) -> Any:
    """The plainest value of a schema. Right for the schemas that tools have, a fair guess for others."""
    root = schema if root is None else root
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return None
    schema = resolve(schema, root)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    if isinstance(schema.get("examples"), list) and schema["examples"]:
        return schema["examples"][0]
    for key in ("anyOf", "oneOf"):
        choices = [choice for choice in _list(schema.get(key)) if isinstance(choice, dict)]
        if choices:
            nothing = next((choice for choice in choices if choice.get("type") == "null"), None)
            return sample(nothing or choices[0], depth + 1, root)
    kinds = types_of(schema, root)
    if "null" in kinds:
        return None
    if "object" in kinds or (not kinds and "properties" in schema):
        return fill({}, schema, depth, root)
    if "array" in kinds:
        least = schema.get("minItems")
        count = min(least, _LONGEST) if isinstance(least, int) and least > 0 else 0
        return [sample(schema.get("items", {}), depth + 1, root) for _ in range(count)]
    if "boolean" in kinds:
        return False
    if kinds & {"integer", "number"}:
        return _number(schema)
    least = schema.get("minLength")
    return "-" * min(least, _LONGEST) if isinstance(least, int) and least > 0 else ""


def fill(arguments: dict[str, Any], schema: Any, depth: int = 0, root: Any = None) -> dict[str, Any]:
    """The arguments, with what the schema requires besides."""
    root = schema if root is None else root
    if not isinstance(schema, dict):
        return arguments
    properties = properties_of(schema, root)
    wanted = [name for name in _list(schema.get("required")) if isinstance(name, str) and name not in arguments]
    missing = {name: sample(properties.get(name, {"type": "string"}), depth + 1, root) for name in wanted}
    return {**arguments, **missing}


def properties_of(schema: Any, root: Any = None) -> dict[str, Any]:
    if not isinstance(schema, dict):
        return {}
    properties = resolve(schema, schema if root is None else root).get("properties")
    return properties if isinstance(properties, dict) else {}


def types_of(schema: Any, root: Any = None) -> set[str]:
    """The types a schema allows, as far as it says."""
    if not isinstance(schema, dict):
        return set()
    root = schema if root is None else root
    schema = resolve(schema, root)
    kind = schema.get("type")
    kinds = {kind} if isinstance(kind, str) else {each for each in _list(kind) if isinstance(each, str)}
    for key in ("anyOf", "oneOf"):
        for choice in _list(schema.get(key)):
            if isinstance(choice, dict) and isinstance(choice.get("type"), str):
                kinds.add(choice["type"])
    return {kind.lower() for kind in kinds}


def resolve(schema: dict[str, Any], root: Any) -> dict[str, Any]:
    """The schema that a reference within the same document names."""
    for _ in range(_DEEPEST):
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


def _number(schema: dict[str, Any]) -> int | float:
    for key, step in (("minimum", 0), ("exclusiveMinimum", 1)):
        least = schema.get(key)
        if isinstance(least, int | float) and not isinstance(least, bool):
            return max(0, least + step) if step == 0 or least >= 0 else 0
    return 0


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
