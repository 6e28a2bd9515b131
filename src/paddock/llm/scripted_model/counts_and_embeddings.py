"""Token counts and embeddings of the scripted model."""

from __future__ import annotations

import base64
import hashlib
import math
import struct
from typing import Any

import msgspec

from paddock.errors import InvalidInput
from paddock.llm.formats.json_fields import JsonFields, encode_json, parse_request_body
from paddock.llm.formats.registry import FORMATS
from paddock.llm.scripted_model.answer_rendering import estimate_scripted_usage
from paddock.llm.scripted_model.conversation_parsing import parse_conversation

_DEFAULT_DIMENSIONS = 256
_MAX_DIMENSIONS = 4096
_MAX_TEXTS = 2048
_MAX_NUMBERS = 2**20
"""Texts times dimensions of one answer."""


def write_scripted_token_count(format: str, body: bytes, model: str) -> bytes | None:
    """Write the estimated number of prompt tokens; `None` for formats without token counting."""
    words = {"anthropic": "input_tokens", "gemini": "totalTokens", "openai-responses": "input_tokens"}
    if format not in words:
        return None
    request = FORMATS[format].read_request(body, model=model, stream=False)
    answer: dict[str, Any] = {words[format]: estimate_scripted_usage(parse_conversation(request), []).input}
    if format == "openai-responses":
        answer["object"] = "response.input_tokens"
    return encode_json(answer)


def write_scripted_embeddings(format: str, body: bytes, model: str) -> bytes | None:
    """Write embeddings that are similar only for identical texts; `None` for formats without embeddings."""
    fields = parse_request_body(body)
    if format == "openai-chat":
        return encode_json(_openai_embeddings(fields, model))
    if format == "gemini":
        return encode_json(_gemini_embeddings(fields))
    return None


def _openai_embeddings(fields: JsonFields, model: str) -> dict[str, Any]:
    input_value = fields.required("input")
    # A list of numbers is one tokenized text.
    is_batch = isinstance(input_value, list) and not all(isinstance(each, int) for each in input_value)
    texts = input_value if is_batch else [input_value]
    if not texts or len(texts) > _MAX_TEXTS:
        raise InvalidInput(f"input should have 1 to {_MAX_TEXTS} texts")
    dimensions = _read_dimensions(fields, "dimensions")
    _check_number_count(len(texts) * dimensions)
    data: list[dict[str, Any]] = []
    for index, text in enumerate(texts):
        numbers = hash_embedding(str(text), dimensions)
        # Encoding all vectors in one call would block other threads.
        vector: msgspec.Raw | str = msgspec.Raw(encode_json(numbers))
        if fields.get("encoding_format") == "base64":
            vector = base64.b64encode(struct.pack(f"<{dimensions}f", *numbers)).decode()
        data.append({"object": "embedding", "index": index, "embedding": vector})
    tokens = sum(max(1, len(str(text)) // 4) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": model, "usage": usage}


def _gemini_embeddings(fields: JsonFields) -> dict[str, Any]:
    if "requests" not in fields:
        return {"embedding": _gemini_embedding(fields)}
    requests = list(fields.objects("requests"))
    if len(requests) > _MAX_TEXTS:
        raise InvalidInput(f"requests should be at most {_MAX_TEXTS}")
    _check_number_count(sum(_read_dimensions(request, "outputDimensionality") for request in requests))
    return {"embeddings": [_gemini_embedding(request) for request in requests]}


def _gemini_embedding(fields: JsonFields) -> dict[str, Any]:
    text = "\n".join(part.optional_text("text") or "" for part in fields.object("content").objects("parts"))
    vector = hash_embedding(text, _read_dimensions(fields, "outputDimensionality"))
    return {"values": msgspec.Raw(encode_json(vector))}


def _read_dimensions(fields: JsonFields, name: str) -> int:
    dimensions = fields.optional_integer(name) or _DEFAULT_DIMENSIONS
    if not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise InvalidInput(f"{name} should be from 1 to {_MAX_DIMENSIONS}")
    return dimensions


def _check_number_count(count: int) -> None:
    if count > _MAX_NUMBERS:
        raise InvalidInput(f"texts times dimensions should be at most {_MAX_NUMBERS}; ask for fewer at a time")


def hash_embedding(text: str, dimensions: int) -> list[float]:
    """Return a unit vector derived from the hash of a text."""
    raw = hashlib.shake_128(text.encode(errors="replace")).digest(2 * dimensions)
    values = [number / 32768 for number in struct.unpack(f"<{dimensions}h", raw)]
    length = math.sqrt(sum(value * value for value in values)) or 1.0
    return [round(value / length, 7) for value in values]
