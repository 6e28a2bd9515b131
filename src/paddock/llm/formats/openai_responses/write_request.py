"""Writing a request of the Responses API."""

from __future__ import annotations

from typing import Any

from paddock.llm.formats.base import Untranslatable
from paddock.llm.formats.names import provider_id, provider_name
from paddock.llm.formats.notes import note
from paddock.llm.formats.openai_responses.read_request import NOTED
from paddock.llm.formats.openai_responses.tools import NAME, ToolWords, custom_input, words_of, write_tools
from paddock.llm.formats.openai_shared import media_url, no_word, plain_text, sampling, write_audio, written_effort
from paddock.llm.formats.seals import OPENAI, own_messages
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

_LONGEST_ID = 64
_FEWEST_TOKENS = 16


def write_request(request: Request) -> dict[str, Any]:
    if request.stop:
        raise Untranslatable("stop: the Responses API cannot stop at given words; leave them out")
    own, words = request.extra.get(NAME, {}), words_of(request)
    body: dict[str, Any] = {"model": request.model}
    messages = own_messages(request, OPENAI)
    if len(messages) > 1 and messages[0].role == Role.SYSTEM:
        body["instructions"] = "\n\n".join(_system(messages[0]))
        messages = messages[1:]
    items = _Items(request.notes, words)
    body["input"] = items.write(messages)
    # The proxy's clients send the whole conversation each time, so nothing has to be kept by the provider.
    body["store"] = False
    if request.stream:
        body["stream"] = True
    tools = write_tools(request.tools, words, request.notes)
    if tools:
        body["tools"] = tools
    _tool_choice(request, words, body)
    values = {
        "parallel_tool_calls": request.parallel_tools,
        "max_output_tokens": _max_tokens(request),
        **sampling(request),
        "user": request.user,
    }
    body.update({name: value for name, value in values.items() if value is not None})
    for name, value in (("top_k", request.top_k), ("seed", request.seed)):
        if value is not None:
            note(request.notes, f"{name}: the Responses API has no word for it")
    _reasoning(request, own, body, sealed=items.sealed)
    _text_format(request, own, body)
    rest = own.get("fields", {})
    body.update({name: value for name, value in rest.items() if name not in body})
    said = {no_word(name) for name in NOTED & rest.keys()}
    request.notes[:] = [text for text in request.notes if text not in said]
    return body


def _max_tokens(request: Request) -> int | None:
    if request.max_tokens is not None and request.max_tokens < _FEWEST_TOKENS:
        note(request.notes, f"`max_output_tokens` became {_FEWEST_TOKENS}, the least the Responses API takes")
        return _FEWEST_TOKENS
    return request.max_tokens


def _reasoning(request: Request, own: dict[str, Any], body: dict[str, Any], *, sealed: bool) -> None:
    effort = written_effort(request)
    reasoning: dict[str, Any] = {}
    if effort is not None:
        reasoning["effort"] = effort
    if "summary" in own:
        reasoning["summary"] = own["summary"]
    if reasoning:
        body["reasoning"] = reasoning
    # Models that do not reason refuse to be asked for sealed thoughts.
    if reasoning or sealed or own.get("sealed"):
        body["include"] = ["reasoning.encrypted_content"]


def _text_format(request: Request, own: dict[str, Any], body: dict[str, Any]) -> None:
    text: dict[str, Any] = {}
    if request.json_schema is not None:
        kept = {"type": "json_schema", "name": "answer", "strict": False, **own.get("json_schema", {})}
        text["format"] = {**kept, "schema": request.json_schema}
    elif request.json_mode:
        text["format"] = {"type": "json_object"}
    if "verbosity" in own:
        text["verbosity"] = own["verbosity"]
    if text:
        body["text"] = text


def _tool_choice(request: Request, words: ToolWords, body: dict[str, Any]) -> None:
    match request.tool_choice:
        case ToolChoice.NAMED if request.tool_name in words.custom:
            body["tool_choice"] = {"type": "custom", "name": request.tool_name}
        case ToolChoice.NAMED if request.tool_name in words.namespaced:
            space, name = words.namespaced[request.tool_name]
            body["tool_choice"] = {"type": "function", "namespace": space, "name": name}
        case ToolChoice.NAMED:
            body["tool_choice"] = {"type": "function", "name": provider_name(request.tool_name or "")}
        case ToolChoice.ANY:
            body["tool_choice"] = "required"
        case ToolChoice.AUTO | ToolChoice.NONE:
            body["tool_choice"] = request.tool_choice.value


