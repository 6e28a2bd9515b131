"""The tools of the Responses API, of which the neutral form knows functions only.

A namespace's functions get its name as a prefix. A custom tool, which takes free text, becomes a function with one
argument, `input`. What is needed to tell a call in the client's own words is kept in the request's `extra`. Tools
that the provider would run itself are left out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from paddock.llm.formats.base import Untranslatable
from paddock.llm.formats.fields import Fields
from paddock.llm.formats.names import provider_name
from paddock.llm.formats.notes import note
from paddock.llm.formats.turns import arguments_text
from paddock.llm.neutral import Request, Tool

NAME = "openai-responses"
CLIENT_RUN = frozenset({"local_shell", "shell", "apply_patch", "computer_use_preview", "computer"})
"""Tools whose calls the client answers in items of their own, which no other format has."""


@dataclass(slots=True)
class ToolWords:
    """How the client names its tools."""

    namespaced: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By flat name: the namespace and the name in it."""
    namespaces: dict[str, dict[str, Any]] = field(default_factory=dict)
    custom: dict[str, dict[str, Any]] = field(default_factory=dict)
    hosted: list[dict[str, Any]] = field(default_factory=list)


def words_of(request: Request | None) -> ToolWords:
    words = request.extra.get(NAME, {}).get("tools") if request is not None else None
    return words if isinstance(words, ToolWords) else ToolWords()


def flat_name(namespace: str | None, name: str) -> str:
    if not namespace:
        return name
    return f"{namespace}{name}" if namespace.endswith("_") else f"{namespace}__{name}"


def hosted_note(kind: str) -> str:
    return f"tool {kind}: only OpenAI runs it"


def read_tools(fields: Fields, notes: list[str]) -> tuple[list[Tool], ToolWords]:
    tools: list[Tool] = []
    words = ToolWords()
    for item in fields.objects("tools"):
        kind = item.text("type")
        if kind == "function":
            tools.append(_function(item, item.text("name")))
        elif kind == "namespace":
            space = item.text("name")
            words.namespaces[space] = {name: value for name, value in item.value.items() if name != "tools"}
            for inner in item.objects("tools"):
                if inner.get("type") not in (None, "function"):
                    note(notes, f"{inner.path}: only functions are passed on from a namespace")
                    continue
                name = flat_name(space, inner.text("name"))
                words.namespaced[name] = (space, inner.text("name"))
                tools.append(_function(inner, name))
        elif kind == "custom":
            words.custom[item.text("name")] = item.value
            tools.append(_custom(item))
        elif kind in CLIENT_RUN:
            raise Untranslatable(
                f"{item.path}.type is {kind!r}, a tool that the client runs and only OpenAI's models know: "
                "offer a function in its place, or choose a model of OpenAI"
            )
        else:
            words.hosted.append(item.value)
            note(notes, hosted_note(kind))
    return tools, words


def _function(item: Fields, name: str) -> Tool:
    return Tool(name, item.text_or("description"), item.mapping_or("parameters"), item.flag_or("strict"))


def _custom(item: Fields) -> Tool:
    form = item.object_or("format")
    description = item.text_or("description") or ""
    if form is not None and form.get("type") == "grammar":
        grammar = (
            f"The input must match this {form.text_or('syntax') or ''} grammar:\n{form.text_or('definition') or ''}"
        )
        description = f"{description}\n\n{grammar}".strip()
    parameters = {
        "type": "object",
        "properties": {"input": {"type": "string", "description": "The tool's input, as free text."}},
        "required": ["input"],
        "additionalProperties": False,
    }
    return Tool(item.text("name"), description or None, parameters)


def write_tools(tools: list[Tool], words: ToolWords, notes: list[str]) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = []
    spaces: dict[str, dict[str, Any]] = {}
    for tool in tools:
        if tool.name in words.custom:
            written.append(words.custom[tool.name])
        elif tool.name in words.namespaced:
            space, name = words.namespaced[tool.name]
            if space not in spaces:
                spaces[space] = {**words.namespaces.get(space, {"type": "namespace", "name": space}), "tools": []}
                written.append(spaces[space])
            spaces[space]["tools"].append(_write_function(tool, name))
        else:
            written.append(_write_function(tool, provider_name(tool.name)))
    written += words.hosted
    said = {hosted_note(str(tool.get("type"))) for tool in words.hosted}
    notes[:] = [text for text in notes if text not in said]
    return written


def _write_function(tool: Tool, name: str) -> dict[str, Any]:
    written: dict[str, Any] = {"type": "function", "name": name}
    if tool.description is not None:
        written["description"] = tool.description
    written["parameters"] = tool.parameters
    # Left out, it would mean true here but false in the formats that the tool may come from.
    written["strict"] = bool(tool.strict)
    return written


def custom_arguments(text: str) -> str:
    """A custom tool's input as the arguments of the function that stands for it."""
    return arguments_text({"input": text})


def custom_input(arguments: str) -> str:
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    text = value.get("input") if isinstance(value, dict) else None
    return text if isinstance(text, str) else arguments
