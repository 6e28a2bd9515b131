"""Tokens of exchanges that pass through unread: counted where the provider tells, estimated where it does not.

Only what holds the numbers is read. What they mean is known to the readers of the formats, which are used here too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec

from paddock.llm.formats.anthropic.answer import add_usage
from paddock.llm.formats.anthropic.answer import read_usage as anthropic_usage
from paddock.llm.formats.fields import Fields
from paddock.llm.formats.gemini.answer import read_usage as gemini_usage
from paddock.llm.formats.gemini.parts import camel
from paddock.llm.formats.openai_chat.answer import usage_of as chat_usage
from paddock.llm.formats.openai_responses.answer import usage_of as responses_usage
from paddock.llm.neutral import Usage

MEDIA_TOKENS = 1000
"""What a picture, document or sound is taken to cost: about what a photograph does at most providers."""
Tokens: TypeAlias = Annotated[int, msgspec.Meta(gt=0, le=2**40)]
_NONSENSE = (msgspec.MsgspecError, ValueError, RecursionError)


class _Plain(msgspec.Struct):
    usage: Any = None

    def told(self) -> Any:
        return self.usage


class _Response(msgspec.Struct):
    response: _Plain | None = None

    def told(self) -> Any:
        return self.response.usage if self.response is not None else None


class _Message(msgspec.Struct):
    usage: Any = None
    message: _Plain | None = None

    def told(self) -> Any:
        return self.message.usage if self.message is not None else self.usage


class _Metadata(msgspec.Struct):
    camel: Any = msgspec.field(name="usageMetadata", default=None)
    snake: Any = msgspec.field(name="usage_metadata", default=None)

    def told(self) -> Any:
        return self.camel or self.snake


class _Cached(msgspec.Struct, forbid_unknown_fields=True):
    cached_tokens: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = 0
    audio_tokens: int = 0


class _Reasoned(msgspec.Struct, forbid_unknown_fields=True):
    reasoning_tokens: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = 0
    audio_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0


class _ChatUsage(msgspec.Struct, forbid_unknown_fields=True):
    """The usual numbers and no others. Whatever differs is read with more care, and more slowly."""

    prompt_tokens: Tokens
    completion_tokens: Tokens
    total_tokens: int = 0
    prompt_tokens_details: _Cached | None = None
    completion_tokens_details: _Reasoned | None = None


class _Chat(msgspec.Struct):
    usage: _ChatUsage


class _Way(NamedTuple):
    """How one format tells of tokens."""

    answer: msgspec.json.Decoder[Any]
    event: msgspec.json.Decoder[Any]
    word: bytes
    """What an event that tells of them holds. Quotes in texts are escaped, so no text holds it."""
    read: Callable[[dict[str, Any]], Usage | None]


_plain = msgspec.json.Decoder(_Plain)
_chat = msgspec.json.Decoder(_Chat)
_metadata = msgspec.json.Decoder(_Metadata)
_metadata_array = msgspec.json.Decoder(list[_Metadata])
_METADATA = re.compile(rb'"usage_?[mM]etadata"\s*:\s*(?=\{)')
_WAYS = {
    "openai-chat": _Way(_plain, _plain, b'"usage"', lambda told: chat_usage(Fields({"usage": told}))),
    "openai-responses": _Way(
        _plain, msgspec.json.Decoder(_Response), b'"usage"', lambda told: responses_usage(Fields({"usage": told}))
    ),
    "anthropic": _Way(_plain, msgspec.json.Decoder(_Message), b'"usage"', lambda told: anthropic_usage(Fields(told))),
    "gemini": _Way(_metadata, _metadata, b'etadata"', lambda told: gemini_usage(Fields(camel(told)))),
}


def count(format: str, stream: bool, body: bytes | Iterable[bytes]) -> Usage | None:
    """The tokens that an answer's bytes tell of; `None` when they tell of none, or make no sense.

    Where a stream broke off after telling of its prompt alone, what was said until then is estimated.
    """
    data = body if isinstance(body, bytes) else b"".join(body)
    if format == "openai-chat" and not stream and (quick := _usual(data)) is not None:
        return quick
    way = _WAYS[format]
    told = _streamed(format, way, data) if stream else _whole(way, data)
    usage = way.read(told) if told is not None else None
    return usage if usage is not None and (usage.input or usage.output) else None


def _usual(data: bytes) -> Usage | None:
    try:
        told = _chat.decode(data).usage
    except _NONSENSE:
        return None
    cached, reasoned = told.prompt_tokens_details, told.completion_tokens_details
    return Usage(
        told.prompt_tokens,
        told.completion_tokens,
        cached.cached_tokens if cached is not None else 0,
        0,
        reasoned.reasoning_tokens if reasoned is not None else 0,
    )


def _whole(way: _Way, data: bytes) -> dict[str, Any] | None:
    try:
        told = way.answer.decode(data).told()
    except _NONSENSE:
        return None
    return told if isinstance(told, dict) else None


def _streamed(format: str, way: _Way, data: bytes) -> dict[str, Any] | None:
    if format == "anthropic":
        return _totals(_told(way, data), data)
    if format == "gemini" and data.lstrip()[:1] in (b"[", b"{"):
        return _told_in_array(data)
    return next(_told(way, data), None)


def _told(way: _Way, data: bytes) -> Iterator[dict[str, Any]]:
    """What the events of a stream tell of tokens, the last first."""
    end = len(data)
    while (place := data.rfind(way.word, 0, end)) >= 0:
        start = end = data.rfind(b"\n", 0, place) + 1
        if not data.startswith(b"data:", start):
            continue
        stop = data.find(b"\n", place)
        try:
            told = way.event.decode(data[start + 5 : stop if stop >= 0 else len(data)]).told()
        except _NONSENSE:
            continue
        if isinstance(told, dict) and told:
            yield told


def _totals(told: Iterator[dict[str, Any]], data: bytes) -> dict[str, Any] | None:
    totals: dict[str, Any] = {}
    for numbers in told:
        add_usage(totals, numbers)
    if totals and b'"message_delta"' not in data:
        # It broke off. The start has told of the prompt, and of one token to come.
        totals["output_tokens"] = max(totals["output_tokens"], estimate_answer("anthropic", True, data))
    return totals or None


def _told_in_array(data: bytes) -> dict[str, Any] | None:
    try:
        answers = [answer.told() for answer in _metadata_array.decode(data)]
    except _NONSENSE:
        # It broke off, or is one answer alone; what was told last is still somewhere in it.
        *_, place = (None, *(found.end() for found in _METADATA.finditer(data)))
        if place is None:
            return None
        try:
            answers = [json.JSONDecoder().raw_decode(data[place : place + 8192].decode(errors="replace"))[0]]
        except _NONSENSE:
            return None
    return next((told for told in reversed(answers) if isinstance(told, dict)), None)


_FAR_EAST = re.compile(
    "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)
_SEALED = {"signature", "thoughtSignature", "thought_signature", "encrypted_content", "redacted_thinking"}
"""Fields that only the provider can read; they are not counted as text, and hardly at all."""
_MEDIA = {"image_url", "input_audio", "file", "inlineData", "inline_data", "fileData", "file_data"}
_PLACES = ("url", "data", "file_data", "file_id", "fileUri", "file_uri")
_TEXT = r'\s*:\s*"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
_SAID = {
    ("openai-chat", False): "content|reasoning_content|reasoning|refusal|arguments",
    ("openai-chat", True): "content|reasoning_content|reasoning|refusal|arguments",
    ("openai-responses", False): "text|arguments|input|refusal",
    ("openai-responses", True): "delta",
    ("anthropic", False): "text|thinking",
    ("anthropic", True): "text|thinking|partial_json",
    ("gemini", False): "text",
    ("gemini", True): "text",
}
"""Names of the fields in which a model's words stand."""
_WORDS = {key: re.compile(f'"(?:{names})"{_TEXT}'.encode(), re.DOTALL) for key, names in _SAID.items()}
_READ_WHOLE = 256 * 2**10
_SAMPLES, _SAMPLE = 32, 8192
_PACKED = re.compile(rb"[A-Za-z0-9+/=_-]{1024,}")
"""Pictures and other files in Base64."""
_PACKED_MEDIA = 400_000
"""About how many letters of Base64 a picture has."""
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\(.)", re.DOTALL)


