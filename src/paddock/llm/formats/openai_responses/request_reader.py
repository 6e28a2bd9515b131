"""Parse requests of the Responses API."""

from __future__ import annotations

from typing import Any

from paddock.llm.formats.json_fields import JsonFields, parse_request_body
from paddock.llm.formats.neutral import (
    MessagePart,
    MessageRole,
    ModelMedia,
    ModelMessage,
    ModelRefusal,
    ModelRequest,
    ModelText,
    ModelThinking,
    ModelToolCall,
    ModelToolResult,
    ToolChoice,
)
from paddock.llm.formats.openai_responses.client_run_items import (
    CLIENT_RUN_CALLS,
    CLIENT_RUN_RESULTS,
    read_client_run_call,
    read_client_run_result,
)
from paddock.llm.formats.openai_responses.tool_conversion import (
    RESPONSES_FORMAT_NAME,
    custom_tool_arguments,
    flatten_tool_name,
    read_responses_tools,
)
from paddock.llm.formats.openai_shared import (
    read_openai_audio,
    read_openai_media,
    read_reasoning_effort,
    untranslatable_field_note,
)
from paddock.llm.formats.thought_signatures import OPENAI_FAMILY, parse_signed_thought
from paddock.llm.formats.translation_notes import add_translation_note

_KNOWN_FIELDS = {
    "model", "input", "instructions", "stream", "tools", "tool_choice", "parallel_tool_calls", "max_output_tokens",
    "temperature", "top_p", "reasoning", "text", "store", "include", "user", "previous_response_id", "conversation",
    "background", "prompt", "top_logprobs", "stream_options",
}  # fmt: skip
_STATEFUL_FIELDS = {
    "previous_response_id": "the proxy does not store answers: send the whole conversation in input",
    "conversation": "the proxy does not store conversations: send all messages in input",
    "prompt": "the proxy does not store prompts: send the text in instructions and input",
}
UNTRANSLATABLE_RESPONSES_FIELDS = {"service_tier", "truncation", "max_tool_calls"}


def read_responses_request(body: bytes, *, model: str | None, stream: bool | None) -> ModelRequest:
    fields = parse_request_body(body)
    for name, reason in _STATEFUL_FIELDS.items():
        if name in fields:
            raise fields.error(f"cannot be used here: {reason}", name)
    if fields.optional_boolean("background"):
        raise fields.error("should be false: the proxy does not store answers for later", "background")
    request = ModelRequest(model=model or fields.text("model"), messages=[])
    request.stream = bool(fields.optional_boolean("stream")) if stream is None else stream
    request.messages = _InputReader(request.notes).read(fields)
    request.tools, words = read_responses_tools(fields, request.notes)
    request.hosted_tools = [str(tool.get("type")) for tool in words.hosted]
    own: dict[str, Any] = {}
    if words.custom or words.namespaces or words.hosted:
        own["tools"] = words
    _read_tool_choice(fields, request)
    request.parallel_tools = fields.optional_boolean("parallel_tool_calls")
    request.max_tokens = fields.optional_integer("max_output_tokens")
    request.temperature = fields.optional_number("temperature")
    request.top_p = fields.optional_number("top_p")
    request.user = fields.optional_text("user")
    reasoning = fields.optional_object("reasoning")
    if reasoning is not None:
        request.effort = read_reasoning_effort(reasoning, "effort")
        if "summary" in reasoning:
            own["summary"] = reasoning.text("summary")
    _read_text_format(fields, request, own)
    if fields.optional_boolean("store"):
        add_translation_note(request.notes, "store: the proxy does not store answers")
    include = fields.texts("include")
    if "reasoning.encrypted_content" in include:
        own["sealed"] = True
    for word in include:
        if word != "reasoning.encrypted_content":
            add_translation_note(request.notes, f"include {word}: it is not passed on")
    rest = {name: value for name, value in fields.value.items() if name not in _KNOWN_FIELDS and value is not None}
    if rest:
        own["fields"] = rest
    request.notes += [untranslatable_field_note(name) for name in sorted(UNTRANSLATABLE_RESPONSES_FIELDS & rest.keys())]
    if own:
        request.extra[RESPONSES_FORMAT_NAME] = own
    return request


