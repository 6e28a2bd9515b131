"""Conversations that have become too long for their model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from paddock.agents.engines.base import FILE_SCHEME
from paddock.agents.model.compaction import estimate_tokens, find_file_paths, shorten_messages
from paddock.agents.model.model_requests import ModelError
from paddock.model.sessions import PlanStep
from paddock.store.chat_sessions.reply_store import ReplyStore
from tests.integration.agents.model_harness import SHELL_TOOL, ModelHarness, open_model_harness, user_message
from tests.support.fake_provider import (
    FakeProvider,
    PlannedResponse,
    ReceivedRequest,
    json_response,
    run_fake_provider,
    sse_response,
)

pytestmark = pytest.mark.anyio
ROOM = 4000
PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 20


def answer(text: str) -> PlannedResponse:
    head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    chunks = [{**head, "choices": [choice]}, {**head, "choices": [], "usage": usage}]
    return sse_response([f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks] + [b"data: [DONE]\n\n"])


class Model:
    """Says what it is asked for, and counts its summaries."""

    def __init__(self, fake: FakeProvider) -> None:
        self.fake = fake
        self.summaries = 0
        self.fails = False
        fake.script = self.answer

    def answer(self, request: ReceivedRequest) -> PlannedResponse:
        document = request.document
        if "sum up" in document["messages"][0]["content"]:
            if self.fails:
                return json_response({"error": {"message": "no summary today"}}, 500)
            self.summaries += 1
            assert "tools" not in document
            return answer(f"Summary {self.summaries}.")
        return answer("Fine.")

    @property
    def last(self) -> list[dict[str, Any]]:
        """Return the last model request that is not a summary's."""
        asked: list[list[dict[str, Any]]] = [each.document["messages"] for each in self.fake.received]
        return [said for said in asked if "sum up" not in str(said[0]["content"])][-1]

    @property
    def to_sum_up(self) -> str:
        asked = [each.document["messages"] for each in self.fake.received]
        return str([said for said in asked if "sum up" in str(said[0]["content"])][-1][1]["content"])


@pytest.fixture
def model() -> Iterator[Model]:
    with run_fake_provider() as fake:
        yield Model(fake)


@asynccontextmanager
async def small(data: Path, model: Model, **chat: Any) -> AsyncIterator[ModelHarness]:
    provider = {"kind": "openai", "base_url": f"{model.fake.url}/v1", "key": "k", "retries": 0}
    async with open_model_harness(data, providers={"m": provider}, chat={"contexts": {"m": ROOM}, **chat}) as here:
        yield here


def talk(steps: int, start: int = 0) -> list[dict[str, Any]]:
    """Steps of an agent, each a call and its result, of about 300 tokens."""
    said: list[dict[str, Any]] = []
    for number in range(start, start + steps):
        function = {"name": SHELL_TOOL.name, "arguments": json.dumps({"command": f"cat /srv/file-{number}.txt"})}
        calls = [{"id": f"call_{number}", "type": "function", "function": function}]
        said.append({"role": "assistant", "content": f"Step {number}.", "tool_calls": calls})
        said.append({"role": "tool", "tool_call_id": f"call_{number}", "content": f"result {number} " + "x" * 1150})
    return said


SYSTEM = {"role": "system", "content": "Be brief."}
GOAL = user_message("Read all files in /srv and write /tmp/report.md.")


def check_pairs(said: list[dict[str, Any]]) -> None:
    """Every result stands behind its call, and every call has its result."""
    open_calls: list[str] = []
    for message in said:
        if message["role"] == "tool":
            assert message["tool_call_id"] in open_calls
            open_calls.remove(message["tool_call_id"])
        else:
            assert not open_calls
            open_calls = [call["id"] for call in message.get("tool_calls") or ()]
    assert not open_calls


async def test_what_fits_is_sent_as_it_is(tmp_path: Path, model: Model) -> None:
    async with small(tmp_path, model) as here:
        session = await here.session("m")
        await here.ask(session, [SYSTEM, GOAL, *talk(5)], [SHELL_TOOL])
        assert model.last == [SYSTEM, GOAL, *talk(5)] and model.summaries == 0


async def test_the_older_part_is_summed_up_once(tmp_path: Path, model: Model) -> None:
    async with small(tmp_path, model) as here:
        session = await here.session("m", plan=(PlanStep(title="Read", state="running"), PlanStep(title="Write")))
        await here.ask(session, [SYSTEM, GOAL, *talk(20)], [SHELL_TOOL])
        said = model.last
        assert said[:2] == [SYSTEM, GOAL]
        summary = said[2]["content"]
        left_out = 42 - (len(said) - 1)
        assert said[2]["role"] == "user" and summary.startswith(f"[summary of {left_out} earlier messages]\nSummary 1.")
        assert "/srv/file-0.txt" in summary and "- [running] Read" in summary and "- [pending] Write" in summary
        assert said[-1] == talk(20)[-1]
        check_pairs(said)
        assert ROOM // 4 < estimate_tokens(said, 3) <= ROOM
        assert "result 0 " in model.to_sum_up and "result 19 " not in model.to_sum_up
        (told,) = [each.data for each in await here.told(session) if each.type == "session.compacted"]
        assert told["messages"] == left_out and told["before"] > ROOM >= told["after"]
        usage = (await here.book.get(session.id)).usage
        assert (usage.requests, usage.input_tokens) == (2, 20)
        # The next question has the same summary, also after a restart; so the model may keep what it has read.
        here.voice, before = here.another_voice(), here.voice
        await before.close()
        await here.voice.open()
        await here.ask(session, [SYSTEM, GOAL, *talk(21)], [SHELL_TOOL])
        assert model.last[2]["content"] == summary and model.summaries == 1
        check_pairs(model.last)


