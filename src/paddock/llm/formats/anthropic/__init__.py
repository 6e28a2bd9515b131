"""Anthropic's Messages API."""

from __future__ import annotations

from paddock.llm.formats.anthropic.answer import read_answer, read_failure, write_answer, write_failure
from paddock.llm.formats.anthropic.read import read_request
from paddock.llm.formats.anthropic.stream import AnthropicReader, AnthropicWriter
from paddock.llm.formats.anthropic.write import write_request
from paddock.llm.formats.base import Format, StreamReader, StreamWriter
from paddock.llm.neutral import Answer, Failure, Request


class Anthropic(Format):
    """`POST /v1/messages`, and the requests of `/v1/messages/count_tokens`."""

    name = "anthropic"

    def read_request(self, body: bytes, *, model: str | None = None, stream: bool | None = None) -> Request:
        return read_request(body, model=model, stream=stream)

    def write_request(self, request: Request) -> bytes:
        return write_request(request)

    def read_answer(self, body: bytes) -> Answer:
        return read_answer(body)

    def write_answer(self, answer: Answer, request: Request | None = None) -> bytes:
        return write_answer(answer)

    def reader(self) -> StreamReader:
        return AnthropicReader()

    def writer(self, request: Request) -> StreamWriter:
        return AnthropicWriter()

    def read_failure(self, status: int, body: bytes) -> Failure:
        return read_failure(status, body)

    def write_failure(self, failure: Failure) -> bytes:
        return write_failure(failure)
