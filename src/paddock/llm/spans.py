"""What a span says of an exchange: OpenTelemetry's attributes for generative models, Langfuse's, and our own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec

from paddock.llm.collect import collect
from paddock.llm.exchange import Exchange, Outcome
from paddock.llm.formats.registry import FORMATS
from paddock.llm.neutral import (
    Answer,
    Finish,
    Media,
    Message,
    Part,
    Refusal,
    Request,
    Role,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
)

Attributes: TypeAlias = dict[str, str | bool | int | float | Sequence[str]]
_OPERATIONS = {"generate": "chat", "embed": "embeddings", "count_tokens": "count_tokens"}
_PROVIDERS = {"gemini": "gcp.gemini", "anthropic": "anthropic"}
"""Names that OpenTelemetry has for kinds of providers; an `openai` one may be anybody's, so its own name is given."""
_FINISHES = {
    Finish.STOP: "stop",
    Finish.LENGTH: "length",
    Finish.TOOLS: "tool_call",
    Finish.REFUSAL: "content_filter",
    Finish.FILTERED: "content_filter",
    Finish.PAUSED: "pause",
}
_MOST_CONTENT = 256 * 1024
"""Characters of a conversation in a span; older messages are left out."""
_MOST_TEXT = 64 * 1024
_MOST_NAME = 2000


@dataclass(frozen=True, slots=True)
class Span:
    name: str
    provider: str
    start: float
    end: float
    outcome: Outcome
    error: str | None
    attributes: Attributes
    parent: str | None = None
    """A W3C `traceparent`."""


class _Limits(msgspec.Struct):
    tokens: int | None = msgspec.field(name="maxOutputTokens", default=None)
    temperature: float | None = None
    top_p: float | None = msgspec.field(name="topP", default=None)
    top_k: int | None = msgspec.field(name="topK", default=None)
    seed: int | None = None
    stop: list[str] | None = msgspec.field(name="stopSequences", default=None)
    frequency: float | None = msgspec.field(name="frequencyPenalty", default=None)
    presence: float | None = msgspec.field(name="presencePenalty", default=None)
    count: int | None = msgspec.field(name="candidateCount", default=None)


class _Asked(msgspec.Struct):
    """What of a request is worth telling, whatever its format."""

    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_sequences: list[str] | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    n: int | None = None
    gemini: _Limits = msgspec.field(name="generationConfig", default_factory=_Limits)


_asked = msgspec.json.Decoder(_Asked)


def span_of(exchange: Exchange, *, content: bool, langfuse: bool) -> Span:
    """The span of an exchange; what was said is in it only with `content`."""
    operation = _OPERATIONS.get(exchange.operation, exchange.operation)
    model = exchange.provider_model or exchange.model
    answer = _answer(exchange)
    told: dict[str, Any] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": _PROVIDERS.get(exchange.provider_kind or "", exchange.provider),
        "gen_ai.request.model": model,
        "gen_ai.request.stream": exchange.stream or None,
        "gen_ai.conversation.id": exchange.conversation or exchange.caller.session,
        "gen_ai.response.time_to_first_chunk": exchange.first_byte if exchange.stream else None,
        "http.response.status_code": exchange.status or None,
        "error.type": _error_type(exchange),
        **_parameters(exchange.request),
        **_ours(exchange),
    }
    if exchange.usage is not None:
        told |= _tokens(exchange.usage)
    if answer is not None:
        told["gen_ai.response.id"] = answer.id or None
        told["gen_ai.response.model"] = exchange.answered_model or answer.model or None
        told["gen_ai.response.finish_reasons"] = [_FINISHES[answer.finish]]
    said = _content(exchange, answer) if content else {}
    name = str(_sendable(f"{operation} {model}"))
    if langfuse:
        told |= _langfuse(exchange, name, model)
        said["langfuse.observation.input"] = said.get("gen_ai.input.messages")
        said["langfuse.observation.output"] = said.get("gen_ai.output.messages")
    told |= said
    attributes = {key: sent for key, value in told.items() if (sent := _sendable(value, key in said)) is not None}
    end = exchange.at + exchange.total
    error = _sendable(exchange.error)
    provider = exchange.provider or ""
    return Span(name, provider, exchange.at, end, exchange.outcome, error, attributes, exchange.trace_parent)