def _read_tool_choice(fields: JsonFields, request: ModelRequest) -> None:
    choice = fields.get("tool_choice")
    if choice is None:
        return
    if isinstance(choice, str):
        words = {"auto": ToolChoice.AUTO, "none": ToolChoice.NONE, "required": ToolChoice.ANY}
        if choice not in words:
            raise fields.error("should be auto, none, required or a tool", "tool_choice")
        request.tool_choice = words[choice]
        return
    named = fields.object("tool_choice")
    kind = named.text("type")
    if kind == "allowed_tools":
        request.tool_choice = ToolChoice.ANY if named.get("mode") == "required" else ToolChoice.AUTO
        names = {_read_tool_name(tool) for tool in named.objects("tools") if "name" in tool}
        request.tools = [tool for tool in request.tools if tool.name in names]
    elif kind in ("function", "custom"):
        request.tool_choice = ToolChoice.NAMED
        request.tool_name = _read_tool_name(named)
    else:
        raise named.error(f"is {kind!r}, a tool that only OpenAI runs: name a function", "type")


def _read_tool_name(item: JsonFields) -> str:
    return flatten_tool_name(item.optional_text("namespace"), item.text("name"))


def _read_text_format(fields: JsonFields, request: ModelRequest, own: dict[str, Any]) -> None:
    text = fields.optional_object("text")
    if text is None:
        return
    if "verbosity" in text:
        own["verbosity"] = text.text("verbosity")
    form = text.optional_object("format")
    if form is None:
        return
    kind = form.text("type")
    if kind == "json_object":
        request.json_mode = True
    elif kind == "json_schema":
        request.json_schema = form.mapping("schema")
        own["json_schema"] = {name: value for name, value in form.value.items() if name != "schema"}
    elif kind != "text":
        raise form.error("should be text, json_object or json_schema", "type")


