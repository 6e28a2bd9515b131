"""Embedding requests and answers in OpenAI's and Gemini's formats."""

from __future__ import annotations

import base64
import binascii
import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from paddock.llm.formats.base import BrokenModelStream, UntranslatableRequest
from paddock.llm.formats.gemini.content_parts import camel_case_keys
from paddock.llm.formats.json_fields import JsonFields, encode_json, parse_answer_body, parse_request_body
from paddock.llm.formats.provider_errors import find_error_in_json
from paddock.llm.formats.translation_notes import add_translation_note


@dataclass(slots=True)
class EmbeddingRequest:
    model: str
    inputs: list[str | list[int]]
    """Texts, or token lists from clients that tokenize themselves."""
    dimensions: int | None = None
    user: str | None = None
    as_base64: bool = False
    """Whether the client wants vectors packed as base64, as OpenAI's own clients do."""
    single: bool = False
    """Whether the client asked for a single embedding instead of a list (Gemini's `embedContent`)."""
    task: str | None = None
    """Gemini's task type: `RETRIEVAL_QUERY`, …"""
    title: str | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class EmbeddingAnswer:
    model: str
    vectors: list[list[float]]
    """One vector per input, in the same order."""
    input_tokens: int | None = None


class EmbeddingFormat(ABC):
    """One embedding format: parses requests and answers, and writes them."""

    @abstractmethod
    def read_request(self, body: bytes, *, model: str | None = None) -> EmbeddingRequest:
        """Parse a client's request. Raises `InvalidInput` naming the invalid field."""

    @abstractmethod
    def write_request(self, request: EmbeddingRequest) -> bytes:
        """Encode a request for a provider, noting omissions. Raises `UntranslatableRequest`."""

    @abstractmethod
    def read_answer(self, body: bytes) -> EmbeddingAnswer:
        """Parse a provider's answer. Raises `BrokenModelStream` for malformed data."""

    @abstractmethod
    def write_answer(self, answer: EmbeddingAnswer, request: EmbeddingRequest) -> bytes:
        """Encode an answer for the client's request."""


