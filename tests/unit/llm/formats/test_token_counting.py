from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.llm.formats.answer_events import stream_events_from_answer
from paddock.llm.formats.neutral import (
    AnswerStreamFinished,
    FinishReason,
    MessagePart,
    MessageRole,
    ModelAnswer,
    ModelMessage,
    ModelRequest,
    ModelText,
    ModelThinking,
    ModelToolCall,
    TokenUsage,
)
from paddock.llm.formats.registry import FORMATS
from paddock.llm.formats.token_counting import (
    MEDIA_TOKENS,
    count_answer_tokens,
    estimate_answer_tokens,
    estimate_request_tokens,
    estimate_text_tokens,
)

USAGE = TokenUsage(input=1000, output=70, cache_read=600, cache_write=100, reasoning=20)
TEXT_WITH_USAGE = 'It says {"usage": {"prompt_tokens": 9}} and "usageMetadata": {"promptTokenCount": 9}.\n\n'


def an_answer(usage: TokenUsage | None = USAGE) -> ModelAnswer:
    parts: list[MessagePart] = [
        ModelThinking("Hm."),
        ModelText(TEXT_WITH_USAGE),
        ModelToolCall("c1", "f", '{"usage": {"input_tokens": 1}}'),
    ]
    return ModelAnswer("id", "m", parts, FinishReason.TOOLS, usage=usage)


def stream_of(format: str, answer: ModelAnswer) -> bytes:
    fields = {"model": "m", "messages": [], "stream": True, "stream_options": {"include_usage": True}}
    request = FORMATS["openai-chat"].read_request(json.dumps(fields).encode())
    writer = FORMATS[format].new_stream_writer(request)
    return b"".join(writer.write(event) for event in stream_events_from_answer(answer))


def count_tuple(usage: TokenUsage | None) -> tuple[int, ...] | None:
    """Return the usage fields that every format has."""
    return (usage.input, usage.output, usage.cache_read) if usage is not None else None


def sse(*events: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


@pytest.mark.parametrize("format", FORMATS)
def test_usage_of_a_complete_answer(format: str) -> None:
    body = FORMATS[format].write_answer(an_answer())
    assert count_tuple(count_answer_tokens(format, False, body)) == (1000, 70, 600)
    assert count_answer_tokens(format, False, body) == FORMATS[format].read_answer(body).usage
    assert count_answer_tokens(format, False, FORMATS[format].write_answer(an_answer(None))) is None


@pytest.mark.parametrize("format", FORMATS)
def test_usage_of_a_stream(format: str) -> None:
    data = stream_of(format, an_answer())
    for body in (data, [data[:100], data[100:101], data[101:]], data.replace(b"\n", b"\r\n"), data.rstrip(b"\n")):
        assert count_tuple(count_answer_tokens(format, True, body)) == (1000, 70, 600)
    reader = FORMATS[format].new_stream_reader()
    last = [*reader.feed(data), *reader.close()][-1]
    assert isinstance(last, AnswerStreamFinished)
    assert count_tuple(count_answer_tokens(format, True, data)) == count_tuple(last.usage)
    assert count_answer_tokens(format, True, stream_of(format, an_answer(None))) is None


def test_every_usage_field_is_read() -> None:
    details = {"cached_tokens": 600, "cache_write_tokens": 100}
    chat = {"prompt_tokens": 1000, "prompt_tokens_details": details, "completion_tokens": 70}
    chat["completion_tokens_details"] = {"reasoning_tokens": 20}
    assert count_answer_tokens("openai-chat", True, sse({"usage": chat})) == USAGE
    responses = json.loads(json.dumps(chat).replace("prompt", "input").replace("completion", "output"))
    assert count_answer_tokens("openai-responses", True, sse({"response": {"usage": responses}})) == USAGE
    gemini = {"promptTokenCount": 1000, "cachedContentTokenCount": 600, "candidatesTokenCount": 50}
    assert count_answer_tokens(
        "gemini", True, sse({"usageMetadata": gemini | {"thoughtsTokenCount": 20}})
    ) == TokenUsage(1000, 70, 600, 0, 20)


def test_usage_of_truncated_gemini_array() -> None:
    events = [json.loads(line[6:]) for line in stream_of("gemini", an_answer()).splitlines() if line]
    data, pretty = json.dumps(events).encode(), json.dumps(events, indent=2).encode()
    for body in (data, pretty, pretty.rstrip(b"]\n "), b"\n" + pretty):
        assert count_tuple(count_answer_tokens("gemini", True, body)) == (1000, 70, 600)
    assert count_answer_tokens("gemini", True, json.dumps(events[-1]).encode()) == count_answer_tokens(
        "gemini", True, data
    )
    assert count_answer_tokens("gemini", True, pretty[: pretty.index(b"usageMetadata")]) is None


def test_last_usage_of_a_stream_counts() -> None:
    chunks = [{"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": n}} for n in (1, 2, 3)]
    assert count_answer_tokens("openai-chat", True, sse(*chunks, {"choices": [], "usage": None})) == TokenUsage(5, 3)
    metadata = [{"usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": n}} for n in (1, 2)]
    assert count_answer_tokens("gemini", True, sse(*metadata)) == TokenUsage(5, 2)