def _system(message: Message) -> list[str]:
    texts: list[str] = []
    for part in message.parts:
        if not isinstance(part, Text):
            raise Untranslatable("a system message can only hold text in the Responses API")
        texts.append(part.text)
    return texts


class _Items:
    def __init__(self, notes: list[str], words: ToolWords) -> None:
        self._notes = notes
        self._words = words
        self._out: list[dict[str, Any]] = []
        self._custom_calls: set[str] = set()
        self.sealed = False

    def write(self, messages: list[Message]) -> list[dict[str, Any]]:
        for message in messages:
            if message.role == Role.SYSTEM:
                content = [{"type": "input_text", "text": text} for text in _system(message)]
                self._out.append({"type": "message", "role": "system", "content": content})
            elif message.role == Role.USER:
                self._user(message.parts)
            else:
                self._assistant(message.parts)
        return self._out

    def _user(self, parts: list[Part]) -> None:
        content: list[dict[str, Any]] = []
        for part in parts:
            if isinstance(part, ToolResult):
                self._out.append(self._result(part))
            elif isinstance(part, Text | Media):
                content.append(self._part(part))
            else:
                raise Untranslatable(f"a user's message cannot hold a {type(part).__name__}")
        if content or not parts:
            self._out.append({"type": "message", "role": "user", "content": content})

    def _result(self, result: ToolResult) -> dict[str, Any]:
        if result.is_error:
            note(self._notes, "is_error: the Responses API has no word for it in a tool's result")
        output: str | list[dict[str, Any]]
        if len(result.content) == 1 and isinstance(result.content[0], Text):
            output = result.content[0].text
        else:
            output = [self._part(part) for part in result.content]
        kind = "custom_tool_call_output" if result.call_id in self._custom_calls else "function_call_output"
        return {"type": kind, "call_id": provider_id(result.call_id, _LONGEST_ID), "output": output}

    def _part(self, part: Text | Media) -> dict[str, Any]:
        if isinstance(part, Text):
            return {"type": "input_text", "text": part.text}
        if part.kind == "image":
            return {"type": "input_image", "image_url": media_url(part, "image/png"), "detail": part.detail or "auto"}
        if part.kind == "audio":
            return write_audio(part)
        words = plain_text(part)
        if words is not None:
            return {"type": "input_text", "text": f"{part.name}:\n{words}" if part.name else words}
        if part.data is None and part.url is not None:
            return {"type": "input_file", "file_url": part.url}
        data = media_url(part, "application/pdf")
        return {"type": "input_file", "filename": part.name or "document.pdf", "file_data": data}

    def _assistant(self, parts: list[Part]) -> None:
        for part in parts:
            match part:
                case Text():
                    self._said(part.text)
                case Refusal():
                    self._said([{"type": "refusal", "refusal": part.text}])
                case Thinking():
                    self._thought(part)
                case ToolCall():
                    self._out.append(self._call(part))
                case Media():
                    note(self._notes, f"{part.kind} in an earlier answer: the Responses API takes text only there")
                    self._said(f"[{part.kind}]")
                case ToolResult():
                    raise Untranslatable("an assistant's message cannot hold a tool's result")

    def _said(self, content: str | list[dict[str, Any]]) -> None:
        """What was said is told in the short form, which needs no ids that only OpenAI can give."""
        self._out.append({"type": "message", "role": "assistant", "content": content})

    def _thought(self, part: Thinking) -> None:
        seal = part.signature
        if not seal:
            note(self._notes, "thinking without a signature: the Responses API takes only its own back")
            return
        self.sealed = True
        summary = [{"type": "summary_text", "text": part.text}] if part.text else []
        self._out.append({"type": "reasoning", "summary": summary, "encrypted_content": seal})

    def _call(self, call: ToolCall) -> dict[str, Any]:
        call_id = provider_id(call.id, _LONGEST_ID)
        if call.name in self._words.custom:
            self._custom_calls.add(call.id)
            text = custom_input(call.arguments)
            return {"type": "custom_tool_call", "call_id": call_id, "name": call.name, "input": text}
        written = {"type": "function_call", "call_id": call_id, "name": provider_name(call.name)}
        written["arguments"] = call.arguments or "{}"
        if call.name in self._words.namespaced:
            written["namespace"], written["name"] = self._words.namespaced[call.name]
        return written
