"""Seals of thoughts and names of tools on their way through formats that are not their own."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.llm.collect import answer_events, collect
from paddock.llm.formats.base import Format
from paddock.llm.formats.gemini.envelope import enveloped, opened
from paddock.llm.formats.names import client_names, provider_id, provider_name
from paddock.llm.formats.registry import FORMATS
from paddock.llm.formats.seals import thought, written
from paddock.llm.neutral import (
    Answer,
    Event,
    Finish,
    Message,
    Part,
    PartStarted,
    Request,
    Role,
    Signature,
    Text,
    Thinking,
    Tool,
    ToolCall,
)

FAMILIES = {"openai-chat": "openai-chat", "openai-responses": "openai", "anthropic": "anthropic", "gemini": "gemini"}
MAKERS = sorted(FAMILIES.values())
seals = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


def maker(seal: str | None) -> str | None:
    return seal.maker if isinstance(seal, Signature) else None


@given(seals, st.sampled_from(MAKERS), st.sampled_from(MAKERS), st.booleans())
def test_a_seal_comes_out_of_any_format_as_it_went_in(seal: str, made_by: str, family: str, redacted: bool) -> None:
    told = written(Signature(seal, made_by), family, redacted=redacted)
    again = thought("hm", told, family)
    found = again.redacted if redacted else again.signature
    assert (found, maker(found)) == (seal, made_by)
    if made_by != family:
        assert told.startswith(f"paddock:{made_by}")


@given(st.lists(st.tuples(seals, seals, st.sampled_from(MAKERS), st.booleans()), min_size=1, max_size=3))
def test_thoughts_travel_in_a_signature_of_geminis(given_: list[tuple[str, str, str, bool]]) -> None:
    thoughts = [
        Thinking(redacted=Signature(seal, made_by)) if redacted else Thinking(text, Signature(seal, made_by))
        for text, seal, made_by, redacted in given_
    ]
    envelope = enveloped(thoughts)
    assert re.fullmatch(r"[A-Za-z0-9_=-]+", envelope), "Google's clients read it as base64"
    assert opened(envelope) == thoughts
    assert opened(envelope.replace("-", "+").replace("_", "/")) == thoughts


@pytest.mark.parametrize(
    "junk", ["", "x", "cGFkZG9jazp0aG91Z2h0czp4", "cGFkZG9jazp0aG91Z2h0czpbWzFdXQ==", "cGFkZG9jazp0aG9"]
)
def test_an_envelope_of_nonsense_is_no_thought(junk: str) -> None:
    assert not opened(junk)


def told(form: Format, answer: Answer, stream: bool) -> Answer:
    """The answer as a client of this format has it in the end."""
    request = Request("m", [], stream=stream)
    if not stream:
        return form.read_answer(form.write_answer(answer, request))
    writer, reader = form.writer(request), form.reader()
    found = collect(reader.feed(b"".join(map(writer.write, answer_events(answer)))) + reader.close())
    assert found is not None
    return found


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("made_by", MAKERS)
@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
@pytest.mark.parametrize("redacted", [False, True], ids=["thought", "sealed"])
def test_a_thought_keeps_its_seal_in_every_format(form: Format, made_by: str, stream: bool, redacted: bool) -> None:
    if redacted and made_by in ("openai-chat", "gemini", "openai"):
        made_by = "anthropic"
    seal = Signature('[{"data":"x"}]', made_by)
    sealed = Thinking(redacted=seal) if redacted else Thinking("hm", seal)
    found = told(form, Answer("i", "m", [sealed, Text("Yes.")], Finish.STOP), stream)
    kept = [part for part in found.parts if isinstance(part, Thinking) and (part.signature or part.redacted)]
    assert len(kept) == 1
    back = kept[0].redacted if redacted else kept[0].signature
    assert (back, maker(back)) == (seal, made_by)
    if not redacted and made_by != "openai-chat":
        assert kept[0].text == "hm"


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
def test_a_foreign_seal_is_left_out_of_requests_with_a_note(form: Format) -> None:
    family = FAMILIES[form.name]
    other = next(name for name in MAKERS if name != family)
    parts: list[Part] = [
        Thinking("hm", Signature("SEAL", other)),
        Thinking(redacted=Signature("SEAL", other)),
        Text("Yes."),
        ToolCall("c", "f", "{}", Signature("SEAL", "gemini" if family != "gemini" else other)),
    ]
    messages = [Message(Role.USER, [Text("Go")]), Message(Role.ASSISTANT, parts), Message(Role.USER, [Text("And?")])]
    request = Request("some-model", messages, max_tokens=9)
    assert b"SEAL" not in form.write_request(request)
    assert len([text for text in request.notes if text.startswith("seals of another")]) == 1
    assert request.messages[1].parts == parts, "a request may be written again for a fallback"


AWKWARD = ["a.b", "mcp__server__" + "x" * 80, "Größe", "1st", "with space", "", "a/b:c", "🌍" * 70]


@pytest.mark.parametrize("name", AWKWARD)
def test_a_name_that_providers_refuse_gets_another_and_is_told_back(name: str) -> None:
    short = provider_name(name)
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", short)
    assert provider_name(name) == short and provider_name(short) == short
    request = Request("m", [], tools=[Tool(name), Tool("plain")])
    assert client_names(request) == {short: name}


@given(st.lists(st.text(max_size=100), unique=True, max_size=20))
def test_names_stay_apart(names: list[str]) -> None:
    assert len({provider_name(name) for name in names}) == len(names)


@given(st.text(max_size=100), st.sampled_from([40, 64]))
def test_ids_fit(call_id: str, longest: int) -> None:
    short = provider_id(call_id, longest)
    assert 0 < len(short) <= longest
    assert provider_id(short, longest) == short


@pytest.mark.parametrize("provider", FORMATS.values(), ids=lambda form: form.name)
@pytest.mark.parametrize("name", AWKWARD[:4])
def test_providers_never_see_a_name_they_refuse(provider: Format, name: str) -> None:
    messages = [
        Message(Role.USER, [Text("Go")]),
        Message(Role.ASSISTANT, [ToolCall("c", name, "{}")]),
    ]
    request = Request("m", messages, tools=[Tool(name, parameters={"type": "object", "properties": {}})], max_tokens=9)
    body = json.loads(provider.write_request(request))
    found: list[str] = []

    def look(value: Any) -> None:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if key == "name":
                found.append(inner)
            elif isinstance(inner, dict | list):
                look(inner)

    look(body)
    assert set(found) == {provider_name(name)}


@pytest.mark.parametrize("client", FORMATS.values(), ids=lambda form: form.name)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_clients_see_their_own_names(client: Format, stream: bool) -> None:
    own = [name for name in AWKWARD if name]
    request = Request("m", [], stream=stream, tools=[Tool(name) for name in own])
    calls: list[Part] = [ToolCall(f"c{place}", provider_name(name), "{}") for place, name in enumerate(own)]
    answer = Answer("i", "m", calls, Finish.TOOLS)
    if stream:
        writer, reader = client.writer(request), client.reader()
        events: list[Event] = reader.feed(b"".join(map(writer.write, answer_events(answer)))) + reader.close()
        parts = [event.part for event in events if isinstance(event, PartStarted)]
    else:
        parts = client.read_answer(client.write_answer(answer, request)).parts
    names = [part.name for part in parts if isinstance(part, ToolCall)]
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
        seen.append([part.id for part in parts if isinstance(part, ToolCall)])
        answered = [part.call_id for part in parts if not isinstance(part, ToolCall) and hasattr(part, "call_id")]
        assert answered == seen[-1]
    assert seen[1][:2] == seen[0]
    assert len(set(seen[1])) == 4


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(list(FORMATS.values())), st.lists(st.integers(0, 10**6), max_size=8))
def test_sealed_streams_may_be_cut_anywhere(form: Format, places: list[int]) -> None:
    parts: list[Part] = [
        Thinking("hm — 🌍", Signature("s", "anthropic")),
        Text("Ja, größer."),
        ToolCall("c1", "f", '{"a":"ä"}', Signature("g", "gemini")),
        ToolCall("c2", "f", "{}"),
    ]
    writer = form.writer(Request("m", [], stream=True))
    data = b"".join(map(writer.write, answer_events(Answer("i", "m", parts, Finish.TOOLS))))
    expected = form.reader()
    whole = collect(expected.feed(data) + expected.close())
    reader, events, start = form.reader(), [], 0
    for place in [*sorted(place % (len(data) + 1) for place in places), len(data)]:
        events += reader.feed(data[start:place])
        start = place
    assert collect(events + reader.close()) == whole


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
def test_a_stream_is_read_the_same_whole_and_byte_by_byte(form: Format) -> None:
    parts: list[Part] = [
        Thinking("hm"),
        Text("Größe 🌍" * 3),
        ToolCall("c1", "f", '{"a":1}'),
        ToolCall("c2", "f", "{}"),
    ]
    writer = form.writer(Request("m", [], stream=True))
    data = b"".join(map(writer.write, answer_events(Answer("i", "m", parts, Finish.TOOLS))))
    one, each = form.reader(), form.reader()
    whole = collect(one.feed(data) + one.close())
    pieces = [event for place in range(len(data)) for event in each.feed(data[place : place + 1])]
    assert collect(pieces + each.close()) == whole
    for place in range(len(data)):
        reader = form.reader()
        assert collect(reader.feed(data[:place]) + reader.feed(data[place:]) + reader.close()) == whole


def test_codex_gets_its_namespaces_back_however_long_the_names() -> None:
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
    answer = Answer("i", "m", [ToolCall("c", sent, "{}")], Finish.TOOLS)
    [item] = json.loads(responses.write_answer(answer, request))["output"]
    assert (item["namespace"], item["name"]) == (space, name)
    # And what it sends back is known to the provider by the same name.
    body["input"] = [item, {"type": "function_call_output", "call_id": "c", "output": "x"}]
    again = json.loads(chat.write_request(responses.read_request(json.dumps(body).encode())))
    assert again["messages"][0]["tool_calls"][0]["function"]["name"] == sent