def test_anthropic_usage_is_merged_from_start_and_end() -> None:
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 10, "cache_read_input_tokens": 90}}}
    end = {"type": "message_delta", "usage": {"input_tokens": 0, "output_tokens": 7}}
    assert count_answer_tokens("anthropic", True, sse(start, end)) == TokenUsage(100, 7, cache_read=90)
    details = {"type": "message_delta", "usage": {"output_tokens": 7, "output_tokens_details": {"thinking_tokens": 3}}}
    assert count_tuple(count_answer_tokens("anthropic", True, sse(start, details))) == (100, 7, 90)


def test_an_incomplete_anthropic_stream_is_estimated() -> None:
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 10, "output_tokens": 1}}}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "four" * 100}}
    assert count_answer_tokens("anthropic", True, sse(start, delta, delta)) == TokenUsage(10, 200)


JUNK: list[Any] = [None, {}, {"thinking_tokens": 3}, {"thinking_tokens": None}, [], "x", -1, 1.5, True, 10**30]


@pytest.mark.parametrize("name", ["server_tool_use", "output_tokens_details", "cache_read_input_tokens", "usage"])
def test_usage_fields_may_change_their_type(name: str) -> None:
    for first in JUNK:
        for second in JUNK:
            start = {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 3, name: first}}}
            end = {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 5, name: second}}
            expected = TokenUsage(3, 5)
            if name == "output_tokens_details" and {"thinking_tokens": 3} in (first, second):
                expected = TokenUsage(3, 5, reasoning=3)
            data = sse(start, end, {"type": "message_stop"})
            assert count_answer_tokens("anthropic", True, data) == expected
            last = FORMATS["anthropic"].new_stream_reader().feed(data)[-1]
            assert isinstance(last, AnswerStreamFinished) and last.usage == expected


@pytest.mark.parametrize("format", FORMATS)
def test_malformed_usage_never_raises(format: str) -> None:
    for junk in JUNK:
        for name in ("usage", "usageMetadata", "usage_metadata", "response", "message"):
            inner = {"prompt_tokens_details": junk, "input_tokens_details": junk, "promptTokenCount": junk}
            for value in (junk, inner, {"usage": junk}, {"usage": inner}):
                for stream in (True, False):
                    body = json.dumps({name: value}).encode()
                    assert count_answer_tokens(format, stream, b"data: " + body + b"\n\n" if stream else body) is None


