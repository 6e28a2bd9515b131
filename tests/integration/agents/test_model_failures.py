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
BEGUN = "I begin with what I know of pelicans, and"
TROUBLES: dict[str, list[dict[str, Any]]] = {
    "refused": [{"fail": {"status": 500, "message": "Ouch, said the provider"}}],
    "gone": [{"drop": {}}],
    "broken": [{"say": BEGUN}, {"fail": {"status": 500, "message": "Ouch, said the provider"}}, {"say": " end."}],
    "cut": [{"say": BEGUN}, {"drop": {}}, {"say": " end."}],
}
WORDS = {"refused": "Ouch, said the provider", "broken": "Ouch, said the provider"}
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
def raw() -> Iterator[FakeProvider]:
    """A provider that sends scripted raw bytes."""
    with run_fake_provider() as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, raw: FakeProvider) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("faults")
    well = {"when": {"last": "And now|Go on from"}, "do": [{"say": "All is well."}]}
    troubled = {name: {"rules": [well], "turns": [trouble, {"say": "Later."}]} for name, trouble in TROUBLES.items()}
    llm = scripted(directory, same=SAME, endless=ENDLESS, parallel=PARALLEL, costly=COSTLY, **troubled)
    llm["providers"]["raw"] = {"kind": "openai", "base_url": f"{raw.url}/v1", "key": "k", "retries": 0}
    llm["models"]["raw"] = "raw"
    chat = {"steps": STEPS, "repeats": REPEATS}
    with run_server(directory, {"llm": llm, "kinds": CODE, "chat": chat}) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as made:
        yield made


@pytest.fixture(params=SERVER_SIDE)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def begin(client: httpx.Client, engine: str, model: str, **more: Any) -> Chat:
    return Chat.begin(client, agent=engine, model=model, policy={"allow_all": ["*"]}, **more)


def streamed(*deltas: dict[str, Any], finish: str = "stop") -> PlannedResponse:
    """An answer of a provider, to the letter."""

    def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
        document = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "raw"}
        choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
        return f"data: {json.dumps({**document, 'choices': choices})}\n\n".encode()

    return sse_response([*(chunk(delta) for delta in deltas), chunk({}, finish), b"data: [DONE]\n\n"])


def wanting(*calls: tuple[str, str]) -> PlannedResponse:
    """A provider's model that calls tools, by their names and the arguments as they are written."""
    wanted = [
        {"index": place, "id": f"theirs-{place}", "type": "function", "function": {"name": name, "arguments": written}}
        for place, (name, written) in enumerate(calls)
    ]
    return streamed({"role": "assistant", "tool_calls": wanted}, finish="tool_calls")


def saying(text: str) -> PlannedResponse:
    return streamed({"role": "assistant", "content": text})


def results_of(question: list[dict[str, Any]]) -> list[str]:
    """Return the results of the last calls as sent to the model."""
    last = max(place for place, message in enumerate(question) if message["role"] == "assistant")
    told = {each["tool_call_id"]: str(each["content"]) for each in question[last + 1 :] if each["role"] == "tool"}
    return [told[each["id"]] for each in question[last]["tool_calls"]]


def test_a_model_that_calls_what_does_not_exist_is_told_so(
    client: httpx.Client, engine: str, raw: FakeProvider
) -> None:
    raw.respond_in_sequence(
        wanting(("toast_bread", '{"slices": 2}'), ("run_shell_command", '{"command": "ls"}')),
        wanting(("update_plan", '{"steps": [{"title": "Do without"}]}')),
        saying("I do without."),
    )
    chat = begin(client, engine, "raw")
    chat.say("Make toast.")
    assert chat.until_over() == "done"
    assert chat.answers()[-1] == "I do without."
    unknown, near = results_of(questions(chat)[1])
    assert "no tool toast_bread" in unknown and SHELL in near
    assert chat.told("plan.changed")[-1]["steps"][0]["title"] == "Do without"
    check(chat)


def test_an_answer_that_makes_no_sense_ends_the_turn(client: httpx.Client, engine: str, raw: FakeProvider) -> None:
    chat = begin(client, engine, "raw")
    for nonsense, words in ((wanting(("", "{}")), "no name"), (sse_response([b"data: {{{\n\n"]), "cannot be read")):
        raw.always_respond(nonsense)
        chat.say("Say something.")
        assert chat.until_over() == "failed"
        assert words in chat.told("turn.error")[-1]["message"]
    raw.always_respond(saying("Something."))
    chat.say("And now?")
    assert chat.until_over() == "done"
    check(chat)


def test_arguments_that_are_no_json_are_shown_to_the_model(
    client: httpx.Client, engine: str, raw: FakeProvider
) -> None:
    wrong = ['{"command": "echo', "[1, 2]", "echo hello", '{"command": NaN}', "null", '"text"']
    raw.respond_in_sequence(
        wanting(*((SHELL, each) for each in wrong), (SHELL, '{"command": "echo right"}')), saying("I see.")
    )
    chat = begin(client, engine, "raw")
    chat.say("Run it.")
    assert chat.until_over() == "done"
    *refused, right = results_of(questions(chat)[1])
    for written, told in zip(wrong, refused, strict=True):
        assert "not a JSON object" in told and written in told
    assert "right" in right
    check(chat)
    raw.always_respond(saying("Again."))
    chat.say("And now?")
    assert chat.until_over() == "done"
    check(chat)


