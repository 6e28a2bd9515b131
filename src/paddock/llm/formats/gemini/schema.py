"""Between JSON Schema and the part of OpenAPI's that Gemini takes."""

from __future__ import annotations

from typing import Any

from paddock.llm.formats.base import Untranslatable

_KEPT = {
    "title", "description", "maxItems", "minItems", "minProperties", "maxProperties", "minLength", "maxLength",
    "pattern", "minimum", "maximum", "propertyOrdering", "nullable",
}  # fmt: skip
_HANDLED = {
    "type", "properties", "required", "items", "enum", "const", "anyOf", "oneOf", "allOf", "format", "$ref", "$defs",
    "definitions",
}  # fmt: skip
_FORMATS = {"date-time", "float", "double", "int32", "int64"}
_DEEPEST = 32
_MOST = 10_000
"""A few references to references can say more than memory holds."""
_MOST_CHARACTERS = 2 * 1024 * 1024
"""So can a few thousand references to one long text."""


class SchemaWriter:
    """Writes schemas for Gemini and remembers, in `dropped`, what it had no word for."""

    def __init__(self) -> None:
        self.dropped: set[str] = set()
        self._count = 0
        self._characters = 0

    def write(self, schema: dict[str, Any]) -> dict[str, Any]:
        return self._write(schema, schema, ())

    def _write(self, schema: Any, root: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        self._weigh(schema)
        if not isinstance(schema, dict):
            return {}
        if len(path) > _DEEPEST:
            self.dropped.add("deep nesting")
            return {"type": "OBJECT"}
        reference = schema.get("$ref")
        if isinstance(reference, str):
            if reference in path:
                self.dropped.add("recursive $ref")
                return {"type": "OBJECT"}
            target = _resolve(root, reference)
            if target is None:
                self.dropped.add("unresolved $ref")
                target = {}
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            return self._write({**target, **rest}, root, (*path, reference))
        schema = self._merged(schema, root)
        written: dict[str, Any] = {}
        self._write_type(schema, written)
        for key, value in schema.items():
            if key in _KEPT and not isinstance(value, dict):
                written[key] = [*_texts(value)] if isinstance(value, list) else value
            elif key not in _HANDLED:
                self.dropped.add(key)
        below = (*path, "")
        if isinstance(schema.get("properties"), dict):
            written["properties"] = {
                name: self._write(value, root, below) for name, value in schema["properties"].items()
            }
            written.setdefault("type", "OBJECT")
        named = _texts(schema.get("required"))
        required = [name for name in written.get("properties", {}) if name in named]
        if required:
            written["required"] = required
        if isinstance(schema.get("items"), dict):
            written["items"] = self._write(schema["items"], root, below)
        elif written.get("type") == "ARRAY":
            written["items"] = {"type": "STRING"}
        self._write_choices(schema, written, root, below)
        self._write_enum(schema, written)
        return written

    def _weigh(self, schema: Any) -> None:
        """Count a schema, not those below it. Raises `Untranslatable` when all together are too much."""
        self._count += 1
        self._characters += _length(schema, 2)
        if self._count > _MOST:
            raise Untranslatable(f"the schemas have more than {_MOST} parts once their references are resolved")
        if self._characters > _MOST_CHARACTERS:
            raise Untranslatable(
                f"the schemas have more than {_MOST_CHARACTERS} characters once their references are resolved"
            )

    def _merged(self, schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
        """The schema with the members of its `allOf` taken in."""
        members = schema.get("allOf")
        if not isinstance(members, list):
            return schema
        merged = {key: value for key, value in schema.items() if key != "allOf"}
        properties, required = _mapping(merged.get("properties")), _texts(merged.get("required"))
        for member in members:
            self._weigh(member)
            if isinstance(member, dict) and isinstance(member.get("$ref"), str):
                member = _resolve(root, member["$ref"])
                self._weigh(member)
            if not isinstance(member, dict):
                continue
            for name, value in _mapping(member.get("properties")).items():
                properties.setdefault(name, value)
            required |= _texts(member.get("required"))
            for key, value in member.items():
                if key != "allOf":
                    merged.setdefault(key, value)
        if properties:
            merged["properties"] = properties
        return merged | {"required": [*required]}

    def _write_type(self, schema: dict[str, Any], written: dict[str, Any]) -> None:
        kinds = schema.get("type")
        names = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(kind, str)]
        if "null" in names and len(names) > 1:
            written["nullable"] = True
            names.remove("null")
        if len(names) == 1:
            written["type"] = names[0].upper()
        elif names:
            written["anyOf"] = [{"type": name.upper()} for name in names]
        form = schema.get("format")
        if isinstance(form, str) and form in _FORMATS:
            written["format"] = form
        elif form is not None:
            self.dropped.add(f"format {form}" if isinstance(form, str) else "format")

    def _write_choices(
        self, schema: dict[str, Any], written: dict[str, Any], root: dict[str, Any], path: tuple[str, ...]
    ) -> None:
        choices = schema.get("anyOf") or schema.get("oneOf")
        if not isinstance(choices, list):
            return
        some = [choice for choice in choices if choice != {"type": "null"}]
        if len(some) < len(choices):
            written["nullable"] = True
        chosen = [self._write(choice, root, path) for choice in some]
        if len(chosen) == 1:
            for key, value in chosen[0].items():
                written.setdefault(key, value)
        elif chosen:
            written["anyOf"] = chosen

    def _write_enum(self, schema: dict[str, Any], written: dict[str, Any]) -> None:
        values = schema.get("enum") if "enum" in schema else [schema["const"]] if "const" in schema else None
        if not isinstance(values, list):
            return
        if None in values:
            written["nullable"] = True
        texts = [value for value in values if isinstance(value, str)]
        if texts and written.get("type", "STRING") == "STRING":
            written["type"] = "STRING"
            written["enum"] = texts
        elif values != [None]:
            # Enumerations are of strings there; the words still guide the model.
            self.dropped.add("enum of other than strings")
            listed = f"One of: {', '.join(repr(value) for value in values if not isinstance(value, list | dict))}."
            written["description"] = f"{written.get('description', '')} {listed}".strip()


def _resolve(root: dict[str, Any], reference: str) -> dict[str, Any] | None:
    if not reference.startswith("#"):
        return None
    found: Any = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        if step:
            step = step.replace("~1", "/").replace("~0", "~")
            found = found.get(step) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


def _texts(value: Any) -> dict[str, None]:
    """The texts of a list, each once, in their order."""
    return {text: None for text in value if isinstance(text, str)} if isinstance(value, list) else {}


def _length(value: Any, depth: int) -> int:
    """About how many characters of JSON there are to look at, this deep into a value."""
    if isinstance(value, str):
        return 3 + len(value)
    if isinstance(value, int):
        return 1 + value.bit_length() // 3
    if depth and isinstance(value, dict):
        return sum(4 + len(name) + _length(inner, depth - 1) for name, inner in value.items())
    if depth and isinstance(value, list):
        return sum(_length(inner, depth - 1) for inner in value)
    return 1


def read_schema(schema: Any, depth: int = 0) -> Any:
    """A schema of Gemini's as JSON Schema: types in small letters, and null as a type."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return schema
    read: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "type" and isinstance(value, str):
            read[key] = value.lower()
        elif key == "properties" and isinstance(value, dict):
            read[key] = {name: read_schema(inner, depth + 1) for name, inner in value.items()}
        elif key in ("anyOf", "any_of") and isinstance(value, list):
            read["anyOf"] = [read_schema(inner, depth + 1) for inner in value]
        elif key == "items":
            read[key] = read_schema(value, depth + 1)
        elif key not in ("nullable", "propertyOrdering", "property_ordering"):
            read[key] = value
    if schema.get("nullable") is True:
        if isinstance(read.get("type"), str):
            read["type"] = [read["type"], "null"]
            if isinstance(read.get("enum"), list):
                read["enum"] = [*read["enum"], None]
        elif isinstance(read.get("anyOf"), list):
            read["anyOf"] = [*read["anyOf"], {"type": "null"}]
    return read