def _sendable(value: Any, long: bool = False) -> Any:
    """A value as the wire can carry it: one that it cannot would take all other spans of its batch along."""
    if isinstance(value, str):
        value = value if long or len(value) <= _MOST_NAME else value[:_MOST_NAME]
        return value if value.isascii() else value.encode(errors="replace").decode()
    if isinstance(value, list):
        return [_sendable(item) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return None
    return value


def _error_type(exchange: Exchange) -> str | None:
    if exchange.outcome is Outcome.OK:
        return None
    return str(exchange.status) if exchange.status >= 400 else str(exchange.outcome)


def _parameters(body: bytes) -> dict[str, Any]:
    try:
        asked = _asked.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    gemini = asked.gemini
    tokens = (asked.max_tokens, asked.max_completion_tokens, asked.max_output_tokens, gemini.tokens)
    stop = [asked.stop] if isinstance(asked.stop, str) else asked.stop
    count = _first(asked.n, gemini.count)
    return {
        "gen_ai.request.seed": _first(asked.seed, gemini.seed),
        "gen_ai.request.stop_sequences": stop or asked.stop_sequences or gemini.stop,
        "gen_ai.request.frequency_penalty": _first(asked.frequency_penalty, gemini.frequency),
        "gen_ai.request.presence_penalty": _first(asked.presence_penalty, gemini.presence),
        "gen_ai.request.choice.count": count if count != 1 else None,
        "gen_ai.request.max_tokens": next((number for number in tokens if number is not None), None),
        "gen_ai.request.temperature": _first(asked.temperature, gemini.temperature),
        "gen_ai.request.top_p": _first(asked.top_p, gemini.top_p),
        "gen_ai.request.top_k": _first(asked.top_k, gemini.top_k),
    }


def _first(value: float | None, other: float | None) -> float | None:
    return value if value is not None else other


def _ours(exchange: Exchange) -> dict[str, Any]:
    caller = exchange.caller
    return {
        "paddock.exchange": exchange.id,
        "paddock.outcome": str(exchange.outcome),
        "paddock.tenant": caller.tenant,
        "paddock.key": caller.key_id,
        "paddock.sandbox": caller.sandbox,
        "paddock.run": caller.run,
        "paddock.session": caller.session,
        "paddock.model": exchange.model,
        "paddock.route": exchange.route,
        "paddock.provider": exchange.provider,
        "paddock.provider.kind": exchange.provider_kind,
        "paddock.format": exchange.format,
        "paddock.provider.format": exchange.provider_format,
        "paddock.retries": exchange.retries,
        "paddock.cost": exchange.cost,
        "paddock.estimated": exchange.estimated or None,
        "paddock.notes": exchange.notes or None,
        "user_agent.original": exchange.client or None,
        "user.id": caller.user,
        "session.id": _session(exchange),
    }


def _session(exchange: Exchange) -> str | None:
    """What belongs together for whoever looks at it: the nearest thing to a conversation that is known."""
    caller = exchange.caller
    return caller.session or exchange.conversation or caller.run or caller.sandbox


def _tokens(usage: Usage) -> dict[str, Any]:
    return {
        "gen_ai.usage.input_tokens": usage.input,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read or None,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write or None,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning or None,
    }


def _langfuse(exchange: Exchange, name: str, model: str) -> dict[str, Any]:
    usage = exchange.usage
    first = exchange.at + exchange.first_byte if exchange.first_byte is not None and exchange.stream else None
    tokens = usage and {
        "input": max(0, usage.input - usage.cache_read - usage.cache_write),
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
        "output": usage.output,
        "total": usage.input + usage.output,
    }
    failed = exchange.outcome is not Outcome.OK
    return {
        "langfuse.observation.type": "embedding" if exchange.operation == "embed" else "generation",
        "langfuse.observation.model.name": model,
        "langfuse.observation.usage_details": json.dumps(tokens) if tokens else None,
        "langfuse.observation.cost_details": json.dumps({"total": exchange.cost})
        if exchange.cost is not None
        else None,
        "langfuse.observation.completion_start_time": datetime.fromtimestamp(first, UTC).isoformat() if first else None,
        "langfuse.observation.level": "ERROR" if failed else None,
        "langfuse.observation.status_message": (exchange.error or str(exchange.outcome)) if failed else None,
        "langfuse.trace.name": name,
        "langfuse.session.id": _session(exchange),
        "langfuse.user.id": exchange.caller.user,
        "langfuse.trace.metadata.sandbox": exchange.caller.sandbox,
        "langfuse.trace.metadata.tenant": exchange.caller.tenant,
    }


def _answer(exchange: Exchange) -> Answer | None:
    format = FORMATS.get(exchange.format)
    if format is None or exchange.status != 200 or exchange.operation != "generate" or not exchange.response:
        return None
    body = b"".join([piece for _, piece in exchange.response])
    try:
        if not exchange.stream:
            return format.read_answer(body)
        reader = format.reader()
        return collect([*reader.feed(body), *reader.close()])
    except Exception:  # it broke off, or is nothing that we can read; there is still much to tell
        return None


def _content(exchange: Exchange, answer: Answer | None) -> dict[str, Any]:
    said: dict[str, Any] = {}
    request = _request(exchange)
    if request is not None:
        first = next((at for at, one in enumerate(request.messages) if one.role is not Role.SYSTEM), 0)
        system = [_part(part) for message in request.messages[:first] for part in message.parts]
        said["gen_ai.system_instructions"] = _json(system) if system else None
        said["gen_ai.input.messages"] = _newest(request.messages[first:])
        said["gen_ai.tool.definitions"] = _definitions(request.tools)
    if answer is not None:
        parts = [_part(part) for part in answer.parts]
        message = {"role": "assistant", "parts": parts, "finish_reason": _FINISHES[answer.finish]}
        said["gen_ai.output.messages"] = _json([message])
    return said


def _request(exchange: Exchange) -> Request | None:
    format = FORMATS.get(exchange.format)
    if format is None or exchange.operation != "generate":
        return None
    try:
        return format.read_request(exchange.request, model=exchange.model, stream=exchange.stream)
    except Exception:  # the client was told what is wrong with it
        return None


def _newest(messages: Sequence[Message]) -> str:
    """The newest messages, as many as fit."""
    kept: list[str] = []
    room = _MOST_CONTENT
    for message in reversed(messages):
        results = all(isinstance(part, ToolResult) for part in message.parts) and message.parts
        text = _json(
            {"role": "tool" if results else str(message.role), "parts": [_part(part) for part in message.parts]}
        )
        room -= len(text)
        if room < 0:
            break
        kept.append(text)
    return f"[{','.join(reversed(kept))}]"


def _definitions(tools: Sequence[Tool]) -> str | None:
    """The tools a request offers; without their schemas where those are long."""
    whole = [
        {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters}
        for tool in tools
    ]
    text = _json(whole)
    if len(text) > _MOST_TEXT:
        text = _json([{"type": "function", "name": tool.name} for tool in tools])
    return text if tools and len(text) <= _MOST_CONTENT else None


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Text() | Refusal():
            return {"type": "text", "content": _cut(part.text)}
        case Thinking():
            return {"type": "reasoning", "content": _cut(part.text)}
        case ToolCall():
            return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": _cut(part.arguments)}
        case ToolResult():
            text = "".join(inner.text for inner in part.content if isinstance(inner, Text))
            return {"type": "tool_call_response", "id": part.call_id, "response": _cut(text)}
        case Media():
            # Not the data itself, which would be most of the span.
            place = {"uri": part.url} if part.url and not part.url.startswith("data:") else {}
            return {"type": "uri" if place else "blob", "modality": part.kind, "mime_type": part.media_type, **place}


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]} … [{len(text)} characters]"


def _json(value: Any) -> str:
    # Halves of characters are valid in JSON, and not in what spans are sent in.
    return json.dumps(value, ensure_ascii=False).encode(errors="replace").decode()
