"""Parse requests of the Gemini API."""

from __future__ import annotations

from collections import deque
from typing import Any

from paddock.llm.formats.base import UntranslatableRequest
from paddock.llm.formats.call_arguments import call_arguments_text
from paddock.llm.formats.gemini.content_parts import (
    camel_case_keys,
    drop_unsigned_thought_copies,
    read_gemini_media,
    read_gemini_thought,
    read_gemini_tool_call,
    unpack_foreign_thoughts,
)
from paddock.llm.formats.gemini.schema_conversion import read_gemini_schema
from paddock.llm.formats.json_fields import JsonFields, parse_request_body
from paddock.llm.formats.neutral import (
    MessagePart,
    MessageRole,
    ModelMedia,
    ModelMessage,
    ModelRequest,
    ModelText,
    ModelToolCall,
    ModelToolResult,
    ReasoningEffort,
    ToolChoice,
    ToolDefinition,
)
from paddock.llm.formats.thought_signatures import GEMINI_FAMILY, parse_signed_thought
from paddock.llm.formats.translation_notes import add_translation_note

_ROLES = {
    "user": MessageRole.USER,
    "function": MessageRole.USER,
    "tool": MessageRole.USER,
    "model": MessageRole.ASSISTANT,
    "system": MessageRole.SYSTEM,
}
_TOOL_CHOICES = {
    "AUTO": ToolChoice.AUTO,
    "VALIDATED": ToolChoice.AUTO,
    "ANY": ToolChoice.ANY,
    "NONE": ToolChoice.NONE,
}
_KNOWN_FIELDS = {"model", "contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}
_KNOWN_SETTINGS = {
    "maxOutputTokens", "temperature", "topP", "topK", "stopSequences", "seed", "responseMimeType", "responseSchema",
    "responseJsonSchema", "thinkingConfig", "candidateCount",
}  # fmt: skip


def read_gemini_request(body: bytes, *, model: str | None = None, stream: bool | None = None) -> ModelRequest:
    fields = JsonFields(camel_case_keys(parse_request_body(body).value))
    if "generateContentRequest" in fields:
        fields = fields.object("generateContentRequest")  # The body of countTokens.
    request = ModelRequest(
        model=model or fields.text("model").removeprefix("models/"), messages=[], stream=bool(stream)
    )
    if isinstance(fields.get("systemInstruction"), str):
        request.messages.append(ModelMessage(MessageRole.SYSTEM, [ModelText(fields.text("systemInstruction"))]))
    elif "systemInstruction" in fields:
        parts = [*_ContentReader(request.notes).parts(fields.object("systemInstruction"))]
        if parts:
            request.messages.append(ModelMessage(MessageRole.SYSTEM, parts))
    if not fields.items("contents"):
        raise fields.error("should have at least one content", "contents")
    calls = _ContentReader(request.notes)
    for content in fields.objects("contents"):
        role = content.optional_text("role") or "user"
        if role not in _ROLES:
            raise content.error("should be user or model", "role")
        request.messages.append(ModelMessage(_ROLES[role], calls.parts(content)))
    _read_tools(fields, request)
    settings = fields.optional_object("generationConfig")
    if settings is not None:
        _read_settings(settings, request)
    other_fields = {
        name: value for name, value in fields.value.items() if name not in _KNOWN_FIELDS and value is not None
    }
    if "cachedContent" in other_fields:
        raise UntranslatableRequest(
            "cachedContent is part of the prompt that only Gemini can look up; send it as contents"
        )
    if other_fields:
        request.extra["gemini"] = other_fields
        for name in sorted(other_fields):
            add_translation_note(request.notes, f"`{name}` is supported only by the Gemini API")
    return request


class _ContentReader:
    """Reads contents, assigns call IDs, and matches results to calls by ID or name."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes
        self._count = 0
        self._used_ids: set[str] = set()
        self._unanswered: dict[str, ModelToolCall] = {}
        self._calls_by_name: dict[str, deque[ModelToolCall]] = {}
        """Calls by tool name; some may already be answered."""

    def parts(self, content: JsonFields) -> list[MessagePart]:
        found: list[MessagePart] = []
        signed_positions: dict[str, int] = {}
        for part in content.objects("parts"):
            for each in unpack_foreign_thoughts(part) or ():
                signed_positions[each.text] = len(found)
                found.append(each)
            found += self._read_part(part)
        return drop_unsigned_thought_copies(found, signed_positions)

    def _read_part(self, part: JsonFields) -> list[MessagePart]:
        if "functionCall" in part:
            call = read_gemini_tool_call(part, self._new_id())
            if call.id in self._used_ids:
                # Some clients restart the numbering of calls in each answer.
                call.id = self._new_id()
            self._used_ids.add(call.id)
            self._unanswered[call.id] = call
            self._calls_by_name.setdefault(call.name, deque()).append(call)
            return [call]
        if "functionResponse" in part:
            return [self._read_result(part.object("functionResponse"))]
        if "inlineData" in part or "fileData" in part:
            return [read_gemini_media(part)]
        if part.get("thought") is True:
            return [read_gemini_thought(part)]
        if "text" in part:
            text, signed = part.text("text"), part.optional_text("thoughtSignature")
            signature_thoughts = [parse_signed_thought("", signed, GEMINI_FAMILY)] if signed else []
            return [ModelText(text), *signature_thoughts] if text else [*signature_thoughts]
        if part.value:
            add_translation_note(
                self._notes, f"parts with {', '.join(sorted(part.value))} were left out: only Gemini supports them"
            )
        return []

    def _new_id(self) -> str:
        """Return an ID from the position of the call, so that the same history gets the same IDs each time."""
        while True:
            number, self._count = self._count, self._count + 1
            if f"call_{number}" not in self._used_ids:
                return f"call_{number}"

    def _read_result(self, response: JsonFields) -> ModelToolResult:
        name, given_id = response.text("name"), response.optional_text("id")
        call = self._unanswered.pop(given_id, None) if given_id is not None else None
        call = call or self._take_first_waiting(name)
        content, is_error = _read_result_output(response.optional_mapping("response") or {})
        content += [read_gemini_media(part) for part in response.objects("parts")]
        return ModelToolResult(call.id if call else given_id or self._new_id(), content, name, is_error)

    def _take_first_waiting(self, name: str) -> ModelToolCall | None:
        named = self._calls_by_name.get(name, deque())
        while named:
            call = self._unanswered.pop(named.popleft().id, None)
            if call is not None:
                return call
        return None


def _read_result_output(response: dict[str, Any]) -> tuple[list[ModelText | ModelMedia], bool]:
    """Return the content of a tool result and whether it is an error."""
    if len(response) == 1:
        [(key, value)] = response.items()
        if key in ("output", "result", "content", "error") and isinstance(value, str):
            return ([ModelText(value)] if value else []), key == "error"
    if not response:
        return [], False
    return [ModelText(call_arguments_text(response))], "error" in response


def _read_tools(fields: JsonFields, request: ModelRequest) -> None:
    served = False
    # The API accepts a single object instead of a list.
    holder = JsonFields({"tools": [fields.get("tools")]}) if isinstance(fields.get("tools"), dict) else fields
    for group in holder.objects("tools"):
        for tool in group.objects("functionDeclarations"):
            schema = tool.optional_mapping("parametersJsonSchema") or read_gemini_schema(
                tool.optional_mapping("parameters")
            )
            request.tools.append(ToolDefinition(tool.text("name"), tool.optional_text("description"), schema))
        if "computerUse" in group:
            raise UntranslatableRequest(
                "the tool `computerUse` is run by the client, and only Gemini's models know it: "
                "declare functions in its place, or choose a model of Gemini"
            )
        for name in sorted(group.value.keys() - {"functionDeclarations"}):
            served = True
            request.hosted_tools.append(name)
            add_translation_note(request.notes, f"the tool `{name}` was left out: only Gemini has it")
    config = fields.optional_object("toolConfig")
    calling = config.optional_object("functionCallingConfig") if config is not None else None
    if calling is None:
        return
    mode = calling.optional_text("mode") or "AUTO"
    request.tool_choice = _TOOL_CHOICES.get(mode.upper(), ToolChoice.AUTO)
    if request.tool_choice is ToolChoice.ANY and not request.tools and served:
        raise UntranslatableRequest("toolConfig forces a tool, and all tools are ones that only Gemini has")
    allowed = [*dict.fromkeys(calling.texts("allowedFunctionNames"))]
    if request.tool_choice is ToolChoice.ANY and len(allowed) == 1:
        request.tool_choice, request.tool_name = ToolChoice.NAMED, allowed[0]
    elif allowed and request.tool_choice is not ToolChoice.NONE:
        names = set(allowed)
        request.tools = [tool for tool in request.tools if tool.name in names]
        request.notes.append("only the tools in allowedFunctionNames were kept")


def _read_settings(settings: JsonFields, request: ModelRequest) -> None:
    if (settings.optional_integer("candidateCount") or 1) > 1:
        raise UntranslatableRequest("generationConfig.candidateCount should be 1")
    request.max_tokens = settings.optional_integer("maxOutputTokens")
    request.temperature = settings.optional_number("temperature")
    request.top_p = settings.optional_number("topP")
    request.top_k = settings.optional_integer("topK")
    request.stop = list(settings.texts("stopSequences"))
    request.seed = settings.optional_integer("seed")
    schema = settings.optional_mapping("responseJsonSchema") or read_gemini_schema(
        settings.optional_mapping("responseSchema")
    )
    if schema is not None:
        request.json_schema = schema
    elif settings.optional_text("responseMimeType") == "application/json":
        request.json_mode = True
    thinking = settings.optional_object("thinkingConfig")
    if thinking is not None:
        budget, level = (
            thinking.optional_integer("thinkingBudget"),
            (thinking.optional_text("thinkingLevel") or "").lower(),
        )
        if level in list(ReasoningEffort):
            request.effort = ReasoningEffort(level)
        elif budget == 0:
            request.effort = ReasoningEffort.NONE
        elif budget is not None and budget > 0:
            request.thinking_budget = budget
    for name in sorted(settings.value.keys() - _KNOWN_SETTINGS):
        add_translation_note(request.notes, f"`generationConfig.{name}` was left out: only Gemini has it")
