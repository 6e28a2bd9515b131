"""Build span attributes of an exchange: OpenTelemetry's GenAI conventions, Langfuse's, and Paddock's own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec

from paddock.llm.exchange import Exchange, ExchangeOutcome
from paddock.llm.formats.answer_events import answer_from_stream_events
from paddock.llm.formats.neutral import (
    FinishReason,
    MessagePart,
    MessageRole,
    ModelAnswer,
    ModelMedia,
    ModelMessage,
    ModelRefusal,
    ModelRequest,
    ModelText,
    ModelThinking,
    ModelToolCall,
    ModelToolResult,
    TokenUsage,
    ToolDefinition,
)
from paddock.llm.formats.registry import FORMATS

Attributes: TypeAlias = dict[str, str | bool | int | float | Sequence[str]]
_OPERATIONS = {"generate": "chat", "embed": "embeddings", "count_tokens": "count_tokens"}
_PROVIDERS = {"gemini": "gcp.gemini", "anthropic": "anthropic"}
"""OpenTelemetry's names for kinds of providers; `openai` may be any vendor, so its configured name is used."""
_FINISHES = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.TOOLS: "tool_call",
    FinishReason.REFUSAL: "content_filter",
    FinishReason.FILTERED: "content_filter",
    FinishReason.PAUSED: "pause",
}
_MAX_CONTENT = 256 * 1024
"""Maximum characters of a conversation in a span; older messages are omitted."""
_MAX_TEXT = 64 * 1024
_MAX_NAME = 2000


@dataclass(frozen=True, slots=True)
class ExchangeSpan:
    name: str
    provider: str
    start: float
    end: float
    outcome: ExchangeOutcome
    error: str | None
    attributes: Attributes
    parent: str | None = None
    """A W3C `traceparent`."""
    trace: int | None = None
    """Trace id of a span without a parent; `None` for a random one."""


class _GeminiParameters(msgspec.Struct):
    tokens: int | None = msgspec.field(name="maxOutputTokens", default=None)
    temperature: float | None = None
    top_p: float | None = msgspec.field(name="topP", default=None)
    top_k: int | None = msgspec.field(name="topK", default=None)
    seed: int | None = None
    stop: list[str] | None = msgspec.field(name="stopSequences", default=None)
    frequency: float | None = msgspec.field(name="frequencyPenalty", default=None)
    presence: float | None = msgspec.field(name="presencePenalty", default=None)
    count: int | None = msgspec.field(name="candidateCount", default=None)


class _RequestParameters(msgspec.Struct):
    """The request parameters that spans report, in all formats."""

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
    gemini: _GeminiParameters = msgspec.field(name="generationConfig", default_factory=_GeminiParameters)


_request_decoder = msgspec.json.Decoder(_RequestParameters)


def make_exchange_span(exchange: Exchange, *, content: bool, langfuse: bool) -> ExchangeSpan:
    """Return the span of an exchange; it contains messages only with `content`."""
    operation = _OPERATIONS.get(exchange.operation, exchange.operation)
    model = exchange.provider_model or exchange.model
    answer = _parse_answer(exchange)
    attributes_by_name: dict[str, Any] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": _PROVIDERS.get(exchange.provider_kind or "", exchange.provider),
        "gen_ai.request.model": model,
        "gen_ai.request.stream": exchange.stream or None,
        "gen_ai.conversation.id": exchange.conversation or exchange.caller.session,
        "gen_ai.response.time_to_first_chunk": exchange.first_byte if exchange.stream else None,
        "http.response.status_code": exchange.status or None,
        "error.type": _error_type(exchange),
        **_parameter_attributes(exchange.request),
        **_paddock_attributes(exchange),
    }
    if exchange.usage is not None:
        attributes_by_name |= _token_attributes(exchange.usage)
    if answer is not None:
        attributes_by_name["gen_ai.response.id"] = answer.id or None
        attributes_by_name["gen_ai.response.model"] = exchange.answered_model or answer.model or None
        attributes_by_name["gen_ai.response.finish_reasons"] = [_FINISHES[answer.finish]]
    content_attributes = _content_attributes(exchange, answer) if content else {}
    name = str(_valid_value(f"{operation} {model}"))
    if langfuse:
        attributes_by_name |= _langfuse_attributes(exchange, name, model)
        content_attributes["langfuse.observation.input"] = content_attributes.get("gen_ai.input.messages")
        content_attributes["langfuse.observation.output"] = content_attributes.get("gen_ai.output.messages")
    attributes_by_name |= content_attributes
    attributes = {
        key: sent
        for key, value in attributes_by_name.items()
        if (sent := _valid_value(value, key in content_attributes)) is not None
    }
    end = exchange.at + exchange.total
    error = _valid_value(exchange.error)
    provider = exchange.provider or ""
    caller = exchange.caller
    trace, parent = caller_trace_id(caller.tenant, caller.run, caller.session), exchange.trace_parent
    return ExchangeSpan(name, provider, exchange.at, end, exchange.outcome, error, attributes, parent, trace)


