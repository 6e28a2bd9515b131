"""JSON Schema of task files for editors: `paddock task schema`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from paddock.config.schema_lookup import annotation_of_setting, section_type, unit_of_field
from paddock.config.units import format_duration, format_size
from paddock.model.mcp import TaskMcpServer
from paddock.model.task import Deliverable, RetrySettings, Task, TaskCheck, TaskInput, TaskModel
from paddock.model.task_fields import split_command_words, wrap_in_list

SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"
SHORT_FORMS: Mapping[type[BaseModel], tuple[Mapping[str, Any], str]] = {
    TaskModel: ({"type": "string", "pattern": r"^[^\s,]{1,200}$"}, "the model's name"),
    TaskMcpServer: (
        {"type": "string", "pattern": r"^(https?://[^\s/]+[^\s]*|[a-z0-9][a-z0-9._-]{0,62})$"},
        "an address, the name of a declared server",
    ),
    TaskInput: ({"type": "string", "minLength": 1}, "a path"),
    Deliverable: ({"type": "string", "minLength": 1}, "a path"),
    TaskCheck: ({"type": "string", "minLength": 1}, "shell text"),
    RetrySettings: ({"type": "integer", "minimum": 0, "maximum": 20}, "a number"),
}
"""Short forms of mappings, and their descriptions."""
_UNITS = {
    "size": r"^\s*\d+(\.\d+)?\s*([kKmMgGtTpP]i?)?[bB]?\s*$",
    "duration": r"^\s*(\d+(\.\d+)?|(\d+(\.\d+)?(ms|[smhdw]))+)\s*$",
    "CPUs": r"^\s*\d+(\.\d+)?\s*m?\s*$",
}
_BOUNDS = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}
_ONE_OF: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "TaskInput": [{"required": [key]} for key in ("source", "git", "content")],
    "TaskMcpServer": [{"required": ["url"]}, {"required": ["command"]}, {"maxProperties": 1}],
}


def task_json_schema() -> dict[str, Any]:
    """Return the schema as a document."""
    made = Task.model_json_schema()
    parts: dict[str, tuple[type[BaseModel], dict[str, Any]]] = {"Task": (Task, made)}
    for name, part in made["$defs"].items():
        model = next((each for each in _models(Task) if each.__name__ == name), None)
        if model is not None:
            parts[name] = (model, part)
    for name, (model, part) in parts.items():
        part.pop("title", None)
        part["description"] = " ".join(part.get("description", "").split())
        for key, field in model.model_fields.items():
            part["properties"][key] = _property(part["properties"][key], field)
        if name in _ONE_OF:
            part["oneOf"] = list(_ONE_OF[name])
    _with_goal_file(made)
    made["properties"]["$schema"] = {"type": "string", "description": "Where this schema is, for editors of JSON."}
    made["anyOf"] = [{"required": [key]} for key in ("agent", "entrypoint", "matrix")]
    made["not"] = {"required": ["image", "kind"]}
    return {"$schema": SCHEMA_DIALECT, "title": "Paddock task", **made}


def task_json_schema_text() -> str:
    """Return the schema as JSON text."""
    return json.dumps(task_json_schema(), indent=2, ensure_ascii=False) + "\n"


def _models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for name in model.model_fields:
        for key in ((name,), (name, "0")):
            inner = section_type(annotation_of_setting(key, model))
            if inner is not None:
                yield inner
                yield from _models(inner)
                break


def _property(given: dict[str, Any], field: FieldInfo) -> dict[str, Any]:
    """Return the schema of a field with all its accepted forms."""
    about: dict[str, Any] = {key: given.pop(key) for key in ("description", "default", "examples") if key in given}
    given.pop("title", None)
    about["description"] = " ".join(about.get("description", "").split())
    if (unit := unit_of_field(field)) is not None:
        if isinstance(about.get("default"), (int, float)):
            about["default"] = (format_size if unit == "size" else format_duration)(about["default"])
        given = {
            "title": unit,
            "anyOf": [*_numbers(given), {"type": "string", "pattern": _UNITS[unit]}, *_nothing(given)],
        }
    elif "items" in given:
        given["items"] = _with_short_form(given["items"])
        if any(
            isinstance(mark, BeforeValidator) and mark.func in (wrap_in_list, split_command_words)
            for mark in field.metadata
        ):
            given = {"anyOf": [given, given["items"]]}
    elif "patternProperties" in given:
        given["additionalProperties"] = False
    else:
        given = _with_short_form(given)
    return {**about, **given}


def _numbers(given: dict[str, Any]) -> list[dict[str, Any]]:
    found = [each for each in given.get("anyOf", [given]) if each.get("type") in ("number", "integer")]
    # With a unit parser in front, pydantic emits bounds under its own names.
    return [{**{_BOUNDS.get(key, key): value for key, value in each.items()}, "type": "number"} for each in found]


def _nothing(given: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in given.get("anyOf", []) if each.get("type") == "null"]


def _with_short_form(given: dict[str, Any]) -> dict[str, Any]:
    for model, (short, _) in SHORT_FORMS.items():
        if given.get("$ref") == f"#/$defs/{model.__name__}":
            return {"anyOf": [dict(short), given]}
    return given


def _with_goal_file(made: dict[str, Any]) -> None:
    goal = made["properties"]["goal"]
    words = {key: goal.pop(key) for key in ("type", "minLength", "maxLength")}
    file = {"type": "string", "minLength": 1, "description": "A file with the goal, relative to the task file."}
    goal["anyOf"] = [
        words,
        {"type": "object", "properties": {"file": file}, "required": ["file"], "additionalProperties": False},
    ]


if __name__ == "__main__":
    sys.stdout.write(task_json_schema_text())
