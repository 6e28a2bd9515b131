"""The official SDKs hold tool-using conversations with providers of every format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import permutations

import pytest

from paddock.llm.formats.registry import FORMATS
from paddock.llm.neutral import Answer, Finish, Part, Signature, Text, Thinking, ToolCall, Usage

from .sdk_clients import CLIENTS, Client
from .sdk_upstream import Upstream, upstream

PROVIDERS = list(FORMATS)
LONG = "mcp__weather.service__" + "look_out_of_the_window_" * 4
CHAT_SEAL = json.dumps([{"type": "reasoning.text", "text": "hm", "signature": "SEAL"}])


@pytest.fixture(scope="module")
def server() -> Iterator[Upstream]:
    with upstream() as running:
        yield running


@pytest.fixture
def up(server: Upstream) -> Upstream:
    server.told, server.notes = [], []
    return server


@pytest.fixture(scope="module", params=CLIENTS, ids=lambda kind: kind.form)
def client(request: pytest.FixtureRequest, server: Upstream) -> Iterator[Client]:
    made: Client = request.param(server.url)
    yield made
    made.close()


def provider_tool(name: str) -> str:
    """The name that the provider got to know it by, and calls it."""
    sent = FORMATS["openai-chat"].read_request(
        json.dumps({"model": "m", "messages": [], "tools": [{"type": "function", "function": {"name": name}}]}).encode()
    )
    known: str = json.loads(FORMATS["openai-chat"].write_request(sent))["tools"][0]["function"]["name"]
    return known


def thinking_answer(provider: str, tool: str) -> Answer:
    """What a model of each provider says when it thinks and calls a tool twice."""
    calls: list[Part] = [ToolCall("c1", provider_tool(tool), '{"a":1}'), ToolCall("c2", provider_tool(tool), '{"a":2}')]
    thought = Thinking("hm", Signature("SEAL", provider.replace("-responses", "")))
    if provider == "openai-chat":
        thought = Thinking("hm", Signature(CHAT_SEAL, "openai-chat"))
    if provider == "gemini":
        thought = Thinking("hm")
        calls[0] = ToolCall("c1", provider_tool(tool), '{"a":1}', Signature("SEAL", "gemini"))
    return Answer("id_1", "m", [thought, Text("I look."), *calls], Finish.TOOLS, usage=Usage(10, 5))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("tool", ["look", LONG], ids=["short", "long"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_tool_is_called_and_the_seal_comes_back(
    up: Upstream, client: Client, provider: str, tool: str, stream: bool
) -> None:
    client.begin(tool)
    up.provider = provider
    up.answers = [thinking_answer(provider, tool), Answer("id_2", "m", [Text("Sunny.")], Finish.STOP)]
    said = client.ask("How is the weather?", stream=stream)
    assert said.text == "I look."
    assert said.calls == [(tool, {"a": 1}), (tool, {"a": 2})]
    assert client.give_results("sun", stream=stream).text == "Sunny."
    second = up.told[1].decode()
    assert "SEAL" in second, "the provider got no seal back"
    assert "paddock:" not in second
    assert f'"{provider_tool(tool)}"' in second


@pytest.mark.parametrize(("first", "second"), list(permutations(PROVIDERS, 2)))
def test_a_conversation_that_moves_leaves_its_seals_behind(
    up: Upstream, client: Client, first: str, second: str
) -> None:
    client.begin()
    up.answers = [thinking_answer(first, "look"), Answer("id_2", "m", [Text("Sunny.")], Finish.STOP)]
    up.provider = first
    client.ask("How is the weather?", stream=True)
    up.provider = second
    assert client.give_results("sun", stream=True).text == "Sunny."
    assert b"SEAL" not in up.told[1]
    assert b"paddock" not in up.told[1]
    assert any("seals" in note for note in up.notes[1])
