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
from paddock.store.chat_sessions.reply_store import ModelReplyStore
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
MAX_TOKENS = 4000
PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 20


def answer(text: str) -> PlannedResponse:
    envelope = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    chunks = [{**envelope, "choices": [choice]}, {**envelope, "choices": [], "usage": usage}]
    return sse_response([f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks] + [b"data: [DONE]\n\n"])


class SummarizingModel:
    """Answers questions, and counts its summaries."""

    def __init__(self, fake: FakeProvider) -> None:
        self.fake = fake
        self.summaries = 0
        self.summary_fails = False
        fake.script = self.answer

    def answer(self, request: ReceivedRequest) -> PlannedResponse:
        document = request.document
        if "sum up" in document["messages"][0]["content"]:
            if self.summary_fails:
                return json_response({"error": {"message": "no summary today"}}, 500)
            self.summaries += 1
            assert "tools" not in document
            return answer(f"Summary {self.summaries}.")
        return answer("Fine.")

    @property
    def last_request(self) -> list[dict[str, Any]]:
        """Return the messages of the last model request that is not for a summary."""
        requests: list[list[dict[str, Any]]] = [each.document["messages"] for each in self.fake.received]
        return [messages for messages in requests if "sum up" not in str(messages[0]["content"])][-1]

    @property
    def summary_request(self) -> str:
        requests = [each.document["messages"] for each in self.fake.received]
        return str([messages for messages in requests if "sum up" in str(messages[0]["content"])][-1][1]["content"])


@pytest.fixture
def model() -> Iterator[SummarizingModel]:
    with run_fake_provider() as fake:
        yield SummarizingModel(fake)


@asynccontextmanager
async def open_small_model(data: Path, model: SummarizingModel, **chat: Any) -> AsyncIterator[ModelHarness]:
    provider = {"kind": "openai", "base_url": f"{model.fake.url}/v1", "key": "k", "retries": 0}
    async with open_model_harness(
        data, providers={"m": provider}, chat={"contexts": {"m": MAX_TOKENS}, **chat}
    ) as harness:
        yield harness


def agent_steps(steps: int, start: int = 0) -> list[dict[str, Any]]:
    """Return steps of an agent: calls with their results, of about 300 tokens each."""
    messages: list[dict[str, Any]] = []
    for number in range(start, start + steps):
        function = {"name": SHELL_TOOL.name, "arguments": json.dumps({"command": f"cat /srv/file-{number}.txt"})}
        calls = [{"id": f"call_{number}", "type": "function", "function": function}]
        messages.append({"role": "assistant", "content": f"Step {number}.", "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": f"result {number} " + "x" * 1150})
    return messages


SYSTEM = {"role": "system", "content": "Be brief."}
GOAL = user_message("Read all files in /srv and write /tmp/report.md.")


def check_pairs(messages: list[dict[str, Any]]) -> None:
    """Check that every result follows its call, and every call has its result."""
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in open_calls
            open_calls.remove(message["tool_call_id"])
        else:
            assert not open_calls
            open_calls = [call["id"] for call in message.get("tool_calls") or ()]
    assert not open_calls


async def test_fitting_conversation_is_sent_unchanged(tmp_path: Path, model: SummarizingModel) -> None:
    async with open_small_model(tmp_path, model) as harness:
        session = await harness.create_session("m")
        await harness.ask_model(session, [SYSTEM, GOAL, *agent_steps(5)], [SHELL_TOOL])
        assert model.last_request == [SYSTEM, GOAL, *agent_steps(5)] and model.summaries == 0


async def test_older_part_is_summarized_once(tmp_path: Path, model: SummarizingModel) -> None:
    async with open_small_model(tmp_path, model) as harness:
        session = await harness.create_session(
            "m", plan=(PlanStep(title="Read", state="running"), PlanStep(title="Write"))
        )
        await harness.ask_model(session, [SYSTEM, GOAL, *agent_steps(20)], [SHELL_TOOL])
        messages = model.last_request
        assert messages[:2] == [SYSTEM, GOAL]
        summary = messages[2]["content"]
        left_out = 42 - (len(messages) - 1)
        assert messages[2]["role"] == "user" and summary.startswith(
            f"[summary of {left_out} earlier messages]\nSummary 1."
        )
        assert "/srv/file-0.txt" in summary and "- [running] Read" in summary and "- [pending] Write" in summary
        assert messages[-1] == agent_steps(20)[-1]
        check_pairs(messages)
        assert MAX_TOKENS // 4 < estimate_tokens(messages, 3) <= MAX_TOKENS
        assert "result 0 " in model.summary_request and "result 19 " not in model.summary_request
        (event,) = [each.data for each in await harness.list_events(session) if each.type == "session.compacted"]
        assert event["messages"] == left_out and event["before"] > MAX_TOKENS >= event["after"]
        usage = (await harness.session_store.get(session.id)).usage
        assert (usage.requests, usage.input_tokens) == (2, 20)
        # The next question has the same summary, also after a restart, so that prompt caches stay valid.
        harness.session_model, previous_model = harness.create_session_model(), harness.session_model
        await previous_model.close()
        await harness.session_model.open()
        await harness.ask_model(session, [SYSTEM, GOAL, *agent_steps(21)], [SHELL_TOOL])
        assert model.last_request[2]["content"] == summary and model.summaries == 1
        check_pairs(model.last_request)


