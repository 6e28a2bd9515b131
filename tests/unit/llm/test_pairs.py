"""Every client format with every provider format: a conversation there, an answer back."""

from __future__ import annotations

import pytest

from paddock.llm.collect import answer_events, collect
from paddock.llm.formats.anthropic import Anthropic
from paddock.llm.formats.base import Format
from paddock.llm.formats.gemini import Gemini
from paddock.llm.formats.openai_chat import OpenAIChat
from paddock.llm.formats.openai_responses import OpenAIResponses
from paddock.llm.neutral import (
    Answer,
    Finish,
    Message,
    Part,
    Request,
    Role,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
)

FORMATS: list[Format] = [OpenAIChat(), OpenAIResponses(), Anthropic(), Gemini()]
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def conversation(stream: bool) -> Request:
    return Request(
        model="some-model",
        stream=stream,
        max_tokens=512,
        tools=[Tool("read_file", "Reads a file.", SCHEMA)],
        messages=[
            Message(Role.SYSTEM, [Text("Be brief.")]),
            Message(Role.USER, [Text("What is in a.txt?")]),
            Message(Role.ASSISTANT, [Text("I will look."), ToolCall("call_1", "read_file", '{"path":"a.txt"}')]),
            Message(Role.USER, [ToolResult("call_1", [Text("hello")], name="read_file")]),
        ],
    )


def asked(of: Format, stream: bool) -> Request:
    """The conversation as it arrives in a format, with all that a request of that format asks for."""
    return of.read_request(of.write_request(conversation(stream)), model="some-model", stream=stream)


def answer() -> Answer:
    parts: list[Part] = [
        Thinking("it says hello", signature="seal"),
        Text("The file says hello."),
        ToolCall("call_2", "read_file", '{"path":"b.txt"}'),
    ]
    return Answer("id_1", "some-model", parts, Finish.TOOLS, usage=Usage(input=20, output=9))


def said(request: Request) -> list[tuple[str, str]]:
    """What a conversation says, whatever shape it has."""
    found: list[tuple[str, str]] = []
    for message in request.messages:
        for part in message.parts:
            match part:
                case Text():
                    found.append((message.role, part.text))
                case ToolCall():
                    found.append(("call", f"{part.name} {part.arguments.replace(' ', '')}"))
                case ToolResult():
                    found += [("result", piece.text) for piece in part.content if isinstance(piece, Text)]
    return found


@pytest.mark.parametrize("client", FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize("provider", FORMATS, ids=lambda f: f.name)
def test_a_conversation_reaches_the_provider_as_it_was_said(client: Format, provider: Format) -> None:
    sent = asked(client, True)
    arrived = provider.read_request(provider.write_request(sent), model="some-model", stream=True)
    assert said(arrived) == said(conversation(True))
    assert [tool.name for tool in arrived.tools] == ["read_file"]
    assert (arrived.model, arrived.max_tokens) == ("some-model", 512)


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize("provider", FORMATS, ids=lambda f: f.name)
def test_an_answer_reaches_the_client_as_it_was_given(client: Format, provider: Format, whole: bool) -> None:
    received: Answer | None
    if whole:
        given = provider.read_answer(provider.write_answer(answer(), asked(provider, False)))
        received = client.read_answer(client.write_answer(given, asked(client, False)))
    else:
        upstream, downstream = provider.writer(asked(provider, True)), client.writer(asked(client, True))
        reader, back = provider.reader(), client.reader()
        events = reader.feed(b"".join(upstream.write(event) for event in answer_events(answer()))) + reader.close()
        told = back.feed(b"".join(downstream.write(event) for event in events)) + back.close()
        received = collect(told)
    assert received is not None
    texts = [part.text for part in received.parts if isinstance(part, Text) and part.text]
    calls = [(part.name, part.arguments.replace(" ", "")) for part in received.parts if isinstance(part, ToolCall)]
    assert texts == ["The file says hello."]
    assert calls == [("read_file", '{"path":"b.txt"}')]
    assert received.finish is Finish.TOOLS
    assert received.usage is not None
    assert (received.usage.input, received.usage.output) == (20, 9)
