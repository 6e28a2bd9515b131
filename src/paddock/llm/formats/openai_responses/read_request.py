"""Reading a request of the Responses API."""

from __future__ import annotations

from typing import Any

from paddock.llm.formats.fields import Fields, request_fields
from paddock.llm.formats.notes import note
from paddock.llm.formats.openai_responses.tools import NAME, custom_arguments, flat_name, read_tools
from paddock.llm.formats.openai_shared import no_word, read_audio, read_effort, read_media
from paddock.llm.formats.seals import OPENAI, thought
from paddock.llm.neutral import (
    Media,
    Message,
    Part,
    Refusal,
    Request,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolChoice,
    ToolResult,
)

_READ = {
    "model", "input", "instructions", "stream", "tools", "tool_choice", "parallel_tool_calls", "max_output_tokens",
    "temperature", "top_p", "reasoning", "text", "store", "include", "user", "previous_response_id", "conversation",
    "background", "prompt", "top_logprobs", "stream_options",
}  # fmt: skip
_STATEFUL = {
    "previous_response_id": "the proxy keeps no answers: send the whole conversation in input",
    "conversation": "the proxy keeps no conversations: send the whole of it in input",
    "prompt": "the proxy keeps no prompts: send the text in instructions and input",
}
NOTED = {"service_tier", "truncation", "max_tool_calls"}


def read_request(body: bytes, *, model: str | None, stream: bool | None) -> Request:
    fields = request_fields(body)
    for name, reason in _STATEFUL.items():
        if name in fields:
            raise fields.error(f"cannot be used here: {reason}", name)
    if fields.flag_or("background"):
        raise fields.error("should be false: the proxy keeps no answers to come back for", "background")
    request = Request(model=model or fields.text("model"), messages=[])
    request.stream = bool(fields.flag_or("stream")) if stream is None else stream
    request.messages = _Items(request.notes).read(fields)
    request.tools, words = read_tools(fields, request.notes)
    own: dict[str, Any] = {}
    if words.custom or words.namespaces or words.hosted:
        own["tools"] = words
    _tool_choice(fields, request)
    request.parallel_tools = fields.flag_or("parallel_tool_calls")
    request.max_tokens = fields.integer_or("max_output_tokens")
    request.temperature = fields.number_or("temperature")
    request.top_p = fields.number_or("top_p")
    request.user = fields.text_or("user")
    reasoning = fields.object_or("reasoning")
    if reasoning is not None:
        request.effort = read_effort(reasoning, "effort")
        if "summary" in reasoning:
            own["summary"] = reasoning.text("summary")
    _text_format(fields, request, own)
    if fields.flag_or("store"):
        note(request.notes, "store: the proxy keeps no answers")
    include = fields.texts("include")
    if "reasoning.encrypted_content" in include:
        own["sealed"] = True
    for word in include:
        if word != "reasoning.encrypted_content":
            note(request.notes, f"include {word}: it is not passed on")
    rest = {name: value for name, value in fields.value.items() if name not in _READ and value is not None}
    if rest:
        own["fields"] = rest
    request.notes += [no_word(name) for name in sorted(NOTED & rest.keys())]
    if own:
        request.extra[NAME] = own
    return request


def _tool_choice(fields: Fields, request: Request) -> None:
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
        names = {_tool_name(tool) for tool in named.objects("tools") if "name" in tool}
        request.tools = [tool for tool in request.tools if tool.name in names]
    elif kind in ("function", "custom"):
        request.tool_choice = ToolChoice.NAMED
        request.tool_name = _tool_name(named)
    else:
        raise named.error(f"is {kind!r}, a tool that only OpenAI runs: name a function", "type")


def _tool_name(item: Fields) -> str:
    return flat_name(item.text_or("namespace"), item.text("name"))


def _text_format(fields: Fields, request: Request, own: dict[str, Any]) -> None:
    text = fields.object_or("text")
    if text is None:
        return
    if "verbosity" in text:
        own["verbosity"] = text.text("verbosity")
    form = text.object_or("format")
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


