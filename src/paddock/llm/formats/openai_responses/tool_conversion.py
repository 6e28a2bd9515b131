"""Convert tools of the Responses API to functions, the only tools of the neutral form, and back.

Functions of a namespace get its name as a prefix. A custom tool, which takes free text, becomes a function with one
argument, `input`. The client's definitions are kept in the request's `extra` to convert calls back. Tools that the
provider would run itself are left out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from paddock.llm.formats.base import UntranslatableRequest
from paddock.llm.formats.call_arguments import call_arguments_text
from paddock.llm.formats.json_fields import JsonFields
from paddock.llm.formats.neutral import ModelRequest, ToolDefinition
from paddock.llm.formats.tool_names import to_provider_tool_name
from paddock.llm.formats.translation_notes import add_translation_note

RESPONSES_FORMAT_NAME = "openai-responses"
CLIENT_RUN_TOOLS = frozenset({"local_shell", "shell", "apply_patch", "computer_use_preview", "computer"})
"""Tools whose calls and results are items of their own types, which no other format has."""


@dataclass(slots=True)
class ResponsesClientTools:
    """The client's tool definitions that the neutral form cannot express."""

    namespaced: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Namespace and name, by flat name."""
    namespaces: dict[str, dict[str, Any]] = field(default_factory=dict)
    custom: dict[str, dict[str, Any]] = field(default_factory=dict)
    hosted: list[dict[str, Any]] = field(default_factory=list)


def get_responses_client_tools(request: ModelRequest | None) -> ResponsesClientTools:
    words = request.extra.get(RESPONSES_FORMAT_NAME, {}).get("tools") if request is not None else None
    return words if isinstance(words, ResponsesClientTools) else ResponsesClientTools()


def flatten_tool_name(namespace: str | None, name: str) -> str:
    if not namespace:
        return name
    return f"{namespace}{name}" if namespace.endswith("_") else f"{namespace}__{name}"


def hosted_tool_note(kind: str) -> str:
    return f"tool {kind}: only OpenAI runs it"


def read_responses_tools(fields: JsonFields, notes: list[str]) -> tuple[list[ToolDefinition], ResponsesClientTools]:
    tools: list[ToolDefinition] = []
    words = ResponsesClientTools()
    for item in fields.objects("tools"):
        kind = item.text("type")
        if kind == "function":
            tools.append(_read_function(item, item.text("name")))
        elif kind == "namespace":
            space = item.text("name")
            words.namespaces[space] = {name: value for name, value in item.value.items() if name != "tools"}
            for inner in item.objects("tools"):
                if inner.get("type") not in (None, "function"):
                    add_translation_note(notes, f"{inner.path}: only functions are passed on from a namespace")
                    continue
                name = flatten_tool_name(space, inner.text("name"))
                words.namespaced[name] = (space, inner.text("name"))
                tools.append(_read_function(inner, name))
        elif kind == "custom":
            words.custom[item.text("name")] = item.value
            tools.append(_read_custom_tool(item))
        elif kind in CLIENT_RUN_TOOLS:
            raise UntranslatableRequest(
                f"{item.path}.type is {kind!r}, a tool that the client runs and only OpenAI's models know: "
                "offer a function in its place, or choose a model of OpenAI"
            )
        else:
            words.hosted.append(item.value)
            add_translation_note(notes, hosted_tool_note(kind))
    return tools, words


def _read_function(item: JsonFields, name: str) -> ToolDefinition:
    return ToolDefinition(
        name, item.optional_text("description"), item.optional_mapping("parameters"), item.optional_boolean("strict")
    )


def _read_custom_tool(item: JsonFields) -> ToolDefinition:
    form = item.optional_object("format")
    description = item.optional_text("description") or ""
    if form is not None and form.get("type") == "grammar":
        syntax, definition = form.optional_text("syntax") or "", form.optional_text("definition") or ""
        grammar = f"The input must match this {syntax} grammar:\n{definition}"
        description = f"{description}\n\n{grammar}".strip()
    parameters = {
        "type": "object",
        "properties": {"input": {"type": "string", "description": "The tool's input, as free text."}},
        "required": ["input"],
        "additionalProperties": False,
    }
    return ToolDefinition(item.text("name"), description or None, parameters)


def write_responses_tools(
    tools: list[ToolDefinition], words: ResponsesClientTools, notes: list[str]
) -> list[dict[str, Any]]:
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
            written.append(_write_function(tool, to_provider_tool_name(tool.name)))
    written += words.hosted
    hosted_notes = {hosted_tool_note(str(tool.get("type"))) for tool in words.hosted}
    notes[:] = [text for text in notes if text not in hosted_notes]
    return written


def _write_function(tool: ToolDefinition, name: str) -> dict[str, Any]:
    written: dict[str, Any] = {"type": "function", "name": name}
    if tool.description is not None:
        written["description"] = tool.description
    written["parameters"] = tool.parameters
    # The default is true here, but false in the other formats, so the value is always written.
    written["strict"] = bool(tool.strict)
    return written


def custom_tool_arguments(text: str) -> str:
    """Encode the input of a custom tool as the arguments of its function."""
    return call_arguments_text({"input": text})


def custom_tool_input(arguments: str) -> str:
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    text = value.get("input") if isinstance(value, dict) else None
    return text if isinstance(text, str) else arguments
