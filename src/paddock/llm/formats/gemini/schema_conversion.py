"""Convert between JSON Schema and the OpenAPI subset that Gemini accepts."""

from __future__ import annotations

from typing import Any

from paddock.llm.formats.base import UntranslatableRequest

_COPIED_KEYWORDS = {
    "title", "description", "maxItems", "minItems", "minProperties", "maxProperties", "minLength", "maxLength",
    "pattern", "minimum", "maximum", "propertyOrdering", "nullable",
}  # fmt: skip
_CONVERTED_KEYWORDS = {
    "type", "properties", "required", "items", "enum", "const", "anyOf", "oneOf", "allOf", "format", "$ref", "$defs",
    "definitions",
}  # fmt: skip
_FORMATS_BY_TYPE = {"STRING": {"date-time"}, "NUMBER": {"float", "double"}, "INTEGER": {"int32", "int64"}}
_SUPPORTED_FORMATS = {name for formats in _FORMATS_BY_TYPE.values() for name in formats}
_MAX_DEPTH = 32
_MAX_PARTS = 10_000
"""Maximum number of schema parts; nested references can otherwise expand beyond memory."""
_MAX_CHARACTERS = 2 * 1024 * 1024
"""Maximum total size; many references to one long text can otherwise expand beyond memory."""


