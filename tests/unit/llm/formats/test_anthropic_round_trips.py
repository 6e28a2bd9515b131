"""Generated Anthropic requests and answers survive writing and reading."""

from __future__ import annotations

import base64
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.llm.formats.anthropic import AnthropicFormat
from paddock.llm.formats.neutral import (
    FinishReason,
    MessageRole,
    ModelAnswer,
    ModelMedia,
    ModelMessage,
    ModelRequest,
    ModelText,
    ModelThinking,
    ModelToolCall,
    ModelToolResult,
    TokenUsage,
    ToolChoice,
    ToolDefinition,
)

from .stream_helpers import answer_from_valid_events, answer_to_small_events, read_in_pieces, write_events

FORMAT = AnthropicFormat()
HELLO = [ModelMessage(MessageRole.USER, [ModelText("Hello")])]
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(str.strip)
NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_-]{0,11}", fullmatch=True)
ARGUMENTS = st.dictionaries(WORDS, st.none() | st.integers(-9, 9) | WORDS, max_size=3).map(
    lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
)
TEXTS = st.builds(ModelText, WORDS, st.booleans())
DATA = st.binary(max_size=9).map(lambda data: base64.b64encode(data).decode())
MEDIA = st.one_of(
    st.builds(ModelMedia, st.just("image"), st.just("image/png"), DATA, cached=st.booleans()),
    st.builds(ModelMedia, st.just("image"), url=st.just("https://example.org/a.png")),
    st.builds(ModelMedia, st.just("document"), st.just("application/pdf"), DATA, name=st.none() | WORDS),
    WORDS.map(lambda text: ModelMedia("document", "text/plain", base64.b64encode(text.encode()).decode())),
)
THOUGHTS = st.builds(ModelThinking, st.text(max_size=9), WORDS) | st.builds(ModelThinking, redacted=WORDS)
CALLS = st.builds(ModelToolCall, NAMES, NAMES, ARGUMENTS, cached=st.booleans())
RESULTS = st.builds(
    ModelToolResult, NAMES, st.lists(TEXTS | MEDIA, max_size=2), is_error=st.booleans(), cached=st.booleans()
)
TURN = st.tuples(
    st.tuples(st.lists(RESULTS, max_size=2), st.lists(TEXTS | MEDIA, min_size=1, max_size=2)).map(
        lambda lists: ModelMessage(MessageRole.USER, [*lists[0], *lists[1]])
    ),
    st.lists(TEXTS | THOUGHTS | CALLS, min_size=1, max_size=3).map(
        lambda parts: ModelMessage(MessageRole.ASSISTANT, [*parts])
    ),
)
CONVERSATIONS = st.builds(
    lambda system, turns: [*system, *(message for turn in turns for message in turn)],
    st.lists(
        st.lists(TEXTS, min_size=1, max_size=2).map(lambda parts: ModelMessage(MessageRole.SYSTEM, [*parts])),
        max_size=1,
    ),
    st.lists(TURN, min_size=1, max_size=2),
)
REQUESTS = st.builds(
    ModelRequest,
    model=st.just("claude-sonnet-4-5"),
    messages=CONVERSATIONS,
    stream=st.booleans(),
    tools=st.lists(
        st.builds(
            ToolDefinition,
            NAMES,
            st.none() | WORDS,
            st.just({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}),
            st.sampled_from([None, True]),
            st.booleans(),
        ),
        min_size=1,
        max_size=2,
    ),
    tool_choice=st.sampled_from([None, ToolChoice.AUTO, ToolChoice.NONE]),
    max_tokens=st.integers(2000, 9000),
    top_p=st.sampled_from([None, 0.97]),
    stop=st.lists(NAMES, max_size=2),
    thinking_budget=st.sampled_from([None, 1024]),
    json_schema=st.sampled_from([None, {"type": "object", "additionalProperties": False}]),
    user=st.none() | WORDS,
)


@settings(max_examples=50, deadline=None)
@given(REQUESTS)
def test_requests_survive_a_round_trip(request_: ModelRequest) -> None:
    again = FORMAT.read_request(FORMAT.write_request(request_))
    assert not request_.notes
    assert again == request_


ANSWERS = st.builds(
    ModelAnswer,
    NAMES,
    NAMES,
    st.lists(
        st.one_of(
            st.builds(ModelText, st.text(st.characters(exclude_categories=["Cs"]), max_size=20)),
            st.builds(ModelThinking, st.text(max_size=9), st.none() | WORDS),
            st.builds(ModelThinking, redacted=WORDS),
            st.builds(ModelToolCall, NAMES, NAMES, ARGUMENTS),
        ),
        max_size=4,
    ),
    st.sampled_from(
        [FinishReason.STOP, FinishReason.LENGTH, FinishReason.TOOLS, FinishReason.REFUSAL, FinishReason.PAUSED]
    ),
    usage=st.builds(
        lambda new, read, write, out: TokenUsage(new + read + write, out, read, write), *[st.integers(0, 99)] * 4
    ),
)


@settings(max_examples=50, deadline=None)
@given(ANSWERS, st.lists(st.integers(0, 10_000), max_size=6))
def test_answers_survive_a_round_trip_whole_and_streamed(answer: ModelAnswer, cuts: list[int]) -> None:
    assert FORMAT.read_answer(FORMAT.write_answer(answer)) == answer
    assert (
        answer_from_valid_events(
            read_in_pieces(
                FORMAT.new_stream_reader(),
                write_events(
                    FORMAT.new_stream_writer(
                        ModelRequest(model="claude-sonnet-4-5", messages=HELLO, max_tokens=20_000)
                    ),
                    answer_to_small_events(answer),
                ),
                cuts,
            )
        )
        == answer
    )
