"""Model requests of sessions: events, stored messages and recorded replies."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from paddock.agents import event_batcher
from paddock.agents.engines.base import CallPiece, MessageWriter, ModelReply, TextPiece, ThoughtPiece, TurnLimitReached
from paddock.agents.model.model_requests import ModelError
from paddock.errors import QuotaExceeded, Unauthorized
from paddock.llm.formats.neutral import TokenUsage
from paddock.model.session_events import MessageStarted, StepStarted, ThoughtStarted
from paddock.model.sessions import ToolCall
from tests.integration.agents.model_harness import SHELL_TOOL, TENANT, open_model_harness, user_message
from tests.support.fake_provider import run_fake_provider, sse_response

pytestmark = pytest.mark.anyio
SAY = {"turns": [{"say": "Hello there, whoever you are."}]}
USE = {
    "turns": [
        [
            {"think": "I should look."},
            {"say": "I look."},
            {"call": {"tool": "code_run_shell_command", "arguments": {"command": "ls"}}},
            {"call": {"tool": "code_run_shell_command", "arguments": {"command": "pwd"}}},
            {"usage": {"input": 11, "output": 7}},
        ],
        {"say": "Done."},
    ]
}
SLOW = {"pace": "30ms", "turns": [{"say": "one two three four five six seven eight nine ten " * 20}]}


async def until(condition: Callable[[], Coroutine[Any, Any, bool]], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.005)


async def test_reply_is_streamed_and_stored_at_its_end(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": USE}) as harness:
        session = await harness.create_session("m")
        pieces = await harness.ask_model(session, [user_message("Look.")], [SHELL_TOOL])
        thought = "".join(piece.text for piece in pieces if isinstance(piece, ThoughtPiece))
        text = "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))
        calls = [piece.call for piece in pieces if isinstance(piece, CallPiece)]
        reply = pieces[-1]
        assert isinstance(reply, ModelReply) and not reply.from_records and reply.finish == "tool_calls"
        assert (thought, text) == ("I should look.", "I look.")
        assert [call.arguments["command"] for call in calls] == ["ls", "pwd"]
        assert all(call.id.startswith("call_") for call in calls) and calls[0].id != calls[1].id
        assert (reply.input_tokens, reply.output_tokens) == (11, 7)
        assert harness.pause_count == 1
        (stored,) = await harness.session_store.list_messages(session.id)
        assert stored == reply.message and stored.number == 1 and stored.cut is None
        assert (stored.text, stored.thought, stored.calls) == ("I look.", "I should look.", tuple(calls))
        assert await harness.event_types(session, "call.delta", "message.delta", "thought.delta") == [
            "step.started", "message.started", "thought.started", "thought.ended", "call.started", "call.started",
            "message.ended", "usage.changed", "step.ended",
        ]  # fmt: skip
        events = await harness.list_events(session)
        assert "".join(each.data["text"] for each in events if each.type == "message.delta") == "I look."
        arguments_by_call = {call.id: "" for call in calls}
        for each in events:
            if each.type == "call.delta":
                arguments_by_call[each.data["call_id"]] += each.data["text"]
        assert [json.loads(arguments) for arguments in arguments_by_call.values()] == [call.arguments for call in calls]
        ended = next(each.data for each in events if each.type == "message.ended")
        assert ended["text"] == "I look." and [ToolCall.model_validate(each) for each in ended["calls"]] == calls
        assert events[-1].data == {"turn": 1, "step": 1, "calls": 2}
        usage = (await harness.session_store.get(session.id)).usage
        assert (usage.requests, usage.input_tokens, usage.output_tokens) == (1, 11, 7)
        await harness.gateway.archive.flush()
        (exchange,), _ = await harness.gateway.archive.list_exchanges(TENANT)
        assert exchange.session == session.id


async def test_answered_question_gets_recorded_reply(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": USE}) as harness:
        session = await harness.create_session("m")
        first = await harness.ask_for_reply(session, [user_message("Look.")], tools=[SHELL_TOOL])
        types_before = await harness.event_types(session)
        # A new client knows only stored state, as after a restart.
        harness.session_model, previous_model = harness.create_session_model(), harness.session_model
        await previous_model.close()
        await harness.session_model.open()
        pieces = await harness.ask_model(session, [user_message("Look.")], [SHELL_TOOL])
        assert pieces[-1] == ModelReply(first.message, first.finish, 11, 7, from_records=True)
        assert [piece.call for piece in pieces if isinstance(piece, CallPiece)] == list(first.message.calls)
        assert await harness.event_types(session) == types_before
        # In another turn, by another helper, or with another text it is another question.
        for options in ({"turn": 2}, {"by": "helper"}):
            other = await harness.ask_for_reply(session, [user_message("Look.")], tools=[SHELL_TOOL], **options)
            assert not other.from_records and other.message.id != first.message.id
        assert not (await harness.ask_for_reply(session, [user_message("Look!")], tools=[SHELL_TOOL])).from_records
        assert (await harness.session_store.get(session.id)).usage.requests == 4


async def test_helper_requests_name_the_helper(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": SAY}) as harness:
        session = await harness.create_session("m")
        one, two = await asyncio.gather(
            harness.ask_for_reply(session, [user_message("Hi.")], by="one"),
            harness.ask_for_reply(session, [user_message("Hi.")], by="two"),
        )
        assert {one.message.by, two.message.by} == {"one", "two"}
        steps = [each.data for each in await harness.list_events(session) if each.type == "step.started"]
        assert sorted(each["step"] for each in steps) == [1, 2]
        assert {each["by"] for each in steps} == {"one", "two"}


async def test_first_piece_is_emitted_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_batcher, "FLUSH_INTERVAL", 60.0)
    async with open_model_harness(tmp_path, {"m": {"turns": [[{"think": "Hm."}, {"say": "Hello there."}]]}}) as harness:
        session = await harness.create_session("m")
        pieces = harness.session_model.ask_model(session, 1, [user_message("Hi.")])
        assert isinstance(await anext(pieces), ThoughtPiece)
        await until(lambda: _has_event(harness, session, "thought.delta"))
        assert isinstance(await anext(pieces), TextPiece)
        await until(lambda: _has_event(harness, session, "message.delta"))
        _ = [piece async for piece in pieces]


async def test_deltas_are_batched(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": {**SLOW, "pace": "1ms"}}) as harness:
        session = await harness.create_session("m")
        reply = harness.session_model.ask_model(session, 1, [user_message("Count.")])
        first = await anext(reply)
        assert isinstance(first, TextPiece)
        pieces = [first] + [piece async for piece in reply if isinstance(piece, TextPiece)]
        deltas = [each.data["text"] for each in await harness.list_events(session) if each.type == "message.delta"]
        text = "".join(piece.text for piece in pieces)
        assert "".join(deltas) == text
        assert len(deltas) < len(pieces) / 2, (len(deltas), len(pieces))


async def _has_event(harness: Any, session: Any, event_type: str) -> bool:
    return event_type in await harness.event_types(session)


@pytest.mark.parametrize("way", ["cancel", "leave"])
async def test_partial_reply_is_stored_on_cancellation(tmp_path: Path, way: str) -> None:
    async with open_model_harness(tmp_path, {"m": SLOW}) as harness:
        session = await harness.create_session("m")
        pieces_received: list[str] = []
        received_enough = asyncio.Event()

        async def receive() -> None:
            pieces = harness.session_model.ask_model(session, 1, [user_message("Count.")])
            async for piece in pieces:
                assert isinstance(piece, TextPiece)
                pieces_received.append(piece.text)
                if len(pieces_received) == 3:
                    received_enough.set()
                    if way == "leave":
                        await pieces.aclose()
                        return

        task = asyncio.create_task(receive())
        async with asyncio.timeout(10):
            await received_enough.wait()
            if way == "cancel":
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled() == (way == "cancel")
        (stored,) = await harness.session_store.list_messages(session.id)
        assert stored.cut == "cancelled" and stored.text == "".join(pieces_received)
        ended = [each.data for each in await harness.list_events(session) if each.type == "message.ended"]
        assert [(each["text"], each["cut"]) for each in ended] == [(stored.text, "cancelled")]
        assert (await harness.event_types(session))[-1] == "step.ended"
        assert (await harness.session_store.get(session.id)).usage.output_tokens > 0
        # A partial reply is not recorded: the model is asked again.
        second_reply = await harness.ask_for_reply(session, [user_message("Count.")])
        assert not second_reply.from_records and second_reply.message.cut is None


async def test_proxy_refusal_raises_model_error(tmp_path: Path) -> None:
    script = {"turns": [[{"fail": {"status": 429, "message": "Slow down", "times": "always"}}, {"say": "no"}]]}
    async with open_model_harness(tmp_path, {"m": script}) as harness:
        session = await harness.create_session("m")
        with pytest.raises(ModelError, match="Slow down") as raised:
            await harness.ask_model(session, [user_message("Hi.")])
        assert raised.value.status == 429 and raised.value.code == "MODEL_ERROR"
        assert await harness.event_types(session, "usage.changed") == ["step.started", "step.ended"]
        assert await harness.session_store.list_messages(session.id) == []
        unknown = await harness.create_session("nobody", id="session-2")
        with pytest.raises(ModelError, match="no model"):
            await harness.ask_model(unknown, [user_message("Hi.")])


@pytest.mark.parametrize("trouble", [{"fail": {"status": 500, "message": "Ouch"}}, {"drop": {"times": "always"}}])
async def test_interrupted_reply_is_stored_as_cut(tmp_path: Path, trouble: dict[str, Any]) -> None:
    script = {"turns": [[{"say": "I begin, and"}, trouble, {"say": " never end."}]]}
    async with open_model_harness(tmp_path, {"m": script}) as harness:
        session = await harness.create_session("m")
        with pytest.raises(ModelError):
            await harness.ask_model(session, [user_message("Hi.")])
        (stored,) = await harness.session_store.list_messages(session.id)
        assert stored.text == "I begin, and" and stored.cut is not None and stored.cut.startswith("error: ")
        ended = [each.data for each in await harness.list_events(session) if each.type == "message.ended"]
        assert [each["cut"] for each in ended] == [stored.cut]


async def test_invalid_json_arguments_make_malformed_calls(tmp_path: Path) -> None:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        document = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return f"data: {json.dumps({**document, 'choices': [choice]})}\n\n".encode()

    def call(index: int, name: str | None, arguments: str) -> dict[str, Any]:
        function = {"arguments": arguments} | ({"name": name} if name else {})
        return {"tool_calls": [{"index": index, "function": function} | ({"id": f"theirs-{index}"} if name else {})]}

    invalid = ['{"a": ', "[1]", '{"a": 1e999}', '{"a": NaN}', "nonsense"]
    pieces = [chunk({"role": "assistant", "reasoning": "hm \ud83d"})]
    pieces += [chunk(call(index, "t", "")) for index in range(len(invalid) + 1)]
    # The arguments of all calls arrive interleaved, piece by piece.
    for offset in range(12):
        for index, arguments in enumerate([*invalid, '{"b": "\\ud800"}']):
            if arguments[offset * 2 : offset * 2 + 2]:
                pieces.append(chunk(call(index, None, arguments[offset * 2 : offset * 2 + 2])))
    pieces += [chunk({}, "tool_calls"), b"data: [DONE]\n\n"]
    with run_fake_provider() as fake:
        fake.always_respond(sse_response(pieces))
        providers = {"m": {"kind": "openai", "base_url": f"{fake.url}/v1", "key": "k", "retries": 0}}
        async with open_model_harness(tmp_path, providers=providers) as harness:
            session = await harness.create_session("m")
            reply = await harness.ask_for_reply(session, [user_message("Hi.")], tools=[SHELL_TOOL])
            assert [call.malformed for call in reply.message.calls] == [*invalid, None]
            assert reply.message.calls[-1].arguments == {"b": "?"}
            assert reply.message.thought.startswith("hm ")
            assert reply.input_tokens > 0, "by estimate, where the provider does not say"
            sent = fake.received[0].document
            assert sent["stream"] is True and sent["stream_options"] == {"include_usage": True}
            assert sent["tools"][0]["function"]["name"] == SHELL_TOOL.name


async def test_message_of_crashed_server_is_ended(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": SAY}) as harness:
        session = await harness.create_session("m")
        stream = f"session/{session.id}"
        for event in (
            StepStarted(turn=1, step=1),
            MessageStarted(message_id="old", turn=1, step=1),
            ThoughtStarted(message_id="old"),
        ):
            await harness.events.append(stream, event.event, event.data(), tenant=TENANT)
        for text in ("Hel", "lo"):
            data = {"message_id": "old", "text": text}
            await harness.events.append(stream, event.event.__class__("message.delta"), data, tenant=TENANT)
        await asyncio.gather(
            *(harness.ask_for_reply(session, [user_message("Hi.")], by=name) for name in ("one", "two"))
        )
        new_events = (await harness.list_events(session))[5:]
        assert [str(each.type) for each in new_events[:3]] == ["thought.ended", "message.ended", "step.ended"]
        assert new_events[1].data == {"message_id": "old", "text": "Hello", "calls": [], "cut": "restart"}
        ends = [each.data["message_id"] for each in new_events if each.type == "message.ended"]
        assert len(ends) == len(set(ends)) == 3


async def test_steps_of_a_turn_are_limited(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": SAY}, {"steps": 3}) as harness:
        session = await harness.create_session("m")
        for number in range(3):
            await harness.ask_model(session, [user_message(f"Question {number}.")])
        with pytest.raises(TurnLimitReached):
            await harness.ask_model(session, [user_message("One more.")])
        harness.session_model, previous_model = harness.create_session_model(), harness.session_model
        await previous_model.close()
        await harness.session_model.open()
        with pytest.raises(TurnLimitReached):
            await harness.ask_model(session, [user_message("One more.")])
        # A restarted engine may repeat all questions; an engine that loops is stopped.
        for number in range(3):
            assert (await harness.ask_for_reply(session, [user_message(f"Question {number}.")])).from_records
        for _ in range(2):
            await harness.ask_model(session, [user_message("Question 0.")])
        with pytest.raises(TurnLimitReached):
            await harness.ask_model(session, [user_message("Question 0.")])
        assert not (await harness.ask_for_reply(session, [user_message("Question 0.")], turn=2)).from_records


async def test_session_over_budget_sends_no_request(tmp_path: Path) -> None:
    script = {"turns": [[{"say": "Hi."}, {"usage": {"input": 60, "output": 40}}]]}
    async with open_model_harness(tmp_path, {"m": script}) as harness:
        session = await harness.create_session("m", budget=100)
        await harness.ask_model(session, [user_message("Hi.")])
        with pytest.raises(QuotaExceeded, match="100 of its 100"):
            await harness.ask_model(session, [user_message("More.")])
        assert (await harness.ask_for_reply(session, [user_message("Hi.")])).from_records, "what is known costs nothing"


async def test_external_messages_are_streamed_like_replies(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": SAY}) as harness:
        session = await harness.create_session("m")
        call = ToolCall(id="theirs", name="Bash", arguments={"command": "ls"})
        async with harness.session_model.start_message(session, 1) as writer:
            await writer.write_thought("Hm.")
            await writer.write_text("Hello ")
            await writer.write_text("you.")
            stored = await writer.finish([call])
        assert (stored.id, stored.text, stored.thought, stored.calls) == (
            writer.message_id,
            "Hello you.",
            "Hm.",
            (call,),
        )
        async with harness.session_model.start_message(session, 1) as unfinished:
            await unfinished.write_text("I beg")
        with pytest.raises(ValueError, match="it broke"):
            await _write_and_fail(harness.session_model.start_message(session, 1))
        async with harness.session_model.start_message(session, 1):
            pass
        messages = await harness.session_store.list_messages(session.id)
        assert [message.cut for message in messages] == [None, "unfinished", "error: it broke"]
        steps = [each.data["step"] for each in await harness.list_events(session) if each.type == "step.started"]
        assert steps == [1, 2, 3, 4]
        assert (await harness.session_store.get(session.id)).usage.requests == 0


async def _write_and_fail(writer: MessageWriter) -> None:
    async with writer:
        await writer.write_text("I fai")
        raise ValueError("it broke")


async def test_session_key_works_until_revoked(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": SAY}) as harness:
        session = await harness.create_session("m")
        path, key = await harness.session_model.connection_details(session)
        assert (path, key) == await harness.session_model.connection_details(session)
        assert Path(path).stat().st_mode & 0o777 == 0o600
        assert Path(path).parent.stat().st_mode & 0o777 == 0o700
        assert (await harness.keys.find_by_secret(key)).session == session.id
        await harness.session_model.revoke_key(session.id)
        await harness.session_model.revoke_key(session.id)
        with pytest.raises(Unauthorized, match="revoked"):
            await harness.keys.find_by_secret(key)
        # The key of a killed server is revoked by the next one.
        _, key = await harness.session_model.connection_details(session)
        next_model = harness.create_session_model()
        await next_model.open()
        with pytest.raises(Unauthorized, match="revoked"):
            await harness.keys.find_by_secret(key)
        await next_model.close()


async def test_revoked_session_key_is_replaced(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": SAY}) as harness:
        session = await harness.create_session("m")
        await harness.ask_model(session, [user_message("Hi.")])
        assert await harness.keys.revoke_for_sessions() == 1
        with pytest.raises(ModelError, match="revoked") as raised:
            await harness.ask_model(session, [user_message("Hi again.")])
        assert raised.value.status == 401
        assert not (await harness.ask_for_reply(session, [user_message("Hi again.")])).from_records


@pytest.mark.parametrize(("finish", "word"), [("length", "length"), ("filtered", "content_filter"), ("stop", "stop")])
async def test_finish_reason_is_returned(tmp_path: Path, finish: str, word: str) -> None:
    async with open_model_harness(tmp_path, {"m": {"turns": [[{"say": "Hm."}, {"finish": finish}]]}}) as harness:
        session = await harness.create_session("m")
        assert (await harness.ask_for_reply(session, [user_message("Hi.")])).finish == word
        assert (await harness.ask_for_reply(session, [user_message("Hi.")])).finish == word, "from the records too"


async def test_socket_path_is_short_for_long_data_directory(tmp_path: Path) -> None:
    long_directory = tmp_path / ("d" * 100)
    long_directory.mkdir()
    async with open_model_harness(long_directory, {"m": SAY}) as harness:
        session = await harness.create_session("m")
        path, _ = await harness.session_model.connection_details(session)
        assert len(path) <= 100
        (socket,) = long_directory.rglob("models.sock")  # Where the next server finds it, if this one is killed.
        assert socket.parent.stat().st_mode & 0o777 == 0o700
        await harness.ask_model(session, [user_message("Hi.")])
    assert not socket.exists()


async def test_first_piece_latency(tmp_path: Path) -> None:
    """Measure the latency that storing and emitting add to the first token."""
    async with open_model_harness(tmp_path, {"m": SAY}) as harness:
        session = await harness.create_session("m")
        _, key = await harness.session_model.connection_details(session)
        await harness.ask_model(session, [user_message("Warm up.")])
        session_times: list[float] = []
        proxy_times: list[float] = []
        proxy_client = harness.session_model._open_client
        for number in range(20):
            messages = [user_message(f"Question {number}.")]
            start_time = time.perf_counter()
            pieces = harness.session_model.ask_model(session, 1, messages)
            await anext(pieces)
            session_times.append(time.perf_counter() - start_time)
            _ = [piece async for piece in pieces]
            start_time = time.perf_counter()
            events = proxy_client.stream_reply(key, "m", messages)
            await anext(events)
            proxy_times.append(time.perf_counter() - start_time)
            _ = [event async for event in events]
        median = sorted(session_times)[10], sorted(proxy_times)[10]
        summary = f"first word: {median[0] * 1000:.1f} ms, of the proxy alone {median[1] * 1000:.1f} ms"
        assert median[0] - median[1] < 0.1, summary


async def test_cost_of_requests_is_counted(tmp_path: Path) -> None:
    providers = {"gpt-4o-mini": {"kind": "openai", "base_url": "http://127.0.0.1:9/v1", "key": "k"}}
    async with open_model_harness(tmp_path, {"hello": {"turns": [{"say": "Hello."}]}}, providers=providers) as harness:
        cost = harness.gateway.compute_cost("gpt-4o-mini", TokenUsage(1_000_000, 1_000_000))
        assert cost is not None and cost > 0.1
        assert harness.gateway.compute_cost("nobody", TokenUsage(1, 1)) is None
        session = await harness.create_session("hello")
        await harness.ask_for_reply(session, [user_message("Hi.")])
        (event,) = [event for event in await harness.list_events(session) if event.type == "usage.changed"]
        assert event.data["usage"]["cost"] == 0, "a script costs nothing, and that is known"