async def test_new_summary_extends_the_previous_one(tmp_path: Path, model: SummarizingModel) -> None:
    async with open_small_model(tmp_path, model) as harness:
        session = await harness.create_session("m")
        for steps in range(12, 40, 2):
            await harness.ask_model(session, [SYSTEM, GOAL, *agent_steps(steps)], [SHELL_TOOL])
            check_pairs(model.last_request)
            assert estimate_tokens(model.last_request, 3) <= MAX_TOKENS
        assert 2 <= model.summaries < 10, "not one for each question"
        assert f"A summary of what came before:\nSummary {model.summaries - 1}." in model.summary_request
        assert "result 0 " not in model.summary_request
        assert "/srv/file-0.txt" in model.last_request[2]["content"], "paths are never forgotten"
        assert len(await ModelReplyStore(harness.store).list_summaries(session.id)) == model.summaries


async def test_older_part_is_left_out_if_summary_fails(tmp_path: Path, model: SummarizingModel) -> None:
    model.summary_fails = True
    async with open_small_model(tmp_path, model) as harness:
        session = await harness.create_session("m")
        await harness.ask_model(session, [SYSTEM, GOAL, *agent_steps(20)], [SHELL_TOOL])
        messages = model.last_request
        assert "left out" in messages[2]["content"] and "/srv/file-3.txt" in messages[2]["content"]
        assert messages[:2] == [SYSTEM, GOAL] and estimate_tokens(messages, 3) <= MAX_TOKENS
        check_pairs(messages)
        model.summary_fails = False
        await harness.ask_model(session, [SYSTEM, GOAL, *agent_steps(21)], [SHELL_TOOL])
        assert "Summary 1." in model.last_request[2]["content"]


async def test_conversation_too_long_for_the_model_is_shortened(tmp_path: Path, model: SummarizingModel) -> None:
    respond = model.answer

    def respond_strictly(request: ReceivedRequest) -> PlannedResponse:
        if estimate_tokens(request.document["messages"], 0) > MAX_TOKENS // 2:
            error = {"message": "This model's maximum context length is 2000 tokens", "code": "context_length_exceeded"}
            return json_response({"error": error}, 400)
        return respond(request)

    model.fake.script = respond_strictly
    async with open_small_model(tmp_path, model) as harness:
        session = await harness.create_session("m")
        reply = await harness.ask_for_reply(session, [SYSTEM, GOAL, *agent_steps(10)], tools=[SHELL_TOOL])
        assert reply.message.text == "Fine." and estimate_tokens(model.last_request, 0) <= MAX_TOKENS // 2
        kinds = await harness.event_types(session, "message.delta", "usage.changed", "session.compacted")
        assert kinds == ["step.started", "message.started", "message.ended", "step.ended"]
        model.fake.always_respond(json_response({"error": {"message": "x", "code": "context_length_exceeded"}}, 400))
        with pytest.raises(ModelError):
            await harness.ask_model(session, [user_message("Hi.")])


async def test_too_long_first_message_is_shortened(tmp_path: Path, model: SummarizingModel) -> None:
    async with open_small_model(tmp_path, model) as harness:
        session = await harness.create_session("m")
        await harness.ask_model(
            session, [SYSTEM, user_message("Read this: " + "y" * 40_000), *agent_steps(1)], [SHELL_TOOL]
        )
        assert model.summaries == 0 and estimate_tokens(model.last_request, 0) <= MAX_TOKENS
        assert "characters left out" in model.last_request[1]["content"] and model.last_request[2:] == agent_steps(1)


async def test_images_are_sent_with_the_messages(tmp_path: Path, model: SummarizingModel) -> None:
    async with open_small_model(tmp_path, model, pictures=1) as harness:
        session = await harness.create_session("m")
        files = [await harness.files.store_file(session.id, PNG + bytes([number])) for number in (1, 2)]
        result = [{"type": "image_url", "image_url": {"url": FILE_SCHEME + file.file}} for file in files]
        steps = agent_steps(2)
        steps[1]["content"], steps[3]["content"] = result[:1], result[1:]
        await harness.ask_model(session, [GOAL, *steps], [SHELL_TOOL])
        messages = model.last_request
        assert "left out" in messages[2]["content"]
        assert [each["role"] for each in messages] == ["user", "assistant", "tool", "assistant", "tool", "user"]
        assert messages[5]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")


def test_middle_of_too_long_message_is_removed() -> None:
    messages = shorten_messages([SYSTEM, user_message("a" * 50_000 + "z")], MAX_TOKENS, 0)
    assert estimate_tokens(messages, 0) <= MAX_TOKENS and messages[0] == SYSTEM
    assert messages[1]["content"].startswith("aaa") and messages[1]["content"].endswith("az")
    assert "characters left out" in messages[1]["content"]


def test_file_paths_are_found_in_messages() -> None:
    text = "Wrote `/tmp/a b/c.txt`, ./src/x.py and ~/notes.md (see /etc/hosts). 1/2 http://example.org/x and / too"
    assert find_file_paths([text, "again /etc/hosts"]) == ["/tmp/a", "./src/x.py", "~/notes.md", "/etc/hosts"]
    assert len(find_file_paths([" ".join(f"/f/{n}" for n in range(1000))])) == 100
