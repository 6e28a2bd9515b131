"""Exchanges are joined into conversations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paddock.llm.archive.archive import Archive
from paddock.llm.archive.threads import Thread
from paddock.llm.exchange import Exchange, Outcome
from paddock.llm.neutral import Role, Text, Usage
from paddock.model.exchanges import Filters

from .archive_cases import an_exchange, archive

pytestmark = pytest.mark.anyio
AGENT = "You are an agent that writes programs with great care and little talk."
TITLE = "Make up a short headline for what the person says."
TOOLS = [{"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def model(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


class Talk:
    """Keeps exchanges as agents make them."""

    def __init__(self, kept: Archive) -> None:
        self.kept = kept
        self.number = 0

    def ask(
        self, system: str, *messages: dict[str, Any], tools: bool = True, answer: str = "ok", **fields: Any
    ) -> Exchange:
        self.number += 1
        body = {"tools": TOOLS} if tools else {}
        whole = [{"role": "system", "content": system}, *messages] if system else list(messages)
        exchange = an_exchange(self.number, whole, answer, body=body, **fields)
        self.kept.keep(exchange)
        return exchange

    async def threads(self) -> list[Thread]:
        await self.kept.flush()
        return list(await self.kept.conversations("default", "sb-1"))


def texts(thread: Thread) -> list[str]:
    return [part.text for message in thread.messages for part in message.parts if isinstance(part, Text)]


async def test_the_main_conversation_side_calls_and_sub_agents_are_told_apart(tmp_path: Path) -> None:
    async with archive(tmp_path) as kept:
        talk = Talk(kept)
        probe = talk.ask("", user("quota"), tools=False)
        title = talk.ask(TITLE, user("fix it"), tools=False, answer="Fixing")
        main = [talk.ask(AGENT, user("fix it"), answer="a")]
        main.append(talk.ask(AGENT, user("fix it"), model("a"), user("go on"), answer="b"))
        searcher = "Search the files and report what was found, nothing else whatsoever."
        sub = [
            talk.ask(searcher, user("find x"), answer="s"),
            talk.ask(searcher, user("find x"), model("s"), user("t")),
        ]
        main.append(
            talk.ask(AGENT, *[user("fix it"), model("a"), user("go on"), model("b"), user("done?")], answer="c")
        )
        threads = await talk.threads()
        assert [(thread.kind, [each.id for each in thread.exchanges]) for thread in threads] == [
            ("main", [exchange.id for exchange in main]),
            ("subagent", [exchange.id for exchange in sub]),
            ("side", [probe.id]),
            ("side", [title.id]),
        ]
        assert texts(threads[0]) == [AGENT, "fix it", "a", "go on", "b", "done?", "c"]
        assert threads[0].messages[-1].role is Role.ASSISTANT
        assert threads[0].usage == Usage(9, 6) and threads[0].cost == pytest.approx(0.003)
        assert threads[0].models == ["fast"]


async def test_a_clock_in_the_system_prompt_does_not_break_a_conversation(tmp_path: Path) -> None:
    async with archive(tmp_path) as kept:
        talk = Talk(kept)
        said: list[dict[str, Any]] = []
        for minute in range(5):
            said.append(user(f"q{minute}"))
            talk.ask(f"{AGENT} It is 12:0{minute}.", *said)
            said.append(model("ok"))
        threads = await talk.threads()
        assert [(thread.kind, len(thread.exchanges)) for thread in threads] == [("main", 5)]


async def test_moving_caching_marks_do_not_break_a_conversation(tmp_path: Path) -> None:
    def marked(text: str) -> dict[str, Any]:
        content = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]
        return {"role": "user", "content": content}

    async with archive(tmp_path) as kept:
        system = [{"type": "text", "text": AGENT}]
        turns = [
            [marked("a")],
            [user("a"), model("b"), marked("c")],
            [user("a"), model("b"), user("c"), model("d"), marked("e")],
        ]
        for number, messages in enumerate(turns):
            body = {"model": "claude", "system": system, "messages": messages, "max_tokens": 9}
            kept.keep(an_exchange(number, format="anthropic", request=json.dumps(body).encode(), response=[]))
        await kept.flush()
        threads = await kept.conversations("default", "sb-1")
        assert [len(thread.exchanges) for thread in threads] == [3]
        assert texts(threads[0]) == [AGENT, "a", "b", "c", "d", "e"]


async def test_a_retry_belongs_to_its_conversation_and_the_good_answer_is_shown(tmp_path: Path) -> None:
    async with archive(tmp_path) as kept:
        talk = Talk(kept)
        talk.ask(AGENT, user("q"), answer="first")
        talk.ask(AGENT, user("q"), status=529, outcome=Outcome.FAILED, response=[])
        threads = await talk.threads()
        assert [len(thread.exchanges) for thread in threads] == [2] and texts(threads[0])[-1] == "first"


async def test_going_back_makes_a_branch(tmp_path: Path) -> None:
    async with archive(tmp_path) as kept:
        talk = Talk(kept)
        talk.ask(AGENT, user("q"))
        talk.ask(AGENT, user("q"), model("ok"), user("left"))
        talk.ask(AGENT, user("q"), model("ok"), user("right"))
        main, branch = await talk.threads()
        assert (main.kind, branch.kind, branch.parent) == ("main", "branch", main.id)
        assert texts(branch)[-2:] == ["right", "ok"]


async def test_a_request_that_makes_no_sense_is_a_conversation_too(tmp_path: Path) -> None:
    async with archive(tmp_path) as kept:
        kept.keep(an_exchange(1, request=b"{}", status=400, response=[], outcome=Outcome.REFUSED))
        kept.keep(an_exchange(2, operation="embed"))
        await kept.flush()
        (thread,) = await kept.conversations("default", "sb-1")
        assert thread.messages == [] and thread.notes
        assert await kept.conversations("default", "sb-2") == []


async def test_export_in_both_forms(tmp_path: Path) -> None:
    async with archive(tmp_path) as kept:
        talk = Talk(kept)
        talk.ask(AGENT, user("q"), sandbox="sb-2", key="key-2")
        call = {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": '{"command": "ls"}'}}
        called = {"role": "assistant", "content": None, "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": "c1", "content": "a.txt"}
        talk.ask(AGENT, user("list"))
        talk.ask(AGENT, user("list"), called, result, answer="There is a.txt.")
        talk.ask(AGENT, user("alone"), sandbox=None)
        await kept.flush()
        lines = [json.loads(line) async for line in kept.export("default", form="openai")]
        assert len(lines) == 3
        listed = next(line for line in lines if line.get("sandbox") == "sb-1")
        roles = [message["role"] for message in listed["messages"]]
        assert roles == ["system", "user", "assistant", "tool", "assistant"] and len(listed["exchanges"]) == 2
        assert listed["messages"][2]["tool_calls"] == [call] and listed["tools"][0]["function"]["name"] == "shell"
        lines = [json.loads(line) async for line in kept.export("default", Filters(sandbox="sb-1"), form="anthropic")]
        (listed,) = lines
        assert AGENT in json.dumps(listed["system"])
        assert [block["type"] for block in listed["messages"][1]["content"]] == ["tool_use"]
        assert listed["messages"][2]["content"][0]["type"] == "tool_result"
        assert listed["messages"][-1]["role"] == "assistant"