def test_implausible_token_counts_are_ignored() -> None:
    assert count_answer_tokens(
        "openai-chat", False, b'{"usage": {"prompt_tokens": 1, "completion_tokens": 1%030d}}' % 0
    ) == TokenUsage(1)
    assert count_answer_tokens("openai-chat", False, b'{"usage": {"prompt_tokens": %d}}' % 2**40) == TokenUsage(2**40)
    assert count_answer_tokens("openai-chat", False, b'{"usage": {"prompt_tokens": %d}}' % (2**40 + 1)) is None
    answer = FORMATS["openai-chat"].read_answer(
        b'{"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": 1%030d}}' % 0
    )
    assert answer.usage == TokenUsage()
    assert count_answer_tokens("openai-chat", False, b'{"usage": {"prompt_tokens": 1' + b"0" * 300 + b"}}") is None
    assert (
        count_answer_tokens("openai-chat", False, b'{"usage": {"prompt_tokens": -5, "completion_tokens": "x"}}') is None
    )
    assert count_answer_tokens("openai-chat", False, b'{"usage": {"prompt_tokens": 0, "completion_tokens": 0}}') is None


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=50, deadline=None)
@given(noise=st.binary(), cut=st.integers(0, 10_000))
def test_malformed_answers_have_no_usage(format: str, stream: bool, noise: bytes, cut: int) -> None:
    data = stream_of(format, an_answer()) if stream else FORMATS[format].write_answer(an_answer())
    for nonsense in (noise, b"data: " + noise + b"\n\n", b"[" + noise, b"[" * 20_000):
        assert count_answer_tokens(format, stream, nonsense) is None
    cut %= len(data)
    count_answer_tokens(format, stream, data[:cut] + noise)
    estimate_answer_tokens(format, stream, data[:cut] + noise)
    estimate_request_tokens(format, data[:cut] + noise)


def test_text_estimates_depend_on_the_writing_system() -> None:
    assert estimate_text_tokens("") == 0
    assert estimate_text_tokens("four words of text.") == 5
    assert estimate_text_tokens("你好世界") == 4
    assert estimate_text_tokens("こんにちは abcd") == 7
    assert estimate_text_tokens("привет мир") == 5
    assert estimate_text_tokens("\ud800") == 1


@pytest.mark.parametrize("format", FORMATS)
def test_request_estimates_are_close(format: str) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 100
    body = FORMATS[format].write_request(
        ModelRequest("m", [ModelMessage(MessageRole.USER, [ModelText(text)])], max_tokens=10)
    )
    assert 1125 <= estimate_request_tokens(format, body) <= 1200


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,BASE64"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "input_image", "image_url": "data:image/png;base64,BASE64"},
        {"type": "input_file", "file_data": "BASE64"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "BASE64"}},
        {"inlineData": {"mimeType": "image/png", "data": "BASE64"}},
        {"type": "input_audio", "input_audio": {"data": "BASE64", "format": "wav"}},
    ],
)
def test_images_count_a_fixed_number_of_tokens(part: dict[str, Any]) -> None:
    data = base64.b64encode(bytes(100_000)).decode()
    body = json.dumps({"messages": [{"content": [part]}]}).replace("BASE64", data).encode()
    assert MEDIA_TOKENS < estimate_request_tokens("openai-chat", body) < MEDIA_TOKENS + 30


def test_text_in_media_fields_is_counted() -> None:
    document = {"type": "document", "source": {"type": "text", "data": "word " * 1000}}
    assert 1250 <= estimate_request_tokens("anthropic", json.dumps({"x": document}).encode()) < 1300
    schema = {"properties": {"file": {"type": "string"}, "source": {"type": "string"}}}
    assert estimate_request_tokens("openai-chat", json.dumps(schema).encode()) < 20
    assert estimate_request_tokens("openai-chat", b"not JSON at all.") == 4


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("format", FORMATS)
def test_answer_estimates_are_close(format: str, stream: bool) -> None:
    for text, tokens in (('Say "the quick brown fox"\n' * 100, 650), ("你好" * 300, 600)):
        answer = ModelAnswer("id", "m", [ModelText(text)], FinishReason.STOP)
        body = stream_of(format, answer) if stream else FORMATS[format].write_answer(answer)
        assert tokens * 0.95 <= estimate_answer_tokens(format, stream, body) <= tokens * 1.05
        escaped = body.decode().replace("你", "\\u4f60").replace("好", "\\u597d").encode()
        assert tokens * 0.95 <= estimate_answer_tokens(format, stream, escaped) <= tokens * 1.05