def estimate_text(text: str) -> int:
    """About how many tokens a text has: one for four bytes, or for one character of the Far East."""
    if text.isascii():
        return (len(text) + 3) // 4
    rest = _FAR_EAST.sub("", text)
    return len(text) - len(rest) + (len(rest.encode(errors="replace")) + 3) // 4


def estimate_request(format: str, body: bytes) -> int:
    """About how many tokens a request has, for providers that do not tell. Pictures and the like count a fixed sum."""
    if len(body) > _READ_WHOLE:
        return _estimate_by_sample(body)
    try:
        waiting: list[tuple[str, Any]] = [("", msgspec.json.decode(body))]
    except _NONSENSE:
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
            elif name not in _SEALED:
                texts.append(value)
    return estimate_text(" ".join(texts)) + media * MEDIA_TOKENS


def _estimate_by_sample(body: bytes) -> int:
    """Look at pieces of a long body: to read all of it would keep others waiting."""
    step = len(body) // _SAMPLES
    pieces = [body[start : start + _SAMPLE] for start in range(0, step * _SAMPLES, step)]
    text = sum(len(_PACKED.sub(b"", piece)) for piece in pieces)
    share = text / sum(map(len, pieces))
    packed = round(len(body) * (1 - share))
    return round(len(body) * share / 4) + -(-packed // _PACKED_MEDIA) * MEDIA_TOKENS


def _is_media(name: str, value: dict[str, Any]) -> bool:
    """Whether an object is a picture or the like, and not a schema or an argument of the same name."""
    if name == "source":
        return value.get("type") in ("base64", "url", "file")
    return name in _MEDIA and any(isinstance(value.get(place), str) for place in _PLACES)


def estimate_answer(format: str, stream: bool, body: bytes | Iterable[bytes]) -> int:
    """About how many tokens a model has said in an answer's bytes, be it whole or broken off."""
    data = body if isinstance(body, bytes) else b"".join(body)
    said = b"".join(_WORDS[format, stream].findall(data)).decode(errors="replace")
    return estimate_text(_ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else " ", said))