class _Items:
    """Gathers items into messages: what the assistant said in one go, and all results of its calls."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes
        self._messages: list[Message] = []
        self._names: dict[str, str] = {}
        self._gathering: str = ""

    def read(self, fields: Fields) -> list[Message]:
        instructions = fields.text_or("instructions")
        if instructions:
            self._messages.append(Message(Role.SYSTEM, [Text(instructions)]))
        given = fields.need("input")
        if isinstance(given, str):
            self._messages.append(Message(Role.USER, [Text(given)]))
        else:
            for item in fields.objects("input"):
                self._item(item)
        return self._messages

    def _add(self, kind: str, role: Role, parts: list[Part]) -> None:
        if kind and kind == self._gathering:
            self._messages[-1].parts += parts
        else:
            self._messages.append(Message(role, parts))
        self._gathering = kind

    def _item(self, item: Fields) -> None:
        kind = item.text_or("type") or "message"
        if kind == "message":
            self._message(item)
        elif kind == "reasoning":
            thinking = read_thought(item)
            if thinking is not None:
                self._add("assistant", Role.ASSISTANT, [thinking])
        elif kind in ("function_call", "custom_tool_call"):
            call = read_call(item)
            self._names[call.id] = call.name
            self._add("assistant", Role.ASSISTANT, [call])
        elif kind in ("function_call_output", "custom_tool_call_output"):
            call_id = item.text("call_id")
            result = ToolResult(call_id, _output(item), name=self._names.get(call_id))
            self._add("results", Role.USER, [result])
        elif kind in ("item_reference", "compaction"):
            raise item.error(
                f"is {kind!r}, and no item of that id is in the archive for this key: send the item itself", "type"
            )
        elif kind.endswith(("_call", "_output", "_list_tools", "_approval_request", "_approval_response")):
            note(self._notes, f"input {kind}: only OpenAI runs that tool")
        else:
            raise item.error(f"is {kind!r}, which is not known here", "type")

    def _message(self, item: Fields) -> None:
        role = item.text("role")
        parts: list[Part] = (
            [Text(item.text("content"))]
            if isinstance(item.need("content"), str)
            else [_part(part) for part in item.objects("content")]
        )
        if role == "assistant":
            self._add("assistant", Role.ASSISTANT, parts)
        elif role in ("system", "developer"):
            self._add("", Role.SYSTEM, parts)
        elif role == "user":
            self._add("", Role.USER, parts)
        else:
            raise item.error("should be system, developer, user or assistant", "role")


def _output(item: Fields) -> list[Text | Media]:
    output = item.need("output")
    if isinstance(output, str):
        return [Text(output)]
    content: list[Text | Media] = []
    for piece in item.objects("output"):
        part = _part(piece)
        if not isinstance(part, Text | Media):
            raise piece.error("should be text, an image or a file", "type")
        content.append(part)
    return content


def _part(item: Fields) -> Text | Media | Refusal:
    kind = item.text("type")
    if kind in ("input_text", "output_text", "text"):
        return Text(item.text("text"))
    if kind == "refusal":
        return Refusal(item.text("refusal"))
    if kind == "input_image":
        if "image_url" not in item:
            raise item.error("is missing: files kept by the provider cannot be passed on", "image_url")
        detail = item.text_or("detail")
        return read_media("image", item.text("image_url"), detail=detail if detail != "auto" else None)
    if kind == "input_file":
        name = item.text_or("filename")
        if "file_data" in item:
            return read_media("document", item.text("file_data"), name)
        if "file_url" in item:
            return Media("document", url=item.text("file_url"), name=name)
        raise item.error("is missing: files kept by the provider cannot be passed on", "file_data")
    if kind == "input_audio":
        return read_audio(item)
    raise item.error(f"is {kind!r}, which is not known here", "type")


def read_thought(item: Fields) -> Thinking | None:
    """A reasoning item; `None` when there is nothing in it."""
    seal = item.text_or("encrypted_content")
    text = "\n\n".join(part.text_or("text") or "" for part in item.objects("summary"))
    if not text:
        text = "".join(part.text_or("text") or "" for part in item.objects("content"))
    return thought(text, seal, OPENAI) if text or seal else None


def read_call(item: Fields) -> ToolCall:
    """A call, in a request's history or in an answer."""
    name = flat_name(item.text_or("namespace"), item.text("name"))
    if item.get("type") == "custom_tool_call":
        return ToolCall(item.text("call_id"), name, custom_arguments(item.text_or("input") or ""))
    return ToolCall(item.text("call_id"), name, item.text_or("arguments") or "{}")
