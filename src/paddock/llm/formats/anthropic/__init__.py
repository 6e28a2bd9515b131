"""Wire format of Anthropic's Messages API."""

from __future__ import annotations

from paddock.llm.formats.anthropic.answer import read_anthropic_answer, write_anthropic_answer, write_anthropic_failure
from paddock.llm.formats.anthropic.request_reader import read_anthropic_request
from paddock.llm.formats.anthropic.request_writer import write_anthropic_request, write_anthropic_token_count_request
from paddock.llm.formats.anthropic.stream_reader import AnthropicStreamReader
from paddock.llm.formats.anthropic.stream_writer import AnthropicStreamWriter
from paddock.llm.formats.base import ModelStreamReader, ModelStreamWriter, WireFormat
from paddock.llm.formats.json_fields import encode_json, parse_answer_body
from paddock.llm.formats.neutral import ModelAnswer, ModelFailure, ModelRequest
from paddock.llm.formats.tool_names import map_to_client_tool_names, restore_client_tool_names


class AnthropicFormat(WireFormat):
    """Anthropic's format: `POST /v1/messages` and `/v1/messages/count_tokens`."""

    name = "anthropic"

    def read_request(self, body: bytes, *, model: str | None = None, stream: bool | None = None) -> ModelRequest:
        return read_anthropic_request(body, model=model, stream=stream)

    def write_request(self, request: ModelRequest) -> bytes:
        return encode_json(write_anthropic_request(request))

    def read_answer(self, body: bytes) -> ModelAnswer:
        return read_anthropic_answer(body)

    def write_answer(self, answer: ModelAnswer, request: ModelRequest | None = None) -> bytes:
        return write_anthropic_answer(restore_client_tool_names(answer, request))

    def new_stream_reader(self) -> ModelStreamReader:
        return AnthropicStreamReader()

    def new_stream_writer(self, request: ModelRequest) -> ModelStreamWriter:
        return AnthropicStreamWriter(map_to_client_tool_names(request))

    def write_failure(self, failure: ModelFailure) -> bytes:
        return write_anthropic_failure(failure)

    def write_token_count_request(self, request: ModelRequest) -> bytes:
        return encode_json(write_anthropic_token_count_request(request))

    def read_token_count(self, body: bytes) -> int:
        return parse_answer_body(body).integer("input_tokens")

    def write_token_count(self, tokens: int) -> bytes:
        return encode_json({"input_tokens": tokens})