async def test_a_summary_goes_on_from_the_one_before(tmp_path: Path, model: Model) -> None:
    async with small(tmp_path, model) as here:
        session = await here.session("m")
        for steps in range(12, 40, 2):
            await here.ask(session, [SYSTEM, GOAL, *talk(steps)], [SHELL_TOOL])
            check_pairs(model.last)
            assert estimate_tokens(model.last, 3) <= ROOM
        assert 2 <= model.summaries < 10, "not one for each question"
        assert f"A summary of what came before:\nSummary {model.summaries - 1}." in model.to_sum_up
        assert "result 0 " not in model.to_sum_up
        assert "/srv/file-0.txt" in model.last[2]["content"], "paths are never forgotten"
        assert len(await ReplyStore(here.store).list_summaries(session.id)) == model.summaries


async def test_without_a_summary_the_middle_is_left_out(tmp_path: Path, model: Model) -> None:
    model.fails = True
    async with small(tmp_path, model) as here:
        session = await here.session("m")
        await here.ask(session, [SYSTEM, GOAL, *talk(20)], [SHELL_TOOL])
        said = model.last
        assert "left out" in said[2]["content"] and "/srv/file-3.txt" in said[2]["content"]
        assert said[:2] == [SYSTEM, GOAL] and estimate_tokens(said, 3) <= ROOM
        check_pairs(said)
        model.fails = False
        await here.ask(session, [SYSTEM, GOAL, *talk(21)], [SHELL_TOOL])
        assert "Summary 1." in model.last[2]["content"]


async def test_what_the_model_itself_finds_too_long_is_made_shorter(tmp_path: Path, model: Model) -> None:
    usual = model.answer

    def strict(request: ReceivedRequest) -> PlannedResponse:
        if estimate_tokens(request.document["messages"], 0) > ROOM // 2:
            error = {"message": "This model's maximum context length is 2000 tokens", "code": "context_length_exceeded"}
            return json_response({"error": error}, 400)
        return usual(request)

    model.fake.script = strict
    async with small(tmp_path, model) as here:
        session = await here.session("m")
        reply = await here.reply(session, [SYSTEM, GOAL, *talk(10)], tools=[SHELL_TOOL])
        assert reply.message.text == "Fine." and estimate_tokens(model.last, 0) <= ROOM // 2
        kinds = await here.kinds(session, "message.delta", "usage.changed", "session.compacted")
        assert kinds == ["step.started", "message.started", "message.ended", "step.ended"]
        model.fake.always_respond(json_response({"error": {"message": "x", "code": "context_length_exceeded"}}, 400))
        with pytest.raises(ModelError):
            await here.ask(session, [user_message("Hi.")])


async def test_a_task_that_is_too_long_by_itself_is_shortened(tmp_path: Path, model: Model) -> None:
    async with small(tmp_path, model) as here:
        session = await here.session("m")
        await here.ask(session, [SYSTEM, user_message("Read this: " + "y" * 40_000), *talk(1)], [SHELL_TOOL])
        assert model.summaries == 0 and estimate_tokens(model.last, 0) <= ROOM
        assert "characters left out" in model.last[1]["content"] and model.last[2:] == talk(1)


async def test_pictures_are_sent_with_what_is_said(tmp_path: Path, model: Model) -> None:
    async with small(tmp_path, model, pictures=1) as here:
        session = await here.session("m")
        files = [await here.files.store_file(session.id, PNG + bytes([number])) for number in (1, 2)]
        result = [{"type": "image_url", "image_url": {"url": FILE_SCHEME + file.file}} for file in files]
        steps = talk(2)
        steps[1]["content"], steps[3]["content"] = result[:1], result[1:]
        await here.ask(session, [GOAL, *steps], [SHELL_TOOL])
        said = model.last
        assert "left out" in said[2]["content"]
        assert [each["role"] for each in said] == ["user", "assistant", "tool", "assistant", "tool", "user"]
        assert said[5]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")


def test_one_message_that_is_too_long_loses_its_middle() -> None:
    said = shorten_messages([SYSTEM, user_message("a" * 50_000 + "z")], ROOM, 0)
    assert estimate_tokens(said, 0) <= ROOM and said[0] == SYSTEM
    assert said[1]["content"].startswith("aaa") and said[1]["content"].endswith("az")
    assert "characters left out" in said[1]["content"]


def test_paths_are_found_in_what_was_said() -> None:
    text = "Wrote `/tmp/a b/c.txt`, ./src/x.py and ~/notes.md (see /etc/hosts). 1/2 http://example.org/x and / too"
    assert find_file_paths([text, "again /etc/hosts"]) == ["/tmp/a", "./src/x.py", "~/notes.md", "/etc/hosts"]
    assert len(find_file_paths([" ".join(f"/f/{n}" for n in range(1000))])) == 100
