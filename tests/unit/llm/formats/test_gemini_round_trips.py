"""Generated Gemini requests and answers survive writing and reading."""

from __future__ import annotations

import base64
import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.llm.formats.gemini import GeminiFormat
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
    ReasoningEffort,
    TokenUsage,
    ToolChoice,
    ToolDefinition,
)

from .stream_helpers import answer_from_valid_events, answer_to_small_events, read_in_pieces, write_events

FORMAT = GeminiFormat()
HELLO = [ModelMessage(MessageRole.USER, [ModelText("Hello")])]
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_-]{0,11}", fullmatch=True)
ARGUMENTS = st.dictionaries(WORDS, st.none() | st.integers(-9, 9) | WORDS, max_size=3).map(
    lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
)
DATA = st.binary(max_size=9).map(lambda data: base64.b64encode(data).decode())
MEDIA = st.one_of(
    st.builds(ModelMedia, st.just("image"), st.just("image/png"), DATA),
    st.builds(ModelMedia, st.just("audio"), st.just("audio/wav"), DATA),
    st.builds(ModelMedia, st.just("document"), st.just("application/pdf"), url=st.just("gs://bucket/a.pdf")),
)


@st.composite
def conversations(draw: st.DrawFn) -> list[ModelMessage]:
    """Generate complete turns: calls with distinct names, and a result for each."""
    messages: list[ModelMessage] = []
    if draw(st.booleans()):
        messages.append(ModelMessage(MessageRole.SYSTEM, [ModelText(draw(WORDS))]))
    waiting: list[ModelToolCall] = []
    count = 0
    for _ in range(draw(st.integers(1, 2))):
        results = [
            ModelToolResult(
                call.id,
                [ModelText(draw(WORDS)), *draw(st.lists(MEDIA, max_size=1))],
                call.name,
                draw(st.booleans()),
            )
            for call in waiting
        ]
        messages.append(
            ModelMessage(
                MessageRole.USER,
                [*results, *draw(st.lists(st.builds(ModelText, WORDS) | MEDIA, min_size=1, max_size=2))],
            )
        )
        names = draw(st.lists(NAMES, max_size=2))
        waiting = []
        for name in names:
            waiting.append(ModelToolCall(f"call_{count}", name, draw(ARGUMENTS), draw(WORDS)))
            count += 1
        texts = draw(
            st.lists(st.builds(ModelText, WORDS) | st.builds(ModelThinking, WORDS, st.none() | WORDS), max_size=2)
        )
        messages.append(ModelMessage(MessageRole.ASSISTANT, [*texts, ModelText(draw(WORDS)), *waiting]))
    return messages


REQUESTS = st.builds(
    ModelRequest,
    model=st.just("gemini-3-pro"),
    messages=conversations(),
    stream=st.booleans(),
    tools=st.lists(
        st.builds(ToolDefinition, NAMES, WORDS, st.just({"type": "object", "properties": {"a": {"type": "string"}}})),
        min_size=1,
        max_size=2,
    ),
    tool_choice=st.sampled_from([None, ToolChoice.AUTO, ToolChoice.ANY, ToolChoice.NONE]),
    max_tokens=st.none() | st.integers(1, 9000),
    temperature=st.sampled_from([None, 0.5, 2.0]),
    top_k=st.none() | st.integers(1, 9),
    seed=st.none() | st.integers(0, 9),
    stop=st.lists(NAMES, max_size=2),
    effort=st.sampled_from([None, ReasoningEffort.LOW, ReasoningEffort.HIGH]),
    json_schema=st.sampled_from([None, {"type": "object", "properties": {"b": {"type": "integer"}}}]),
)


@settings(max_examples=50, deadline=None)
@given(REQUESTS)
def test_requests_survive_a_round_trip(request_: ModelRequest) -> None:
    again = FORMAT.read_request(FORMAT.write_request(request_), model=request_.model, stream=request_.stream)
    assert not request_.notes
    assert again == request_


def has_no_adjacent_texts(parts: list[Any]) -> bool:
    """Return whether no two texts or thoughts are adjacent; Gemini splits them arbitrarily."""
    return all(type(one) is not type(two) or isinstance(one, ModelToolCall) for one, two in pairwise(parts))


PARTS = st.lists(
    st.builds(ModelText, WORDS)
    | st.builds(ModelThinking, WORDS, st.none() | WORDS)
    | st.builds(ModelToolCall, NAMES, NAMES, ARGUMENTS),
    max_size=4,
).filter(has_no_adjacent_texts)


@settings(max_examples=50, deadline=None)
@given(
    PARTS,
    st.sampled_from([FinishReason.STOP, FinishReason.LENGTH, FinishReason.FILTERED]),
    st.builds(lambda i, o, r: TokenUsage(i, o + r, min(i, 5), reasoning=r), *[st.integers(0, 99)] * 3),
    st.lists(st.integers(0, 10_000), max_size=6),
    st.booleans(),
)
def test_answers_survive_a_round_trip_whole_and_streamed(
    parts: list[Any], finish: FinishReason, usage: TokenUsage, cuts: list[int], array: bool
) -> None:
    if finish is FinishReason.STOP and any(isinstance(part, ModelToolCall) for part in parts):
        finish = FinishReason.TOOLS
    answer = ModelAnswer("r1", "gemini-3-pro", parts, finish, usage=usage)
    assert FORMAT.read_answer(FORMAT.write_answer(answer)) == answer
    writer = FORMAT.new_stream_writer(
        ModelRequest(model="gemini-2.5-flash", messages=HELLO, extra={"gemini_array": array})
    )
    data = write_events(writer, answer_to_small_events(answer))
    assert not array or json.loads(data)
    assert answer_from_valid_events(read_in_pieces(FORMAT.new_stream_reader(), data, cuts)) == answer
