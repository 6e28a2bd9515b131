"""Anthropic's Messages API."""

from __future__ import annotations

from paddock.llm.formats.anthropic.answer import read_answer, write_answer, write_failure
from paddock.llm.formats.anthropic.read import read_request
from paddock.llm.formats.anthropic.stream_reader import AnthropicReader
from paddock.llm.formats.anthropic.stream_writer import AnthropicWriter
from paddock.llm.formats.anthropic.write import write_count_request, write_request
from paddock.llm.formats.base import Format, StreamReader, StreamWriter
from paddock.llm.formats.fields import answer_fields, to_bytes
from paddock.llm.formats.names import client_names, with_client_names
from paddock.llm.neutral import Answer, Failure, Request


class Anthropic(Format):
    """`POST /v1/messages`, and the requests of `/v1/messages/count_tokens`."""

    name = "anthropic"

    def read_request(self, body: bytes, *, model: str | None = None, stream: bool | None = None) -> Request:
        return read_request(body, model=model, stream=stream)

    def write_request(self, request: Request) -> bytes:
        return to_bytes(write_request(request))

    def read_answer(self, body: bytes) -> Answer:
        return read_answer(body)

    def write_answer(self, answer: Answer, request: Request | None = None) -> bytes:
        return write_answer(with_client_names(answer, request))

    def reader(self) -> StreamReader:
        return AnthropicReader()

    def writer(self, request: Request) -> StreamWriter:
        return AnthropicWriter(client_names(request))

    def write_failure(self, failure: Failure) -> bytes:
        return write_failure(failure)

    def write_count_request(self, request: Request) -> bytes:
        return to_bytes(write_count_request(request))

    def read_count(self, body: bytes) -> int:
        return answer_fields(body).integer("input_tokens")

    def write_count(self, tokens: int) -> bytes:
        return to_bytes({"input_tokens": tokens})
