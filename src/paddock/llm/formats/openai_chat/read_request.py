"""Reading a Chat Completions request."""

from __future__ import annotations

from typing import Any

from paddock.llm.formats.fields import Fields, request_fields
from paddock.llm.formats.notes import note
from paddock.llm.formats.openai_chat.reasoning import read_thoughts
from paddock.llm.formats.openai_shared import no_word, read_audio, read_effort, read_media
from paddock.llm.formats.seals import GEMINI, signature
from paddock.llm.formats.turns import arguments_text
from paddock.llm.neutral import (
    Effort,
    Media,
    Message,
    Part,
    Refusal,
    Request,
    Role,
    Signature,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)

NAME = "openai-chat"

_READ = {
    "model", "messages", "stream", "stream_options", "tools", "tool_choice", "parallel_tool_calls", "max_tokens",
    "max_completion_tokens", "temperature", "top_p", "top_k", "stop", "seed", "reasoning_effort", "response_format",
    "user", "n", "logprobs", "top_logprobs", "functions", "function_call", "modalities", "audio",
}  # fmt: skip
NOTED = {
    "frequency_penalty", "presence_penalty", "logit_bias", "service_tier", "web_search_options", "verbosity",
    "prediction",
}  # fmt: skip
"""Fields that shape the answer and that other formats cannot say."""


def read_request(body: bytes, *, model: str | None, stream: bool | None) -> Request:
    fields = request_fields(body)
    _refuse(fields)
    request = Request(model=model or fields.text("model"), messages=[])
    request.stream = bool(fields.flag_or("stream")) if stream is None else stream
    request.messages = _messages(fields, request.notes)
    request.tools = [tool for item in fields.objects("tools") if (tool := _tool(item, request.notes)) is not None]
    _tool_choice(fields, request)
    request.parallel_tools = fields.flag_or("parallel_tool_calls")
    request.max_tokens = fields.integer_or("max_completion_tokens")
    if request.max_tokens is None:
        request.max_tokens = fields.integer_or("max_tokens")
    request.temperature = fields.number_or("temperature")
    request.top_p = fields.number_or("top_p")
    request.top_k = fields.integer_or("top_k")
    request.stop = [fields.text("stop")] if isinstance(fields.get("stop"), str) else fields.texts("stop")
    request.seed = fields.integer_or("seed")
    request.effort = read_effort(fields, "reasoning_effort")
    if request.effort is None and fields.get("enable_thinking") is False:
        request.effort = Effort.NONE
    request.user = fields.text_or("user")
    own: dict[str, Any] = {}
    _response_format(fields, request, own)
    options = fields.object_or("stream_options")
    if options is not None and options.flag_or("include_usage"):
        own["include_usage"] = True
    if "max_completion_tokens" in fields:
        own["max_completion_tokens"] = True
    rest = {name: value for name, value in fields.value.items() if name not in _READ and value is not None}
    if rest:
        own["fields"] = rest
    if own:
        request.extra[NAME] = own
    request.notes += [no_word(name) for name in sorted(NOTED & rest.keys())]
    if fields.get("logprobs"):
        note(request.notes, "logprobs: probabilities of tokens are not passed on")
    return request


def _refuse(fields: Fields) -> None:
    if (fields.integer_or("n") or 1) > 1:
        raise fields.error("should be 1: only one answer per request is passed on", "n")
    for name in ("functions", "function_call"):
        if name in fields:
            raise fields.error("is the old form: send tools and tool_choice instead", name)
    if "audio" in fields or "audio" in fields.items("modalities"):
        raise fields.error("asks for sound, which is not passed on: ask for text", "modalities")


def _messages(fields: Fields, notes: list[str]) -> list[Message]:
    messages: list[Message] = []
    names: dict[str, str] = {}
    after_tool = False
    if "messages" not in fields:
        raise fields.error("is missing", "messages")
    for item in fields.objects("messages"):
        role = item.text("role")
        if role == "tool":
            result = _tool_result(item, names)
            if after_tool:
                messages[-1].parts.append(result)
            else:
                messages.append(Message(Role.USER, [result]))
        elif role in ("system", "developer"):
            messages.append(Message(Role.SYSTEM, list(_content(item))))
        elif role == "user":
            messages.append(Message(Role.USER, list(_content(item))))
        elif role == "assistant":
            parts = _assistant(item, notes)
            names.update({part.id: part.name for part in parts if isinstance(part, ToolCall)})
            messages.append(Message(Role.ASSISTANT, parts))
        else:
            raise item.error("should be system, developer, user, assistant or tool", "role")
        after_tool = role == "tool"
    return messages


