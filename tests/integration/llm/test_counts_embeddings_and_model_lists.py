"""Requests other than answers: token counts, embeddings and model lists."""

from __future__ import annotations

import httpx

from tests.integration.llm.provider_samples import request
from tests.support.fake_provider import FakeProvider, json_response


def count(model: str) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": "How long is this?"}]}


def test_provider_counts_tokens(client: httpx.Client, fake: FakeProvider) -> None:
    fake.always_respond(json_response({"input_tokens": 42}))
    answer = client.post("/v1/messages/count_tokens", json=count("anthropic-model"))
    assert answer.json() == {"input_tokens": 42}
    assert fake.received[0].target == "/v1/messages/count_tokens"
    fake.always_respond(json_response({"totalTokens": 43}))
    assert client.post("/v1/messages/count_tokens", json=count("gemini-model")).json()["input_tokens"] == 43
    assert fake.received[1].target.endswith("/models/upstream-model:countTokens")


def test_answer_settings_are_not_sent_with_token_count(client: httpx.Client, fake: FakeProvider) -> None:
    fake.always_respond(json_response({"input_tokens": 42}))
    client.post("/v1/messages/count_tokens", json=count("anthropic-alone"))
    assert "temperature" not in fake.received[0].document


def test_tokens_are_estimated_if_provider_cannot_count(client: httpx.Client, fake: FakeProvider) -> None:
    answer = client.post("/v1/messages/count_tokens", json=count("chat-model"))
    assert 1 <= answer.json()["input_tokens"] <= 30
    assert answer.headers["x-paddock-estimated"] == "true" and not fake.received
    _, body = request("gemini", "chat-model")
    assert client.post("/v1beta/models/chat-model:countTokens", json=body).json()["totalTokens"] >= 1


def test_embeddings_are_relayed_and_translated(client: httpx.Client, fake: FakeProvider) -> None:
    given = {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 1.0]}], "model": "x"}
    fake.always_respond(json_response({**given, "usage": {"prompt_tokens": 3, "total_tokens": 3}}))
    answer = client.post("/v1/embeddings", json={"model": "chat-model", "input": "text"})
    assert answer.json()["data"] == given["data"]
    assert fake.received[0].target == "/v1/embeddings" and fake.received[0].document["model"] == "upstream-model"
    single = {"content": {"parts": [{"text": "text"}]}}
    answer = client.post("/v1beta/models/chat-model:embedContent", json=single)
    assert answer.json()["embedding"]["values"] == [0.5, 1.0]
    fake.always_respond(json_response({"embeddings": [{"values": [0.25]}]}))
    answer = client.post("/v1/embeddings", json={"model": "gemini-model", "input": ["text"]})
    assert answer.json()["data"][0]["embedding"] == [0.25]


def test_provider_without_embeddings_gets_clear_error(client: httpx.Client) -> None:
    answer = client.post("/v1/embeddings", json={"model": "anthropic-model", "input": "text"})
    assert answer.status_code == 400 and "anthropic" in answer.json()["error"]["message"]


def test_models_are_listed_for_every_client(client: httpx.Client) -> None:
    names = {model["id"] for model in client.get("/v1/models").json()["data"]}
    assert {"chat-model", "gemini-model"} <= names and "wild-*" not in names
    anthropic = client.get("/v1/models", headers={"anthropic-version": "2023-06-01"}).json()
    assert anthropic["has_more"] is False and "chat-model" in {model["id"] for model in anthropic["data"]}
    gemini = client.get("/v1beta/models").json()
    assert "models/chat-model" in {model["name"] for model in gemini["models"]}
    assert client.get("/v1/models/wild-horse").json()["id"] == "wild-horse"
    assert client.get("/v1/models/nothing").status_code == 404


def test_configured_models_and_providers_are_listed(client: httpx.Client) -> None:
    shown = client.get("/v1/llm").json()
    assert {"name": "set", "provider": "chat", "model": "upstream-model", "wellKnown": False, "fallbacks": []} in shown[
        "models"
    ]
    assert next(each for each in shown["providers"] if each["name"] == "gemini")["formats"] == ["gemini"]
    assert "sk-" not in str(shown)