class GeminiSchemaWriter:
    """Converts schemas for Gemini and collects unsupported keywords in `dropped`."""

    def __init__(self) -> None:
        self.dropped: set[str] = set()
        self._count = 0
        self._characters = 0

    def write(self, schema: dict[str, Any]) -> dict[str, Any]:
        return self._write(schema, schema, ())

    def _write(self, schema: Any, root: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        self._count_size(schema)
        if not isinstance(schema, dict):
            return {}
        if len(path) > _MAX_DEPTH:
            self.dropped.add("deep nesting")
            return {"type": "OBJECT"}
        reference = schema.get("$ref")
        if isinstance(reference, str):
            if reference in path:
                self.dropped.add("recursive $ref")
                return {"type": "OBJECT"}
            target = _resolve_reference(root, reference)
            if target is None:
                self.dropped.add("unresolved $ref")
                target = {}
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            return self._write({**target, **rest}, root, (*path, reference))
        schema = self._merge_all_of(schema, root)
        written: dict[str, Any] = {}
        self._write_type(schema, written)
        union = written.get("anyOf")
        for key, value in schema.items():
            if key in _COPIED_KEYWORDS and not isinstance(value, dict):
                written[key] = [*_unique_strings(value)] if isinstance(value, list) else value
            elif key not in _CONVERTED_KEYWORDS:
                self.dropped.add(key)
        below = (*path, "")
        if isinstance(schema.get("properties"), dict):
            written["properties"] = {
                name: self._write(value, root, below) for name, value in schema["properties"].items()
            }
            if not union:
                written.setdefault("type", "OBJECT")
        named = _unique_strings(schema.get("required"))
        required = [name for name in written.get("properties", {}) if name in named]
        if required:
            written["required"] = required
        if isinstance(schema.get("items"), dict):
            written["items"] = self._write(schema["items"], root, below)
            if not union:
                written.setdefault("type", "ARRAY")
        elif written.get("type") == "ARRAY":
            written["items"] = {"type": "STRING"}
        if union:
            _move_into_branches(written, union)
        self._write_choices(schema, written, root, below)
        self._write_enum(schema, written)
        return written

    def _count_size(self, schema: Any) -> None:
        """Add the size of one schema level. Raises `UntranslatableRequest` if the total is too large."""
        self._count += 1
        self._characters += _estimate_length(schema, 2)
        if self._count > _MAX_PARTS:
            raise UntranslatableRequest(
                f"the schemas have more than {_MAX_PARTS} parts once their references are resolved"
            )
        if self._characters > _MAX_CHARACTERS:
            raise UntranslatableRequest(
                f"the schemas have more than {_MAX_CHARACTERS} characters once their references are resolved"
            )

    def _merge_all_of(self, schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
        """Merge the members of `allOf` into the schema."""
        members = schema.get("allOf")
        if not isinstance(members, list):
            return schema
        merged = {key: value for key, value in schema.items() if key != "allOf"}
        properties, required = _copy_if_dict(merged.get("properties")), _unique_strings(merged.get("required"))
        for member in members:
            self._count_size(member)
            if isinstance(member, dict) and isinstance(member.get("$ref"), str):
                member = _resolve_reference(root, member["$ref"])
                self._count_size(member)
            if not isinstance(member, dict):
                continue
            for name, value in _copy_if_dict(member.get("properties")).items():
                properties.setdefault(name, value)
            required |= _unique_strings(member.get("required"))
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
        if isinstance(form, str) and form in _FORMATS_BY_TYPE.get(written.get("type", ""), _SUPPORTED_FORMATS):
            written["format"] = form
        elif form is not None:
            self.dropped.add(f"format {form}" if isinstance(form, str) else "format")

    def _write_choices(
        self, schema: dict[str, Any], written: dict[str, Any], root: dict[str, Any], path: tuple[str, ...]
    ) -> None:
        choices = schema.get("anyOf") or schema.get("oneOf")
        if not isinstance(choices, list):
            return
        non_null_choices = [choice for choice in choices if choice != {"type": "null"}]
        if len(non_null_choices) < len(choices):
            written["nullable"] = True
        chosen = [self._write(choice, root, path) for choice in non_null_choices]
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
        texts = [value for value in values if isinstance(value, str) and value]
        if "" in values:
            self.dropped.add("empty text in an enum")
        if texts and written.get("type", "STRING") == "STRING":
            written["type"] = "STRING"
            written["enum"] = texts
        elif values != [None]:
            # Gemini supports only string enumerations; the description still guides the model.
            self.dropped.add("enum of other than strings")
            listed = f"One of: {', '.join(repr(value) for value in values if not isinstance(value, list | dict))}."
            written["description"] = f"{written.get('description', '')} {listed}".strip()


def _move_into_branches(written: dict[str, Any], branches: list[dict[str, Any]]) -> None:
    """Move keywords of objects and lists into the branches of these types; Gemini rejects them beside `anyOf`."""
    properties: dict[str, Any] = {key: written.pop(key) for key in ("properties", "required") if key in written}
    items = written.pop("items", {"type": "STRING"})
    for branch in branches:
        if branch["type"] == "OBJECT":
            branch |= properties
        elif branch["type"] == "ARRAY":
            branch["items"] = items


def _resolve_reference(root: dict[str, Any], reference: str) -> dict[str, Any] | None:
    if not reference.startswith("#"):
        return None
    found: Any = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        if step:
            step = step.replace("~1", "/").replace("~0", "~")
            found = found.get(step) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def _copy_if_dict(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


def _unique_strings(value: Any) -> dict[str, None]:
    """Return the distinct strings of a list as dict keys, in order."""
    return {text: None for text in value if isinstance(text, str)} if isinstance(value, list) else {}


def _estimate_length(value: Any, depth: int) -> int:
    """Estimate the number of JSON characters of a value, down to a depth."""
    if isinstance(value, str):
        return 3 + len(value)
    if isinstance(value, int):
        return 1 + value.bit_length() // 3
    if depth and isinstance(value, dict):
        return sum(4 + len(name) + _estimate_length(inner, depth - 1) for name, inner in value.items())
    if depth and isinstance(value, list):
        return sum(_estimate_length(inner, depth - 1) for inner in value)
    return 1


def read_gemini_schema(schema: Any, depth: int = 0) -> Any:
    """Convert a Gemini schema to JSON Schema: lowercase types, and null as a type."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return schema
    read: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "type" and isinstance(value, str):
            read[key] = value.lower()
        elif key == "properties" and isinstance(value, dict):
            read[key] = {name: read_gemini_schema(inner, depth + 1) for name, inner in value.items()}
        elif key in ("anyOf", "any_of") and isinstance(value, list):
            read["anyOf"] = [read_gemini_schema(inner, depth + 1) for inner in value]
        elif key == "items":
            read[key] = read_gemini_schema(value, depth + 1)
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
