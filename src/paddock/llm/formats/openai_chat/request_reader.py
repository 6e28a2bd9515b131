"""Parse Chat Completions requests."""

from __future__ import annotations

from typing import Any

from paddock.llm.formats.call_arguments import call_arguments_text
from paddock.llm.formats.json_fields import JsonFields, parse_request_body
from paddock.llm.formats.neutral import (
    MessagePart,
    MessageRole,
    ModelMedia,
    ModelMessage,
    ModelRefusal,
    ModelRequest,
    ModelText,
    ModelToolCall,
    ModelToolResult,
    ProviderSignature,
    ReasoningEffort,
    ToolChoice,
    ToolDefinition,
)
from paddock.llm.formats.openai_chat.reasoning import read_chat_thoughts
from paddock.llm.formats.openai_shared import (
    read_openai_audio,
    read_openai_media,
    read_reasoning_effort,
    untranslatable_field_note,
)
from paddock.llm.formats.thought_signatures import GEMINI_FAMILY, parse_call_thought_signature
from paddock.llm.formats.translation_notes import add_translation_note

CHAT_FORMAT_NAME = "openai-chat"

_KNOWN_FIELDS = {
    "model", "messages", "stream", "stream_options", "tools", "tool_choice", "parallel_tool_calls", "max_tokens",
    "max_completion_tokens", "temperature", "top_p", "top_k", "stop", "seed", "reasoning_effort", "response_format",
    "user", "n", "logprobs", "top_logprobs", "functions", "function_call", "modalities", "audio",
}  # fmt: skip
UNTRANSLATABLE_CHAT_FIELDS = {
    "frequency_penalty", "presence_penalty", "logit_bias", "service_tier", "web_search_options", "verbosity",
    "prediction",
}  # fmt: skip
"""Fields that affect the answer and have no equivalent in other formats."""


def read_chat_request(body: bytes, *, model: str | None, stream: bool | None) -> ModelRequest:
    fields = parse_request_body(body)
    _reject_unsupported(fields)
    request = ModelRequest(model=model or fields.text("model"), messages=[])
    request.stream = bool(fields.optional_boolean("stream")) if stream is None else stream
    request.messages = _read_messages(fields, request.notes)
    request.tools = [tool for item in fields.objects("tools") if (tool := _read_tool(item, request)) is not None]
    _read_tool_choice(fields, request)
    request.parallel_tools = fields.optional_boolean("parallel_tool_calls")
    request.max_tokens = fields.optional_integer("max_completion_tokens")
    if request.max_tokens is None:
        request.max_tokens = fields.optional_integer("max_tokens")
    request.temperature = fields.optional_number("temperature")
    request.top_p = fields.optional_number("top_p")
    request.top_k = fields.optional_integer("top_k")
    request.stop = [fields.text("stop")] if isinstance(fields.get("stop"), str) else fields.texts("stop")
    request.seed = fields.optional_integer("seed")
    request.effort = read_reasoning_effort(fields, "reasoning_effort")
    if request.effort is None and fields.get("enable_thinking") is False:
        request.effort = ReasoningEffort.NONE
    request.user = fields.optional_text("user")
    own: dict[str, Any] = {}
    _read_response_format(fields, request, own)
    options = fields.optional_object("stream_options")
    if options is not None and options.optional_boolean("include_usage"):
        own["include_usage"] = True
    if "max_completion_tokens" in fields:
        own["max_completion_tokens"] = True
    rest = {name: value for name, value in fields.value.items() if name not in _KNOWN_FIELDS and value is not None}
    if rest:
        own["fields"] = rest
    if own:
        request.extra[CHAT_FORMAT_NAME] = own
    request.notes += [untranslatable_field_note(name) for name in sorted(UNTRANSLATABLE_CHAT_FIELDS & rest.keys())]
    if fields.get("logprobs"):
        add_translation_note(request.notes, "logprobs: token probabilities are not passed on")
    return request


def _reject_unsupported(fields: JsonFields) -> None:
    if (fields.optional_integer("n") or 1) > 1:
        raise fields.error("should be 1: only one answer per request is passed on", "n")
    for name in ("functions", "function_call"):
        if name in fields:
            raise fields.error("is deprecated: send tools and tool_choice instead", name)
    if "audio" in fields or "audio" in fields.items("modalities"):
        raise fields.error("requests audio, which is not supported: request text", "modalities")


def _read_messages(fields: JsonFields, notes: list[str]) -> list[ModelMessage]:
    messages: list[ModelMessage] = []
    names: dict[str, str] = {}
    after_tool = False
    if "messages" not in fields:
        raise fields.error("is missing", "messages")
    for item in fields.objects("messages"):
        role = item.text("role")
        if role == "tool":
            result = _read_tool_result(item, names)
            if after_tool:
                messages[-1].parts.append(result)
            else:
                messages.append(ModelMessage(MessageRole.USER, [result]))
        elif role in ("system", "developer"):
            messages.append(ModelMessage(MessageRole.SYSTEM, list(_read_content(item))))
        elif role == "user":
            messages.append(ModelMessage(MessageRole.USER, list(_read_content(item))))
        elif role == "assistant":
            parts = _read_assistant_parts(item, notes)
            names.update({part.id: part.name for part in parts if isinstance(part, ModelToolCall)})
            messages.append(ModelMessage(MessageRole.ASSISTANT, parts))
        else:
            raise item.error("should be system, developer, user, assistant or tool", "role")
        after_tool = role == "tool"
    return messages


