"""Parsing of agent output: recorded output of the real programs, and hostile output."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.model.events import EventType
from paddock.runs.presets import AgentPreset, ParsedAgentEvent, PresetLibrary, PresetOutputReader, make_output_reader

RECORDINGS = Path(__file__).parent / "recordings"
AGENTS = ("claude-code", "codex", "opencode", "gemini-cli", "qwen-code", "qwen-agent")
PRESETS = PresetLibrary()
LIMIT = 64 * 1024
WORK_EVENT_TYPES = [
    EventType.RUN_TEXT,
    EventType.RUN_TOOL_CALL,
    EventType.RUN_TOOL_RESULT,
    EventType.RUN_TEXT,
    EventType.RUN_TOOL_CALL,
    EventType.RUN_TOOL_RESULT,
    EventType.RUN_TEXT,
]


def recorded(agent: str, case: str, stream: str = "out") -> bytes:
    path = RECORDINGS / f"{agent}-{case}.{stream}"
    return path.read_bytes() if path.exists() else b""


def read(preset: AgentPreset, output: bytes, errors: bytes = b"") -> tuple[PresetOutputReader, list[ParsedAgentEvent]]:
    reader = make_output_reader(preset)
    events = reader.feed("stdout", output) + reader.feed("stderr", errors) + reader.close()
    return reader, events


def preset_with(**fields: Any) -> AgentPreset:
    return AgentPreset.model_validate({"name": "mine", "command": "mine", **fields})


JSON_LINES = preset_with(
    output={
        "format": "json-lines",
        "rules": [
            {"when": {"type": "text"}, "emit": "text", "text": "text"},
            {"when": {"type": "piece"}, "emit": "text", "text": "text", "join": True},
            {"when": {"type": "thought"}, "emit": "thinking", "text": "text", "join": True},
            {"when": {"type": "call"}, "emit": "tool_call", "id": "id", "name": "name", "arguments": "arguments"},
            {"when": {"type": "result"}, "emit": "tool_result", "id": "id", "text": "text", "failed": "failed"},
            {"when": {"type": "trouble"}, "emit": "error", "text": "text"},
            {"when": {"type": "end"}, "emit": "done"},
        ],
    },
    errors=[{"when": {"type": "failed"}, "message": ["why", "=it failed"]}, {"output": "^panic: ", "stream": "stderr"}],
)
LINES = preset_with()


def lines(*documents: Any) -> bytes:
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


@pytest.mark.parametrize("agent", AGENTS)
def test_output_of_real_agents_is_parsed(agent: str) -> None:
    reader, events = read(PRESETS.get(agent), recorded(agent, "works"))
    shown = [event for event in events if event.type is not EventType.RUN_THINKING]
    assert [event.type for event in shown] == WORK_EVENT_TYPES
    assert (reader.turns, reader.done, reader.error) == (3, True, None)
    assert shown[0].data == {"text": "I will write a file."}
    write, wrote, look, looked, last = (shown[index].data for index in (1, 2, 4, 5, 6))
    assert "Hello from a script." in json.dumps(write["arguments"]) and "hello.txt" in json.dumps(write["arguments"])
    assert wrote["id"] == write["id"] != look["id"] == looked["id"]
    assert (wrote["failed"], looked["failed"]) == (False, False)
    assert "Hello from a script.\nNo model was asked." in looked["text"]
    assert last["text"].startswith("The file hello.txt is written. It says:")


@pytest.mark.parametrize("agent", [agent for agent in AGENTS if agent != "gemini-cli"])
def test_thoughts_of_real_agents_are_recognised(agent: str) -> None:
    _, events = read(PRESETS.get(agent), recorded(agent, "works"))
    assert events[0] == ParsedAgentEvent(
        EventType.RUN_THINKING, {"text": "The user wants something to look at. A file will do."}
    )


@pytest.mark.parametrize("agent", [agent for agent in AGENTS if agent != "qwen-agent"])
def test_usage_counted_by_real_agents_is_parsed(agent: str) -> None:
    reader, _ = read(PRESETS.get(agent), recorded(agent, "works"))
    assert reader.usage["input_tokens"] > 1000
    assert 50 < reader.usage["output_tokens"] < 200


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize(("case", "reason"), [("refused", "the key is not known"), ("unknown", "nobody-knows-it")])
def test_failures_of_real_agents_are_recognised(agent: str, case: str, reason: str) -> None:
    reader, events = read(PRESETS.get(agent), recorded(agent, case), recorded(agent, case, "err"))
    assert reader.error is not None and reason in reader.error
    assert not reader.done
    errors = [event.data["message"] for event in events if event.type is EventType.RUN_ERROR]
    assert errors[-1] == reader.error
    assert len(errors) == len(set(errors))


@pytest.mark.parametrize(
    ("agent", "has_exit_codes"),
    [
        ("claude-code", True),
        ("codex", True),
        ("opencode", True),
        ("qwen-agent", True),
        # These say nothing of exit codes.
        ("gemini-cli", False),
        ("qwen-code", False),
    ],
)
def test_failed_command_does_not_fail_the_agent(agent: str, has_exit_codes: bool) -> None:
    reader, events = read(PRESETS.get(agent), recorded(agent, "stumbles"))
    assert [event.type for event in events] == [EventType.RUN_TOOL_CALL, EventType.RUN_TOOL_RESULT, EventType.RUN_TEXT]
    assert "echo no such luck" in json.dumps(events[0].data["arguments"])
    assert "no such luck" in events[1].data["text"]
    assert events[1].data["failed"] is has_exit_codes
    assert events[2].data["text"].strip() == "That did not work."
    assert (reader.turns, reader.done, reader.error) == (2, True, None)


@settings(max_examples=25, deadline=None)
@given(st.data())
@pytest.mark.parametrize("agent", AGENTS)
def test_events_are_independent_of_chunk_boundaries(agent: str, data: st.DataObject) -> None:
    output = recorded(agent, "works") + recorded(agent, "refused")
    preset = PRESETS.get(agent)
    whole, expected = read(preset, output)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(output)), max_size=30)))
    reader = make_output_reader(preset)
    events = []
    for start, end in zip([0, *cuts], [*cuts, len(output)], strict=True):
        events += reader.feed("stdout", output[start:end])
    events += reader.close()
    assert events == expected
    assert (reader.turns, reader.done, reader.error) == (whole.turns, whole.done, whole.error)


def test_events_are_the_same_for_single_bytes() -> None:
    output = recorded("gemini-cli", "works")
    preset = PRESETS.get("gemini-cli")
    reader = make_output_reader(preset)
    events = [event for byte in output for event in reader.feed("stdout", bytes([byte]))]
    assert events + reader.close() == read(preset, output)[1]


FIELD_NAMES = ["type", "text", "id", "name", "arguments", "failed", "message", "content", "item"]
TREES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text() | st.sampled_from(["text", "call", "user"]),
    lambda tree: (
        st.lists(tree, max_size=3) | st.dictionaries(st.sampled_from(FIELD_NAMES) | st.text(), tree, max_size=5)
    ),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=200) | TREES.map(lambda tree: json.dumps(tree).encode()), max_size=10))
def test_arbitrary_output_gives_storable_events(written: list[bytes]) -> None:
    for preset in (JSON_LINES, PRESETS.get("claude-code"), PRESETS.get("codex")):
        for event in read(preset, b"\n".join(written), b"\n".join(written))[1]:
            stored = json.dumps(event.data, allow_nan=False, ensure_ascii=False).encode("utf-8")
            assert b"\\u0000" not in stored.replace(rb"\\", b"")


def test_plain_lines_are_output() -> None:
    _, events = read(LINES, b'one\r\n\n   \n{"type":"text"}\nlast', b"oops\n")
    assert [(event.type, event.data) for event in events] == [
        (EventType.RUN_OUTPUT, {"stream": "stdout", "text": "one"}),
        (EventType.RUN_OUTPUT, {"stream": "stdout", "text": '{"type":"text"}'}),
        (EventType.RUN_OUTPUT, {"stream": "stderr", "text": "oops"}),
        (EventType.RUN_OUTPUT, {"stream": "stdout", "text": "last"}),
    ]


@pytest.mark.parametrize(
    "line",
    [
        b'{"type": "text", "text": ',
        b'{"type": "never heard of"}',
        b'["type", "text"]',
        b"42",
        b'{"type": "text", "text": NaN}',
        b'{"type": "text", "text": "\\ud800"}',
        b'{"type": "text", "text": 1e999}',
        b'{"type": "text", "a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a": ' * 50_000,
    ],
    ids=["broken", "unknown", "a list", "a number", "NaN", "half a letter", "infinite", "deep lists", "deep objects"],
)
def test_unmatched_lines_are_output_events(line: bytes) -> None:
    _, events = read(JSON_LINES, line + b"\n" + lines({"type": "text", "text": "And on."}))
    assert [event.type for event in events] == [EventType.RUN_OUTPUT, EventType.RUN_TEXT]
    assert events[0].data["text"].startswith(line[:40].decode())


def test_invalid_characters_are_replaced() -> None:
    _, events = read(JSON_LINES, b'{"type": "text", "text": "a\xff\xfeb\\u0000c"}\n\xc3\n')
    assert [event.data["text"] for event in events] == ["a\ufffd\ufffdb\ufffdc", "\ufffd"]


def test_long_texts_are_cut_with_a_note() -> None:
    text = "ü" * 50_000
    result = {"type": "result", "id": "1", "text": text}
    _, events = read(JSON_LINES, lines({"type": "text", "text": text}, result, {"type": "failed", "why": text}))
    for event, name in zip(events, ("text", "text", "message"), strict=True):
        assert event.data[name] == "ü" * (LIMIT // 2) + f"\n[… {100_000 - LIMIT} bytes more]"


def test_long_arguments_keep_their_shape() -> None:
    call = {"type": "call", "id": "1", "name": "write", "arguments": {"path": "a.txt", "content": "x" * 100_000}}
    _, (event,) = read(JSON_LINES, lines(call))
    assert event.data["arguments"]["path"] == "a.txt"
    assert event.data["arguments"]["content"].startswith("xxxx")
    assert event.data["arguments"]["content"].endswith("bytes more]")
    assert len(json.dumps(event.data)) < LIMIT


@pytest.mark.parametrize(
    "arguments",
    [
        [["x" * 1000] * 10] * 200,
        {str(number): number for number in range(50_000)},
        {"x" * 1000 + str(number): "y" for number in range(1000)},
    ],
    ids=["many texts", "many names", "long names"],
)
def test_huge_arguments_are_truncated(arguments: Any) -> None:
    _, (event,) = read(JSON_LINES, lines({"type": "call", "name": "n", "arguments": arguments}))
    assert event.type is EventType.RUN_TOOL_CALL
    assert len(json.dumps(event.data)) < 2 * LIMIT


def test_nesting_of_arguments_is_limited() -> None:
    tree: Any = "leaf"
    for _ in range(200):
        tree = {"a": [tree]}
    _, (event,) = read(JSON_LINES, lines({"type": "call", "name": "n", "arguments": tree}))
    assert event.type is EventType.RUN_TOOL_CALL
    assert "leaf" not in json.dumps(event.data) and "[…]" in json.dumps(event.data, ensure_ascii=False)


def test_numbers_beyond_64_bits_become_text() -> None:
    _, (event,) = read(JSON_LINES, lines({"type": "call", "name": "n", "arguments": {"a": 2**70, "b": 5}}))
    assert event.data["arguments"] == {"a": str(2**70), "b": 5}


def test_endless_line_takes_little_memory() -> None:
    reader = make_output_reader(JSON_LINES)
    piece = b"x" * 2**20
    tracemalloc.start()
    try:
        for _ in range(64):
            assert reader.feed("stdout", piece) == []
        events = reader.feed("stdout", b"\n" + lines({"type": "text", "text": "And on."}))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 * 2**20
    assert [event.type for event in events] == [EventType.RUN_OUTPUT, EventType.RUN_TEXT]
    assert events[0].data["text"].endswith(f"\n[… {64 * 2**20 - LIMIT} bytes more]")


def test_joined_pieces_become_one_text() -> None:
    pieces = [{"type": "piece", "text": f"{number} "} for number in range(3)]
    _, events = read(JSON_LINES, lines(*pieces, {"type": "thought", "text": "Hm"}, {"type": "thought", "text": "m."}))
    assert [(event.type, event.data["text"]) for event in events] == [
        (EventType.RUN_TEXT, "0 1 2 "),
        (EventType.RUN_THINKING, "Hmm."),
    ]


def test_joined_text_is_truncated() -> None:
    _, (event,) = read(JSON_LINES, lines({"type": "piece", "text": "x" * 1000}) * 100)
    assert event.data["text"] == "x" * LIMIT + f"\n[… {100_000 - LIMIT} bytes more]"


def test_a_turn_begins_after_each_result() -> None:
    call, result = {"type": "call", "name": "n", "id": "1"}, {"type": "result", "id": "1", "text": ""}
    text = {"type": "text", "text": "Now."}
    reader, _ = read(JSON_LINES, lines(text, call, call, result, result, call, result, text))
    assert reader.turns == 3


def test_completion_clears_an_earlier_failure() -> None:
    reader, _ = read(
        JSON_LINES, lines({"type": "failed", "why": "busy"}, {"type": "text", "text": "a"}, {"type": "end"})
    )
    assert (reader.error, reader.done) == (None, True)


def test_failure_after_completion_is_a_failure() -> None:
    reader, _ = read(JSON_LINES, lines({"type": "end"}, {"type": "failed"}))
    assert (reader.error, reader.done) == ("it failed", False)


def test_error_event_alone_is_not_a_failure() -> None:
    reader, events = read(JSON_LINES, lines({"type": "trouble", "text": "again"}))
    assert (reader.error, [event.type for event in events]) == (None, [EventType.RUN_ERROR])


def test_plain_line_can_report_a_failure() -> None:
    reader, events = read(JSON_LINES, b"panic: on stdout\n", b"so far so good\npanic: out of cheese\n")
    assert reader.error == "panic: out of cheese"
    assert [event.type for event in events] == [EventType.RUN_OUTPUT, EventType.RUN_OUTPUT, EventType.RUN_ERROR]


def test_conditions_compare_json_types_strictly() -> None:
    rule = {"when": {"on": True, "number": 1, "none": None, "one.0": ["a", "b"]}, "emit": "text", "text": "=Fits."}
    preset = preset_with(output={"format": "json-lines", "rules": [rule]})
    fits: dict[str, Any] = {"on": True, "number": 1, "none": None, "one": ["b"]}
    others: list[dict[str, Any]] = [
        {"on": 1},
        {"number": True},
        {"none": 0},
        {"one": []},
        {"one": "b"},
        {"number": "1"},
    ]
    _, events = read(preset, lines(fits, *({**fits, **other} for other in others)))
    assert [event.type for event in events] == [EventType.RUN_TEXT] + [EventType.RUN_OUTPUT] * len(others)


def test_list_items_become_events_in_order() -> None:
    parts = [
        {"when": {"t": "say"}, "emit": "text", "text": "."},
        {"when": {"t": "do"}, "emit": "tool_call", "name": "n"},
    ]
    parts[0]["text"] = "words"
    preset = preset_with(output={"format": "json-lines", "rules": [{"each": "parts", "rules": parts}]})
    say, do = {"t": "say", "words": ["a", {"text": "b"}, {"type": "image", "data": "…"}]}, {"t": "do", "n": "look"}
    _, events = read(preset, lines({"parts": [say, do, say]}, {"parts": "none"}))
    kinds = [EventType.RUN_TEXT, EventType.RUN_TOOL_CALL, EventType.RUN_TEXT, EventType.RUN_OUTPUT]
    assert [event.type for event in events] == kinds
    assert events[0].data["text"] == "ab[image]"