def test_the_very_same_call_is_refused_after_a_while(client: httpx.Client, engine: str) -> None:
    chat = begin(client, engine, "same")
    chat.say("Go on and on.")
    assert chat.until_over() == "failed"
    results = [data["result"] for data in chat.told("call.result")]
    assert [each["refused"] for each in results] == [False] * REPEATS + [True] * (STEPS - REPEATS)
    assert [text_of(each).split()[0] for each in results[:REPEATS]] == [str(n + 1) for n in range(REPEATS)]
    assert f"{REPEATS} times in a row" in text_of(results[REPEATS])
    chat.say("Enough")
    assert chat.until_over() == "done"
    check(chat)


def test_a_turn_without_end_is_ended(client: httpx.Client, engine: str) -> None:
    chat = begin(client, engine, "endless")
    chat.say("Go on and on.")
    assert chat.until_over() == "failed"
    error = chat.told("turn.error")[-1]
    assert error["code"] == "TURN_LIMIT" and f"{STEPS} steps" in error["message"]
    assert chat.told("turn.ended")[-1]["reason"] == chat.now()["error"] == error["message"]
    assert len(chat.told("step.started")) == STEPS
    chat.say("Enough")
    assert chat.until_over() == "done"
    assert chat.answers()[-1] == "I stop." and "error" not in chat.now()
    check(chat)


def test_one_of_several_calls_fails(client: httpx.Client, engine: str) -> None:
    chat = begin(client, engine, "parallel")
    chat.say("Do all of it.")
    assert chat.until_over() == "done"
    first, command, file, kind, last = results_of(questions(chat)[1])
    assert "first" in first and "last" in last
    assert "worse" in command and "3" in command
    assert "nowhere" in file and "path" in kind
    order = [data["call"]["id"] for data in chat.told("call.ready")]
    failed = {data["call_id"]: data["result"].get("failed") for data in chat.told("call.result")}
    assert len(set(order)) == 5 and set(failed) == set(order)
    check(chat)


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_provider_that_fails_ends_the_turn_and_not_the_session(
    client: httpx.Client, engine: str, trouble: str
) -> None:
    chat = begin(client, engine, trouble)
    chat.say("What of pelicans?")
    assert chat.until_over() == "failed"
    error = chat.told("turn.error")[-1]
    assert error["code"] == "MODEL_ERROR" and WORDS.get(trouble, "") in error["message"] != ""
    assert chat.now()["error"] == error["message"] and chat.now()["state"] == "idle"
    said = client.get(f"{chat.path}/messages").json()["items"]
    begun = trouble in ("broken", "cut")
    assert [message["role"] for message in said] == ["user"] + ["assistant"] * begun
    if begun:
        assert said[-1]["content"][0]["text"] == BEGUN and said[-1]["cut"].startswith("error: ")
    chat.say("And now?")
    assert chat.until_over() == "done"
    assert chat.now().get("error") is None
    users = [message["content"] for message in questions(chat)[-1] if message["role"] == "user"]
    assert users == ["What of pelicans?", "And now?"]
    assert any(BEGUN in str(message["content"]) for message in questions(chat)[-1]) == begun
    check(chat)


def test_a_turn_that_failed_is_gone_on_with(client: httpx.Client, engine: str) -> None:
    chat = begin(client, engine, "refused")
    chat.say("What of pelicans?")
    assert chat.until_over() == "failed"
    assert client.post(f"{chat.path}/continue").status_code == 202
    assert chat.until_over() == "done"
    assert chat.answers() == ["All is well."]
    check(chat)


def test_a_budget_that_is_used_up_can_be_raised(client: httpx.Client, engine: str) -> None:
    chat = begin(client, engine, "costly", budget=100)
    chat.say("Begin.")
    assert chat.until_over() == "done"
    chat.say("More.")
    assert chat.until_over() == "failed"
    error = chat.told("turn.error")[-1]
    assert "100 of its 100 tokens" in error["message"] and "larger budget" in error["message"]
    assert client.patch(chat.path, json={"budget": 100_000}).json()["budget"] == 100_000
    chat.say("Please.")
    assert chat.until_over() == "done"
    assert chat.answers()[-1] == "You said: Please."
    users = [message["content"] for message in questions(chat)[-1] if message["role"] == "user"]
    assert users == ["Begin.", "More.", "Please."]
    check(chat)


def test_another_model_is_asked_from_the_next_step_on(client: httpx.Client, engine: str) -> None:
    chat = Chat.begin(client, agent=engine, model="same")
    chat.say("Begin.")
    asked = chat.until(lambda event: event["type"] == "approval.required")["data"]["approval"]
    assert client.patch(chat.path, json={"model": "costly"}).json()["model"] == "costly"
    assert chat.decide({"action": "approve"}, of=asked).status_code == 200
    assert chat.until_over() == "done"
    assert chat.answers()[-1] == "You said: Begin."
    check(chat)
