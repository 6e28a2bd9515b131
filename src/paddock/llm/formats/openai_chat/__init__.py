"""OpenAI's Chat Completions, as OpenAI and the many that resemble it speak it."""

from __future__ import annotations

from paddock.llm.formats import openai_shared as shared
from paddock.llm.formats.base import Format
from paddock.llm.formats.fields import to_bytes
from paddock.llm.formats.names import client_names, with_client_names
from paddock.llm.formats.openai_chat.answer import read_answer, write_answer
from paddock.llm.formats.openai_chat.read_request import NAME, read_request
from paddock.llm.formats.openai_chat.stream_reader import ChatReader
from paddock.llm.formats.openai_chat.stream_writer import ChatWriter
from paddock.llm.formats.openai_chat.write_request import write_request
from paddock.llm.neutral import Answer, Failure, Request


class OpenAIChat(Format):
    name = NAME

    def read_request(self, body: bytes, *, model: str | None = None, stream: bool | None = None) -> Request:
        return read_request(body, model=model, stream=stream)

    def write_request(self, request: Request) -> bytes:
        return to_bytes(write_request(request))

    def read_answer(self, body: bytes) -> Answer:
        return read_answer(body)

    def write_answer(self, answer: Answer, request: Request | None = None) -> bytes:
        return to_bytes(write_answer(with_client_names(answer, request)))

    def reader(self) -> ChatReader:
        return ChatReader()

    def writer(self, request: Request) -> ChatWriter:
        include_usage = bool(request.extra.get(NAME, {}).get("include_usage"))
        return ChatWriter(include_usage=include_usage, names=client_names(request))

    def write_failure(self, failure: Failure) -> bytes:
        return to_bytes({"error": shared.error_object(failure)})