def _content(message: Fields) -> list[Text | Media]:
    content = message.need("content")
    if isinstance(content, str):
        return [Text(content)]
    return [_part(item) for item in message.objects("content")]


def _part(item: Fields) -> Text | Media:
    kind = item.text("type")
    part: Text | Media
    if kind == "text":
        part = Text(item.text("text"))
    elif kind == "image_url":
        if isinstance(item.get("image_url"), str):
            part = read_media("image", item.text("image_url"))
        else:
            image = item.object("image_url")
            part = read_media("image", image.text("url"), detail=image.text_or("detail"))
    elif kind == "input_audio":
        part = read_audio(item)
    elif kind == "file":
        file = item.object("file")
        if "file_data" not in file:
            raise file.error(
                "is missing: files kept by the provider cannot be passed on, send them inline", "file_data"
            )
        part = read_media("document", file.text("file_data"), file.text_or("filename"))
    else:
        raise item.error(f"is {kind!r}, which is not known here: send text, image_url, input_audio or file", "type")
    part.cached = "cache_control" in item
    return part


def _tool_result(item: Fields, names: dict[str, str]) -> ToolResult:
    call = item.text("tool_call_id")
    content = _content(item) if "content" in item else []
    return ToolResult(call, content, name=names.get(call) or item.text_or("name"))


def _assistant(item: Fields, notes: list[str]) -> list[Part]:
    parts: list[Part] = [*read_thoughts(item)]
    content = item.get("content")
    if isinstance(content, str):
        if content:
            parts.append(Text(content))
    else:
        for piece in item.objects("content"):
            parts.append(Refusal(piece.text("refusal")) if piece.get("type") == "refusal" else _part(piece))
    if item.text_or("refusal"):
        parts.append(Refusal(item.text("refusal")))
    if "audio" in item:
        note(notes, f"{item.at('audio')}: sound in earlier answers is not passed on")
    parts += [read_call(call) for call in item.objects("tool_calls")]
    return parts


def read_call(call: Fields) -> ToolCall:
    """A call, in a request's history or in an answer."""
    function = call.object("function")
    return ToolCall(
        call.text("id"), function.text("name"), arguments_text(function.get("arguments")) or "{}", read_signature(call)
    )


def read_signature(call: Fields) -> Signature | None:
    """The seal on a call, where Google's OpenAI-like API puts it."""
    value = call.get("extra_content")
    google = value.get("google") if isinstance(value, dict) else None
    seal = google.get("thought_signature") if isinstance(google, dict) else None
    return signature(seal, GEMINI) if isinstance(seal, str) else None


def _tool(item: Fields, notes: list[str]) -> Tool | None:
    kind = item.text("type")
    if kind == "custom":
        raise item.error("is 'custom', but only function tools can be passed on", "type")
    if kind != "function":
        note(notes, f"tool {kind}: only the server that has it runs it")
        return None
    function = item.object("function")
    return Tool(
        function.text("name"),
        function.text_or("description"),
        function.mapping_or("parameters"),
        function.flag_or("strict"),
        cached="cache_control" in item,
    )


def _tool_choice(fields: Fields, request: Request) -> None:
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


def _response_format(fields: Fields, request: Request, own: dict[str, Any]) -> None:
    form = fields.object_or("response_format")
    if form is None:
        return
    kind = form.text("type")
    if kind == "json_object":
        request.json_mode = True
    elif kind == "json_schema":
        schema = form.object("json_schema")
        request.json_schema = schema.mapping_or("schema") or {}
        own["json_schema"] = {name: value for name, value in schema.value.items() if name != "schema"}
    elif kind != "text":
        raise form.error("should be text, json_object or json_schema", "type")
