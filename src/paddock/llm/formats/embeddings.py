"""Embeddings: what a text is near to, as numbers. OpenAI's and Gemini's ways to ask for them."""

from __future__ import annotations

import base64
import binascii
import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from paddock.llm.formats.base import BrokenStream, Untranslatable
from paddock.llm.formats.failures import told_failure
from paddock.llm.formats.fields import Fields, answer_fields, request_fields, to_bytes
from paddock.llm.formats.gemini.parts import camel
from paddock.llm.formats.notes import note


@dataclass(slots=True)
class EmbedRequest:
    model: str
    inputs: list[str | list[int]]
    """Texts, or texts that the client has cut into tokens itself."""
    dimensions: int | None = None
    user: str | None = None
    as_base64: bool = False
    """Whether the client wants the numbers packed, as OpenAI's own do."""
    single: bool = False
    """Whether the client asked for one and wants no list (Gemini's `embedContent`)."""
    task: str | None = None
    """What it is for, in Gemini's words: `RETRIEVAL_QUERY`, …"""
    title: str | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class EmbedAnswer:
    model: str
    vectors: list[list[float]]
    """One for each input, in its order."""
    input_tokens: int | None = None


class EmbedFormat(ABC):
    """One way to ask for embeddings, both ways."""

    @abstractmethod
    def read_request(self, body: bytes, *, model: str | None = None) -> EmbedRequest:
        """Read a client's request. Raises `InvalidInput` naming the field that is wrong."""

    @abstractmethod
    def write_request(self, request: EmbedRequest) -> bytes:
        """Say a request to a provider. Raises `Untranslatable`; adds to `request.notes` what it leaves out."""

    @abstractmethod
    def read_answer(self, body: bytes) -> EmbedAnswer:
        """Read a provider's answer. Raises `BrokenStream` for nonsense."""

    @abstractmethod
    def write_answer(self, answer: EmbedAnswer, request: EmbedRequest) -> bytes:
        """Say an answer to the client that made this request."""


