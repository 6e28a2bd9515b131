"""Exchanges are joined into conversations."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from paddock.llm.archive import conversation_export as exporting
from paddock.llm.archive.archive import ExchangeArchive
from paddock.llm.archive.conversation_threads import ConversationThread, group_exchanges_into_conversations
from paddock.llm.archive.exchange_parsing import restore_model_messages
from paddock.llm.exchange import Exchange, ExchangeOutcome
from paddock.llm.formats.neutral import (
    FinishReason,
    MessageRole,
    ModelAnswer,
    ModelMessage,
    ModelText,
    ModelThinking,
    ModelToolCall,
    ModelToolResult,
    TokenUsage,
)
from paddock.model.exchanges import ExchangeFilters

from .exchange_samples import START, an_exchange, archive

pytestmark = pytest.mark.anyio
AGENT = "You are an agent that writes programs with great care and little talk."
TITLE = "Make up a short headline for what the person says."
TOOLS = [{"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}]

FAILED: dict[str, Any] = {"status": 529, "outcome": ExchangeOutcome.FAILED, "response": [], "usage": None}
REFUSED: dict[str, Any] = {"status": 404, "outcome": ExchangeOutcome.REFUSED, "response": [], "usage": None}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def model(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


class ExchangeSequence:
    """Stores exchanges in the order in which agents make them."""

    def __init__(self, exchange_archive: ExchangeArchive) -> None:
        self.exchange_archive = exchange_archive
        self.number = 0

    def ask(
        self, system: str, *messages: dict[str, Any], tools: bool = True, answer: str = "ok", **fields: Any
    ) -> Exchange:
        self.number += 1
        body = {"tools": TOOLS} if tools else {}
        whole = [{"role": "system", "content": system}, *messages] if system else list(messages)
        exchange = an_exchange(self.number, whole, answer, body=body, **fields)
        self.exchange_archive.enqueue(exchange)
        return exchange

    async def threads(self) -> list[ConversationThread]:
        await self.exchange_archive.flush()
        return list(await self.exchange_archive.list_conversations("default", "sb-1"))


def texts(thread: ConversationThread) -> list[str]:
    return [part.text for message in thread.messages for part in message.parts if isinstance(part, ModelText)]


async def test_main_conversation_side_calls_and_sub_agents_are_distinguished(tmp_path: Path) -> None:
    async with archive(tmp_path) as exchange_archive:
        sequence = ExchangeSequence(exchange_archive)
        probe = sequence.ask("", user("quota"), tools=False)
        title = sequence.ask(TITLE, user("fix it"), tools=False, answer="Fixing")
        main = [sequence.ask(AGENT, user("fix it"), answer="a")]
        main.append(sequence.ask(AGENT, user("fix it"), model("a"), user("go on"), answer="b"))
        searcher = "Search the files and report what was found, nothing else whatsoever."
        sub = [
            sequence.ask(searcher, user("find x"), answer="s"),
            sequence.ask(searcher, user("find x"), model("s"), user("t")),
        ]
        main.append(
            sequence.ask(AGENT, *[user("fix it"), model("a"), user("go on"), model("b"), user("done?")], answer="c")
        )
        threads = await sequence.threads()
        assert [(thread.kind, [each.id for each in thread.exchanges]) for thread in threads] == [
            ("main", [exchange.id for exchange in main]),
            ("subagent", [exchange.id for exchange in sub]),
            ("side", [probe.id]),
            ("side", [title.id]),
        ]
        assert texts(threads[0]) == [AGENT, "fix it", "a", "go on", "b", "done?", "c"]
        assert threads[0].messages[-1].role is MessageRole.ASSISTANT
        assert threads[0].usage == TokenUsage(9, 6) and threads[0].cost == pytest.approx(0.003)
        assert threads[0].models == ["fast"]


async def test_clock_in_system_prompt_does_not_split_conversation(tmp_path: Path) -> None:
    async with archive(tmp_path) as exchange_archive:
        sequence = ExchangeSequence(exchange_archive)
        history: list[dict[str, Any]] = []
        for minute in range(5):
            history.append(user(f"q{minute}"))
            sequence.ask(f"{AGENT} It is 12:0{minute}.", *history)
            history.append(model("ok"))
        threads = await sequence.threads()
        assert [(thread.kind, len(thread.exchanges)) for thread in threads] == [("main", 5)]


async def test_moving_cache_marks_do_not_split_conversation(tmp_path: Path) -> None:
    def marked(text: str) -> dict[str, Any]:
        content = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]
        return {"role": "user", "content": content}

    async with archive(tmp_path) as exchange_archive:
        system = [{"type": "text", "text": AGENT}]
        turns = [
            [marked("a")],
            [user("a"), model("b"), marked("c")],
            [user("a"), model("b"), user("c"), model("d"), marked("e")],
        ]
        for number, messages in enumerate(turns):
            body = {"model": "claude", "system": system, "messages": messages, "max_tokens": 9}
            exchange_archive.enqueue(
                an_exchange(number, format="anthropic", request=json.dumps(body).encode(), response=[])
            )
        await exchange_archive.flush()
        threads = await exchange_archive.list_conversations("default", "sb-1")
        assert [len(thread.exchanges) for thread in threads] == [3]
        assert texts(threads[0]) == [AGENT, "a", "b", "c", "d", "e"]


async def test_retry_belongs_to_conversation_with_its_good_answer(tmp_path: Path) -> None:
    async with archive(tmp_path) as exchange_archive:
        sequence = ExchangeSequence(exchange_archive)
        sequence.ask(AGENT, user("q"), **FAILED)
        sequence.ask(AGENT, user("q"), answer="", response=[], outcome=ExchangeOutcome.CLIENT_GONE)
        sequence.ask(AGENT, user("q"), answer="good")
        sequence.ask(AGENT, user("q"), model("good"), user("more"), **FAILED)
        sequence.ask(AGENT, user("q"), model("good"), user("more"), answer="better")
        (thread,) = await sequence.threads()
        assert len(thread.exchanges) == 5 and thread.turns == 3
        assert texts(thread) == [AGENT, "q", "good", "more", "better"]


async def test_repeated_answered_question_starts_a_conversation(tmp_path: Path) -> None:
    async with archive(tmp_path) as exchange_archive:
        sequence = ExchangeSequence(exchange_archive)
        sequence.ask(AGENT, user("q"), answer="one")
        sequence.ask(AGENT, user("q"), answer="two")
        sequence.ask(AGENT, user("q"), model="absent", **REFUSED)
        sequence.ask(AGENT, user("q"), model("two"), user("more"), answer="three")
        sequence.ask(AGENT, user("q"), model("two"), user("more"), answer="four")
        threads = await sequence.threads()
        assert [(thread.kind, thread.turns, texts(thread)[-1]) for thread in threads] == [
            ("main", 1, "one"),
            ("main", 2, "three"),
            ("branch", 1, "four"),
            ("side", 0, "q"),
        ]
        assert threads[2].parent == threads[1].id


async def test_refused_request_is_never_the_main_conversation(tmp_path: Path) -> None:
    async with archive(tmp_path) as exchange_archive:
        sequence = ExchangeSequence(exchange_archive)
        for name in ("a", "b", "c"):
            sequence.ask("", user("x"), tools=False, model=name, **REFUSED)
        for number in range(4):
            sequence.ask("Be brief." if number == 3 else "", user(f"question {number}"), tools=False)
        threads = await sequence.threads()
        assert [(thread.kind, thread.turns, len(thread.exchanges)) for thread in threads] == [
            ("main", 1, 1),
            ("main", 1, 1),
            ("main", 1, 1),
            ("main", 1, 1),
            ("side", 0, 3),
        ]


async def test_request_of_another_time_or_client_is_not_a_side_call(tmp_path: Path) -> None:
    async with archive(tmp_path) as exchange_archive:
        sequence = ExchangeSequence(exchange_archive)
        sequence.ask(AGENT, user("q"))
        sequence.ask(AGENT, user("q"), model("ok"), user("r"))
        title = sequence.ask(TITLE, user("q"), tools=False)
        other = sequence.ask(TITLE, user("by hand"), tools=False, client="curl/8.0")
        late = sequence.ask(TITLE, user("later"), tools=False, at=START + 100)
        kinds = {thread.id: thread.kind for thread in await sequence.threads()}
        assert (kinds[title.id], kinds[other.id], kinds[late.id]) == ("side", "main", "main")


async def test_thousand_equal_requests_are_grouped_quickly(tmp_path: Path) -> None:
    words = " ".join(f"word{chr(97 + number % 26)}{chr(97 + number // 26)}" for number in range(600))
    async with archive(tmp_path) as exchange_archive:
        sequence = ExchangeSequence(exchange_archive)
        for number in range(1000):
            sequence.ask(f"{words} {number}", user("q"))
        await exchange_archive.flush()
        tree = await exchange_archive._exchanges.read_turn_tree("default", ExchangeFilters())
        began = time.perf_counter()
        assert len(group_exchanges_into_conversations(tree)) == 1000
        assert time.perf_counter() - began < 10


def thoughtful(text: str, thought: str, *calls: dict[str, Any]) -> list[tuple[float, bytes]]:
    message = {"role": "assistant", "content": text, "reasoning_content": thought, "tool_calls": list(calls) or None}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return [(0.1, json.dumps({"id": "c", "object": "chat.completion", "model": "m", "choices": [choice]}).encode())]


async def test_thoughts_dropped_by_the_client_are_restored_and_exported(tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": "{}"}}
    called = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "a.txt"}
    async with archive(tmp_path) as exchange_archive:
        sequence = ExchangeSequence(exchange_archive)
        history = [user("q")]
        sequence.ask(AGENT, *history, model="gpt-5", response=thoughtful("Let me look.", "first", call))
        history += [called, result]
        sequence.ask(AGENT, *history, model="gpt-5", response=thoughtful("ok", "second"))
        history += [model("ok "), user("again")]
        sequence.ask(AGENT, *history, model="gpt-5", response=thoughtful("ok", "third"))
        history += [model("ok"), user("edited"), model("never said"), user("end")]
        sequence.ask(AGENT, *history, model="gpt-5", response=thoughtful("bye", "last"))
        branch = [*history[:4], user("left")]
        sequence.ask(AGENT, *branch, model="gpt-5", response=thoughtful("there", "aside"))
        main, left = await sequence.threads()
        thoughts = ["first", "second", "third", "last"]
        assert [
            part.text for each in main.messages for part in each.parts if isinstance(part, ModelThinking)
        ] == thoughts
        assert texts(main) == [AGENT, "q", "Let me look.", "ok", "again", "ok", "edited", "never said", "end", "bye"]
        assert [part.text for each in left.messages for part in each.parts if isinstance(part, ModelThinking)] == [
            "first",
            "second",
            "aside",
        ]
        line, _ = [json.loads(line) async for line in exchange_archive.export_conversations("default")]
        reasoning_texts = [each.get("reasoning_content") for each in line["messages"] if each["role"] == "assistant"]
        assert reasoning_texts == ["first", "second", "third", None, "last"]
        line, _ = [
            json.loads(line) async for line in exchange_archive.export_conversations("default", form="anthropic")
        ]
        blocks = [block for each in line["messages"] if each["role"] == "assistant" for block in each["content"]]
        assert [block["thinking"] for block in blocks if block["type"] == "thinking"] == thoughts


def test_calls_without_ids_keep_their_results() -> None:
    thought, call = ModelThinking("hm"), ModelToolCall("call_x", "shell", '{"a": 1}')
    answer = ModelAnswer("r", "m", [thought, call], FinishReason.TOOLS)
    sent = ModelMessage(MessageRole.ASSISTANT, [ModelToolCall("call_0", "shell", '{"a":1}')])
    result = ModelMessage(MessageRole.USER, [ModelToolResult("call_0", [ModelText("b")])])
    restored = restore_model_messages([sent, result], [answer])
    assert restored == [
        ModelMessage(MessageRole.ASSISTANT, [thought, ModelToolCall("call_0", "shell", '{"a": 1}')]),
        result,
    ]


async def test_export_omits_unanswered_conversations_by_default(tmp_path: Path) -> None:
    async with archive(tmp_path) as exchange_archive:
        sequence = ExchangeSequence(exchange_archive)
        sequence.ask("", user("x"), **REFUSED)
        answered = sequence.ask("", user("y"))
        await exchange_archive.flush()
        assert [json.loads(line)["id"] async for line in exchange_archive.export_conversations("default")] == [
            answered.id
        ]
        assert len([line async for line in exchange_archive.export_conversations("default", unanswered=True)]) == 2


async def test_export_is_ordered_by_time_with_api_field_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "EXCHANGES_AT_ONCE", 3)
    async with archive(tmp_path) as exchange_archive:
        sequence = ExchangeSequence(exchange_archive)
        made = [
            sequence.ask(AGENT, user(f"q{number}"), sandbox=("sb-2", "sb-1", None)[number % 3], estimated=number == 0)
            for number in range(24)
        ]
        await exchange_archive.flush()
        lines = [json.loads(line) async for line in exchange_archive.export_conversations("default")]
        assert [line["id"] for line in lines] == [exchange.id for exchange in made]
        assert lines[0]["usage"] == {"input": 3, "output": 2, "cacheRead": 0, "cacheWrite": 0, "reasoning": 0}
        assert lines[0]["at"] == "2026-09-21T14:13:21Z"
        assert [line["estimated"] for line in lines[:2]] == [True, False]


async def test_shortened_history_starts_a_branch(tmp_path: Path) -> None:
    async with archive(tmp_path) as exchange_archive:
        sequence = ExchangeSequence(exchange_archive)
        sequence.ask(AGENT, user("q"))
        sequence.ask(AGENT, user("q"), model("ok"), user("left"))
        sequence.ask(AGENT, user("q"), model("ok"), user("right"))
        main, branch = await sequence.threads()
        assert (main.kind, branch.kind, branch.parent) == ("main", "branch", main.id)
        assert texts(branch)[-2:] == ["right", "ok"]


async def test_invalid_request_is_a_conversation(tmp_path: Path) -> None:
    async with archive(tmp_path) as exchange_archive:
        exchange_archive.enqueue(
            an_exchange(1, request=b"{}", status=400, response=[], outcome=ExchangeOutcome.REFUSED)
        )
        exchange_archive.enqueue(an_exchange(2, operation="embed"))
        await exchange_archive.flush()
        (thread,) = await exchange_archive.list_conversations("default", "sb-1")
        assert thread.messages == [] and thread.notes
        assert await exchange_archive.list_conversations("default", "sb-2") == []


async def test_export_in_both_forms(tmp_path: Path) -> None:
    async with archive(tmp_path) as exchange_archive:
        sequence = ExchangeSequence(exchange_archive)
        sequence.ask(AGENT, user("q"), sandbox="sb-2", key="key-2")
        call = {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": '{"command": "ls"}'}}
        called = {"role": "assistant", "content": None, "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": "c1", "content": "a.txt"}
        sequence.ask(AGENT, user("list"))
        sequence.ask(AGENT, user("list"), called, result, answer="There is a.txt.")
        sequence.ask(AGENT, user("alone"), sandbox=None)
        await exchange_archive.flush()
        lines = [json.loads(line) async for line in exchange_archive.export_conversations("default", form="openai")]
        assert len(lines) == 3
        listed = next(line for line in lines if line.get("sandbox") == "sb-1")
        roles = [message["role"] for message in listed["messages"]]
        assert roles == ["system", "user", "assistant", "tool", "assistant"] and len(listed["exchanges"]) == 2
        assert listed["messages"][2]["tool_calls"] == [call] and listed["tools"][0]["function"]["name"] == "shell"
        lines = [
            json.loads(line)
            async for line in exchange_archive.export_conversations(
                "default", ExchangeFilters(sandbox="sb-1"), form="anthropic"
            )
        ]
        (listed,) = lines
        assert AGENT in json.dumps(listed["system"])
        assert [block["type"] for block in listed["messages"][1]["content"]] == ["tool_use"]
        assert listed["messages"][2]["content"][0]["type"] == "tool_result"
        assert listed["messages"][-1]["role"] == "assistant"
