"""What the gateway makes of addresses, keys and bodies."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.errors import InvalidInput
from paddock.llm.bodies import patched
from paddock.llm.calls import Call, concerns, listing, read_call, secret_of
from paddock.llm.wire.base import HttpRequest


def request(path: str, body: bytes = b"{}", query: str = "", **headers: str) -> HttpRequest:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return HttpRequest("POST", path, query, pairs, body)


@pytest.mark.parametrize(
    ("path", "query", "expected"),
    [
        ("/v1/chat/completions", "", Call("openai-chat", "generate", "m", True)),
        ("/v1/responses", "", Call("openai-responses", "generate", "m", True)),
        ("/v1/messages", "beta=true", Call("anthropic", "generate", "m", True)),
        ("/v1/messages/count_tokens", "", Call("anthropic", "count_tokens", "m", False)),
        ("/v1/embeddings", "", Call("openai-chat", "embed", "m", False)),
        (
            "/v1beta/models/gem:generateContent",
            "",
            Call("gemini", "generate", "gem", False, method="generateContent"),
        ),
        (
            "/v1beta/models/a%2Fb:streamGenerateContent",
            "alt=sse",
            Call("gemini", "generate", "a/b", True, method="streamGenerateContent"),
        ),
        (
            "/v1beta/models/qwen3:8b:generateContent",
            "",
            Call("gemini", "generate", "qwen3:8b", False, method="generateContent"),
        ),
        (
            "/v1/models/gem:streamGenerateContent",
            "",
            Call("gemini", "generate", "gem", True, array=True, method="streamGenerateContent"),
        ),
    ],
)
def test_every_address_says_what_is_asked(path: str, query: str, expected: Call) -> None:
    assert concerns(path)
    assert read_call(request(path, b'{"model": "m", "stream": true}', query)) == expected


@pytest.mark.parametrize("path", ["/v1/sandboxes", "/v1/keys", "/v1/chat", "/"])
def test_other_addresses_are_not_the_gateways(path: str) -> None:
    assert not concerns(path)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not valid JSON"),
        (b"[1]", "JSON object"),
        (b'{"model": 5}', "model"),
        (b"{}", "model"),
        (b'{"model": "m", "stream": "yes"}', "stream"),
        (b'{"model": "\xff"}', "UTF-8"),
        (b'{"model": "m", "x": "\xff"}', "UTF-8"),
        (b'{"model": "m", "x": ' + b"[" * 100_000, "JSON|deep"),
    ],
)
def test_bodies_that_are_no_request_are_refused_with_a_reason(body: bytes, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        read_call(request("/v1/chat/completions", body))


def test_a_key_is_found_wherever_a_client_puts_it() -> None:
    path = "/v1/chat/completions"
    assert secret_of(request(path, authorization="Bearer abc")) == "abc"
    assert secret_of(request(path, x_api_key="abc")) == "abc"
    assert secret_of(request(path, x_goog_api_key="abc")) == "abc"
    assert secret_of(request(path, query="alt=sse&key=abc")) == "abc"
    assert secret_of(request(path)) is None


def test_the_list_of_models_is_told_in_the_shape_of_who_asks() -> None:
    def kind(path: str, **headers: str) -> str | None:
        found = listing(request(path, b"", "", **headers))
        return found.format if found else None

    assert kind("/v1/models") == "openai-chat"
    assert kind("/v1/models/x", anthropic_version="2023-06-01") == "anthropic"
    assert kind("/v1beta/models") == "gemini"
    assert kind("/v1/messages") is None
    assert kind("/v1/models/qwen3:8b") == "openai-chat"


def test_another_model_leaves_every_other_value_as_it_was_written() -> None:
    messages = b'[ {"content":"\\u00e9 \xc3\xa9", "role":"user"} ]'
    body = b'{ "model" : "a", "messages":%s , "n": 1.0, "z":{"model":"a"}}' % messages
    new = patched(body, "openai-chat", model="b")
    assert json.loads(new) == {**json.loads(body), "model": "b"}
    assert messages in new and b"1.0" in new


def test_defaults_hold_where_a_request_says_nothing_and_overrides_always() -> None:
    body = b'{"model":"a","temperature":1}'
    new = patched(body, "openai-chat", defaults={"temperature": 0, "max_tokens": 5}, overrides={"seed": 7})
    assert json.loads(new) == {"model": "a", "temperature": 1, "max_tokens": 5, "seed": 7}
    kept = patched(b'{"max_completion_tokens":9}', "openai-chat", defaults={"max_tokens": 5})
    assert json.loads(kept) == {"max_completion_tokens": 9}
    forced = patched(b'{"max_completion_tokens":9}', "openai-chat", overrides={"max_tokens": 5})
    assert json.loads(forced) == {"max_tokens": 5}
    assert json.loads(patched(body, "openai-chat", overrides={"temperature": None})) == {"model": "a"}


def test_settings_stand_where_each_format_has_them() -> None:
    wanted = {"temperature": 0.5, "max_tokens": 5, "effort": "low"}
    gemini = json.loads(patched(b'{"generationConfig":{"topP":1}}', "gemini", defaults=wanted))
    assert gemini["generationConfig"] == {
        "topP": 1,
        "temperature": 0.5,
        "maxOutputTokens": 5,
        "thinkingConfig": {"thinkingLevel": "low"},
    }
    responses = json.loads(patched(b"{}", "openai-responses", defaults=wanted))
    assert responses == {"temperature": 0.5, "max_output_tokens": 5, "reasoning": {"effort": "low"}}


def test_numbers_that_are_none_are_refused_and_not_tripped_over() -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        patched(b'{"temperature":1e999}', "openai-chat", defaults={"temperature": 0})


@given(st.dictionaries(st.text(), st.recursive(st.none() | st.text() | st.integers(-(2**53), 2**53), st.lists)))
def test_a_patched_body_says_the_same_otherwise(document: dict[str, object]) -> None:
    body = json.dumps(document).encode()
    assert json.loads(patched(body, "openai-chat", model="other")) == {**document, "model": "other"}