class _InputReader:
    """Groups input items into messages: consecutive assistant items, and consecutive results."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes
        self._messages: list[ModelMessage] = []
        self._names: dict[str, str] = {}
        self._call_ids: dict[str, str] = {}
        """Call IDs by the IDs of items: results of `local_shell` may have either."""
        self._current_group: str = ""

    def read(self, fields: JsonFields) -> list[ModelMessage]:
        instructions = fields.optional_text("instructions")
        if instructions:
            self._messages.append(ModelMessage(MessageRole.SYSTEM, [ModelText(instructions)]))
        input_value = fields.required("input")
        if isinstance(input_value, str):
            self._messages.append(ModelMessage(MessageRole.USER, [ModelText(input_value)]))
        else:
            for item in fields.objects("input"):
                self._read_item(item)
        return self._messages

    def _add(self, kind: str, role: MessageRole, parts: list[MessagePart]) -> None:
        if kind and kind == self._current_group:
            self._messages[-1].parts += parts
        else:
            self._messages.append(ModelMessage(role, parts))
        self._current_group = kind

    def _read_item(self, item: JsonFields) -> None:
        kind = item.optional_text("type") or "message"
        if kind == "message":
            self._read_message(item)
        elif kind == "reasoning":
            thinking = read_reasoning_item(item)
            if thinking is not None:
                self._add("assistant", MessageRole.ASSISTANT, [thinking])
        elif kind in ("function_call", "custom_tool_call"):
            call = read_responses_tool_call(item)
            self._names[call.id] = call.name
            self._add("assistant", MessageRole.ASSISTANT, [call])
        elif kind in ("function_call_output", "custom_tool_call_output"):
            call_id = item.text("call_id")
            result = ModelToolResult(call_id, _read_output(item), name=self._names.get(call_id))
            self._add("results", MessageRole.USER, [result])
        elif kind in CLIENT_RUN_CALLS:
            self._add_client_run_call(item)
        elif kind in CLIENT_RUN_RESULTS:
            result = read_client_run_result(item)
            result.call_id = self._call_ids.get(result.call_id, result.call_id)
            self._add("results", MessageRole.USER, [result])
        elif kind == "item_reference":
            raise item.error(
                "is 'item_reference', and the proxy wrote no item of that id: send the item itself (`store: false`)",
                "type",
            )
        elif kind == "compaction":
            raise item.error("is 'compaction', which only OpenAI can read: send the items themselves", "type")
        elif kind.endswith(("_call", "_output", "_list_tools", "_approval_request", "_approval_response")):
            add_translation_note(self._notes, f"input {kind}: only OpenAI runs that tool")
        else:
            raise item.error(f"is {kind!r}, which is not supported", "type")

    def _add_client_run_call(self, item: JsonFields) -> None:
        call = read_client_run_call(item)
        self._names[call.id] = call.name
        if "id" in item:
            self._call_ids[item.text("id")] = call.id
        self._add("assistant", MessageRole.ASSISTANT, [call])

    def _read_message(self, item: JsonFields) -> None:
        role = item.text("role")
        parts: list[MessagePart] = (
            [ModelText(item.text("content"))]
            if isinstance(item.required("content"), str)
            else [_read_part(part) for part in item.objects("content")]
        )
        if role == "assistant":
            self._add("assistant", MessageRole.ASSISTANT, parts)
        elif role in ("system", "developer"):
            self._add("", MessageRole.SYSTEM, parts)
        elif role == "user":
            self._add("", MessageRole.USER, parts)
        else:
            raise item.error("should be system, developer, user or assistant", "role")


def _read_output(item: JsonFields) -> list[ModelText | ModelMedia]:
    output = item.required("output")
    if isinstance(output, str):
        return [ModelText(output)]
    content: list[ModelText | ModelMedia] = []
    for piece in item.objects("output"):
        part = _read_part(piece)
        if not isinstance(part, ModelText | ModelMedia):
            raise piece.error("should be text, an image or a file", "type")
        content.append(part)
    return content


def _read_part(item: JsonFields) -> ModelText | ModelMedia | ModelRefusal:
    kind = item.text("type")
    if kind in ("input_text", "output_text", "text"):
        return ModelText(item.text("text"))
    if kind == "refusal":
        return ModelRefusal(item.text("refusal"))
    if kind == "input_image":
        if "image_url" not in item:
            raise item.error("is missing: files stored at the provider cannot be passed on", "image_url")
        detail = item.optional_text("detail")
        return read_openai_media("image", item.text("image_url"), detail=detail if detail != "auto" else None)
    if kind == "input_file":
        name = item.optional_text("filename")
        if "file_data" in item:
            return read_openai_media("document", item.text("file_data"), name)
        if "file_url" in item:
            return ModelMedia("document", url=item.text("file_url"), name=name)
        raise item.error("is missing: files stored at the provider cannot be passed on", "file_data")
    if kind == "input_audio":
        return read_openai_audio(item)
    raise item.error(f"is {kind!r}, which is not supported", "type")


def read_reasoning_item(item: JsonFields) -> ModelThinking | None:
    """Parse a reasoning item; `None` if it is empty."""
    signature = item.optional_text("encrypted_content")
    text = "\n\n".join(part.optional_text("text") or "" for part in item.objects("summary"))
    if not text:
        text = "".join(part.optional_text("text") or "" for part in item.objects("content"))
    return parse_signed_thought(text, signature, OPENAI_FAMILY) if text or signature else None


def read_responses_tool_call(item: JsonFields) -> ModelToolCall:
    """Parse a tool call in the history of a request or in an answer."""
    name = flatten_tool_name(item.optional_text("namespace"), item.text("name"))
    if item.get("type") == "custom_tool_call":
        return ModelToolCall(item.text("call_id"), name, custom_tool_arguments(item.optional_text("input") or ""))
    return ModelToolCall(item.text("call_id"), name, item.optional_text("arguments") or "{}")
