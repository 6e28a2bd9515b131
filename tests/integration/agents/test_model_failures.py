"""Failing models over HTTP: the turn reports the error, and the session continues."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.agents.chat_client import CODE, SERVER_SIDE, Chat, call, check, questions, scripted, text_of
from tests.support.fake_provider import FakeProvider, PlannedResponse, run_fake_provider, sse_response
from tests.support.server import Server, run_server

STEPS, REPEATS = 8, 3
SHELL = "code_run_shell_command"
PARTIAL_TEXT = "I begin with what I know of pelicans, and"
TROUBLES: dict[str, list[dict[str, Any]]] = {
    "refused": [{"fail": {"status": 500, "message": "Ouch, said the provider"}}],
    "gone": [{"drop": {}}],
    "broken": [
        {"say": PARTIAL_TEXT},
        {"fail": {"status": 500, "message": "Ouch, said the provider"}},
        {"say": " end."},
    ],
    "cut": [{"say": PARTIAL_TEXT}, {"drop": {}}, {"say": " end."}],
}
ERROR_TEXTS = {"refused": "Ouch, said the provider", "broken": "Ouch, said the provider"}
SAME = {
    "rules": [{"when": {"prompt": "Enough"}, "do": [{"say": "I stop."}]}],
    "turns": [],
    "otherwise": [call(SHELL, command="echo x >> /workspace/deeds; wc -l < /workspace/deeds")],
}
ENDLESS = {
    "rules": [{"when": {"prompt": "Enough"}, "do": [{"say": "I stop."}]}],
    "turns": [],
    "otherwise": [call("update_plan", steps=[{"title": "after: {{ tool.output }}"}, {"title": "{{ last.text }}!"}])],
}
PARALLEL = {
    "turns": [
        [
            call(SHELL, command="echo first"),
            call(SHELL, command="echo worse >&2; exit 3"),
            call("code_read_file", path="/workspace/nowhere"),
            call("code_read_file", path=7),
            call(SHELL, command="echo last"),
        ],
        {"say": "Some of it worked."},
    ]
}
COSTLY = {
    "turns": [[{"say": "That was dear."}, {"usage": {"input": 60, "output": 40}}]],
    "otherwise": {"say": "You said: {{ prompt }}"},
}


@pytest.fixture(scope="module")
def raw_provider() -> Iterator[FakeProvider]:
    """A provider that sends scripted raw bytes."""
    with run_fake_provider() as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, raw_provider: FakeProvider) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("faults")
    success_rule = {"when": {"last": "And now|Go on from"}, "do": [{"say": "All is well."}]}
    failing_models = {
        name: {"rules": [success_rule], "turns": [trouble, {"say": "Later."}]} for name, trouble in TROUBLES.items()
    }
    llm = scripted(directory, same=SAME, endless=ENDLESS, parallel=PARALLEL, costly=COSTLY, **failing_models)
    llm["providers"]["raw"] = {"kind": "openai", "base_url": f"{raw_provider.url}/v1", "key": "k", "retries": 0}
    llm["models"]["raw"] = "raw"
    chat_settings = {"steps": STEPS, "repeats": REPEATS}
    with run_server(directory, {"llm": llm, "kinds": CODE, "chat": chat_settings}) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture(params=SERVER_SIDE)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def start_chat(client: httpx.Client, engine: str, model: str, **settings: Any) -> Chat:
    return Chat.create(client, agent=engine, model=model, policy={"allow_all": ["*"]}, **settings)


def streamed_reply(*deltas: dict[str, Any], finish: str = "stop") -> PlannedResponse:
    """Return a raw streamed reply of a provider."""

    def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
        document = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "raw"}
        choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
        return f"data: {json.dumps({**document, 'choices': choices})}\n\n".encode()

    return sse_response([*(chunk(delta) for delta in deltas), chunk({}, finish), b"data: [DONE]\n\n"])


def calling_reply(*calls: tuple[str, str]) -> PlannedResponse:
    """Return a reply with calls, by tool name and raw arguments."""
    tool_calls = [
        {
            "index": index,
            "id": f"theirs-{index}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        for index, (name, arguments) in enumerate(calls)
    ]
    return streamed_reply({"role": "assistant", "tool_calls": tool_calls}, finish="tool_calls")


def text_reply(text: str) -> PlannedResponse:
    return streamed_reply({"role": "assistant", "content": text})


def results_of(question: list[dict[str, Any]]) -> list[str]:
    """Return the results of the last calls as sent to the model."""
    last = max(index for index, message in enumerate(question) if message["role"] == "assistant")
    results = {each["tool_call_id"]: str(each["content"]) for each in question[last + 1 :] if each["role"] == "tool"}
    return [results[each["id"]] for each in question[last]["tool_calls"]]


def test_unknown_tool_calls_are_reported_to_the_model(
    client: httpx.Client, engine: str, raw_provider: FakeProvider
) -> None:
    raw_provider.respond_in_sequence(
        calling_reply(("toast_bread", '{"slices": 2}'), ("run_shell_command", '{"command": "ls"}')),
        calling_reply(("update_plan", '{"steps": [{"title": "Do without"}]}')),
        text_reply("I do without."),
    )
    chat = start_chat(client, engine, "raw")
    chat.send_message("Make toast.")
    assert chat.wait_for_turn_end() == "done"
    assert chat.reply_texts()[-1] == "I do without."
    unknown, near = results_of(questions(chat)[1])
    assert "no tool toast_bread" in unknown and SHELL in near
    assert chat.events_of("plan.changed")[-1]["steps"][0]["title"] == "Do without"
    check(chat)


def test_invalid_model_reply_ends_the_turn(client: httpx.Client, engine: str, raw_provider: FakeProvider) -> None:
    chat = start_chat(client, engine, "raw")
    for invalid_reply, error_text in (
        (calling_reply(("", "{}")), "no name"),
        (sse_response([b"data: {{{\n\n"]), "cannot be read"),
    ):
        raw_provider.always_respond(invalid_reply)
        chat.send_message("Say something.")
        assert chat.wait_for_turn_end() == "failed"
        assert error_text in chat.events_of("turn.error")[-1]["message"]
    raw_provider.always_respond(text_reply("Something."))
    chat.send_message("And now?")
    assert chat.wait_for_turn_end() == "done"
    check(chat)


def test_invalid_json_arguments_are_shown_to_the_model(
    client: httpx.Client, engine: str, raw_provider: FakeProvider
) -> None:
    invalid = ['{"command": "echo', "[1, 2]", "echo hello", '{"command": NaN}', "null", '"text"']
    raw_provider.respond_in_sequence(
        calling_reply(*((SHELL, each) for each in invalid), (SHELL, '{"command": "echo right"}')), text_reply("I see.")
    )
    chat = start_chat(client, engine, "raw")
    chat.send_message("Run it.")
    assert chat.wait_for_turn_end() == "done"
    *refusals, right = results_of(questions(chat)[1])
    for arguments, result_text in zip(invalid, refusals, strict=True):
        assert "not a JSON object" in result_text and arguments in result_text
    assert "right" in right
    check(chat)
    raw_provider.always_respond(text_reply("Again."))
    chat.send_message("And now?")
    assert chat.wait_for_turn_end() == "done"
    check(chat)


def test_repeated_identical_call_is_refused(client: httpx.Client, engine: str) -> None:
    chat = start_chat(client, engine, "same")
    chat.send_message("Go on and on.")
    assert chat.wait_for_turn_end() == "failed"
    results = [data["result"] for data in chat.events_of("call.result")]
    assert [each["refused"] for each in results] == [False] * REPEATS + [True] * (STEPS - REPEATS)
    assert [text_of(each).split()[0] for each in results[:REPEATS]] == [str(n + 1) for n in range(REPEATS)]
    assert f"{REPEATS} times in a row" in text_of(results[REPEATS])
    chat.send_message("Enough")
    assert chat.wait_for_turn_end() == "done"
    check(chat)


def test_endless_turn_reaches_step_limit(client: httpx.Client, engine: str) -> None:
    chat = start_chat(client, engine, "endless")
    chat.send_message("Go on and on.")
    assert chat.wait_for_turn_end() == "failed"
    error = chat.events_of("turn.error")[-1]
    assert error["code"] == "TURN_LIMIT" and f"{STEPS} steps" in error["message"]
    assert chat.events_of("turn.ended")[-1]["reason"] == chat.load_session()["error"] == error["message"]
    assert len(chat.events_of("step.started")) == STEPS
    chat.send_message("Enough")
    assert chat.wait_for_turn_end() == "done"
    assert chat.reply_texts()[-1] == "I stop." and "error" not in chat.load_session()
    check(chat)


def test_one_of_several_calls_fails(client: httpx.Client, engine: str) -> None:
    chat = start_chat(client, engine, "parallel")
    chat.send_message("Do all of it.")
    assert chat.wait_for_turn_end() == "done"
    first, command, file, kind, last = results_of(questions(chat)[1])
    assert "first" in first and "last" in last
    assert "worse" in command and "3" in command
    assert "nowhere" in file and "path" in kind
    order = [data["call"]["id"] for data in chat.events_of("call.ready")]
    failed = {data["call_id"]: data["result"].get("failed") for data in chat.events_of("call.result")}
    assert len(set(order)) == 5 and set(failed) == set(order)
    check(chat)


@pytest.mark.parametrize("trouble", TROUBLES)
def test_provider_failure_ends_turn_but_not_session(client: httpx.Client, engine: str, trouble: str) -> None:
    chat = start_chat(client, engine, trouble)
    chat.send_message("What of pelicans?")
    assert chat.wait_for_turn_end() == "failed"
    error = chat.events_of("turn.error")[-1]
    assert error["code"] == "MODEL_ERROR" and ERROR_TEXTS.get(trouble, "") in error["message"] != ""
    assert chat.load_session()["error"] == error["message"] and chat.load_session()["state"] == "idle"
    messages = client.get(f"{chat.path}/messages").json()["items"]
    has_partial_text = trouble in ("broken", "cut")
    assert [message["role"] for message in messages] == ["user"] + ["assistant"] * has_partial_text
    if has_partial_text:
        assert messages[-1]["content"][0]["text"] == PARTIAL_TEXT and messages[-1]["cut"].startswith("error: ")
    chat.send_message("And now?")
    assert chat.wait_for_turn_end() == "done"
    assert chat.load_session().get("error") is None
    user_texts = [message["content"] for message in questions(chat)[-1] if message["role"] == "user"]
    assert user_texts == ["What of pelicans?", "And now?"]
    assert any(PARTIAL_TEXT in str(message["content"]) for message in questions(chat)[-1]) == has_partial_text
    check(chat)


def test_failed_turn_is_continued(client: httpx.Client, engine: str) -> None:
    chat = start_chat(client, engine, "refused")
    chat.send_message("What of pelicans?")
    assert chat.wait_for_turn_end() == "failed"
    assert client.post(f"{chat.path}/continue").status_code == 202
    assert chat.wait_for_turn_end() == "done"
    assert chat.reply_texts() == ["All is well."]
    check(chat)


def test_exhausted_budget_can_be_raised(client: httpx.Client, engine: str) -> None:
    chat = start_chat(client, engine, "costly", budget=100)
    chat.send_message("Begin.")
    assert chat.wait_for_turn_end() == "done"
    chat.send_message("More.")
    assert chat.wait_for_turn_end() == "failed"
    error = chat.events_of("turn.error")[-1]
    assert "100 of its 100 tokens" in error["message"] and "larger budget" in error["message"]
    assert client.patch(chat.path, json={"budget": 100_000}).json()["budget"] == 100_000
    chat.send_message("Please.")
    assert chat.wait_for_turn_end() == "done"
    assert chat.reply_texts()[-1] == "You said: Please."
    user_texts = [message["content"] for message in questions(chat)[-1] if message["role"] == "user"]
    assert user_texts == ["Begin.", "More.", "Please."]
    check(chat)


def test_model_change_takes_effect_at_next_step(client: httpx.Client, engine: str) -> None:
    chat = Chat.create(client, agent=engine, model="same")
    chat.send_message("Begin.")
    approval = chat.wait_for_event(lambda event: event["type"] == "approval.required")["data"]["approval"]
    assert client.patch(chat.path, json={"model": "costly"}).json()["model"] == "costly"
    assert chat.decide({"action": "approve"}, approval=approval).status_code == 200
    assert chat.wait_for_turn_end() == "done"
    assert chat.reply_texts()[-1] == "You said: Begin."
    check(chat)
