"""A replay answers from recorded exchanges: the same bytes in the same format, the same words in another."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.config.llm import ProviderConfig
from paddock.errors import ConfigError
from paddock.llm.exchange import Exchange, ExchangeOutcome, ModelCaller
from paddock.llm.formats.neutral import (
    MessageRole,
    ModelAnswer,
    ModelMedia,
    ModelMessage,
    ModelRequest,
    ModelText,
    ModelThinking,
    ModelToolCall,
    ModelToolResult,
)
from paddock.llm.formats.registry import FORMATS
from paddock.llm.providers.base import ProviderRequest
from paddock.llm.providers.replay_provider import RecordingFileSource, ReplayMiss, ReplayProvider, new_replay_provider
from paddock.llm.replay.recorded_exchange_index import RecordedExchangeIndex
from paddock.llm.replay.recording_files import RecordedExchange, RecordingWriter, read_recording, to_recorded_exchange
from paddock.llm.replay.request_matching import RequestMatcher, describe_request_difference
from paddock.llm.wire.base import UpstreamBroken

from ..scripted_model.script_helpers import (
    BASH,
    CALLER,
    ask,
    calls_of,
    continue_conversation,
    get_whole_answer,
    read,
    received,
    script,
    start_conversation,
    text_of,
)

pytestmark = pytest.mark.anyio
WORK = """
- [{say: I will look at it now.}, {shell: ls}]
- say: "It says {{ tool.output }}. That is all there is."
"""
STREAMS = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


async def recorded_exchange(
    request: ModelRequest, format: str = "anthropic", *, id: str = "", turns: str = WORK
) -> Exchange:
    """Return the exchange of a request that a scripted model has answered."""
    provider_request = ask(request, format)
    answered = await script(turns).send(provider_request)
    pieces = await received(answered)
    return Exchange(
        id=id or f"ex-{zlib.crc32(provider_request.body):x}",
        at=1000.0,
        caller=CALLER,
        format=format,
        operation="generate",
        model=request.model,
        request=provider_request.body,
        stream=request.stream,
        provider_kind="script",
        status=answered.status,
        response=[(0.01 * number, piece) for number, piece in enumerate(pieces, 1)],
    )


async def conversation(format: str = "anthropic", *, stream: bool, prompt: str = "Do it.") -> list[Exchange]:
    request = start_conversation(prompt, stream=stream)
    first = await recorded_exchange(request, format)
    answer = read(format, b"".join(data for _, data in first.response), stream)
    return [first, await recorded_exchange(continue_conversation(request, answer, "a.txt"), format)]


def write(path: Path, *exchanges: Exchange) -> RecordingFileSource:
    writer = RecordingWriter(path)
    for exchange in exchanges:
        writer.add(exchange)
    return RecordingFileSource(path)


def repeated_request(exchange: Exchange, **changes: object) -> ProviderRequest:
    provider_request = ProviderRequest(
        exchange.format, "generate", exchange.model, exchange.request, exchange.stream, CALLER
    )
    return replace(provider_request, **changes)  # type: ignore[arg-type]


@STREAMS
@pytest.mark.parametrize("format", FORMATS)
async def test_same_request_gets_recorded_bytes_and_pieces(tmp_path: Path, format: str, stream: bool) -> None:
    exchanges = await conversation(format, stream=stream)
    provider = ReplayProvider("r", write(tmp_path / "a.jsonl.zst", *exchanges))
    for exchange in exchanges:
        answered = await provider.send(repeated_request(exchange))
        assert answered.status == 200
        assert (b"x-paddock-replay", exchange.id.encode()) in answered.headers
        assert await received(answered) == [data for _, data in exchange.response]


@pytest.mark.parametrize("requested_stream", [True, False], ids=["to-streamed", "to-whole"])
@STREAMS
@pytest.mark.parametrize("requested_format", FORMATS)
@pytest.mark.parametrize("recorded", FORMATS)
async def test_recorded_answer_is_translated_to_other_formats(
    tmp_path: Path, recorded: str, requested_format: str, stream: bool, requested_stream: bool
) -> None:
    exchanges = await conversation(recorded, stream=stream)
    provider = ReplayProvider("r", write(tmp_path / "a.jsonl", *exchanges))
    request = start_conversation(stream=requested_stream)
    first = await get_whole_answer(provider, request, requested_format)
    assert (text_of(first), calls_of(first)) == ("I will look at it now.", [("Bash", {"command": "ls"})])
    second = await get_whole_answer(provider, continue_conversation(request, first, "a.txt"), requested_format)
    assert text_of(second) == "It says a.txt. That is all there is."


@pytest.mark.parametrize("array", [True, False], ids=["array", "events"])
async def test_gemini_streams_use_the_requested_form(tmp_path: Path, array: bool) -> None:
    [first, _] = await conversation("gemini", stream=True)
    answer = await get_whole_answer(
        ReplayProvider("r", write(tmp_path / "a.jsonl", first)), start_conversation(stream=True), "gemini", array=array
    )
    assert len(calls_of(answer)) == 1


async def test_failures_are_replayed_if_nothing_else_is_recorded(tmp_path: Path) -> None:
    failed = await recorded_exchange(start_conversation(), "openai-chat", turns="- fail: {status: 429, message: Slow}")
    failed.outcome = ExchangeOutcome.FAILED
    provider = ReplayProvider("r", write(tmp_path / "a.jsonl", failed))
    answered = await provider.send(ask(start_conversation(), "anthropic"))
    assert answered.status == 429
    assert json.loads(await answered.read())["error"]["type"] == "rate_limit_error"
    fine = await recorded_exchange(start_conversation(), "openai-chat", id="fine")
    provider = ReplayProvider("r", write(tmp_path / "a.jsonl", fine))
    for _ in range(3):
        assert (
            text_of(await get_whole_answer(provider, start_conversation(), "openai-chat")) == "I will look at it now."
        )


@pytest.mark.parametrize("format", FORMATS)
async def test_truncated_answer_is_replayed_truncated(tmp_path: Path, format: str) -> None:
    [cut, _] = await conversation("anthropic", stream=True)
    cut = replace(cut, outcome=ExchangeOutcome.CUT, response=cut.response[:-1])
    provider = ReplayProvider("r", write(tmp_path / "a.jsonl", cut))
    with pytest.raises(UpstreamBroken):
        await received(await provider.send(ask(start_conversation(stream=True), format)))


async def test_several_answers_are_replayed_in_turn(tmp_path: Path) -> None:
    both = [await recorded_exchange(start_conversation(), id=name, turns=f"- say: {name}") for name in ("one", "two")]
    provider = ReplayProvider("r", write(tmp_path / "a.jsonl", *both))
    assert [text_of(await get_whole_answer(provider, start_conversation())) for _ in range(3)] == ["one", "two", "one"]
    other = ModelCaller("tenant", "other key")
    assert text_of(await get_whole_answer(provider, start_conversation(), caller=other)) == "one"


@STREAMS
async def test_recorded_timing_is_replayed(tmp_path: Path, stream: bool) -> None:
    [first, _] = await conversation(stream=stream)
    data = b"".join(data for _, data in first.response)
    first.response = [(0.05, data[:20]), (0.1, data[20:])]
    source = write(tmp_path / "a.jsonl", first)
    for timing, least, most in (("recorded", 0.1, 5.0), ("instant", 0.0, 0.09)):
        started = time.monotonic()
        answered = await ReplayProvider("r", source, timing=timing).send(repeated_request(first))  # type: ignore[arg-type]
        assert time.monotonic() - started >= least / 2
        assert len(await received(answered)) == 2
        assert least <= time.monotonic() - started < most


def in_directory(directory: str, *, stream: bool) -> ModelRequest:
    request = start_conversation(stream=stream)
    request.messages[0] = ModelMessage(MessageRole.SYSTEM, [ModelText(f"Working directory: {directory}")])
    return request


@STREAMS
@pytest.mark.parametrize("format", FORMATS)
async def test_calls_follow_the_client_to_another_directory(tmp_path: Path, format: str, stream: bool) -> None:
    turns = "- [{say: In /old/place.}, {shell: 'cat {{ directory }}/a /old/placebo'}]\n- say: Done here."
    request = in_directory("/old/place", stream=stream)
    first = await recorded_exchange(request, format, turns=turns)
    answer = read(format, b"".join(data for _, data in first.response), stream)
    second = await recorded_exchange(continue_conversation(request, answer), format, turns=turns)
    provider = ReplayProvider("r", write(tmp_path / "a.jsonl", first, second))
    request = in_directory("/new", stream=stream)
    answer = await get_whole_answer(provider, request, format)
    assert text_of(answer) == "In /new."
    assert calls_of(answer) == [("Bash", {"command": "cat /new/a /old/placebo"})]
    assert text_of(await get_whole_answer(provider, continue_conversation(request, answer), format)) == "Done here."
    back = await provider.send(ask(in_directory("/old/place", stream=stream), format))
    assert await received(back) == [data for _, data in first.response]


# What counts as the same


def sample_request(text: str, *, directory: str = "/w", day: str = "2026-11-15", call: str = "c1") -> ModelRequest:
    return ModelRequest(
        "some-model",
        [
            ModelMessage(
                MessageRole.SYSTEM, [ModelText(f"Today is {day} 10:20.\nWorking directory: {directory}\nBe brief.")]
            ),
            ModelMessage(MessageRole.USER, [ModelText(f"<env>{day} in /tmp/run-{call}/x</env>"), ModelText(text)]),
            ModelMessage(
                MessageRole.ASSISTANT, [ModelToolCall(call, "Bash", json.dumps({"command": f"ls {directory}", "a": 1}))]
            ),
            ModelMessage(
                MessageRole.USER,
                [ModelToolResult(call, [ModelText(f"Wall time: 0.{len(call)} seconds\npid {len(day)}\nok")])],
            ),
        ],
        tools=[BASH],
    )


def key(request: ModelRequest) -> bytes:
    return RequestMatcher().fingerprint(request).key


def test_dates_directories_and_ids_are_ignored() -> None:
    one = sample_request("Go")
    two = sample_request("Go", directory="/home/me/other", day="December 3, 2027", call="call_9f8e")
    assert key(one) == key(two)
    changed = replace(one, model="m2", stream=True, temperature=1.0, max_tokens=5, seed=3, user="me", tools=[
        replace(BASH, description="Runs."),
    ])  # fmt: skip
    changed.messages[2].parts.insert(0, ModelThinking("Hm", "seal"))
    changed.messages[1].parts.append(ModelText(" ", cached=True))
    assert key(one) == key(changed)
    reordered = sample_request("Go")
    reordered.messages[2].parts[0] = ModelToolCall("x", "Bash", '{"a":1,"command":"ls /w"}')
    assert key(one) == key(reordered)


def test_texts_calls_and_tools_are_significant() -> None:
    one = sample_request("Go on 2026-11-15")
    others = [
        sample_request("Go on 2026-11-16"),
        replace(one, tools=[]),
        replace(one, json_mode=True),
        replace(one, messages=one.messages[:-1]),
        replace(one, messages=[ModelMessage(MessageRole.SYSTEM, [ModelText("Be long.")]), *one.messages[1:]]),
        replace(
            one,
            messages=[
                *one.messages[:3],
                ModelMessage(MessageRole.USER, [ModelToolResult("c1", [ModelText("failed")])]),
            ],
        ),
        replace(one, messages=[*one.messages, ModelMessage(MessageRole.USER, [ModelMedia("image", data="AAAA")])]),
        replace(one, messages=[*one.messages, ModelMessage(MessageRole.USER, [ModelMedia("image", data="BBBB")])]),
    ]
    assert len({key(one), *map(key, others)}) == 9


@given(st.lists(st.tuples(st.sampled_from(list(MessageRole)), st.text(max_size=30)), max_size=8))
def test_request_matches_itself(role_texts: list[tuple[MessageRole, str]]) -> None:
    request = ModelRequest("m", [ModelMessage(role, [ModelText(text)]) for role, text in role_texts])
    assert RequestMatcher().fingerprint(request) == RequestMatcher().fingerprint(request)
    assert describe_request_difference(request, request) == "the choice of tool or the shape of the answer differs"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (sample_request("Stop"), "message 1 (user) differs: 'Stop', recorded 'Go'"),
        (replace(sample_request("Go"), messages=sample_request("Go").messages[:2]), "the recorded request goes on"),
        (
            replace(
                sample_request("Go"),
                messages=[*sample_request("Go").messages, ModelMessage(MessageRole.ASSISTANT, [ModelText("Hm")])],
            ),
            "message 4 (assistant) has no counterpart",
        ),
        (
            replace(
                sample_request("Go"),
                messages=[ModelMessage(MessageRole.SYSTEM, [ModelText("Shout.")]), *sample_request("Go").messages[1:]],
            ),
            "message 2 (assistant) differs: ",
        ),
        (
            replace(
                sample_request("Go"),
                messages=[*sample_request("Go").messages, ModelMessage(MessageRole.SYSTEM, [ModelText("Shout.")])],
            ),
            "the system prompt differs: the recording has no 'Shout.'",
        ),
        (replace(sample_request("Go"), tools=[replace(BASH, name="Sh")]), "the tools differ: new Sh; missing Bash"),
    ],
)
def test_differences_are_described(changed: ModelRequest, expected: str) -> None:
    assert expected in describe_request_difference(changed, sample_request("Go"))


# Misses


@pytest.mark.parametrize("format", FORMATS)
async def test_miss_names_nearest_exchange_and_difference(tmp_path: Path, format: str) -> None:
    exchanges = await conversation(stream=False)
    provider = ReplayProvider("r", write(tmp_path / "a.jsonl", *exchanges))
    answer = await get_whole_answer(provider, start_conversation())
    answered = await provider.send(ask(continue_conversation(start_conversation(), answer, "b.txt"), format))
    assert answered.status == 404
    message = FORMATS[format].read_failure(404, await answered.read()).message
    assert "replay r: no recorded request asks for the same" in message
    assert exchanges[0].id in message or exchanges[1].id in message
    assert "message 3 (user)" in message


async def test_a_miss_of_an_empty_recording(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    answered = await ReplayProvider("r", RecordingFileSource(tmp_path / "a.jsonl")).send(ask(start_conversation()))
    assert b"no conversation is recorded yet" in await answered.read()


async def test_a_miss_goes_to_a_live_model_and_is_recorded(tmp_path: Path) -> None:
    config = ProviderConfig(kind="replay", file=tmp_path / "new.jsonl", miss="live")
    provider = new_replay_provider("r", config)
    with pytest.raises(ReplayMiss) as caught:
        await provider.send(ask(start_conversation()))
    assert caught.value.model == "live"
    assert "no conversation is recorded yet" in caught.value.reason
    exchange = await recorded_exchange(start_conversation(), id="live-1")
    assert await provider.record(exchange)
    assert text_of(await get_whole_answer(provider, start_conversation())) == "I will look at it now."
    assert read_recording(tmp_path / "new.jsonl") == [to_recorded_exchange(exchange)]
    assert (
        text_of(await get_whole_answer(new_replay_provider("r", config), start_conversation()))
        == "I will look at it now."
    )
    assert not await provider.record(replace(exchange, outcome=ExchangeOutcome.REFUSED))


async def test_invalid_request_is_refused_and_is_no_miss(tmp_path: Path) -> None:
    provider = ReplayProvider("r", RecordingFileSource(tmp_path / "a.jsonl", may_be_missing=True), miss="live")
    assert (await provider.send(ProviderRequest("anthropic", "generate", "m", b"{", False, CALLER))).status == 400


async def test_embeddings_are_replayed_by_their_body(tmp_path: Path) -> None:
    body = b'{"model": "m", "input": "a"}'
    recorded = RecordedExchange("e1", "openai-chat", "embed", "m", False, body, 200, ((0.1, b'{"data": []}'),))
    RecordingWriter(tmp_path / "a.jsonl").add(recorded)
    provider = ReplayProvider("r", RecordingFileSource(tmp_path / "a.jsonl"))
    same = ProviderRequest("openai-chat", "embed", "x", b'{"input":"a","model":"x"}', False, CALLER)
    assert await (await provider.send(same)).read() == b'{"data": []}'
    other = await provider.send(replace(same, body=b'{"input":"b","model":"x"}'))
    assert other.status == 404 and b"no recorded embed asks for the same" in await other.read()


# In sequence


async def run(provider: ReplayProvider, prompt: str, outputs: Sequence[str], caller: ModelCaller = CALLER) -> list[str]:
    request, texts = start_conversation(prompt), []
    for output in outputs:
        answer: ModelAnswer = await get_whole_answer(provider, request, caller=caller)
        texts.append(text_of(answer))
        request = continue_conversation(request, answer, output)
    return texts


async def test_sequence_answers_any_request(tmp_path: Path) -> None:
    exchanges = await conversation(stream=False)
    provider = ReplayProvider("r", write(tmp_path / "a.jsonl", *exchanges), match="sequence")
    expected = ["I will look at it now.", "It says a.txt. That is all there is."]
    assert await run(provider, "Something else entirely", ["other", "more"]) == expected
    assert await run(provider, "Do it.", ["other", "more"]) == expected
    request = start_conversation("Yet another")
    answer = await get_whole_answer(provider, request)
    request = continue_conversation(request, answer)
    request = continue_conversation(request, await get_whole_answer(provider, request))
    answered = await provider.send(ask(request))
    assert answered.status == 404
    assert b"the recorded conversation has no answer number 3" in await answered.read()


async def test_conversations_of_a_sequence_are_assigned_in_order(tmp_path: Path) -> None:
    first = [
        await recorded_exchange(start_conversation("a"), id="1", turns="- say: A"),
        await recorded_exchange(start_conversation("b"), id="2", turns="- say: B"),
    ]
    title = await recorded_exchange(start_conversation("title", []), id="3", turns="- say: Title")
    provider = ReplayProvider("r", write(tmp_path / "a.jsonl", title, *first), match="sequence")
    assert [
        text_of(await get_whole_answer(provider, start_conversation(prompt))) for prompt in ("x", "y", "x", "b")
    ] == list("ABAB")
    assert text_of(await get_whole_answer(provider, start_conversation("z", []))) == "Title"


async def test_a_sequence_without_such_a_conversation_misses(tmp_path: Path) -> None:
    provider = ReplayProvider(
        "r", write(tmp_path / "a.jsonl", await recorded_exchange(start_conversation())), match="sequence"
    )
    answered = await provider.send(ask(start_conversation("title", [])))
    assert b"no conversation without tools is recorded" in await answered.read()


async def test_failure_and_retry_are_replayed_in_sequence(tmp_path: Path) -> None:
    failed = await recorded_exchange(start_conversation(), id="1", turns="- fail: 500")
    failed.outcome = ExchangeOutcome.FAILED
    provider = ReplayProvider(
        "r",
        write(tmp_path / "a.jsonl", failed, await recorded_exchange(start_conversation(), id="2")),
        match="sequence",
    )
    assert [(await provider.send(ask(start_conversation()))).status for _ in range(4)] == [500, 200, 500, 200]


# From the archive


class Archive:
    """Exchanges of several tenants, as an archive has them."""

    def __init__(self) -> None:
        self.exchanges_by_tenant: dict[str, list[RecordedExchange]] = {}
        self.fetched = 0

    async def list_ids(self, tenant: str, since: float) -> Sequence[str]:
        return [each.id for each in self.exchanges_by_tenant.get(tenant, []) if each.at >= since]

    async def fetch(self, tenant: str, id: str) -> RecordedExchange | None:
        self.fetched += 1
        return next((each for each in self.exchanges_by_tenant.get(tenant, []) if each.id == id), None)


async def test_growing_archive_is_replayed_to_its_tenant() -> None:
    archive = Archive()
    provider = new_replay_provider("r", ProviderConfig(kind="replay"), archive)
    assert (await provider.send(ask(start_conversation()))).status == 404
    exchange = await recorded_exchange(start_conversation())
    archive.exchanges_by_tenant["tenant"] = [to_recorded_exchange(exchange)]
    assert text_of(await get_whole_answer(provider, start_conversation())) == "I will look at it now."
    stranger = ModelCaller("stranger", "key")
    assert (await provider.send(ask(start_conversation(), caller=stranger))).status == 404
    before = archive.fetched
    await get_whole_answer(provider, start_conversation())
    assert archive.fetched == before + 1
    assert not await provider.record(exchange)


async def test_replayed_exchanges_are_not_replayed() -> None:
    archive = Archive()
    exchange = replace(await recorded_exchange(start_conversation()), provider_kind="replay")
    archive.exchanges_by_tenant["tenant"] = [to_recorded_exchange(exchange)]
    assert (await ReplayProvider("r", archive).send(ask(start_conversation()))).status == 404


async def test_index_drops_the_oldest() -> None:
    index = RecordedExchangeIndex(RequestMatcher(), max_entries=3)
    exchanges = [
        to_recorded_exchange(await recorded_exchange(start_conversation(f"prompt {number}"), id=f"e{number}"))
        for number in range(6)
    ]
    for exchange in exchanges:
        index.add(exchange)
    assert [f"e{number}" in index for number in range(6)] == [False] * 3 + [True] * 3
    likenesses = [RequestMatcher().fingerprint(start_conversation(f"prompt {number}")) for number in range(6)]
    assert [len(index.find_same(each.key)) for each in likenesses] == [0, 0, 0, 1, 1, 1]
    assert len(index.conversations) == 3


def test_replay_requires_a_recording_or_an_archive(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no archive to replay from"):
        new_replay_provider("r", ProviderConfig(kind="replay"))
    with pytest.raises(
        ConfigError, match=r"^llm\.providers\.r\.file: .*none\.jsonl cannot be read: there is no such file$"
    ):
        new_replay_provider("r", ProviderConfig(kind="replay", file=tmp_path / "none.jsonl"))