class OpenAIEmbeddings(EmbedFormat):
    """`POST /v1/embeddings`."""

    def read_request(self, body: bytes, *, model: str | None = None) -> EmbedRequest:
        fields = request_fields(body)
        encoding = fields.text_or("encoding_format") or "float"
        if encoding not in ("float", "base64"):
            raise fields.error("should be float or base64", "encoding_format")
        return EmbedRequest(
            model=model or fields.text("model"),
            inputs=_inputs(fields),
            dimensions=fields.integer_or("dimensions"),
            user=fields.text_or("user"),
            as_base64=encoding == "base64",
        )

    def write_request(self, request: EmbedRequest) -> bytes:
        # Numbers in base64 are a third of the bytes, but not every compatible server has them.
        values = {
            "model": request.model,
            "input": request.inputs,
            "encoding_format": "float",
            "dimensions": request.dimensions,
            "user": request.user,
        }
        for name, value in (("taskType", request.task), ("title", request.title)):
            if value is not None:
                note(request.notes, f"{name}: OpenAI's embeddings have no word for it")
        return to_bytes({name: value for name, value in values.items() if value is not None})

    def read_answer(self, body: bytes) -> EmbedAnswer:
        fields = answer_fields(body)
        if "data" not in fields:
            failure = told_failure(fields.value)
            raise BrokenStream(failure.message if failure is not None else "data is missing")
        items = list(fields.objects("data"))
        items.sort(key=lambda item: item.count("index"))
        usage = fields.object_or("usage")
        return EmbedAnswer(
            model=fields.text_or("model") or "",
            vectors=[_vector(item, "embedding") for item in items],
            input_tokens=usage.count("prompt_tokens") if usage is not None else None,
        )

    def write_answer(self, answer: EmbedAnswer, request: EmbedRequest) -> bytes:
        tokens = answer.input_tokens or 0
        data = [
            {"object": "embedding", "index": index, "embedding": _packed(vector) if request.as_base64 else vector}
            for index, vector in enumerate(answer.vectors)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return to_bytes({"object": "list", "data": data, "model": answer.model or request.model, "usage": usage})


class GeminiEmbeddings(EmbedFormat):
    """`embedContent` and `batchEmbedContents`; requests are always written for the latter."""

    def read_request(self, body: bytes, *, model: str | None = None) -> EmbedRequest:
        fields = Fields(camel(request_fields(body).value))
        single = "requests" not in fields
        asked = [fields] if single else list(fields.objects("requests"))
        if not asked:
            raise fields.error("should have at least one request", "requests")
        first = asked[0]
        named = model or first.text_or("model")
        if named is None:
            raise first.error("is missing", "model")
        for other in asked[1:]:
            for name in ("taskType", "outputDimensionality"):
                if other.get(name) != first.get(name):
                    raise Untranslatable(f"{other.at(name)} should be the same in all requests")
        return EmbedRequest(
            model=named.removeprefix("models/"),
            inputs=[_content_text(each) for each in asked],
            dimensions=first.integer_or("outputDimensionality"),
            single=single,
            task=first.text_or("taskType"),
            title=first.text_or("title"),
        )

    def write_request(self, request: EmbedRequest) -> bytes:
        model = f"models/{request.model.removeprefix('models/')}"
        if request.user is not None:
            note(request.notes, "user: Gemini's embeddings have no word for it")
        asked: list[dict[str, Any]] = []
        for text in request.inputs:
            if not isinstance(text, str):
                raise Untranslatable("input is in tokens, which only their maker can read; send it as text")
            values = {
                "model": model,
                "content": {"parts": [{"text": text}]},
                "outputDimensionality": request.dimensions,
                "taskType": request.task,
                "title": request.title,
            }
            asked.append({name: value for name, value in values.items() if value is not None})
        return to_bytes({"requests": asked})

    def read_answer(self, body: bytes) -> EmbedAnswer:
        fields = answer_fields(body)
        if "embedding" in fields:
            vectors = [_vector(fields.object("embedding"), "values")]
        elif "embeddings" in fields:
            vectors = [_vector(item, "values") for item in fields.objects("embeddings")]
        else:
            failure = told_failure(fields.value)
            raise BrokenStream(failure.message if failure is not None else "embeddings are missing")
        usage = fields.object_or("usageMetadata")
        return EmbedAnswer("", vectors, usage.count("promptTokenCount") if usage is not None else None)

    def write_answer(self, answer: EmbedAnswer, request: EmbedRequest) -> bytes:
        vectors = [{"values": vector} for vector in answer.vectors]
        written: dict[str, Any] = {"embedding": vectors[0]} if request.single and vectors else {"embeddings": vectors}
        if answer.input_tokens is not None:
            written["usageMetadata"] = {"promptTokenCount": answer.input_tokens}
        return to_bytes(written)


EMBED_FORMATS: dict[str, EmbedFormat] = {
    "openai-chat": OpenAIEmbeddings(),
    "openai-responses": OpenAIEmbeddings(),
    "gemini": GeminiEmbeddings(),
}
"""By the name of the format that a client or provider otherwise speaks; Anthropic has none."""


def _inputs(fields: Fields) -> list[str | list[int]]:
    given = fields.need("input")
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list) or not given:
        raise fields.error("should be a text or a list of texts", "input")
    if all(_is_token(each) for each in given):
        return [given]
    for index, each in enumerate(given):
        is_tokens = isinstance(each, list) and each and all(_is_token(token) for token in each)
        if not isinstance(each, str) and not is_tokens:
            raise fields.error("should be a text or a list of tokens", f"input[{index}]")
    return given


def _is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _content_text(asked: Fields) -> str:
    if isinstance(asked.need("content"), str):
        return asked.text("content")
    texts: list[str] = []
    for part in asked.object("content").objects("parts"):
        if "text" not in part:
            raise Untranslatable(f"{part.path} is no text, and only Gemini embeds anything else")
        texts.append(part.text("text"))
    return "\n".join(texts)


def _vector(item: Fields, name: str) -> list[float]:
    value = item.need(name)
    if isinstance(value, str):
        try:
            data = base64.b64decode(value, validate=True)
            return list(struct.unpack(f"<{len(data) // 4}f", data))
        except (binascii.Error, ValueError, struct.error):
            raise item.error("is not base64 of numbers", name) from None
    if not isinstance(value, list) or not all(isinstance(number, int | float) for number in value):
        raise item.error("should be a list of numbers", name)
    return value


def _packed(vector: list[float]) -> str:
    try:
        return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
    except (struct.error, OverflowError):
        raise BrokenStream("the provider's numbers are too large to pack") from None
