"""Wire format of OpenAI's Responses API."""

from __future__ import annotations

from paddock.llm.formats import openai_shared as shared
from paddock.llm.formats.base import WireFormat
from paddock.llm.formats.json_fields import encode_json
from paddock.llm.formats.neutral import ModelAnswer, ModelFailure, ModelRequest
from paddock.llm.formats.openai_responses.answer import read_responses_answer
from paddock.llm.formats.openai_responses.request_reader import read_responses_request
from paddock.llm.formats.openai_responses.request_writer import write_responses_request
from paddock.llm.formats.openai_responses.stream_reader import ResponsesStreamReader
from paddock.llm.formats.openai_responses.stream_writer import ResponsesStreamWriter, write_responses_answer
from paddock.llm.formats.openai_responses.tool_conversion import RESPONSES_FORMAT_NAME


class OpenAIResponsesFormat(WireFormat):
    name = RESPONSES_FORMAT_NAME

    def read_request(self, body: bytes, *, model: str | None = None, stream: bool | None = None) -> ModelRequest:
        return read_responses_request(body, model=model, stream=stream)

    def write_request(self, request: ModelRequest) -> bytes:
        return encode_json(write_responses_request(request))

    def read_answer(self, body: bytes) -> ModelAnswer:
        return read_responses_answer(body)

    def write_answer(self, answer: ModelAnswer, request: ModelRequest | None = None) -> bytes:
        """Encode a complete answer; with the request, calls use the client's namespaced and custom tools."""
        return encode_json(write_responses_answer(answer, request))

    def new_stream_reader(self) -> ResponsesStreamReader:
        return ResponsesStreamReader()

    def new_stream_writer(self, request: ModelRequest) -> ResponsesStreamWriter:
        return ResponsesStreamWriter(request)

    def write_failure(self, failure: ModelFailure) -> bytes:
        return encode_json({"error": shared.openai_error_object(failure)})
