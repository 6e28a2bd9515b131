"""Requests of third-party clients that the proxy once refused or relayed wrongly."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from typing import Any

import anthropic
import httpx
import openai
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.integration.llm.conftest import provider
from tests.integration.llm.provider_samples import CHAT_STREAM, STREAM, WHOLE, request
from tests.support.fake_provider import FakeProvider, PlannedResponse, json_response, sse_response
from tests.support.server import Server, run_server

SCRIPT = {
    "turns": [{"call": {"tool": "look", "arguments": {}}}, {"say": "Seen."}],
    "otherwise": {"say": "Nothing more."},
}
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": False}


@pytest.fixture(scope="module")
def settings(fake: FakeProvider, other: FakeProvider, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("script") / "look.script.yaml"
    file.write_text(json.dumps(SCRIPT))
    shell = file.with_name("shell.script.yaml")
    shell.write_text(json.dumps({"turns": [{"shell": "ls"}, {"say": "Hello."}]}))
    return {
        "llm": {
            "providers": {
                "script": {"kind": "script", "file": str(file)},
                "shell": {"kind": "script", "file": str(shell)},
                "chat": provider(fake.url, "openai"),
                "responses": provider(fake.url, "openai", api="responses"),
                "gemini": provider(fake.url, "gemini"),
            },
            "models": {
                "scripted": "script",
                "shell-script": "shell",
                "chat-model": "chat/m",
                "responses-model": "responses/m",
                "gemini-model": "gemini/m",
            },
        }
    }


@pytest.fixture(scope="module")
def sdk(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=server.key, max_retries=0) as made:
        yield made


def references(output: list[Any]) -> list[dict[str, str]]:
    """Earlier items as a client sends them that expects the provider to have stored them."""
    return [{"type": "item_reference", "id": item.id} for item in output]


@pytest.mark.parametrize("stream", [False, True])
def test_items_of_scripted_answer_can_be_referenced(sdk: openai.OpenAI, stream: bool) -> None:
    first = ask(sdk, "scripted", [{"role": "user", "content": f"look {stream}"}], stream)
    call = next(item for item in first.output if item.type == "function_call")
    again = [
        {"role": "user", "content": f"look {stream}"},
        *references(first.output),
        {"type": "function_call_output", "call_id": call.call_id, "output": "a tree"},
    ]
    assert ask(sdk, "scripted", again, stream).output_text == "Seen."


def test_items_of_translated_answer_can_be_referenced(sdk: openai.OpenAI, fake: FakeProvider) -> None:
    fake.always_respond(PlannedResponse(pieces=[WHOLE["openai-chat"]]))
    first = ask(sdk, "chat-model", [{"role": "user", "content": "Hi"}], False)
    ask(sdk, "chat-model", [{"role": "user", "content": "Hi"}, *references(first.output)], False)
    relayed_messages = fake.received[-1].document["messages"]
    assert relayed_messages[-1]["role"] == "assistant" and relayed_messages[-1]["content"].startswith("Hello")


def test_referenced_items_are_sent_whole_to_other_providers(sdk: openai.OpenAI, fake: FakeProvider) -> None:
    fake.always_respond(PlannedResponse(pieces=[WHOLE["openai-chat"]]))
    first = ask(sdk, "chat-model", [{"role": "user", "content": "Hi"}], False)
    fake.always_respond(PlannedResponse(pieces=[WHOLE["openai-responses"]]))
    foreign = {"type": "item_reference", "id": "msg_67c9a81dea8c8190b79651a2b3adf91e0b1a7c1e2d3f4a5b"}
    ask(sdk, "responses-model", [*references(first.output), foreign, {"role": "user", "content": "Go on"}], False)
    item, foreign_reference, _ = fake.received[-1].document["input"]
    assert item["type"] == "message" and item["content"][0]["text"].startswith("Hello")
    assert foreign_reference == foreign


def test_long_items_can_be_referenced_up_to_a_limit(sdk: openai.OpenAI, fake: FakeProvider) -> None:
    text = "Hello, " * 150_000
    fake.always_respond(PlannedResponse(pieces=[WHOLE["openai-chat"].replace(b"Hello", text.encode())]))
    first = ask(sdk, "chat-model", [{"role": "user", "content": "Hi"}], False)
    fake.always_respond(PlannedResponse(pieces=[WHOLE["openai-chat"]]))
    ask(sdk, "chat-model", [*references(first.output), {"role": "user", "content": "Go on"}], False)
    assert fake.received[-1].document["messages"][0]["content"].startswith(text)
    with pytest.raises(openai.APIStatusError, match="the referenced items have more than") as refused:
        ask(sdk, "chat-model", references(first.output) * 70, False)
    assert refused.value.status_code == 413


def test_items_can_be_referenced_while_archive_is_off(
    settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    llm = {**settings["llm"], "archive": {"enabled": False}}
    with (
        run_server(tmp_path_factory.mktemp("unarchived"), {"llm": llm}) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key=server.key, max_retries=0) as sdk,
    ):
        for stream in (False, True):
            test_items_of_scripted_answer_can_be_referenced(sdk, stream)
        unknown = {"type": "item_reference", "id": f"msg_{'0' * 30}"}
        with pytest.raises(openai.BadRequestError, match=r"the archive is off.*store: false"):
            ask(sdk, "scripted", [unknown], False)


def test_redaction_does_not_change_referenced_items(sdk: openai.OpenAI, fake: FakeProvider) -> None:
    secret = "sk-proj-abc123def456ghi789jkl0"
    fake.always_respond(PlannedResponse(pieces=[WHOLE["openai-chat"].replace(b"Hello", secret.encode())]))
    first = ask(sdk, "chat-model", [{"role": "user", "content": "Hi"}], False)
    ask(sdk, "chat-model", [*references(first.output), {"role": "user", "content": "Go on"}], False)
    assert fake.received[-1].document["messages"][0]["content"].startswith(secret)


def test_items_of_another_key_cannot_be_referenced(server: Server, sdk: openai.OpenAI, fake: FakeProvider) -> None:
    fake.always_respond(PlannedResponse(pieces=[WHOLE["openai-chat"]]))
    first = ask(sdk, "chat-model", [{"role": "user", "content": "A secret"}], False)
    with server.client() as client:
        made = client.post("/v1/keys", json={"name": "other", "scopes": ["llm:use"]}).json()
    with (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key=made["secret"], max_retries=0) as stranger,
        pytest.raises(openai.BadRequestError, match="no item of that id is in the archive for this key"),
    ):
        ask(stranger, "chat-model", references(first.output), False)


def ask(sdk: openai.OpenAI, model: str, items: list[Any], stream: bool) -> Any:
    if not stream:
        return sdk.responses.create(model=model, input=items, tools=[TOOL])  # type: ignore[list-item]
    with sdk.responses.stream(model=model, input=items, tools=[TOOL]) as answer:  # type: ignore[list-item]
        return answer.get_final_response()


FORMATS = {"chat-model": "openai-chat", "responses-model": "openai-responses", "gemini-model": "gemini"}
CALLS: dict[str, dict[str, Any]] = {
    "chat-model": {
        "choices": [
            {
                "message": {
                    "role": "assistant",
                    "tool_calls": [
                        {
                            "id": "c1",
                            "type": "function",
                            "function": {"name": "bash", "arguments": '{"command": "ls"}'},
                        }
                    ],
                },
                "finish_reason": "tool_calls",
            }
        ]
    },
    "responses-model": {
        "status": "completed",
        "output": [{"type": "function_call", "call_id": "c1", "name": "bash", "arguments": '{"command": "ls"}'}],
    },
    "gemini-model": {
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [{"functionCall": {"name": "bash", "args": {"command": "ls"}}}],
                },
                "finishReason": "STOP",
            }
        ]
    },
}
"""Answers of providers that call the tool `bash`."""


@pytest.mark.parametrize("model", [*CALLS, "shell-script"])
def test_anthropics_client_run_tools_come_back_as_tool_use(server: Server, fake: FakeProvider, model: str) -> None:
    if model in CALLS:
        fake.always_respond(json_response(CALLS[model]))
    tools: list[Any] = [
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
    ]
    messages: list[Any] = [{"role": "user", "content": "List the files."}]
    with anthropic.Anthropic(base_url=server.url, api_key=server.key, max_retries=0) as sdk:
        first = sdk.messages.create(model=model, max_tokens=100, messages=messages, tools=tools)
        [use] = [block for block in first.content if block.type == "tool_use"]
        assert (use.name, use.input["command"], first.stop_reason) == ("bash", "ls", "tool_use")
        result = {"type": "tool_result", "tool_use_id": use.id, "content": "a.txt"}
        messages += [
            {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in first.content]},
            {"role": "user", "content": [result]},
        ]
        if model in CALLS:
            fake.always_respond(PlannedResponse(pieces=[WHOLE[FORMATS[model]]]))
        second = sdk.messages.create(model=model, max_tokens=100, messages=messages, tools=tools)
    assert second.stop_reason == "end_turn"
    assert second.content[0].type == "text" and second.content[0].text.startswith("Hello")
    if model in CALLS:
        received = [json.dumps(each.document) for each in fake.received]
        assert '"restart"' in received[0] and "a.txt" in received[1]


HOSTED_TOOLS: Mapping[str, tuple[Any, Any, str]] = {
    "anthropic": (
        {"type": "web_search_20250305", "name": "web_search"},
        {"name": "look", "input_schema": {"type": "object"}},
        "web_search_20250305",
    ),
    "openai-responses": (
        {"type": "web_search"},
        {"type": "function", "name": "look", "parameters": {"type": "object"}},
        "web_search",
    ),
    "openai-chat": (
        {"type": "web\r\nsearch"},
        {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}},
        "web??search",
    ),
    "gemini": ({"googleSearch": {}}, {"functionDeclarations": [{"name": "look"}]}, "googleSearch"),
}
"""A tool that the provider of each format runs itself, a function, and the first tool's type in a header."""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("format", sorted(HOSTED_TOOLS))
def test_tools_that_only_the_own_provider_runs_are_named_or_refused(
    client: httpx.Client, fake: FakeProvider, format: str, stream: bool
) -> None:
    provider_format = "gemini" if format == "openai-chat" else "openai-chat"
    pieces = [WHOLE[provider_format]]
    fake.always_respond(sse_response(STREAM[provider_format]) if stream else PlannedResponse(pieces=pieces))
    hosted, function, kind = HOSTED_TOOLS[format]
    path, body = request(format, f"{provider_format.removeprefix('openai-')}-model", stream=stream)
    answer = client.post(path, json={**body, "tools": [hosted, function]})
    assert (answer.status_code, answer.headers["x-paddock-left-out-tools"]) == (200, kind)
    fake.received.clear()
    refused = client.post(path, json={**body, "tools": [hosted]})
    assert refused.status_code == 400 and "are run by the client's own provider" in refused.json()["error"]["message"]
    assert not fake.received
    without = client.post(path, json={**body, "tools": [function]})
    assert without.status_code == 200 and "x-paddock-left-out-tools" not in without.headers


