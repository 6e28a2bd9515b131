"""The official SDKs hold conversations with tools with providers of every format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import permutations

import pytest

from paddock.llm.formats.neutral import (
    FinishReason,
    MessagePart,
    ModelAnswer,
    ModelText,
    ModelThinking,
    ModelToolCall,
    ProviderSignature,
    TokenUsage,
)
from paddock.llm.formats.registry import FORMATS

from .sdk_clients import CLIENTS, Client
from .sdk_upstream import Upstream, upstream

PROVIDERS = list(FORMATS)
LONG = "mcp__weather.service__" + "look_out_of_the_window_" * 4
SIGNED_REASONING_DETAILS = json.dumps([{"type": "reasoning.text", "text": "hm", "signature": "SEAL"}])


@pytest.fixture(scope="module")
def server() -> Iterator[Upstream]:
    with upstream() as running:
        yield running


@pytest.fixture
def up(server: Upstream) -> Upstream:
    server.provider_requests, server.notes = [], []
    return server


@pytest.fixture(scope="module", params=CLIENTS, ids=lambda kind: kind.form)
def client(request: pytest.FixtureRequest, server: Upstream) -> Iterator[Client]:
    made: Client = request.param(server.url)
    yield made
    made.close()


def provider_tool(name: str) -> str:
    """Return the tool name that the provider received."""
    sent = FORMATS["openai-chat"].read_request(
        json.dumps({"model": "m", "messages": [], "tools": [{"type": "function", "function": {"name": name}}]}).encode()
    )
    known: str = json.loads(FORMATS["openai-chat"].write_request(sent))["tools"][0]["function"]["name"]
    return known


def thinking_answer(provider: str, tool: str) -> ModelAnswer:
    """Return an answer of each provider's model with a thought and two tool calls."""
    calls: list[MessagePart] = [
        ModelToolCall("c1", provider_tool(tool), '{"a":1}'),
        ModelToolCall("c2", provider_tool(tool), '{"a":2}'),
    ]
    thought = ModelThinking("hm", ProviderSignature("SEAL", provider.replace("-responses", "")))
    if provider == "openai-chat":
        thought = ModelThinking("hm", ProviderSignature(SIGNED_REASONING_DETAILS, "openai-chat"))
    if provider == "gemini":
        thought = ModelThinking("hm")
        calls[0] = ModelToolCall("c1", provider_tool(tool), '{"a":1}', ProviderSignature("SEAL", "gemini"))
    return ModelAnswer(
        "id_1", "m", [thought, ModelText("I look."), *calls], FinishReason.TOOLS, usage=TokenUsage(10, 5)
    )


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("tool", ["look", LONG], ids=["short", "long"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_tool_call_returns_its_signature(up: Upstream, client: Client, provider: str, tool: str, stream: bool) -> None:
    client.start(tool)
    up.provider = provider
    up.answers = [thinking_answer(provider, tool), ModelAnswer("id_2", "m", [ModelText("Sunny.")], FinishReason.STOP)]
    answer = client.ask("How is the weather?", stream=stream)
    assert answer.text == "I look."
    assert answer.calls == [(tool, {"a": 1}), (tool, {"a": 2})]
    assert client.give_results("sun", stream=stream).text == "Sunny."
    second = up.provider_requests[1].decode()
    assert "SEAL" in second, "the provider got no signature back"
    assert "paddock:" not in second
    assert f'"{provider_tool(tool)}"' in second


@pytest.mark.parametrize(("first", "second"), list(permutations(PROVIDERS, 2)))
def test_signatures_are_dropped_when_the_provider_changes(
    up: Upstream, client: Client, first: str, second: str
) -> None:
    client.start()
    up.answers = [thinking_answer(first, "look"), ModelAnswer("id_2", "m", [ModelText("Sunny.")], FinishReason.STOP)]
    up.provider = first
    client.ask("How is the weather?", stream=True)
    up.provider = second
    assert client.give_results("sun", stream=True).text == "Sunny."
    assert b"SEAL" not in up.provider_requests[1]
    assert b"paddock" not in up.provider_requests[1]
    assert any("thought signatures" in note for note in up.notes[1])
