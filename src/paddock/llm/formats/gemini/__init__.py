"""Google's Gemini API."""

from __future__ import annotations

from paddock.llm.formats.base import Format, StreamReader, StreamWriter
from paddock.llm.formats.gemini.answer import read_answer, read_failure, write_answer, write_failure
from paddock.llm.formats.gemini.read import read_request
from paddock.llm.formats.gemini.stream import GeminiReader, GeminiWriter
from paddock.llm.formats.gemini.write import write_request
from paddock.llm.neutral import Answer, Failure, Request


class Gemini(Format):
    """`generateContent` and `streamGenerateContent`.

    A client that streams without `alt=sse` wants a JSON array: its route sets `request.extra["gemini_array"]`.
    """

    name = "gemini"

    def read_request(self, body: bytes, *, model: str | None = None, stream: bool | None = None) -> Request:
        return read_request(body, model=model, stream=stream)

    def write_request(self, request: Request) -> bytes:
        return write_request(request)

    def read_answer(self, body: bytes) -> Answer:
        return read_answer(body)

    def write_answer(self, answer: Answer, request: Request | None = None) -> bytes:
        return write_answer(answer)

    def reader(self) -> StreamReader:
        return GeminiReader()

    def writer(self, request: Request) -> StreamWriter:
        return GeminiWriter(as_array=bool(request.extra.get("gemini_array")))

    def read_failure(self, status: int, body: bytes) -> Failure:
        return read_failure(status, body)

    def write_failure(self, failure: Failure) -> bytes:
        return write_failure(failure)
