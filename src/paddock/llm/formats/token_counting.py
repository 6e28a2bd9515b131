"""Token usage of exchanges that are relayed unparsed: reported by the provider, or estimated.

Only the usage fields are decoded; the format packages interpret them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec

from paddock.llm.formats.anthropic.answer import merge_anthropic_usage
from paddock.llm.formats.anthropic.answer import read_anthropic_usage as anthropic_usage
from paddock.llm.formats.gemini.answer import read_gemini_usage as gemini_usage
from paddock.llm.formats.gemini.content_parts import camel_case_keys
from paddock.llm.formats.json_fields import JsonFields
from paddock.llm.formats.neutral import TokenUsage
from paddock.llm.formats.openai_chat.answer import read_chat_answer_usage as chat_usage
from paddock.llm.formats.openai_responses.answer import read_responses_answer_usage as responses_usage

MEDIA_TOKENS = 1000
"""Estimated tokens of an image, document or audio clip: about the cost of a photograph at most providers."""
TokenCount: TypeAlias = Annotated[int, msgspec.Meta(gt=0, le=2**40)]
_DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)


class _PlainAnswer(msgspec.Struct):
    usage: Any = None

    def reported_usage(self) -> Any:
        return self.usage


class _ResponsesEvent(msgspec.Struct):
    response: _PlainAnswer | None = None

    def reported_usage(self) -> Any:
        return self.response.usage if self.response is not None else None


class _AnthropicEvent(msgspec.Struct):
    usage: Any = None
    message: _PlainAnswer | None = None

    def reported_usage(self) -> Any:
        return self.message.usage if self.message is not None else self.usage


class _GeminiAnswer(msgspec.Struct):
    camel: Any = msgspec.field(name="usageMetadata", default=None)
    snake: Any = msgspec.field(name="usage_metadata", default=None)

    def reported_usage(self) -> Any:
        return self.camel or self.snake


class _PromptDetails(msgspec.Struct, forbid_unknown_fields=True):
    cached_tokens: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = 0
    audio_tokens: int = 0


class _CompletionDetails(msgspec.Struct, forbid_unknown_fields=True):
    reasoning_tokens: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = 0
    audio_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0


class _ChatUsage(msgspec.Struct, forbid_unknown_fields=True):
    """The common usage fields only; other shapes take the slower generic path."""

    prompt_tokens: TokenCount
    completion_tokens: TokenCount
    total_tokens: int = 0
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class _ChatAnswer(msgspec.Struct):
    usage: _ChatUsage


class _UsageDecoder(NamedTuple):
    """How one format reports usage."""

    answer: msgspec.json.Decoder[Any]
    event: msgspec.json.Decoder[Any]
    word: bytes
    """Contained in every event that reports usage. Quotes in texts are escaped, so no text contains it."""
    read: Callable[[dict[str, Any]], TokenUsage | None]


_plain = msgspec.json.Decoder(_PlainAnswer)
_chat = msgspec.json.Decoder(_ChatAnswer)
_metadata = msgspec.json.Decoder(_GeminiAnswer)
_metadata_array = msgspec.json.Decoder(list[_GeminiAnswer])
_METADATA = re.compile(rb'"usage_?[mM]etadata"\s*:\s*(?=\{)')
_USAGE_DECODERS = {
    "openai-chat": _UsageDecoder(
        _plain, _plain, b'"usage"', lambda reported_usage: chat_usage(JsonFields({"usage": reported_usage}))
    ),
    "openai-responses": _UsageDecoder(
        _plain,
        msgspec.json.Decoder(_ResponsesEvent),
        b'"usage"',
        lambda reported_usage: responses_usage(JsonFields({"usage": reported_usage})),
    ),
    "anthropic": _UsageDecoder(
        _plain,
        msgspec.json.Decoder(_AnthropicEvent),
        b'"usage"',
        lambda reported_usage: anthropic_usage(JsonFields(reported_usage)),
    ),
    "gemini": _UsageDecoder(
        _metadata,
        _metadata,
        b'etadata"',
        lambda reported_usage: gemini_usage(JsonFields(camel_case_keys(reported_usage))),
    ),
}


def count_answer_tokens(format: str, stream: bool, body: bytes | Iterable[bytes]) -> TokenUsage | None:
    """Return the usage reported in the bytes of an answer; `None` if it is missing or malformed.

    If a stream broke off after reporting only its prompt, the tokens of the partial answer are estimated.
    """
    data = body if isinstance(body, bytes) else b"".join(body)
    decoder = _USAGE_DECODERS[format]
    if stream:
        reported_usage = _usage_of_stream(format, decoder, data)
    elif len(data) > _MAX_DECODED_BYTES:
        reported_usage = _usage_near_end(decoder, data)
    elif format == "openai-chat" and (quick := _read_common_chat_usage(data)) is not None:
        return quick
    else:
        reported_usage = _usage_of_answer(decoder, data)
    usage = decoder.read(reported_usage) if reported_usage is not None else None
    return usage if usage is not None and (usage.input or usage.output) else None


def _read_common_chat_usage(data: bytes) -> TokenUsage | None:
    try:
        reported_usage = _chat.decode(data).usage
    except _DECODE_ERRORS:
        return None
    cached, reasoned = reported_usage.prompt_tokens_details, reported_usage.completion_tokens_details
    return TokenUsage(
        reported_usage.prompt_tokens,
        reported_usage.completion_tokens,
        cached.cached_tokens if cached is not None else 0,
        0,
        reasoned.reasoning_tokens if reasoned is not None else 0,
    )


def _usage_of_answer(decoder: _UsageDecoder, data: bytes) -> dict[str, Any] | None:
    try:
        reported_usage = decoder.answer.decode(data).reported_usage()
    except _DECODE_ERRORS:
        return None
    return reported_usage if isinstance(reported_usage, dict) else None


def _usage_near_end(decoder: _UsageDecoder, data: bytes) -> dict[str, Any] | None:
    """Return the last usage in a very long answer, without decoding the answer."""
    position = data.find(b":", data.rfind(decoder.word)) if decoder.word in data else -1
    if position < 0:
        return None
    try:
        usage = json.JSONDecoder().raw_decode(data[position + 1 : position + 8192].decode(errors="replace").lstrip())[0]
    except _DECODE_ERRORS:
        return None
    return usage if isinstance(usage, dict) else None


def _usage_of_stream(format: str, decoder: _UsageDecoder, data: bytes) -> dict[str, Any] | None:
    if format == "anthropic":
        return _merge_anthropic_usages(_usages_from_end(decoder, data), data)
    if format == "gemini" and data.lstrip()[:1] in (b"[", b"{"):
        return _usage_of_array(data)
    return next(_usages_from_end(decoder, data), None)


def _usages_from_end(decoder: _UsageDecoder, data: bytes) -> Iterator[dict[str, Any]]:
    """Iterate over the usage reports in a stream, last one first."""
    end = len(data)
    while (position := data.rfind(decoder.word, 0, end)) >= 0:
        start = end = data.rfind(b"\n", 0, position) + 1
        if not data.startswith(b"data:", start):
            continue
        stop = data.find(b"\n", position)
        try:
            reported_usage = decoder.event.decode(data[start + 5 : stop if stop >= 0 else len(data)]).reported_usage()
        except _DECODE_ERRORS:
            continue
        if isinstance(reported_usage, dict) and reported_usage:
            yield reported_usage


def _merge_anthropic_usages(reported_usage: Iterator[dict[str, Any]], data: bytes) -> dict[str, Any] | None:
    totals: dict[str, Any] = {}
    for numbers in reported_usage:
        merge_anthropic_usage(totals, numbers)
    if totals and b'"message_delta"' not in data:
        # It broke off. The start reports the usage of the prompt, and one token of the answer.
        totals["output_tokens"] = max(totals["output_tokens"], estimate_answer_tokens("anthropic", True, data))
    return totals or None


def _usage_of_array(data: bytes) -> dict[str, Any] | None:
    try:
        answers = [answer.reported_usage() for answer in _metadata_array.decode(data)]
    except _DECODE_ERRORS:
        # The stream broke off, or is a single answer; search for the last usage report in it.
        *_, usage_offset = (None, *(found.end() for found in _METADATA.finditer(data)))
        if usage_offset is None:
            return None
        try:
            answers = [
                json.JSONDecoder().raw_decode(data[usage_offset : usage_offset + 8192].decode(errors="replace"))[0]
            ]
        except _DECODE_ERRORS:
            return None
    return next((reported_usage for reported_usage in reversed(answers) if isinstance(reported_usage, dict)), None)


_CJK = re.compile(
    "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)
_OPAQUE_FIELDS = {"signature", "thoughtSignature", "thought_signature", "encrypted_content", "redacted_thinking"}
"""Fields that only the provider can read; not counted."""
_MEDIA_FIELDS = {"image_url", "input_audio", "file", "inlineData", "inline_data", "fileData", "file_data"}
_MEDIA_CONTENT_FIELDS = ("url", "data", "file_data", "file_id", "fileUri", "file_uri")
_JSON_STRING = r'\s*:\s*"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
_TEXT_FIELD_NAMES = {
    ("openai-chat", False): "content|reasoning_content|reasoning|refusal|arguments",
    ("openai-chat", True): "content|reasoning_content|reasoning|refusal|arguments",
    ("openai-responses", False): "text|arguments|input|refusal",
    ("openai-responses", True): "delta",
    ("anthropic", False): "text|thinking",
    ("anthropic", True): "text|thinking|partial_json",
    ("gemini", False): "text",
    ("gemini", True): "text",
}
"""Names of the fields with generated text, by format and whether it is a stream."""
_TEXT_FIELDS = {
    key: re.compile(f'"(?:{names})"{_JSON_STRING}'.encode(), re.DOTALL) for key, names in _TEXT_FIELD_NAMES.items()
}
_MAX_PARSED_VALUES = 8000
"""Values of a body, commas in texts included, that are parsed."""
_MAX_PARSED_BYTES = 256 * 2**10
_MAX_DECODED_BYTES = 8 * 2**20
"""Size of an answer above which only the end is searched for its usage."""
_SAMPLE_COUNT, _SAMPLE_BYTES = 32, 8192
_BASE64_RUN = re.compile(rb"[A-Za-z0-9+/=_-]{1024,}")
"""Images and other files in Base64."""
_BASE64_LENGTH_OF_MEDIA = 400_000
"""Typical length of an image in Base64."""
_JSON_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\(.)", re.DOTALL)


def estimate_text_tokens(text: str) -> int:
    """Estimate the tokens of a text: one per four bytes, or one per CJK character."""
    if text.isascii():
        return (len(text) + 3) // 4
    rest = _CJK.sub("", text)
    return len(text) - len(rest) + (len(rest.encode(errors="replace")) + 3) // 4


def estimate_request_tokens(format: str, body: bytes) -> int:
    """Estimate the tokens of a request; each image, document or audio clip counts a fixed number."""
    if len(body) > _MAX_PARSED_BYTES or _has_many_values(body):
        return _estimate_by_sample(body)
    try:
        waiting: list[tuple[str, Any]] = [("", msgspec.json.decode(body))]
    except _DECODE_ERRORS:
        return (len(body) + 3) // 4
    texts: list[str] = []
    media = 0
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            if _is_media(name, value):
                media += 1
            else:
                texts.extend(value)
                waiting.extend(value.items())
        elif isinstance(value, list):
            waiting.extend((name, item) for item in value)
        elif isinstance(value, str):
            if name in ("image_url", "file_data") or value.startswith("data:"):
                media += 1
            elif name not in _OPAQUE_FIELDS:
                texts.append(value)
    return estimate_text_tokens(" ".join(texts)) + media * MEDIA_TOKENS


def _has_many_values(body: bytes) -> bool:
    return (
        len(body) > _MAX_PARSED_VALUES and body.count(b",") + body.count(b"[") + body.count(b"{") > _MAX_PARSED_VALUES
    )


def _estimate_by_sample(body: bytes) -> int:
    """Estimate from samples of a long body, because parsing all of it would block other requests."""
    step = len(body) // _SAMPLE_COUNT
    pieces = [body[start : start + _SAMPLE_BYTES] for start in range(0, step * _SAMPLE_COUNT, step)]
    text = sum(len(_BASE64_RUN.sub(b"", piece)) for piece in pieces)
    share = text / sum(map(len, pieces))
    packed = round(len(body) * (1 - share))
    return round(len(body) * share / 4) + -(-packed // _BASE64_LENGTH_OF_MEDIA) * MEDIA_TOKENS


def _is_media(name: str, value: dict[str, Any]) -> bool:
    """Return whether an object is media, and not a schema or argument of the same name."""
    if name == "source":
        return value.get("type") in ("base64", "url", "file")
    return name in _MEDIA_FIELDS and any(isinstance(value.get(field), str) for field in _MEDIA_CONTENT_FIELDS)


def estimate_answer_tokens(format: str, stream: bool, body: bytes | Iterable[bytes]) -> int:
    """Estimate the generated tokens in the bytes of a complete or partial answer."""
    data = body if isinstance(body, bytes) else b"".join(body)
    text = b"".join(_TEXT_FIELDS[format, stream].findall(data)).decode(errors="replace")
    return estimate_text_tokens(_JSON_ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else " ", text))
