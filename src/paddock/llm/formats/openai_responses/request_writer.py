"""Write requests of the Responses API."""

from __future__ import annotations

from typing import Any

from paddock.llm.formats.base import UntranslatableRequest
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
from paddock.llm.formats.openai_responses.request_reader import UNTRANSLATABLE_RESPONSES_FIELDS
from paddock.llm.formats.openai_responses.tool_conversion import (
    RESPONSES_FORMAT_NAME,
    ResponsesClientTools,
    custom_tool_input,
    get_responses_client_tools,
    write_responses_tools,
)
from paddock.llm.formats.openai_shared import (
    decode_text_document,
    openai_media_url,
    supported_reasoning_effort,
    supported_sampling_settings,
    untranslatable_field_note,
    write_openai_audio,
)
from paddock.llm.formats.thought_signatures import OPENAI_FAMILY, drop_foreign_signatures
from paddock.llm.formats.tool_names import to_provider_call_id, to_provider_tool_name
from paddock.llm.formats.translation_notes import add_translation_note

_MAX_CALL_ID_LENGTH = 64
_MIN_OUTPUT_TOKENS = 16


def write_responses_request(request: ModelRequest) -> dict[str, Any]:
    if request.stop:
        raise UntranslatableRequest("stop: the Responses API does not support stop sequences; leave them out")
    own, words = request.extra.get(RESPONSES_FORMAT_NAME, {}), get_responses_client_tools(request)
    body: dict[str, Any] = {"model": request.model}
    messages = drop_foreign_signatures(request, OPENAI_FAMILY)
    if len(messages) > 1 and messages[0].role == MessageRole.SYSTEM:
        body["instructions"] = "\n\n".join(_system_texts(messages[0]))
        messages = messages[1:]
    items = _InputWriter(request.notes, words)
    body["input"] = items.write(messages)
    # Clients send the whole conversation each time, so the provider does not have to store it.
    body["store"] = False
    if request.stream:
        body["stream"] = True
    tools = write_responses_tools(request.tools, words, request.notes)
    if tools:
        body["tools"] = tools
    _write_tool_choice(request, words, body)
    values = {
        "parallel_tool_calls": request.parallel_tools,
        "max_output_tokens": _max_tokens(request),
        **supported_sampling_settings(request),
        "user": request.user,
    }
    body.update({name: value for name, value in values.items() if value is not None})
    for name, value in (("top_k", request.top_k), ("seed", request.seed)):
        if value is not None:
            add_translation_note(request.notes, f"{name}: the Responses API has no such setting")
    _write_reasoning(request, own, body, has_signatures=items.has_signatures)
    _write_text_format(request, own, body)
    rest = own.get("fields", {})
    body.update({name: value for name, value in rest.items() if name not in body})
    field_notes = {untranslatable_field_note(name) for name in UNTRANSLATABLE_RESPONSES_FIELDS & rest.keys()}
    request.notes[:] = [text for text in request.notes if text not in field_notes]
    return body


def _max_tokens(request: ModelRequest) -> int | None:
    if request.max_tokens is not None and request.max_tokens < _MIN_OUTPUT_TOKENS:
        add_translation_note(
            request.notes, f"`max_output_tokens` became {_MIN_OUTPUT_TOKENS}, the least the Responses API takes"
        )
        return _MIN_OUTPUT_TOKENS
    return request.max_tokens


def _write_reasoning(request: ModelRequest, own: dict[str, Any], body: dict[str, Any], *, has_signatures: bool) -> None:
    effort = supported_reasoning_effort(request)
    reasoning: dict[str, Any] = {}
    if effort is not None:
        reasoning["effort"] = effort
    if "summary" in own:
        reasoning["summary"] = own["summary"]
    if reasoning:
        body["reasoning"] = reasoning
    # Models that do not reason reject requests for encrypted reasoning.
    if reasoning or has_signatures or own.get("sealed"):
        body["include"] = ["reasoning.encrypted_content"]


def _write_text_format(request: ModelRequest, own: dict[str, Any], body: dict[str, Any]) -> None:
    text: dict[str, Any] = {}
    if request.json_schema is not None:
        json_format = {"type": "json_schema", "name": "answer", "strict": False, **own.get("json_schema", {})}
        text["format"] = {**json_format, "schema": request.json_schema}
    elif request.json_mode:
        text["format"] = {"type": "json_object"}
    if "verbosity" in own:
        text["verbosity"] = own["verbosity"]
    if text:
        body["text"] = text


def _write_tool_choice(request: ModelRequest, words: ResponsesClientTools, body: dict[str, Any]) -> None:
    match request.tool_choice:
        case ToolChoice.NAMED if request.tool_name in words.custom:
            body["tool_choice"] = {"type": "custom", "name": request.tool_name}
        case ToolChoice.NAMED if request.tool_name in words.namespaced:
            space, name = words.namespaced[request.tool_name]
            body["tool_choice"] = {"type": "function", "namespace": space, "name": name}
        case ToolChoice.NAMED:
            body["tool_choice"] = {"type": "function", "name": to_provider_tool_name(request.tool_name or "")}
        case ToolChoice.ANY:
            body["tool_choice"] = "required"
        case ToolChoice.AUTO | ToolChoice.NONE:
            body["tool_choice"] = request.tool_choice.value


