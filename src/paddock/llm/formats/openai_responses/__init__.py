"""OpenAI's Responses API, which codex speaks."""

from __future__ import annotations

from paddock.llm.formats import openai_shared as shared
from paddock.llm.formats.base import Format
from paddock.llm.formats.fields import to_bytes
from paddock.llm.formats.openai_responses.answer import read_answer
from paddock.llm.formats.openai_responses.read_request import read_request
from paddock.llm.formats.openai_responses.stream_reader import ResponsesReader
from paddock.llm.formats.openai_responses.stream_writer import ResponsesWriter, write_answer
from paddock.llm.formats.openai_responses.tools import NAME
from paddock.llm.formats.openai_responses.write_request import write_request
from paddock.llm.neutral import Answer, Failure, Request


class OpenAIResponses(Format):
    name = NAME

    def read_request(self, body: bytes, *, model: str | None = None, stream: bool | None = None) -> Request:
        return read_request(body, model=model, stream=stream)

    def write_request(self, request: Request) -> bytes:
        return to_bytes(write_request(request))

    def read_answer(self, body: bytes) -> Answer:
        return read_answer(body)

    def write_answer(self, answer: Answer, request: Request | None = None) -> bytes:
        """With the request, calls of its namespaced and custom tools are told in the client's own words."""
        return to_bytes(write_answer(answer, request))

    def reader(self) -> ResponsesReader:
        return ResponsesReader()

    def writer(self, request: Request) -> ResponsesWriter:
        return ResponsesWriter(request)

    def write_failure(self, failure: Failure) -> bytes:
        return to_bytes({"error": shared.error_object(failure)})
