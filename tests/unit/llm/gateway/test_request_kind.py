"""Parsing of paths, keys and bodies of model requests."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.errors import InvalidInput
from paddock.llm.offload.body_patch import patch_request_body
from paddock.llm.request_kind import ModelCall, is_model_path, parse_model_call, parse_model_list_request, read_api_key
from paddock.llm.wire.base import HttpRequest


def request(path: str, body: bytes = b"{}", query: str = "", **headers: str) -> HttpRequest:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return HttpRequest("POST", path, query, pairs, body)


@pytest.mark.parametrize(
    ("path", "query", "expected"),
    [
        ("/v1/chat/completions", "", ModelCall("openai-chat", "generate", "m", True)),
        ("/v1/responses", "", ModelCall("openai-responses", "generate", "m", True)),
        ("/v1/messages", "beta=true", ModelCall("anthropic", "generate", "m", True)),
        ("/v1/messages/count_tokens", "", ModelCall("anthropic", "count_tokens", "m", False)),
        ("/v1/embeddings", "", ModelCall("openai-chat", "embed", "m", False)),
        (
            "/v1beta/models/gem:generateContent",
            "",
            ModelCall("gemini", "generate", "gem", False, method="generateContent"),
        ),
        (
            "/v1beta/models/a%2Fb:streamGenerateContent",
            "alt=sse",
            ModelCall("gemini", "generate", "a/b", True, method="streamGenerateContent"),
        ),
        (
            "/v1beta/models/qwen3:8b:generateContent",
            "",
            ModelCall("gemini", "generate", "qwen3:8b", False, method="generateContent"),
        ),
        (
            "/v1/models/gem:streamGenerateContent",
            "",
            ModelCall("gemini", "generate", "gem", True, array=True, method="streamGenerateContent"),
        ),
    ],
)
def test_paths_select_format_and_operation(path: str, query: str, expected: ModelCall) -> None:
    assert is_model_path(path)
    assert parse_model_call(request(path, b'{"model": "m", "stream": true}', query)) == expected


@pytest.mark.parametrize("path", ["/v1/sandboxes", "/v1/keys", "/v1/chat", "/"])
def test_other_paths_are_not_model_paths(path: str) -> None:
    assert not is_model_path(path)


@pytest.mark.parametrize(
    ("body", "reason"),
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
def test_error_for_invalid_body_has_a_reason(body: bytes, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        parse_model_call(request("/v1/chat/completions", body))


def test_key_is_read_from_headers_and_query() -> None:
    path = "/v1/chat/completions"
    assert read_api_key(request(path, authorization="Bearer abc")) == "abc"
    assert read_api_key(request(path, x_api_key="abc")) == "abc"
    assert read_api_key(request(path, x_goog_api_key="abc")) == "abc"
    assert read_api_key(request(path, query="alt=sse&key=abc")) == "abc"
    assert read_api_key(request(path)) is None


def test_model_list_uses_the_clients_format() -> None:
    def kind(path: str, **headers: str) -> str | None:
        found = parse_model_list_request(request(path, b"", "", **headers))
        return found.format if found else None

    assert kind("/v1/models") == "openai-chat"
    assert kind("/v1/models/x", anthropic_version="2023-06-01") == "anthropic"
    assert kind("/v1beta/models") == "gemini"
    assert kind("/v1/messages") is None
    assert kind("/v1/models/qwen3:8b") == "openai-chat"


def test_model_replacement_changes_no_other_bytes() -> None:
    messages = b'[ {"content":"\\u00e9 \xc3\xa9", "role":"user"} ]'
    body = b'{ "model" : "a", "messages":%s , "n": 1.0, "z":{"model":"a"}}' % messages
    new = patch_request_body(body, "openai-chat", model="b")
    assert json.loads(new) == {**json.loads(body), "model": "b"}
    assert messages in new and b"1.0" in new


def test_defaults_fill_missing_fields_and_overrides_always_apply() -> None:
    body = b'{"model":"a","temperature":1}'
    new = patch_request_body(body, "openai-chat", defaults={"temperature": 0, "max_tokens": 5}, overrides={"seed": 7})
    assert json.loads(new) == {"model": "a", "temperature": 1, "max_tokens": 5, "seed": 7}
    patched_body = patch_request_body(b'{"max_completion_tokens":9}', "openai-chat", defaults={"max_tokens": 5})
    assert json.loads(patched_body) == {"max_completion_tokens": 9}
    forced = patch_request_body(b'{"max_completion_tokens":9}', "openai-chat", overrides={"max_tokens": 5})
    assert json.loads(forced) == {"max_tokens": 5}
    assert json.loads(patch_request_body(body, "openai-chat", overrides={"temperature": None})) == {"model": "a"}


def test_settings_use_the_path_of_each_format() -> None:
    wanted = {"temperature": 0.5, "max_tokens": 5, "effort": "low"}
    gemini = json.loads(patch_request_body(b'{"generationConfig":{"topP":1}}', "gemini", defaults=wanted))
    assert gemini["generationConfig"] == {
        "topP": 1,
        "temperature": 0.5,
        "maxOutputTokens": 5,
        "thinkingConfig": {"thinkingLevel": "low"},
    }
    responses = json.loads(patch_request_body(b"{}", "openai-responses", defaults=wanted))
    assert responses == {"temperature": 0.5, "max_output_tokens": 5, "reasoning": {"effort": "low"}}


def test_invalid_numbers_are_refused() -> None:
    with pytest.raises(InvalidInput, match="cannot be parsed"):
        patch_request_body(b'{"temperature":1e999}', "openai-chat", defaults={"temperature": 0})


@given(st.dictionaries(st.text(), st.recursive(st.none() | st.text() | st.integers(-(2**53), 2**53), st.lists)))
def test_patched_body_is_otherwise_equal(document: dict[str, object]) -> None:
    body = json.dumps(document).encode()
    assert json.loads(patch_request_body(body, "openai-chat", model="other")) == {**document, "model": "other"}
