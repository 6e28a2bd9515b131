"""What a script answers to calls that are no conversation: counts of tokens, and embeddings."""

from __future__ import annotations

import base64
import hashlib
import math
import struct
from typing import Any

from paddock.errors import InvalidInput
from paddock.llm.formats.fields import Fields, request_fields, to_bytes
from paddock.llm.formats.registry import FORMATS
from paddock.llm.script.conversation import read_conversation
from paddock.llm.script.render import estimate

_DIMENSIONS = 256
_MOST_DIMENSIONS = 4096
_MOST_TEXTS = 2048


def count_tokens(format: str, body: bytes, model: str) -> bytes | None:
    """The estimated tokens of a prompt; `None` for formats that cannot ask."""
    words = {"anthropic": "input_tokens", "gemini": "totalTokens", "openai-responses": "input_tokens"}
    if format not in words:
        return None
    request = FORMATS[format].read_request(body, model=model, stream=False)
    answer: dict[str, Any] = {words[format]: estimate(read_conversation(request), []).input}
    if format == "openai-responses":
        answer["object"] = "response.input_tokens"
    return to_bytes(answer)


def embed(format: str, body: bytes, model: str) -> bytes | None:
    """Vectors that are alike only for texts that are the same; `None` for formats that have none."""
    fields = request_fields(body)
    if format == "openai-chat":
        return to_bytes(_openai(fields, model))
    if format == "gemini":
        return to_bytes(_gemini(fields))
    return None


def _openai(fields: Fields, model: str) -> dict[str, Any]:
    given = fields.need("input")
    # A list of numbers is one text in tokens.
    several = isinstance(given, list) and not all(isinstance(each, int) for each in given)
    texts = given if several else [given]
    if not texts or len(texts) > _MOST_TEXTS:
        raise InvalidInput(f"input should have 1 to {_MOST_TEXTS} texts")
    dimensions = _dimensions(fields, "dimensions")
    data: list[dict[str, Any]] = []
    for index, text in enumerate(texts):
        vector: list[float] | str = embedding(str(text), dimensions)
        if fields.get("encoding_format") == "base64":
            vector = base64.b64encode(struct.pack(f"<{dimensions}f", *vector)).decode()
        data.append({"object": "embedding", "index": index, "embedding": vector})
    tokens = sum(max(1, len(str(text)) // 4) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": model, "usage": usage}


def _gemini(fields: Fields) -> dict[str, Any]:
    if "requests" not in fields:
        return {"embedding": _gemini_values(fields)}
    requests = list(fields.objects("requests"))
    if len(requests) > _MOST_TEXTS:
        raise InvalidInput(f"requests should be at most {_MOST_TEXTS}")
    return {"embeddings": [_gemini_values(request) for request in requests]}


def _gemini_values(fields: Fields) -> dict[str, Any]:
    text = "\n".join(part.text_or("text") or "" for part in fields.object("content").objects("parts"))
    return {"values": embedding(text, _dimensions(fields, "outputDimensionality"))}


def _dimensions(fields: Fields, name: str) -> int:
    dimensions = fields.integer_or(name) or _DIMENSIONS
    if not 1 <= dimensions <= _MOST_DIMENSIONS:
        raise InvalidInput(f"{name} should be from 1 to {_MOST_DIMENSIONS}")
    return dimensions


def embedding(text: str, dimensions: int) -> list[float]:
    """A vector of length one that only this text has."""
    raw = hashlib.shake_128(text.encode(errors="replace")).digest(2 * dimensions)
    values = [number / 32768 for number in struct.unpack(f"<{dimensions}h", raw)]
    length = math.sqrt(sum(value * value for value in values)) or 1.0
    return [round(value / length, 7) for value in values]
