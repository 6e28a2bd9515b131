"""Wire format of OpenAI's Chat Completions API and of compatible servers."""

from __future__ import annotations

from paddock.llm.formats import openai_shared as shared
from paddock.llm.formats.base import WireFormat
from paddock.llm.formats.json_fields import encode_json
from paddock.llm.formats.neutral import ModelAnswer, ModelFailure, ModelRequest
from paddock.llm.formats.openai_chat.answer import read_chat_answer, write_chat_answer
from paddock.llm.formats.openai_chat.request_reader import CHAT_FORMAT_NAME, read_chat_request
from paddock.llm.formats.openai_chat.request_writer import write_chat_request
from paddock.llm.formats.openai_chat.stream_reader import ChatStreamReader
from paddock.llm.formats.openai_chat.stream_writer import ChatStreamWriter
from paddock.llm.formats.tool_names import map_to_client_tool_names, restore_client_tool_names


class OpenAIChatFormat(WireFormat):
    name = CHAT_FORMAT_NAME

    def read_request(self, body: bytes, *, model: str | None = None, stream: bool | None = None) -> ModelRequest:
        return read_chat_request(body, model=model, stream=stream)

    def write_request(self, request: ModelRequest) -> bytes:
        return encode_json(write_chat_request(request))

    def read_answer(self, body: bytes) -> ModelAnswer:
        return read_chat_answer(body)

    def write_answer(self, answer: ModelAnswer, request: ModelRequest | None = None) -> bytes:
        return encode_json(write_chat_answer(restore_client_tool_names(answer, request)))

    def new_stream_reader(self) -> ChatStreamReader:
        return ChatStreamReader()

    def new_stream_writer(self, request: ModelRequest) -> ChatStreamWriter:
        include_usage = bool(request.extra.get(CHAT_FORMAT_NAME, {}).get("include_usage"))
        return ChatStreamWriter(include_usage=include_usage, names=map_to_client_tool_names(request))

    def write_failure(self, failure: ModelFailure) -> bytes:
        return encode_json({"error": shared.openai_error_object(failure)})
