"""Wire format of Google's Gemini API."""

from __future__ import annotations

from paddock.llm.formats.base import ModelStreamReader, ModelStreamWriter, WireFormat
from paddock.llm.formats.gemini.answer import read_gemini_answer, write_gemini_answer, write_gemini_failure
from paddock.llm.formats.gemini.request_reader import read_gemini_request
from paddock.llm.formats.gemini.request_writer import write_gemini_request, write_gemini_token_count_request
from paddock.llm.formats.gemini.stream_reader import GeminiStreamReader
from paddock.llm.formats.gemini.stream_writer import GeminiStreamWriter
from paddock.llm.formats.json_fields import encode_json, parse_answer_body
from paddock.llm.formats.neutral import ModelAnswer, ModelFailure, ModelRequest
from paddock.llm.formats.tool_names import map_to_client_tool_names, restore_client_tool_names


class GeminiFormat(WireFormat):
    """Gemini's format: `generateContent`, `streamGenerateContent` and `countTokens`.

    A client that streams without `alt=sse` expects a JSON array: its route sets `request.extra["gemini_array"]`.
    """

    name = "gemini"

    def read_request(self, body: bytes, *, model: str | None = None, stream: bool | None = None) -> ModelRequest:
        return read_gemini_request(body, model=model, stream=stream)

    def write_request(self, request: ModelRequest) -> bytes:
        return encode_json(write_gemini_request(request))

    def read_answer(self, body: bytes) -> ModelAnswer:
        return read_gemini_answer(body)

    def write_answer(self, answer: ModelAnswer, request: ModelRequest | None = None) -> bytes:
        return write_gemini_answer(restore_client_tool_names(answer, request))

    def new_stream_reader(self) -> ModelStreamReader:
        return GeminiStreamReader()

    def new_stream_writer(self, request: ModelRequest) -> ModelStreamWriter:
        return GeminiStreamWriter(
            as_array=bool(request.extra.get("gemini_array")), names=map_to_client_tool_names(request)
        )

    def write_failure(self, failure: ModelFailure) -> bytes:
        return write_gemini_failure(failure)

    def write_token_count_request(self, request: ModelRequest) -> bytes:
        return encode_json(write_gemini_token_count_request(request))

    def read_token_count(self, body: bytes) -> int:
        return parse_answer_body(body).integer("totalTokens")

    def write_token_count(self, tokens: int) -> bytes:
        return encode_json({"totalTokens": tokens})
