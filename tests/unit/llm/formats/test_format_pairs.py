"""Every client format with every provider format: the request is translated, and the answer back."""

from __future__ import annotations

import pytest

from paddock.llm.formats.answer_events import answer_from_stream_events, stream_events_from_answer
from paddock.llm.formats.anthropic import AnthropicFormat
from paddock.llm.formats.base import WireFormat
from paddock.llm.formats.gemini import GeminiFormat
from paddock.llm.formats.neutral import (
    FinishReason,
    MessagePart,
    MessageRole,
    ModelAnswer,
    ModelMessage,
    ModelRequest,
    ModelText,
    ModelThinking,
    ModelToolCall,
    ModelToolResult,
    TokenUsage,
    ToolDefinition,
)
from paddock.llm.formats.openai_chat import OpenAIChatFormat
from paddock.llm.formats.openai_responses import OpenAIResponsesFormat

FORMATS: list[WireFormat] = [OpenAIChatFormat(), OpenAIResponsesFormat(), AnthropicFormat(), GeminiFormat()]
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def conversation(stream: bool) -> ModelRequest:
    return ModelRequest(
        model="some-model",
        stream=stream,
        max_tokens=512,
        tools=[ToolDefinition("read_file", "Reads a file.", SCHEMA)],
        messages=[
            ModelMessage(MessageRole.SYSTEM, [ModelText("Be brief.")]),
            ModelMessage(MessageRole.USER, [ModelText("What is in a.txt?")]),
            ModelMessage(
                MessageRole.ASSISTANT,
                [ModelText("I will look."), ModelToolCall("call_1", "read_file", '{"path":"a.txt"}')],
            ),
            ModelMessage(MessageRole.USER, [ModelToolResult("call_1", [ModelText("hello")], name="read_file")]),
        ],
    )


def request_for(of: WireFormat, stream: bool) -> ModelRequest:
    """Return the conversation as parsed from a request in a format."""
    return of.read_request(of.write_request(conversation(stream)), model="some-model", stream=stream)


def answer() -> ModelAnswer:
    parts: list[MessagePart] = [
        ModelThinking("it says hello", signature="seal"),
        ModelText("The file says hello."),
        ModelToolCall("call_2", "read_file", '{"path":"b.txt"}'),
    ]
    return ModelAnswer("id_1", "some-model", parts, FinishReason.TOOLS, usage=TokenUsage(input=20, output=9))


def texts_of(request: ModelRequest) -> list[tuple[str, str]]:
    """Return the content of a conversation, independent of its message structure."""
    found: list[tuple[str, str]] = []
    for message in request.messages:
        for part in message.parts:
            match part:
                case ModelText():
                    found.append((message.role, part.text))
                case ModelToolCall():
                    found.append(("call", f"{part.name} {part.arguments.replace(' ', '')}"))
                case ModelToolResult():
                    found += [("result", piece.text) for piece in part.content if isinstance(piece, ModelText)]
    return found


@pytest.mark.parametrize("client", FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize("provider", FORMATS, ids=lambda f: f.name)
def test_a_conversation_reaches_the_provider_unchanged(client: WireFormat, provider: WireFormat) -> None:
    sent = request_for(client, True)
    arrived = provider.read_request(provider.write_request(sent), model="some-model", stream=True)
    assert texts_of(arrived) == texts_of(conversation(True))
    assert [tool.name for tool in arrived.tools] == ["read_file"]
    assert (arrived.model, arrived.max_tokens) == ("some-model", 512)


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize("provider", FORMATS, ids=lambda f: f.name)
def test_an_answer_reaches_the_client_unchanged(client: WireFormat, provider: WireFormat, whole: bool) -> None:
    received: ModelAnswer | None
    if whole:
        given = provider.read_answer(provider.write_answer(answer(), request_for(provider, False)))
        received = client.read_answer(client.write_answer(given, request_for(client, False)))
    else:
        upstream, downstream = (
            provider.new_stream_writer(request_for(provider, True)),
            client.new_stream_writer(request_for(client, True)),
        )
        reader, back = provider.new_stream_reader(), client.new_stream_reader()
        events = (
            reader.feed(b"".join(upstream.write(event) for event in stream_events_from_answer(answer())))
            + reader.close()
        )
        client_events = back.feed(b"".join(downstream.write(event) for event in events)) + back.close()
        received = answer_from_stream_events(client_events)
    assert received is not None
    texts = [part.text for part in received.parts if isinstance(part, ModelText) and part.text]
    calls = [(part.name, part.arguments.replace(" ", "")) for part in received.parts if isinstance(part, ModelToolCall)]
    assert texts == ["The file says hello."]
    assert calls == [("read_file", '{"path":"b.txt"}')]
    assert received.finish is FinishReason.TOOLS
    assert received.usage is not None
    assert (received.usage.input, received.usage.output) == (20, 9)