class OpenAIEmbeddingFormat(EmbeddingFormat):
    """`POST /v1/embeddings`."""

    def read_request(self, body: bytes, *, model: str | None = None) -> EmbeddingRequest:
        fields = parse_request_body(body)
        encoding = fields.optional_text("encoding_format") or "float"
        if encoding not in ("float", "base64"):
            raise fields.error("should be float or base64", "encoding_format")
        return EmbeddingRequest(
            model=model or fields.text("model"),
            inputs=_read_inputs(fields),
            dimensions=fields.optional_integer("dimensions"),
            user=fields.optional_text("user"),
            as_base64=encoding == "base64",
        )

    def write_request(self, request: EmbeddingRequest) -> bytes:
        # Vectors in base64 take a third of the bytes, but not every compatible server supports them.
        values = {
            "model": request.model,
            "input": request.inputs,
            "encoding_format": "float",
            "dimensions": request.dimensions,
            "user": request.user,
        }
        for name, value in (("taskType", request.task), ("title", request.title)):
            if value is not None:
                add_translation_note(request.notes, f"{name}: OpenAI's embeddings have no such field")
        return encode_json({name: value for name, value in values.items() if value is not None})

    def read_answer(self, body: bytes) -> EmbeddingAnswer:
        fields = parse_answer_body(body)
        if "data" not in fields:
            failure = find_error_in_json(fields.value)
            raise BrokenModelStream(failure.message if failure is not None else "data is missing")
        items = list(fields.objects("data"))
        items.sort(key=lambda item: item.token_count("index"))
        usage = fields.optional_object("usage")
        return EmbeddingAnswer(
            model=fields.optional_text("model") or "",
            vectors=[_read_vector(item, "embedding") for item in items],
            input_tokens=usage.token_count("prompt_tokens") if usage is not None else None,
        )

    def write_answer(self, answer: EmbeddingAnswer, request: EmbeddingRequest) -> bytes:
        tokens = answer.input_tokens or 0
        data = [
            {"object": "embedding", "index": index, "embedding": _pack_vector(vector) if request.as_base64 else vector}
            for index, vector in enumerate(answer.vectors)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return encode_json({"object": "list", "data": data, "model": answer.model or request.model, "usage": usage})


class GeminiEmbeddingFormat(EmbeddingFormat):
    """`embedContent` and `batchEmbedContents`; requests are always written as `batchEmbedContents`."""

    def read_request(self, body: bytes, *, model: str | None = None) -> EmbeddingRequest:
        fields = JsonFields(camel_case_keys(parse_request_body(body).value))
        single = "requests" not in fields
        items = [fields] if single else list(fields.objects("requests"))
        if not items:
            raise fields.error("should have at least one request", "requests")
        first = items[0]
        named = model or first.optional_text("model")
        if named is None:
            raise first.error("is missing", "model")
        for other in items[1:]:
            for name in ("taskType", "outputDimensionality"):
                if other.get(name) != first.get(name):
                    raise UntranslatableRequest(f"{other.path_of(name)} should be the same in all requests")
        return EmbeddingRequest(
            model=named.removeprefix("models/"),
            inputs=[_content_text(each) for each in items],
            dimensions=first.optional_integer("outputDimensionality"),
            single=single,
            task=first.optional_text("taskType"),
            title=first.optional_text("title"),
        )

    def write_request(self, request: EmbeddingRequest) -> bytes:
        model = f"models/{request.model.removeprefix('models/')}"
        if request.user is not None:
            add_translation_note(request.notes, "user: Gemini's embeddings have no such field")
        items: list[dict[str, Any]] = []
        for text in request.inputs:
            if not isinstance(text, str):
                raise UntranslatableRequest(
                    "input is given as tokens, which only their provider can read; send it as text"
                )
            values = {
                "model": model,
                "content": {"parts": [{"text": text}]},
                "outputDimensionality": request.dimensions,
                "taskType": request.task,
                "title": request.title,
            }
            items.append({name: value for name, value in values.items() if value is not None})
        return encode_json({"requests": items})

    def read_answer(self, body: bytes) -> EmbeddingAnswer:
        fields = parse_answer_body(body)
        if "embedding" in fields:
            vectors = [_read_vector(fields.object("embedding"), "values")]
        elif "embeddings" in fields:
            vectors = [_read_vector(item, "values") for item in fields.objects("embeddings")]
        else:
            failure = find_error_in_json(fields.value)
            raise BrokenModelStream(failure.message if failure is not None else "embeddings are missing")
        usage = fields.optional_object("usageMetadata")
        return EmbeddingAnswer("", vectors, usage.token_count("promptTokenCount") if usage is not None else None)

    def write_answer(self, answer: EmbeddingAnswer, request: EmbeddingRequest) -> bytes:
        vectors = [{"values": vector} for vector in answer.vectors]
        written: dict[str, Any] = {"embedding": vectors[0]} if request.single and vectors else {"embeddings": vectors}
        if answer.input_tokens is not None:
            written["usageMetadata"] = {"promptTokenCount": answer.input_tokens}
        return encode_json(written)


EMBEDDING_FORMATS: dict[str, EmbeddingFormat] = {
    "openai-chat": OpenAIEmbeddingFormat(),
    "openai-responses": OpenAIEmbeddingFormat(),
    "gemini": GeminiEmbeddingFormat(),
}
"""Embedding formats by wire format name; Anthropic has none."""


def _read_inputs(fields: JsonFields) -> list[str | list[int]]:
    inputs = fields.required("input")
    if isinstance(inputs, str):
        return [inputs]
    if not isinstance(inputs, list) or not inputs:
        raise fields.error("should be a text or a list of texts", "input")
    if all(_is_token(each) for each in inputs):
        return [inputs]
    for index, each in enumerate(inputs):
        is_tokens = isinstance(each, list) and each and all(_is_token(token) for token in each)
        if not isinstance(each, str) and not is_tokens:
            raise fields.error("should be a text or a list of tokens", f"input[{index}]")
    return inputs


def _is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _content_text(item: JsonFields) -> str:
    if isinstance(item.required("content"), str):
        return item.text("content")
    texts: list[str] = []
    for part in item.object("content").objects("parts"):
        if "text" not in part:
            raise UntranslatableRequest(f"{part.path} is not text; only Gemini embeds other content")
        texts.append(part.text("text"))
    return "\n".join(texts)


def _read_vector(item: JsonFields, name: str) -> list[float]:
    value = item.required(name)
    if isinstance(value, str):
        try:
            data = base64.b64decode(value, validate=True)
            return list(struct.unpack(f"<{len(data) // 4}f", data))
        except (binascii.Error, ValueError, struct.error):
            raise item.error("is not base64 of numbers", name) from None
    if not isinstance(value, list) or not all(isinstance(number, int | float) for number in value):
        raise item.error("should be a list of numbers", name)
    return value


def _pack_vector(vector: list[float]) -> str:
    try:
        return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
    except (struct.error, OverflowError):
        raise BrokenModelStream("the provider's numbers are too large to pack") from None