def _system_texts(message: ModelMessage) -> list[str]:
    texts: list[str] = []
    for part in message.parts:
        if not isinstance(part, ModelText):
            raise UntranslatableRequest("a system message can only contain text in the Responses API")
        texts.append(part.text)
    return texts


class _InputWriter:
    def __init__(self, notes: list[str], words: ResponsesClientTools) -> None:
        self._notes = notes
        self._words = words
        self._items: list[dict[str, Any]] = []
        self._custom_calls: set[str] = set()
        self.has_signatures = False

    def write(self, messages: list[ModelMessage]) -> list[dict[str, Any]]:
        for message in messages:
            if message.role == MessageRole.SYSTEM:
                content = [{"type": "input_text", "text": text} for text in _system_texts(message)]
                self._items.append({"type": "message", "role": "system", "content": content})
            elif message.role == MessageRole.USER:
                self._write_user(message.parts)
            else:
                self._write_assistant(message.parts)
        return self._items

    def _write_user(self, parts: list[MessagePart]) -> None:
        content: list[dict[str, Any]] = []
        for part in parts:
            if isinstance(part, ModelToolResult):
                self._items.append(self._write_result(part))
            elif isinstance(part, ModelText | ModelMedia):
                content.append(self._write_part(part))
            else:
                raise UntranslatableRequest(f"a user message cannot contain a {type(part).__name__}")
        if content or not parts:
            self._items.append({"type": "message", "role": "user", "content": content})

    def _write_result(self, result: ModelToolResult) -> dict[str, Any]:
        if result.is_error:
            add_translation_note(self._notes, "is_error: the Responses API cannot mark a tool result as an error")
        output: str | list[dict[str, Any]]
        if len(result.content) == 1 and isinstance(result.content[0], ModelText):
            output = result.content[0].text
        else:
            output = [self._write_part(part) for part in result.content]
        kind = "custom_tool_call_output" if result.call_id in self._custom_calls else "function_call_output"
        return {"type": kind, "call_id": to_provider_call_id(result.call_id, _MAX_CALL_ID_LENGTH), "output": output}

    def _write_part(self, part: ModelText | ModelMedia) -> dict[str, Any]:
        if isinstance(part, ModelText):
            return {"type": "input_text", "text": part.text}
        if part.kind == "image":
            return {
                "type": "input_image",
                "image_url": openai_media_url(part, "image/png"),
                "detail": part.detail or "auto",
            }
        if part.kind == "audio":
            return write_openai_audio(part)
        words = decode_text_document(part)
        if words is not None:
            return {"type": "input_text", "text": f"{part.name}:\n{words}" if part.name else words}
        if part.data is None and part.url is not None:
            return {"type": "input_file", "file_url": part.url}
        data = openai_media_url(part, "application/pdf")
        return {"type": "input_file", "filename": part.name or "document.pdf", "file_data": data}

    def _write_assistant(self, parts: list[MessagePart]) -> None:
        for part in parts:
            match part:
                case ModelText():
                    self._add_assistant_message(part.text)
                case ModelRefusal():
                    self._add_assistant_message([{"type": "refusal", "refusal": part.text}])
                case ModelThinking():
                    self._add_thought(part)
                case ModelToolCall():
                    self._items.append(self._write_call(part))
                case ModelMedia():
                    add_translation_note(
                        self._notes, f"{part.kind} in an earlier answer: the Responses API takes text only there"
                    )
                    self._add_assistant_message(f"[{part.kind}]")
                case ModelToolResult():
                    raise UntranslatableRequest("an assistant message cannot contain a tool result")

    def _add_assistant_message(self, content: str | list[dict[str, Any]]) -> None:
        """Add an assistant message in the short form, which needs no item IDs that only OpenAI can assign."""
        self._items.append({"type": "message", "role": "assistant", "content": content})

    def _add_thought(self, part: ModelThinking) -> None:
        signature = part.signature
        if not signature:
            add_translation_note(
                self._notes, "thinking without a signature: the Responses API accepts only its own reasoning"
            )
            return
        self.has_signatures = True
        summary = [{"type": "summary_text", "text": part.text}] if part.text else []
        self._items.append({"type": "reasoning", "summary": summary, "encrypted_content": signature})

    def _write_call(self, call: ModelToolCall) -> dict[str, Any]:
        call_id = to_provider_call_id(call.id, _MAX_CALL_ID_LENGTH)
        if call.name in self._words.custom:
            self._custom_calls.add(call.id)
            text = custom_tool_input(call.arguments)
            return {"type": "custom_tool_call", "call_id": call_id, "name": call.name, "input": text}
        written = {"type": "function_call", "call_id": call_id, "name": to_provider_tool_name(call.name)}
        written["arguments"] = call.arguments or "{}"
        if call.name in self._words.namespaced:
            written["namespace"], written["name"] = self._words.namespaced[call.name]
        return written