def caller_trace_id(tenant: str, run: str | None, session: str | None) -> int | None:
    """Return one trace id for all requests of a run, or else of a session."""
    for kind, identifier in (("run", run), ("session", session)):
        if identifier:
            name = "\0".join((tenant, kind, identifier)).encode(errors="replace")
            return int.from_bytes(hashlib.sha256(name).digest()[:16], "big")
    return None


def _valid_value(value: Any, long: bool = False) -> Any:
    """Return a value that OTLP can encode; an invalid one would make its whole batch fail."""
    if isinstance(value, str):
        value = value if long or len(value) <= _MAX_NAME else value[:_MAX_NAME]
        return value if value.isascii() else value.encode(errors="replace").decode()
    if isinstance(value, list):
        return [_valid_value(item) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return None
    return value


def _error_type(exchange: Exchange) -> str | None:
    if exchange.outcome is ExchangeOutcome.OK:
        return None
    return str(exchange.status) if exchange.status >= 400 else str(exchange.outcome)


def _parameter_attributes(body: bytes) -> dict[str, Any]:
    try:
        parameters = _request_decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    gemini = parameters.gemini
    tokens = (parameters.max_tokens, parameters.max_completion_tokens, parameters.max_output_tokens, gemini.tokens)
    stop = [parameters.stop] if isinstance(parameters.stop, str) else parameters.stop
    count = _first_given(parameters.n, gemini.count)
    return {
        "gen_ai.request.seed": _first_given(parameters.seed, gemini.seed),
        "gen_ai.request.stop_sequences": stop or parameters.stop_sequences or gemini.stop,
        "gen_ai.request.frequency_penalty": _first_given(parameters.frequency_penalty, gemini.frequency),
        "gen_ai.request.presence_penalty": _first_given(parameters.presence_penalty, gemini.presence),
        "gen_ai.request.choice.count": count if count != 1 else None,
        "gen_ai.request.max_tokens": next((number for number in tokens if number is not None), None),
        "gen_ai.request.temperature": _first_given(parameters.temperature, gemini.temperature),
        "gen_ai.request.top_p": _first_given(parameters.top_p, gemini.top_p),
        "gen_ai.request.top_k": _first_given(parameters.top_k, gemini.top_k),
    }


def _first_given(value: float | None, other: float | None) -> float | None:
    return value if value is not None else other


def _paddock_attributes(exchange: Exchange) -> dict[str, Any]:
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
        "session.id": _session_id(exchange),
    }


def _session_id(exchange: Exchange) -> str | None:
    """Return the id that groups spans: session, conversation, run or sandbox, in this order."""
    caller = exchange.caller
    return caller.session or exchange.conversation or caller.run or caller.sandbox


def _token_attributes(usage: TokenUsage) -> dict[str, Any]:
    return {
        "gen_ai.usage.input_tokens": usage.input,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read or None,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write or None,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning or None,
    }


def _langfuse_attributes(exchange: Exchange, name: str, model: str) -> dict[str, Any]:
    usage = exchange.usage
    first = exchange.at + exchange.first_byte if exchange.first_byte is not None and exchange.stream else None
    tokens = usage and {
        "input": max(0, usage.input - usage.cache_read - usage.cache_write),
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
        "output": usage.output,
        "total": usage.input + usage.output,
    }
    failed = exchange.outcome is not ExchangeOutcome.OK
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
        "langfuse.session.id": _session_id(exchange),
        "langfuse.user.id": exchange.caller.user,
        "langfuse.trace.metadata.sandbox": exchange.caller.sandbox,
        "langfuse.trace.metadata.tenant": exchange.caller.tenant,
    }


