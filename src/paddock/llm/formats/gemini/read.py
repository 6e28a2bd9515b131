"""Reads requests to the Gemini API."""

from __future__ import annotations

from collections import deque
from typing import Any

from paddock.llm.formats.base import Untranslatable
from paddock.llm.formats.fields import Fields, request_fields
from paddock.llm.formats.gemini.parts import camel, carried_thoughts, read_call, read_media, read_thought, without_told
from paddock.llm.formats.gemini.schema import read_schema
from paddock.llm.formats.notes import note
from paddock.llm.formats.seals import GEMINI, thought
from paddock.llm.formats.turns import arguments_text
from paddock.llm.neutral import (
    Effort,
    Media,
    Message,
    Part,
    Request,
    Role,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)

_ROLES = {"user": Role.USER, "function": Role.USER, "tool": Role.USER, "model": Role.ASSISTANT, "system": Role.SYSTEM}
_MODES = {
    "AUTO": ToolChoice.AUTO,
    "VALIDATED": ToolChoice.AUTO,
    "ANY": ToolChoice.ANY,
    "NONE": ToolChoice.NONE,
}
_KNOWN = {"model", "contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}
_SETTINGS = {
    "maxOutputTokens", "temperature", "topP", "topK", "stopSequences", "seed", "responseMimeType", "responseSchema",
    "responseJsonSchema", "thinkingConfig", "candidateCount",
}  # fmt: skip


def read_request(body: bytes, *, model: str | None = None, stream: bool | None = None) -> Request:
    fields = Fields(camel(request_fields(body).value))
    if "generateContentRequest" in fields:
        fields = fields.object("generateContentRequest")  # How countTokens says what to count.
    request = Request(model=model or fields.text("model").removeprefix("models/"), messages=[], stream=bool(stream))
    if isinstance(fields.get("systemInstruction"), str):
        request.messages.append(Message(Role.SYSTEM, [Text(fields.text("systemInstruction"))]))
    elif "systemInstruction" in fields:
        parts = [*_Calls(request.notes).parts(fields.object("systemInstruction"))]
        if parts:
            request.messages.append(Message(Role.SYSTEM, parts))
    if not fields.items("contents"):
        raise fields.error("should have at least one content", "contents")
    calls = _Calls(request.notes)
    for content in fields.objects("contents"):
        role = content.text_or("role") or "user"
        if role not in _ROLES:
            raise content.error("should be user or model", "role")
        request.messages.append(Message(_ROLES[role], calls.parts(content)))
    _tools(fields, request)
    settings = fields.object_or("generationConfig")
    if settings is not None:
        _settings(settings, request)
    others = {name: value for name, value in fields.value.items() if name not in _KNOWN and value is not None}
    if "cachedContent" in others:
        raise Untranslatable("cachedContent is part of the prompt that only Gemini can look up; send it as contents")
    if others:
        request.extra["gemini"] = others
        for name in sorted(others):
            note(request.notes, f"`{name}` means something only to the Gemini API")
    return request


class _Calls:
    """Gives calls ids, in order, and finds for each result the call it answers: by id, else the first of its name."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes
        self._count = 0
        self._used: set[str] = set()
        self._waiting: dict[str, ToolCall] = {}
        self._named: dict[str, deque[ToolCall]] = {}
        """By name, those that wait and some that no longer do."""

    def parts(self, content: Fields) -> list[Part]:
        found: list[Part] = []
        sealed: dict[str, int] = {}
        for part in content.objects("parts"):
            for each in carried_thoughts(part) or ():
                sealed[each.text] = len(found)
                found.append(each)
            found += self._part(part)
        return without_told(found, sealed)

    def _part(self, part: Fields) -> list[Part]:
        if "functionCall" in part:
            call = read_call(part, self._new_id())
            if call.id in self._used:
                # Some clients number the calls of each answer from the start.
                call.id = self._new_id()
            self._used.add(call.id)
            self._waiting[call.id] = call
            self._named.setdefault(call.name, deque()).append(call)
            return [call]
        if "functionResponse" in part:
            return [self._result(part.object("functionResponse"))]
        if "inlineData" in part or "fileData" in part:
            return [read_media(part)]
        if part.get("thought") is True:
            return [read_thought(part)]
        if "text" in part:
            text, signed = part.text("text"), part.text_or("thoughtSignature")
            seal = [thought("", signed, GEMINI)] if signed else []
            return [Text(text), *seal] if text else [*seal]
        if part.value:
            note(self._notes, f"parts with {', '.join(sorted(part.value))} were left out: only Gemini knows them")
        return []

    def _new_id(self) -> str:
        """An id by the call's place, so that the same history has the same ids each time it is sent."""
        while True:
            number, self._count = self._count, self._count + 1
            if f"call_{number}" not in self._used:
                return f"call_{number}"

    def _result(self, response: Fields) -> ToolResult:
        name, given = response.text("name"), response.text_or("id")
        call = self._waiting.pop(given, None) if given is not None else None
        call = call or self._first(name)
        content, is_error = _output(response.mapping_or("response") or {})
        content += [read_media(part) for part in response.objects("parts")]
        return ToolResult(call.id if call else given or self._new_id(), content, name, is_error)

    def _first(self, name: str) -> ToolCall | None:
        named = self._named.get(name, deque())
        while named:
            call = self._waiting.pop(named.popleft().id, None)
            if call is not None:
                return call
        return None


def _output(response: dict[str, Any]) -> tuple[list[Text | Media], bool]:
    """What a tool said, and whether it is an error: by custom one field holds it."""
    if len(response) == 1:
        [(key, value)] = response.items()
        if key in ("output", "result", "content", "error") and isinstance(value, str):
            return ([Text(value)] if value else []), key == "error"
    if not response:
        return [], False
    return [Text(arguments_text(response))], "error" in response


def _tools(fields: Fields, request: Request) -> None:
    served = False
    # A single object is taken for a list of one, as the API does.
    holder = Fields({"tools": [fields.get("tools")]}) if isinstance(fields.get("tools"), dict) else fields
    for group in holder.objects("tools"):
        for tool in group.objects("functionDeclarations"):
            schema = tool.mapping_or("parametersJsonSchema") or read_schema(tool.mapping_or("parameters"))
            request.tools.append(Tool(tool.text("name"), tool.text_or("description"), schema))
        for name in sorted(group.value.keys() - {"functionDeclarations"}):
            served = True
            note(request.notes, f"the tool `{name}` was left out: only Gemini has it")
    config = fields.object_or("toolConfig")
    calling = config.object_or("functionCallingConfig") if config is not None else None
    if calling is None:
        return
    mode = calling.text_or("mode") or "AUTO"
    request.tool_choice = _MODES.get(mode.upper(), ToolChoice.AUTO)
    if request.tool_choice is ToolChoice.ANY and not request.tools and served:
        raise Untranslatable("toolConfig forces a tool, and all tools are ones that only Gemini has")
    allowed = [*dict.fromkeys(calling.texts("allowedFunctionNames"))]
    if request.tool_choice is ToolChoice.ANY and len(allowed) == 1:
        request.tool_choice, request.tool_name = ToolChoice.NAMED, allowed[0]
    elif allowed and request.tool_choice is not ToolChoice.NONE:
        names = set(allowed)
        request.tools = [tool for tool in request.tools if tool.name in names]
        request.notes.append("only the tools in allowedFunctionNames were kept")


def _settings(settings: Fields, request: Request) -> None:
    if (settings.integer_or("candidateCount") or 1) > 1:
        raise Untranslatable("generationConfig.candidateCount should be 1")
    request.max_tokens = settings.integer_or("maxOutputTokens")
    request.temperature = settings.number_or("temperature")
    request.top_p = settings.number_or("topP")
    request.top_k = settings.integer_or("topK")
    request.stop = list(settings.texts("stopSequences"))
    request.seed = settings.integer_or("seed")
    schema = settings.mapping_or("responseJsonSchema") or read_schema(settings.mapping_or("responseSchema"))
    if schema is not None:
        request.json_schema = schema
    elif settings.text_or("responseMimeType") == "application/json":
        request.json_mode = True
    thinking = settings.object_or("thinkingConfig")
    if thinking is not None:
        budget, level = thinking.integer_or("thinkingBudget"), (thinking.text_or("thinkingLevel") or "").lower()
        if level in list(Effort):
            request.effort = Effort(level)
        elif budget == 0:
            request.effort = Effort.NONE
        elif budget is not None and budget > 0:
            request.thinking_budget = budget
    for name in sorted(settings.value.keys() - _SETTINGS):
        note(request.notes, f"`generationConfig.{name}` was left out: only Gemini has it")
