"""Thought signatures and tool names survive translation between formats."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.llm.formats.answer_events import answer_from_stream_events, stream_events_from_answer
from paddock.llm.formats.base import WireFormat
from paddock.llm.formats.gemini.foreign_thoughts import pack_thoughts_in_signature, unpack_thoughts_from_signature
from paddock.llm.formats.neutral import (
    AnswerPartStarted,
    FinishReason,
    MessagePart,
    MessageRole,
    ModelAnswer,
    ModelMessage,
    ModelRequest,
    ModelText,
    ModelThinking,
    ModelToolCall,
    ProviderSignature,
    StreamEvent,
    ToolDefinition,
)
from paddock.llm.formats.registry import FORMATS
from paddock.llm.formats.thought_signatures import format_thought_signature, parse_signed_thought
from paddock.llm.formats.tool_names import map_to_client_tool_names, to_provider_call_id, to_provider_tool_name

FAMILIES = {"openai-chat": "openai-chat", "openai-responses": "openai", "anthropic": "anthropic", "gemini": "gemini"}
MAKERS = sorted(FAMILIES.values())
signatures = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


def maker(raw_signature: str | None) -> str | None:
    return raw_signature.maker if isinstance(raw_signature, ProviderSignature) else None


@given(signatures, st.sampled_from(MAKERS), st.sampled_from(MAKERS), st.booleans())
def test_signatures_survive_a_round_trip_in_any_family(
    raw_signature: str, made_by: str, family: str, redacted: bool
) -> None:
    written_signature = format_thought_signature(ProviderSignature(raw_signature, made_by), family, redacted=redacted)
    again = parse_signed_thought("hm", written_signature, family)
    found = again.redacted if redacted else again.signature
    assert (found, maker(found)) == (raw_signature, made_by)
    if made_by != family:
        assert written_signature.startswith(f"paddock:{made_by}")


@given(st.lists(st.tuples(signatures, signatures, st.sampled_from(MAKERS), st.booleans()), min_size=1, max_size=3))
def test_foreign_thoughts_are_packed_into_gemini_signatures(given_: list[tuple[str, str, str, bool]]) -> None:
    thoughts = [
        ModelThinking(redacted=ProviderSignature(signature, made_by))
        if redacted
        else ModelThinking(text, ProviderSignature(signature, made_by))
        for text, signature, made_by, redacted in given_
    ]
    envelope = pack_thoughts_in_signature(thoughts)
    assert re.fullmatch(r"[A-Za-z0-9_=-]+", envelope), "Google's clients read it as base64"
    assert unpack_thoughts_from_signature(envelope) == thoughts
    assert unpack_thoughts_from_signature(envelope.replace("-", "+").replace("_", "/")) == thoughts


@pytest.mark.parametrize(
    "junk", ["", "x", "cGFkZG9jazp0aG91Z2h0czp4", "cGFkZG9jazp0aG91Z2h0czpbWzFdXQ==", "cGFkZG9jazp0aG9"]
)
def test_malformed_packed_thoughts_are_ignored(junk: str) -> None:
    assert not unpack_thoughts_from_signature(junk)


def written_and_read(form: WireFormat, answer: ModelAnswer, stream: bool) -> ModelAnswer:
    """Return the answer as a client of this format receives it."""
    request = ModelRequest("m", [], stream=stream)
    if not stream:
        return form.read_answer(form.write_answer(answer, request))
    writer, reader = form.new_stream_writer(request), form.new_stream_reader()
    found = answer_from_stream_events(
        reader.feed(b"".join(map(writer.write, stream_events_from_answer(answer)))) + reader.close()
    )
    assert found is not None
    return found


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("made_by", MAKERS)
@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
@pytest.mark.parametrize("redacted", [False, True], ids=["thought", "sealed"])
def test_thoughts_keep_their_signatures_in_every_format(
    form: WireFormat, made_by: str, stream: bool, redacted: bool
) -> None:
    if redacted and made_by in ("openai-chat", "gemini", "openai"):
        made_by = "anthropic"
    provider_signature = ProviderSignature('[{"data":"x"}]', made_by)
    sealed = ModelThinking(redacted=provider_signature) if redacted else ModelThinking("hm", provider_signature)
    found = written_and_read(form, ModelAnswer("i", "m", [sealed, ModelText("Yes.")], FinishReason.STOP), stream)
    signed_thoughts = [
        part for part in found.parts if isinstance(part, ModelThinking) and (part.signature or part.redacted)
    ]
    assert len(signed_thoughts) == 1
    back = signed_thoughts[0].redacted if redacted else signed_thoughts[0].signature
    assert (back, maker(back)) == (provider_signature, made_by)
    if not redacted and made_by != "openai-chat":
        assert signed_thoughts[0].text == "hm"


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
def test_foreign_signatures_are_left_out_with_a_note(form: WireFormat) -> None:
    family = FAMILIES[form.name]
    other = next(name for name in MAKERS if name != family)
    parts: list[MessagePart] = [
        ModelThinking("hm", ProviderSignature("SEAL", other)),
        ModelThinking(redacted=ProviderSignature("SEAL", other)),
        ModelText("Yes."),
        ModelToolCall("c", "f", "{}", ProviderSignature("SEAL", "gemini" if family != "gemini" else other)),
    ]
    messages = [
        ModelMessage(MessageRole.USER, [ModelText("Go")]),
        ModelMessage(MessageRole.ASSISTANT, parts),
        ModelMessage(MessageRole.USER, [ModelText("And?")]),
    ]
    request = ModelRequest("some-model", messages, max_tokens=9)
    assert b"SEAL" not in form.write_request(request)
    assert len([text for text in request.notes if text.startswith("thought signatures of another")]) == 1
    assert request.messages[1].parts == parts, "a request may be written again for a fallback"


AWKWARD = ["a.b", "mcp__server__" + "x" * 80, "Größe", "1st", "with space", "", "a/b:c", "🌍" * 70]


@pytest.mark.parametrize("name", AWKWARD)
def test_unsupported_tool_names_are_replaced_and_restored(name: str) -> None:
    short = to_provider_tool_name(name)
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", short)
    assert to_provider_tool_name(name) == short and to_provider_tool_name(short) == short
    request = ModelRequest("m", [], tools=[ToolDefinition(name), ToolDefinition("plain")])
    assert map_to_client_tool_names(request) == {short: name}


@given(st.lists(st.text(max_size=100), unique=True, max_size=20))
def test_replaced_names_are_unique(names: list[str]) -> None:
    assert len({to_provider_tool_name(name) for name in names}) == len(names)


@given(st.text(max_size=100), st.sampled_from([40, 64]))
def test_call_ids_fit_the_length_limit(call_id: str, longest: int) -> None:
    short = to_provider_call_id(call_id, longest)
    assert 0 < len(short) <= longest
    assert to_provider_call_id(short, longest) == short


@pytest.mark.parametrize("provider", FORMATS.values(), ids=lambda form: form.name)
@pytest.mark.parametrize("name", AWKWARD[:4])
def test_providers_receive_only_valid_tool_names(provider: WireFormat, name: str) -> None:
    messages = [
        ModelMessage(MessageRole.USER, [ModelText("Go")]),
        ModelMessage(MessageRole.ASSISTANT, [ModelToolCall("c", name, "{}")]),
    ]
    request = ModelRequest(
        "m", messages, tools=[ToolDefinition(name, parameters={"type": "object", "properties": {}})], max_tokens=9
    )
    body = json.loads(provider.write_request(request))
    found: list[str] = []

    def look(value: Any) -> None:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if key == "name":
                found.append(inner)
            elif isinstance(inner, dict | list):
                look(inner)

    look(body)
    assert set(found) == {to_provider_tool_name(name)}


@pytest.mark.parametrize("client", FORMATS.values(), ids=lambda form: form.name)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_clients_receive_their_own_tool_names(client: WireFormat, stream: bool) -> None:
    own = [name for name in AWKWARD if name]
    request = ModelRequest("m", [], stream=stream, tools=[ToolDefinition(name) for name in own])
    calls: list[MessagePart] = [
        ModelToolCall(f"c{index}", to_provider_tool_name(name), "{}") for index, name in enumerate(own)
    ]
    answer = ModelAnswer("i", "m", calls, FinishReason.TOOLS)
    if stream:
        writer, reader = client.new_stream_writer(request), client.new_stream_reader()
        events: list[StreamEvent] = (
            reader.feed(b"".join(map(writer.write, stream_events_from_answer(answer)))) + reader.close()
        )
        parts = [event.part for event in events if isinstance(event, AnswerPartStarted)]
    else:
        parts = client.read_answer(client.write_answer(answer, request)).parts
    names = [part.name for part in parts if isinstance(part, ModelToolCall)]
    assert names == own


def test_gemini_calls_without_ids_get_the_same_ids_each_time() -> None:
    call = {"functionCall": {"name": "f", "args": {}}}
    result = {"functionResponse": {"name": "f", "response": {"output": "x"}}}
    numbered = {"functionCall": {"id": "call_1", "name": "f", "args": {}}}
    contents: list[Any] = [
        {"role": "model", "parts": [call, call]},
        {"parts": [result, result]},
        {"role": "model", "parts": [numbered, call]},
        {"parts": [result, result]},
    ]
    seen: list[list[str]] = []
    for length in (2, 4):
        request = FORMATS["gemini"].read_request(json.dumps({"contents": contents[:length]}).encode(), model="m")
        parts = [part for message in request.messages for part in message.parts]
        seen.append([part.id for part in parts if isinstance(part, ModelToolCall)])
        answered = [part.call_id for part in parts if not isinstance(part, ModelToolCall) and hasattr(part, "call_id")]
        assert answered == seen[-1]
    assert seen[1][:2] == seen[0]
    assert len(set(seen[1])) == 4


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(list(FORMATS.values())), st.lists(st.integers(0, 10**6), max_size=8))
def test_signed_streams_are_read_from_any_pieces(form: WireFormat, positions: list[int]) -> None:
    parts: list[MessagePart] = [
        ModelThinking("hm — 🌍", ProviderSignature("s", "anthropic")),
        ModelText("Ja, größer."),
        ModelToolCall("c1", "f", '{"a":"ä"}', ProviderSignature("g", "gemini")),
        ModelToolCall("c2", "f", "{}"),
    ]
    writer = form.new_stream_writer(ModelRequest("m", [], stream=True))
    data = b"".join(map(writer.write, stream_events_from_answer(ModelAnswer("i", "m", parts, FinishReason.TOOLS))))
    expected = form.new_stream_reader()
    whole = answer_from_stream_events(expected.feed(data) + expected.close())
    reader, events, start = form.new_stream_reader(), [], 0
    for position in [*sorted(position % (len(data) + 1) for position in positions), len(data)]:
        events += reader.feed(data[start:position])
        start = position
    assert answer_from_stream_events(events + reader.close()) == whole


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
def test_stream_is_read_equally_whole_and_byte_by_byte(form: WireFormat) -> None:
    parts: list[MessagePart] = [
        ModelThinking("hm"),
        ModelText("Größe 🌍" * 3),
        ModelToolCall("c1", "f", '{"a":1}'),
        ModelToolCall("c2", "f", "{}"),
    ]
    writer = form.new_stream_writer(ModelRequest("m", [], stream=True))
    data = b"".join(map(writer.write, stream_events_from_answer(ModelAnswer("i", "m", parts, FinishReason.TOOLS))))
    one, each = form.new_stream_reader(), form.new_stream_reader()
    whole = answer_from_stream_events(one.feed(data) + one.close())
    pieces = [event for position in range(len(data)) for event in each.feed(data[position : position + 1])]
    assert answer_from_stream_events(pieces + each.close()) == whole
    for position in range(len(data)):
        reader = form.new_stream_reader()
        assert (
            answer_from_stream_events(reader.feed(data[:position]) + reader.feed(data[position:]) + reader.close())
            == whole
        )


def test_codex_gets_its_namespaces_for_names_of_any_length() -> None:
    responses, chat = FORMATS["openai-responses"], FORMATS["openai-chat"]
    space, name = "mcp__" + "a" * 50, "b" * 40
    inner = {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}}
    body: dict[str, Any] = {
        "model": "m",
        "input": "Go",
        "tools": [{"type": "namespace", "name": space, "tools": [inner]}],
    }
    request = responses.read_request(json.dumps(body).encode())
    sent = json.loads(chat.write_request(request))["tools"][0]["function"]["name"]
    assert len(sent) <= 64
    answer = ModelAnswer("i", "m", [ModelToolCall("c", sent, "{}")], FinishReason.TOOLS)
    [item] = json.loads(responses.write_answer(answer, request))["output"]
    assert (item["namespace"], item["name"]) == (space, name)
    # The names that the client sends back map to the same provider names.
    body["input"] = [item, {"type": "function_call_output", "call_id": "c", "output": "x"}]
    again = json.loads(chat.write_request(responses.read_request(json.dumps(body).encode())))
    assert again["messages"][0]["tool_calls"][0]["function"]["name"] == sent