@pytest.mark.parametrize("model", ["chat-model", "gemini-model"])
def test_repeated_user_agent_is_relayed_once(server: Server, fake: FakeProvider, model: str) -> None:
    fake.always_respond(PlannedResponse(pieces=[WHOLE["gemini" if model == "gemini-model" else "openai-chat"]]))
    body = json.dumps({"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}).encode()
    lines = [
        f"POST /v1beta/models/{model}:generateContent HTTP/1.1",
        f"Host: {server.domain}",
        f"x-goog-api-key: {server.key}",
        "User-Agent: google-genai-sdk/2.34",
        "User-Agent: pydantic-ai/2.31",
        "Connection: close",
        f"Content-Length: {len(body)}",
    ]
    host, _, port = server.domain.rpartition(":")
    with socket.create_connection((host, int(port)), 20) as line:
        line.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        answer = b"".join(iter(lambda: line.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200")
    agents = [value for name, value in fake.received[-1].headers if name.lower() == "user-agent"]
    assert agents == ["google-genai-sdk/2.34 pydantic-ai/2.31"]


@pytest.mark.parametrize(
    ("path", "shown", "kind"),
    [
        ("/v1/images/generations", "authorization", "openai"),
        ("/v1/audio/transcriptions", "authorization", "openai"),
        ("/v1/moderations", "authorization", "openai"),
        ("/v1/batches", "authorization", "openai"),
        ("/v1/files", "x-api-key", "anthropic"),
        ("/v1/messages/batches", "x-api-key", "anthropic"),
        ("/v1beta/cachedContents", "x-goog-api-key", "gemini"),
        ("/upload/v1beta/files", "x-goog-api-key", "gemini"),
        ("/v1beta/models/imagen-4:predict", "x-goog-api-key", "gemini"),
        ("/v1beta/models/veo-3:predictLongRunning", "x-goog-api-key", "gemini"),
        ("/v1beta/models/gem:batchGenerateContent", "x-goog-api-key", "gemini"),
        ("/files", "x-api-key", "anthropic"),
        ("/files", "authorization", "openai"),
        ("/batches", "authorization", "openai"),
        ("/audio/speech", "authorization", "openai"),
        ("/images/generations", "authorization", "openai"),
        ("/moderations", "authorization", "openai"),
        ("/completions", "authorization", "openai"),
        ("/messages/batches", "x-api-key", "anthropic"),
        ("/cachedContents", "x-goog-api-key", "gemini"),
        ("/conversations", "authorization", "openai"),
        ("/vector_stores", "authorization", "openai"),
        ("/realtime/sessions", "authorization", "openai"),
        ("/v1/rerank", "authorization", "openai"),
        ("/v1/rerank", "x-api-key", "openai"),
    ],
)
def test_unserved_apis_get_errors_in_their_own_format(server: Server, path: str, shown: str, kind: str) -> None:
    secret = f"Bearer {server.key}" if shown == "authorization" else server.key
    more = {"anthropic-version": "2023-06-01"} if kind == "anthropic" else {}
    with server.client("") as client:
        answer = client.post(path, json={"model": "m"}, headers={shown: secret, **more})
        stranger = client.post(path, json={"model": "m"}, headers={shown: "wrong", **more})
    assert (answer.status_code, stranger.status_code) == (404, 401)
    for document in (answer.json(), stranger.json()):
        error = document["error"]
        if kind == "anthropic":
            assert document["type"] == "error" and error["type"] in ("not_found_error", "authentication_error")
        elif kind == "gemini":
            assert error["status"] in ("NOT_FOUND", "UNAUTHENTICATED")
        else:
            assert error["type"]
    assert "Paddock does not serve" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [("/v1/realtime", 404, "openai"), ("/v1/responses", 426, ""), ("/v1/realtime/x", 404, "openai")],
)
def test_websocket_to_unserved_api_is_refused(server: Server, path: str, status: int, kind: str) -> None:
    headers = {"Authorization": f"Bearer {server.key}"}
    with (
        pytest.raises(InvalidStatus) as refused,
        connect(f"ws://{server.domain}{path}?model=m", additional_headers=headers, proxy=None),
    ):
        pass
    answer = refused.value.response
    document = json.loads(answer.body or b"")
    assert answer.status_code == status and answer.headers["content-type"] == "application/json"
    if kind:
        assert document["error"]["type"] and "Paddock does not serve realtime" in document["error"]["message"]


GEMINI_REQUEST = {"contents": [{"role": "user", "parts": [{"text": "a"}]}]}


@pytest.mark.parametrize("way", ["authorization", "x-api-key", "x-goog-api-key", "?key="])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/messages", {"model": "chat-model", "max_tokens": 9, "messages": [{"role": "user", "content": "a"}]}),
        ("/chat/completions", {"model": "chat-model", "messages": [{"role": "user", "content": "a"}]}),
        ("/responses", {"model": "chat-model", "input": "a"}),
        ("/models/chat-model:generateContent", GEMINI_REQUEST),
        ("/models/chat-model:streamGenerateContent?alt=sse", GEMINI_REQUEST),
        ("/models/chat-model:streamGenerateContent", GEMINI_REQUEST),
        ("/models/chat-model:countTokens", GEMINI_REQUEST),
    ],
)
def test_clients_with_unversioned_base_url_are_served(
    server: Server, fake: FakeProvider, path: str, body: dict[str, Any], way: str
) -> None:
    streams = "stream" in path
    fake.always_respond(sse_response(CHAT_STREAM) if streams else PlannedResponse(pieces=[WHOLE["openai-chat"]]))
    headers = {way: f"Bearer {server.key}" if way == "authorization" else server.key} if way != "?key=" else {}
    with server.client("", **headers) as client:
        query = f"{'&' if '?' in path else '?'}key={server.key}" if way == "?key=" else ""
        answer = client.post(path + query, json=body)
    assert answer.status_code == 200, answer.text
    if path.endswith(":countTokens"):
        assert answer.json()["totalTokens"] >= 1
    elif streams:
        text = answer.text.replace("data: ", ",").strip(", \r\n") if "alt=sse" in path else answer.text.strip("[] \n")
        pieces = json.loads(f"[{text}]")
        parts = [part for piece in pieces for part in piece["candidates"][0]["content"].get("parts", ())]
        assert "".join(part["text"] for part in parts) == "Hello"
    else:
        assert "Hello" in answer.text


@pytest.mark.parametrize("path", ["/messages", "/models", "/models/m", "/files", "/batches", "/completions"])
def test_console_answers_at_unversioned_paths(client: httpx.Client, path: str) -> None:
    assert "text/html" in client.get(path, headers={"accept": "text/html"}).headers.get("content-type", "")


@pytest.mark.parametrize("header", ["authorization", "x-api-key", "x-goog-api-key"])
def test_models_are_listed_without_version_in_path(server: Server, header: str) -> None:
    secret = f"Bearer {server.key}" if header == "authorization" else server.key
    with server.client("", **{header: secret}) as client:
        listed = client.get("/models").json()
        one = client.get("/models/chat-model").json()
    assert "chat-model" in json.dumps(listed)
    assert "chat-model" in json.dumps(one) and "gemini-model" not in json.dumps(one)


@pytest.mark.parametrize("path", ["/v1/unknown", "/v2/rerank", "/unknown/deep"])
@pytest.mark.parametrize(("header", "expected"), [("x-api-key", "not_found_error"), ("x-goog-api-key", "NOT_FOUND")])
def test_unknown_path_with_model_api_key_is_not_found(server: Server, path: str, header: str, expected: str) -> None:
    with server.client("") as client:
        answer = client.post(path, json={"model": "m"}, headers={header: server.key})
    assert answer.status_code == 404, answer.text
    error = answer.json()["error"]
    assert expected == (error["type"] if header == "x-api-key" else error["status"])
    assert path in error["message"]


@pytest.mark.parametrize("header", ["x-api-key", "x-goog-api-key"])
def test_other_routes_explain_model_api_headers(server: Server, header: str) -> None:
    with server.client("", **{header: server.key}) as client:
        refused = [client.get("/v1/sandboxes"), client.post("/v1/sandboxes", json={}), client.get("/v1/images")]
    for answer in refused:
        assert answer.status_code == 401
        assert "x-api-key and x-goog-api-key are for the model APIs only" in answer.json()["message"]


@pytest.mark.parametrize(
    ("method", "path", "status", "expected"),
    [
        ("POST", "/v1/models", 405, "/v1/models does not support POST"),
        ("POST", "/models/chat-model", 405, "does not support POST"),
        ("POST", "/v1/chat/completions/", 404, "Did you mean /v1/chat/completions?"),
        ("GET", "/v1/models/", 404, "Did you mean /v1/models?"),
        ("POST", "/v1beta/openai/chat/completions", 404, "Did you mean /v1/chat/completions?"),
        ("POST", "/v1/responses/compact", 404, "does not serve compaction of responses"),
        ("POST", "/v1/responses/input_tokens", 404, "does not serve token counts of responses"),
        ("POST", "/v1beta/models/imagen-4:predict", 404, "does not serve image generation"),
    ],
)
def test_wrong_paths_and_methods_are_explained(
    client: httpx.Client, method: str, path: str, status: int, expected: str
) -> None:
    answer = client.request(method, path, json={"model": "m"} if method == "POST" else None)
    assert answer.status_code == status, answer.text
    assert expected in answer.json()["error"]["message"]