def _parse_answer(exchange: Exchange) -> ModelAnswer | None:
    format = FORMATS.get(exchange.format)
    if format is None or exchange.status != 200 or exchange.operation != "generate" or not exchange.response:
        return None
    body = b"".join([piece for _, piece in exchange.response])
    try:
        if not exchange.stream:
            return format.read_answer(body)
        reader = format.new_stream_reader()
        return answer_from_stream_events([*reader.feed(body), *reader.close()])
    except Exception:  # a partial or invalid answer; the other attributes remain useful
        return None


def _content_attributes(exchange: Exchange, answer: ModelAnswer | None) -> dict[str, Any]:
    content_attributes: dict[str, Any] = {}
    request = _parse_request(exchange)
    if request is not None:
        first = next((at for at, one in enumerate(request.messages) if one.role is not MessageRole.SYSTEM), 0)
        system = [_part_content(part) for message in request.messages[:first] for part in message.parts]
        content_attributes["gen_ai.system_instructions"] = _to_json(system) if system else None
        content_attributes["gen_ai.input.messages"] = _newest_messages(request.messages[first:])
        content_attributes["gen_ai.tool.definitions"] = _tool_definitions(request.tools)
    if answer is not None:
        parts = [_part_content(part) for part in answer.parts]
        message = {"role": "assistant", "parts": parts, "finish_reason": _FINISHES[answer.finish]}
        content_attributes["gen_ai.output.messages"] = _to_json([message])
    return content_attributes


def _parse_request(exchange: Exchange) -> ModelRequest | None:
    format = FORMATS.get(exchange.format)
    if format is None or exchange.operation != "generate":
        return None
    try:
        return format.read_request(exchange.request, model=exchange.model, stream=exchange.stream)
    except Exception:  # an invalid request; the client got the error
        return None


def _newest_messages(messages: Sequence[ModelMessage]) -> str:
    """Return the newest messages as JSON, as many as fit."""
    texts: list[str] = []
    remaining = _MAX_CONTENT
    for message in reversed(messages):
        results = all(isinstance(part, ModelToolResult) for part in message.parts) and message.parts
        text = _to_json(
            {"role": "tool" if results else str(message.role), "parts": [_part_content(part) for part in message.parts]}
        )
        remaining -= len(text)
        if remaining < 0:
            break
        texts.append(text)
    return f"[{','.join(reversed(texts))}]"


def _tool_definitions(tools: Sequence[ToolDefinition]) -> str | None:
    """Return the tools of a request as JSON; without their schemas if these are long."""
    whole = [
        {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters}
        for tool in tools
    ]
    text = _to_json(whole)
    if len(text) > _MAX_TEXT:
        text = _to_json([{"type": "function", "name": tool.name} for tool in tools])
    return text if tools and len(text) <= _MAX_CONTENT else None


def _part_content(part: MessagePart) -> dict[str, Any]:
    match part:
        case ModelText() | ModelRefusal():
            return {"type": "text", "content": _truncate(part.text)}
        case ModelThinking():
            return {"type": "reasoning", "content": _truncate(part.text)}
        case ModelToolCall():
            return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": _truncate(part.arguments)}
        case ModelToolResult():
            text = "".join(inner.text for inner in part.content if isinstance(inner, ModelText))
            return {"type": "tool_call_response", "id": part.call_id, "response": _truncate(text)}
        case ModelMedia():
            # Without the data, which would be most of the span.
            uri_fields = {"uri": part.url} if part.url and not part.url.startswith("data:") else {}
            return {
                "type": "uri" if uri_fields else "blob",
                "modality": part.kind,
                "mime_type": part.media_type,
                **uri_fields,
            }


def _truncate(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]} … [{len(text)} characters]"


def _to_json(value: Any) -> str:
    # Lone surrogates are valid in JSON, but not in OTLP.
    return json.dumps(value, ensure_ascii=False).encode(errors="replace").decode()