def _read_content(message: JsonFields) -> list[ModelText | ModelMedia]:
    content = message.required("content")
    if isinstance(content, str):
        return [ModelText(content)]
    return [_read_part(item) for item in message.objects("content")]


def _read_part(item: JsonFields) -> ModelText | ModelMedia:
    kind = item.text("type")
    part: ModelText | ModelMedia
    if kind == "text":
        part = ModelText(item.text("text"))
    elif kind == "image_url":
        if isinstance(item.get("image_url"), str):
            part = read_openai_media("image", item.text("image_url"))
        else:
            image = item.object("image_url")
            part = read_openai_media("image", image.text("url"), detail=image.optional_text("detail"))
    elif kind == "input_audio":
        part = read_openai_audio(item)
    elif kind == "file":
        file = item.object("file")
        if "file_data" not in file:
            raise file.error(
                "is missing: files stored at the provider cannot be passed on, send them inline", "file_data"
            )
        part = read_openai_media("document", file.text("file_data"), file.optional_text("filename"))
    else:
        raise item.error(f"is {kind!r}, which is not supported: send text, image_url, input_audio or file", "type")
    part.cached = "cache_control" in item
    return part


def _read_tool_result(item: JsonFields, names: dict[str, str]) -> ModelToolResult:
    call = item.text("tool_call_id")
    content = _read_content(item) if "content" in item else []
    return ModelToolResult(call, content, name=names.get(call) or item.optional_text("name"))


def _read_assistant_parts(item: JsonFields, notes: list[str]) -> list[MessagePart]:
    parts: list[MessagePart] = [*read_chat_thoughts(item)]
    content = item.get("content")
    if isinstance(content, str):
        if content:
            parts.append(ModelText(content))
    else:
        for piece in item.objects("content"):
            parts.append(ModelRefusal(piece.text("refusal")) if piece.get("type") == "refusal" else _read_part(piece))
    if item.optional_text("refusal"):
        parts.append(ModelRefusal(item.text("refusal")))
    if "audio" in item:
        add_translation_note(notes, f"{item.path_of('audio')}: audio in earlier answers is not passed on")
    parts += [read_chat_tool_call(call) for call in item.objects("tool_calls")]
    return parts


def read_chat_tool_call(call: JsonFields) -> ModelToolCall:
    """Parse a tool call in the history of a request or in an answer."""
    function = call.object("function")
    return ModelToolCall(
        call.text("id"),
        function.text("name"),
        call_arguments_text(function.get("arguments")) or "{}",
        read_chat_call_signature(call),
    )


def read_chat_call_signature(call: JsonFields) -> ProviderSignature | None:
    """Parse the signature of a call, in the field used by Google's OpenAI-compatible API."""
    value = call.get("extra_content")
    google = value.get("google") if isinstance(value, dict) else None
    signature = google.get("thought_signature") if isinstance(google, dict) else None
    return parse_call_thought_signature(signature, GEMINI_FAMILY) if isinstance(signature, str) else None


def _read_tool(item: JsonFields, request: ModelRequest) -> ToolDefinition | None:
    kind = item.text("type")
    if kind == "custom":
        raise item.error("is 'custom', but only function tools can be passed on", "type")
    if kind != "function":
        request.hosted_tools.append(kind)
        add_translation_note(request.notes, f"tool {kind}: only its own server can run it")
        return None
    function = item.object("function")
    return ToolDefinition(
        function.text("name"),
        function.optional_text("description"),
        function.optional_mapping("parameters"),
        function.optional_boolean("strict"),
        cached="cache_control" in item,
    )


def _read_tool_choice(fields: JsonFields, request: ModelRequest) -> None:
    choice = fields.get("tool_choice")
    if choice is None:
        return
    if isinstance(choice, str):
        words = {"auto": ToolChoice.AUTO, "none": ToolChoice.NONE, "required": ToolChoice.ANY, "any": ToolChoice.ANY}
        if choice not in words:
            raise fields.error("should be auto, none, required or a function", "tool_choice")
        request.tool_choice = words[choice]
        return
    named = fields.object("tool_choice")
    if named.get("type") == "allowed_tools":
        allowed = named.object("allowed_tools")
        request.tool_choice = ToolChoice.ANY if allowed.get("mode") == "required" else ToolChoice.AUTO
        names = {tool.object("function").text("name") for tool in allowed.objects("tools")}
        request.tools = [tool for tool in request.tools if tool.name in names]
        return
    request.tool_choice = ToolChoice.NAMED
    request.tool_name = named.object("function").text("name")


def _read_response_format(fields: JsonFields, request: ModelRequest, own: dict[str, Any]) -> None:
    form = fields.optional_object("response_format")
    if form is None:
        return
    kind = form.text("type")
    if kind == "json_object":
        request.json_mode = True
    elif kind == "json_schema":
        schema = form.object("json_schema")
        request.json_schema = schema.optional_mapping("schema") or {}
        own["json_schema"] = {name: value for name, value in schema.value.items() if name != "schema"}
    elif kind != "text":
        raise form.error("should be text, json_object or json_schema", "type")
