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


async def test_an_answer_is_told_as_it_comes_and_kept_at_its_end(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": USE}) as here:
        session = await here.session("m")
        pieces = await here.ask(session, [user_message("Look.")], [SHELL_TOOL])
        thought = "".join(piece.text for piece in pieces if isinstance(piece, ThoughtPiece))
        text = "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))
        calls = [piece.call for piece in pieces if isinstance(piece, CallPiece)]
        reply = pieces[-1]
        assert isinstance(reply, ModelReply) and not reply.from_records and reply.finish == "tool_calls"
        assert (thought, text) == ("I should look.", "I look.")
        assert [call.arguments["command"] for call in calls] == ["ls", "pwd"]
        assert all(call.id.startswith("call_") for call in calls) and calls[0].id != calls[1].id
        assert (reply.input_tokens, reply.output_tokens) == (11, 7)
        assert here.parked == 1
        (kept,) = await here.book.list_messages(session.id)
        assert kept == reply.message and kept.number == 1 and kept.cut is None
        assert (kept.text, kept.thought, kept.calls) == ("I look.", "I should look.", tuple(calls))
        assert await here.kinds(session, "call.delta", "message.delta", "thought.delta") == [
            "step.started", "message.started", "thought.started", "thought.ended", "call.started", "call.started",
            "message.ended", "usage.changed", "step.ended",
        ]  # fmt: skip
        told = await here.told(session)
        assert "".join(each.data["text"] for each in told if each.type == "message.delta") == "I look."
        written = {call.id: "" for call in calls}
        for each in told:
            if each.type == "call.delta":
                written[each.data["call_id"]] += each.data["text"]
        assert [json.loads(arguments) for arguments in written.values()] == [call.arguments for call in calls]
        ended = next(each.data for each in told if each.type == "message.ended")
        assert ended["text"] == "I look." and [ToolCall.model_validate(each) for each in ended["calls"]] == calls
        assert told[-1].data == {"turn": 1, "step": 1, "calls": 2}
        usage = (await here.book.get(session.id)).usage
        assert (usage.requests, usage.input_tokens, usage.output_tokens) == (1, 11, 7)
        await here.gateway.archive.flush()
        (exchange,), _ = await here.gateway.archive.list_exchanges(TENANT)
        assert exchange.session == session.id


async def test_what_was_answered_before_is_not_asked_again(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": USE}) as here:
        session = await here.session("m")
        first = await here.reply(session, [user_message("Look.")], tools=[SHELL_TOOL])
        told = await here.kinds(session)
        # As after a restart: nothing in memory.
        here.voice, before = here.another_voice(), here.voice
        await before.close()
        await here.voice.open()
        pieces = await here.ask(session, [user_message("Look.")], [SHELL_TOOL])
        assert pieces[-1] == ModelReply(first.message, first.finish, 11, 7, from_records=True)
        assert [piece.call for piece in pieces if isinstance(piece, CallPiece)] == list(first.message.calls)
        assert await here.kinds(session) == told
        # But in another turn, of another helper, or with another word it is another question.
        for more in ({"turn": 2}, {"by": "helper"}):
            other = await here.reply(session, [user_message("Look.")], tools=[SHELL_TOOL], **more)
            assert not other.from_records and other.message.id != first.message.id
        assert not (await here.reply(session, [user_message("Look!")], tools=[SHELL_TOOL])).from_records
        assert (await here.book.get(session.id)).usage.requests == 4


async def test_helpers_are_told_apart(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": SAY}) as here:
        session = await here.session("m")
        one, two = await asyncio.gather(
            here.reply(session, [user_message("Hi.")], by="one"), here.reply(session, [user_message("Hi.")], by="two")
        )
        assert {one.message.by, two.message.by} == {"one", "two"}
        steps = [each.data for each in await here.told(session) if each.type == "step.started"]
        assert sorted(each["step"] for each in steps) == [1, 2]
        assert {each["by"] for each in steps} == {"one", "two"}


async def test_the_first_words_do_not_wait_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_batcher, "FLUSH_INTERVAL", 60.0)
    async with open_model_harness(tmp_path, {"m": {"turns": [[{"think": "Hm."}, {"say": "Hello there."}]]}}) as here:
        session = await here.session("m")
        asking = here.voice.ask_model(session, 1, [user_message("Hi.")])
        assert isinstance(await anext(asking), ThoughtPiece)
        await until(lambda: _has(here, session, "thought.delta"))
        assert isinstance(await anext(asking), TextPiece)
        await until(lambda: _has(here, session, "message.delta"))
        _ = [piece async for piece in asking]


async def test_deltas_are_gathered(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": {**SLOW, "pace": "1ms"}}) as here:
        session = await here.session("m")
        asking = here.voice.ask_model(session, 1, [user_message("Count.")])
        first = await anext(asking)
        assert isinstance(first, TextPiece)
        pieces = [first] + [piece async for piece in asking if isinstance(piece, TextPiece)]
        deltas = [each.data["text"] for each in await here.told(session) if each.type == "message.delta"]
        text = "".join(piece.text for piece in pieces)
        assert "".join(deltas) == text
        assert len(deltas) < len(pieces) / 2, (len(deltas), len(pieces))


async def _has(here: Any, session: Any, kind: str) -> bool:
    return kind in await here.kinds(session)


@pytest.mark.parametrize("way", ["cancel", "leave"])
async def test_what_was_said_before_a_cancellation_is_kept(tmp_path: Path, way: str) -> None:
    async with open_model_harness(tmp_path, {"m": SLOW}) as here:
        session = await here.session("m")
        heard: list[str] = []
        enough = asyncio.Event()

        async def listen() -> None:
            asking = here.voice.ask_model(session, 1, [user_message("Count.")])
            async for piece in asking:
                assert isinstance(piece, TextPiece)
                heard.append(piece.text)
                if len(heard) == 3:
                    enough.set()
                    if way == "leave":
                        await asking.aclose()
                        return

        task = asyncio.create_task(listen())
        async with asyncio.timeout(10):
            await enough.wait()
            if way == "cancel":
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled() == (way == "cancel")
        (kept,) = await here.book.list_messages(session.id)
        assert kept.cut == "cancelled" and kept.text == "".join(heard)
        ended = [each.data for each in await here.told(session) if each.type == "message.ended"]
        assert [(each["text"], each["cut"]) for each in ended] == [(kept.text, "cancelled")]
        assert (await here.kinds(session))[-1] == "step.ended"
        assert (await here.book.get(session.id)).usage.output_tokens > 0
        # It is no answer: asked again, the model answers anew.
        again = await here.reply(session, [user_message("Count.")])
        assert not again.from_records and again.message.cut is None


async def test_a_refusal_of_the_proxy_ends_the_question(tmp_path: Path) -> None:
    script = {"turns": [[{"fail": {"status": 429, "message": "Slow down", "times": "always"}}, {"say": "no"}]]}
    async with open_model_harness(tmp_path, {"m": script}) as here:
        session = await here.session("m")
        with pytest.raises(ModelError, match="Slow down") as caught:
            await here.ask(session, [user_message("Hi.")])
        assert caught.value.status == 429 and caught.value.code == "MODEL_ERROR"
        assert await here.kinds(session, "usage.changed") == ["step.started", "step.ended"]
        assert await here.book.list_messages(session.id) == []
        unknown = await here.session("nobody", id="session-2")
        with pytest.raises(ModelError, match="no model"):
            await here.ask(unknown, [user_message("Hi.")])


@pytest.mark.parametrize("trouble", [{"fail": {"status": 500, "message": "Ouch"}}, {"drop": {"times": "always"}}])
async def test_an_answer_that_breaks_off_is_kept_as_cut(tmp_path: Path, trouble: dict[str, Any]) -> None:
    script = {"turns": [[{"say": "I begin, and"}, trouble, {"say": " never end."}]]}
    async with open_model_harness(tmp_path, {"m": script}) as here:
        session = await here.session("m")
        with pytest.raises(ModelError):
            await here.ask(session, [user_message("Hi.")])
        (kept,) = await here.book.list_messages(session.id)
        assert kept.text == "I begin, and" and kept.cut is not None and kept.cut.startswith("error: ")
        ended = [each.data for each in await here.told(session) if each.type == "message.ended"]
        assert [each["cut"] for each in ended] == [kept.cut]


async def test_arguments_that_are_no_json_are_shown_as_they_are(tmp_path: Path) -> None:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        document = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return f"data: {json.dumps({**document, 'choices': [choice]})}\n\n".encode()

    def call(index: int, name: str | None, arguments: str) -> dict[str, Any]:
        function = {"arguments": arguments} | ({"name": name} if name else {})
        return {"tool_calls": [{"index": index, "function": function} | ({"id": f"theirs-{index}"} if name else {})]}

    wrong = ['{"a": ', "[1]", '{"a": 1e999}', '{"a": NaN}', "nonsense"]
    pieces = [chunk({"role": "assistant", "reasoning": "hm \ud83d"})]
    pieces += [chunk(call(index, "t", "")) for index in range(len(wrong) + 1)]
    # Their arguments come piece by piece, in turns.
    for place in range(12):
        for index, written in enumerate([*wrong, '{"b": "\\ud800"}']):
            if written[place * 2 : place * 2 + 2]:
                pieces.append(chunk(call(index, None, written[place * 2 : place * 2 + 2])))
    pieces += [chunk({}, "tool_calls"), b"data: [DONE]\n\n"]
    with run_fake_provider() as fake:
        fake.always_respond(sse_response(pieces))
        providers = {"m": {"kind": "openai", "base_url": f"{fake.url}/v1", "key": "k", "retries": 0}}
        async with open_model_harness(tmp_path, providers=providers) as here:
            session = await here.session("m")
            reply = await here.reply(session, [user_message("Hi.")], tools=[SHELL_TOOL])
            assert [call.malformed for call in reply.message.calls] == [*wrong, None]
            assert reply.message.calls[-1].arguments == {"b": "?"}
            assert reply.message.thought.startswith("hm ")
            assert reply.input_tokens > 0, "by estimate, where the provider does not say"
            sent = fake.received[0].document
            assert sent["stream"] is True and sent["stream_options"] == {"include_usage": True}
            assert sent["tools"][0]["function"]["name"] == SHELL_TOOL.name


async def test_a_server_that_died_left_a_message_without_end(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": SAY}) as here:
        session = await here.session("m")
        stream = f"session/{session.id}"
        for told in (
            StepStarted(turn=1, step=1),
            MessageStarted(message_id="old", turn=1, step=1),
            ThoughtStarted(message_id="old"),
        ):
            await here.events.append(stream, told.event, told.data(), tenant=TENANT)
        for text in ("Hel", "lo"):
            data = {"message_id": "old", "text": text}
            await here.events.append(stream, told.event.__class__("message.delta"), data, tenant=TENANT)
        await asyncio.gather(*(here.reply(session, [user_message("Hi.")], by=name) for name in ("one", "two")))
        told_now = (await here.told(session))[5:]
        assert [str(each.type) for each in told_now[:3]] == ["thought.ended", "message.ended", "step.ended"]
        assert told_now[1].data == {"message_id": "old", "text": "Hello", "calls": [], "cut": "restart"}
        ends = [each.data["message_id"] for each in told_now if each.type == "message.ended"]
        assert len(ends) == len(set(ends)) == 3


async def test_a_turn_has_so_many_steps(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": SAY}, {"steps": 3}) as here:
        session = await here.session("m")
        for number in range(3):
            await here.ask(session, [user_message(f"Question {number}.")])
        with pytest.raises(TurnLimitReached):
            await here.ask(session, [user_message("One more.")])
        here.voice, before = here.another_voice(), here.voice
        await before.close()
        await here.voice.open()
        with pytest.raises(TurnLimitReached):
            await here.ask(session, [user_message("One more.")])
        # An engine that starts anew may ask all of it again, one that never gets on may not go on for ever.
        for number in range(3):
            assert (await here.reply(session, [user_message(f"Question {number}.")])).from_records
        for _ in range(2):
            await here.ask(session, [user_message("Question 0.")])
        with pytest.raises(TurnLimitReached):
            await here.ask(session, [user_message("Question 0.")])
        assert not (await here.reply(session, [user_message("Question 0.")], turn=2)).from_records


async def test_a_session_over_its_budget_asks_nothing(tmp_path: Path) -> None:
    script = {"turns": [[{"say": "Hi."}, {"usage": {"input": 60, "output": 40}}]]}
    async with open_model_harness(tmp_path, {"m": script}) as here:
        session = await here.session("m", budget=100)
        await here.ask(session, [user_message("Hi.")])
        with pytest.raises(QuotaExceeded, match="100 of its 100"):
            await here.ask(session, [user_message("More.")])
        assert (await here.reply(session, [user_message("Hi.")])).from_records, "what is known costs nothing"


async def test_an_agent_program_is_told_of_in_the_same_way(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": SAY}) as here:
        session = await here.session("m")
        call = ToolCall(id="theirs", name="Bash", arguments={"command": "ls"})
        async with here.voice.start_message(session, 1) as said:
            await said.write_thought("Hm.")
            await said.write_text("Hello ")
            await said.write_text("you.")
            kept = await said.finish([call])
        assert (kept.id, kept.text, kept.thought, kept.calls) == (said.message_id, "Hello you.", "Hm.", (call,))
        async with here.voice.start_message(session, 1) as cut:
            await cut.write_text("I beg")
        with pytest.raises(ValueError, match="it broke"):
            await _break_off(here.voice.start_message(session, 1))
        async with here.voice.start_message(session, 1):
            pass
        messages = await here.book.list_messages(session.id)
        assert [message.cut for message in messages] == [None, "unfinished", "error: it broke"]
        steps = [each.data["step"] for each in await here.told(session) if each.type == "step.started"]
        assert steps == [1, 2, 3, 4]
        assert (await here.book.get(session.id)).usage.requests == 0


async def _break_off(failing: MessageWriter) -> None:
    async with failing:
        await failing.write_text("I fai")
        raise ValueError("it broke")


async def test_others_ask_with_the_key_of_the_session_until_it_is_forgotten(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": SAY}) as here:
        session = await here.session("m")
        path, key = await here.voice.connection_details(session)
        assert (path, key) == await here.voice.connection_details(session)
        assert Path(path).stat().st_mode & 0o777 == 0o600
        assert Path(path).parent.stat().st_mode & 0o777 == 0o700
        assert (await here.keys.find_by_secret(key)).session == session.id
        await here.voice.revoke_key(session.id)
        await here.voice.revoke_key(session.id)
        with pytest.raises(Unauthorized, match="revoked"):
            await here.keys.find_by_secret(key)
        # One that a server left which was killed is revoked by the next.
        _, key = await here.voice.connection_details(session)
        after = here.another_voice()
        await after.open()
        with pytest.raises(Unauthorized, match="revoked"):
            await here.keys.find_by_secret(key)
        await after.close()


async def test_a_key_that_somebody_revoked_is_made_anew(tmp_path: Path) -> None:
    async with open_model_harness(tmp_path, {"m": SAY}) as here:
        session = await here.session("m")
        await here.ask(session, [user_message("Hi.")])
        assert await here.keys.revoke_for_sessions() == 1
        with pytest.raises(ModelError, match="revoked") as caught:
            await here.ask(session, [user_message("Hi again.")])
        assert caught.value.status == 401
        assert not (await here.reply(session, [user_message("Hi again.")])).from_records


@pytest.mark.parametrize(("finish", "word"), [("length", "length"), ("filtered", "content_filter"), ("stop", "stop")])
async def test_why_an_answer_ended_is_told(tmp_path: Path, finish: str, word: str) -> None:
    async with open_model_harness(tmp_path, {"m": {"turns": [[{"say": "Hm."}, {"finish": finish}]]}}) as here:
        session = await here.session("m")
        assert (await here.reply(session, [user_message("Hi.")])).finish == word
        assert (await here.reply(session, [user_message("Hi.")])).finish == word, "from the records too"


async def test_a_long_data_directory_has_a_short_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    async with open_model_harness(deep, {"m": SAY}) as here:
        session = await here.session("m")
        path, _ = await here.voice.connection_details(session)
        assert len(path) <= 100
        (socket,) = deep.rglob("models.sock")  # Where the next server finds it, if this one is killed.
        assert socket.parent.stat().st_mode & 0o777 == 0o700
        await here.ask(session, [user_message("Hi.")])
    assert not socket.exists()


async def test_the_first_word_comes_soon(tmp_path: Path) -> None:
    """Measure the latency that storing and emitting add to the first token."""
    async with open_model_harness(tmp_path, {"m": SAY}) as here:
        session = await here.session("m")
        _, key = await here.voice.connection_details(session)
        await here.ask(session, [user_message("Warm up.")])
        ours: list[float] = []
        bare: list[float] = []
        asking = here.voice._open_client
        for number in range(20):
            messages = [user_message(f"Question {number}.")]
            began = time.perf_counter()
            pieces = here.voice.ask_model(session, 1, messages)
            await anext(pieces)
            ours.append(time.perf_counter() - began)
            _ = [piece async for piece in pieces]
            began = time.perf_counter()
            events = asking.stream_reply(key, "m", messages)
            await anext(events)
            bare.append(time.perf_counter() - began)
            _ = [event async for event in events]
        median = sorted(ours)[10], sorted(bare)[10]
        told = f"first word: {median[0] * 1000:.1f} ms, of the proxy alone {median[1] * 1000:.1f} ms"
        assert median[0] - median[1] < 0.1, told


async def test_what_it_costs(tmp_path: Path) -> None:
    providers = {"gpt-4o-mini": {"kind": "openai", "base_url": "http://127.0.0.1:9/v1", "key": "k"}}
    async with open_model_harness(tmp_path, {"hello": {"turns": [{"say": "Hello."}]}}, providers=providers) as here:
        dear = here.gateway.compute_cost("gpt-4o-mini", TokenUsage(1_000_000, 1_000_000))
        assert dear is not None and dear > 0.1
        assert here.gateway.compute_cost("nobody", TokenUsage(1, 1)) is None
        session = await here.session("hello")
        await here.reply(session, [user_message("Hi.")])
        (told,) = [event for event in await here.told(session) if event.type == "usage.changed"]
        assert told.data["usage"]["cost"] == 0, "a script costs nothing, and that is known"
