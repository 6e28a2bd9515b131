"""Generate JSON Schema and TypeScript types of chat session events."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic.json_schema import models_json_schema

from paddock.model.session_events import EVENTS

JSON_SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_DESCRIPTION = "An event of a chat session, as `/v1/sessions/ID/events` and `/v1/sessions/ID/ws` send it."
_ENVELOPE: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "sequence": ({"type": "integer"}, "Position among all events of the server; grows, may have gaps."),
    "stream": ({"type": "string"}, "`session/ID`."),
    "number": ({"type": "integer"}, "Position in the session: 1, 2, 3 … The `id:` of server-sent events."),
    "at": ({"type": "string", "format": "date-time"}, "Time of the event."),
}
_SIMPLE = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def session_event_schema() -> dict[str, Any]:
    """Return the JSON Schema of an event. Fields and types may be added; clients ignore unknown ones."""
    _, definitions = models_json_schema([(each, "serialization") for each in EVENTS.values()])
    parts: dict[str, Any] = {name: _event_form(part) for name, part in definitions["$defs"].items()}
    return {
        "$schema": JSON_SCHEMA_DIALECT,
        "title": "Paddock session event",
        "description": SCHEMA_DESCRIPTION,
        "type": "object",
        "properties": {
            **{name: {**form, "description": about} for name, (form, about) in _ENVELOPE.items()},
            "type": {"enum": [str(kind) for kind in EVENTS]},
            "data": {"type": "object"},
        },
        "required": [*_ENVELOPE, "type", "data"],
        "oneOf": [
            {"properties": {"type": {"const": str(kind)}, "data": {"$ref": f"#/$defs/{each.__name__}"}}}
            for kind, each in EVENTS.items()
        ],
        "$defs": parts,
    }


def session_event_schema_text() -> str:
    """Return the JSON Schema as the content of a file."""
    return json.dumps(session_event_schema(), indent=2, ensure_ascii=False) + "\n"


def session_event_typescript() -> str:
    """Return TypeScript types as the content of a file."""
    return "\n".join(_lines(session_event_schema())) + "\n"


def _event_form(part: dict[str, Any]) -> dict[str, Any]:
    """Adapt a model's schema to events: null fields are absent, all others required."""
    kept = {key: value for key, value in part.items() if key not in ("title", "additionalProperties", "required")}
    if "description" in kept:
        kept["description"] = " ".join(kept["description"].split())
    if "properties" in kept:
        found = kept["properties"].items()
        kept["properties"] = {name: _without_null(form) for name, form in found}
        # Fields with a default are always present, unless the default is null.
        kept["required"] = [name for name, form in found if "default" not in form or form["default"] is not None]
    return kept


def _without_null(form: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in form.items() if key not in ("title", "default", "discriminator")}
    if "items" in kept:
        kept["items"] = _without_null(kept["items"])
    options = [each for each in kept.get("anyOf", ()) if each.get("type") != "null"]
    if len(options) == 1:
        del kept["anyOf"]
        kept |= _without_null(options[0])
    return kept


def _lines(schema: Mapping[str, Any]) -> Iterator[str]:
    yield "// The events of Paddock's chat sessions. Written by `make docs`; do not edit."
    yield ""
    for name, part in sorted(schema["$defs"].items()):
        yield from _about(part, "")
        if "properties" in part:
            yield f"export interface {name} {{"
            for key, form in part["properties"].items():
                yield f"  {key}{'' if key in part['required'] else '?'}: {_type(form)};"
            yield "}"
        else:
            yield f"export type {name} = {_type(part)};"
        yield ""
    yield "export interface EventOf<Type extends string, Data> {"
    for name, (form, about) in _ENVELOPE.items():
        yield from _about({"description": about}, "  ")
        yield f"  {name}: {_type(form)};"
    yield "  type: Type;"
    yield "  data: Data;"
    yield "}"
    yield ""
    yield from _about(schema, "")
    yield "export type SessionEvent ="
    event_types = [f'  | EventOf<"{kind}", {each.__name__}>' for kind, each in EVENTS.items()]
    yield from event_types[:-1]
    yield event_types[-1] + ";"


def _about(part: Mapping[str, Any], indent: str) -> Iterator[str]:
    if part.get("description"):
        yield f"{indent}/** {part['description']} */"


def _type(form: Mapping[str, Any]) -> str:
    if "$ref" in form:
        return str(form["$ref"]).rpartition("/")[2]
    if "const" in form or "enum" in form:
        return " | ".join(json.dumps(value) for value in form.get("enum", [form.get("const")]))
    if options := form.get("oneOf") or form.get("anyOf"):
        return " | ".join(_type(each) for each in options)
    if form.get("type") == "array":
        inner = _type(form.get("items", {}))
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if form.get("type") == "object":
        inner = form.get("additionalProperties", {})
        return f"Record<string, {_type(inner) if isinstance(inner, Mapping) else 'unknown'}>"
    return _SIMPLE.get(str(form.get("type")), "unknown")


if __name__ == "__main__":
    sys.stdout.write(session_event_typescript() if "--types" in sys.argv else session_event_schema_text())
