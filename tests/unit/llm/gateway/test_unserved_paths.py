"""Paths of model APIs that the proxy does not serve."""

from __future__ import annotations

import pytest

from paddock.llm.gateway.unserved_paths import find_unserved_api, is_unserved_path
from paddock.llm.request_kind import add_api_version, is_model_path, suggest_model_path
from paddock.llm.wire.base import HttpRequest


@pytest.mark.parametrize(
    ("path", "headers", "expected"),
    [
        ("/v1/images/generations", [], ("openai-chat", "image generation")),
        ("/v1/audio/speech", [], ("openai-chat", "audio")),
        ("/v1/files/f-1/content", [], ("openai-chat", "files")),
        ("/v1/files", [(b"anthropic-version", b"2023-06-01")], ("anthropic", "files")),
        ("/v1/files", [(b"x-api-key", b"k")], ("anthropic", "files")),
        ("/v1/files", [(b"x-api-key", b"k"), (b"authorization", b"Bearer k")], ("openai-chat", "files")),
        ("/v1/files", [(b"x-goog-api-key", b"k")], ("gemini", "files")),
        ("/v1/messages/batches", [], ("anthropic", "message batches")),
        ("/v1/responses/resp_1", [], ("openai-chat", "stored responses")),
        ("/v1/responses/compact", [], ("openai-chat", "compaction of responses")),
        ("/v1/responses/input_tokens", [], ("openai-chat", "token counts of responses")),
        ("/v1/rerank", [], ("openai-chat", "reranking")),
        ("/v1beta/cachedContents", [], ("gemini", "cachedContents")),
        ("/v1beta/models/imagen-4:predict", [], ("gemini", "image generation")),
        ("/v1beta/models/gem:batchGenerateContent", [], ("gemini", "batches")),
        ("/v1/models/veo:predictLongRunning", [], ("gemini", "video generation")),
        ("/v1beta/openai/files", [], ("openai-chat", "files")),
        ("/upload/v1beta/files", [], ("gemini", "files")),
        ("/files", [], ("openai-chat", "files")),
        ("/messages/batches", [], ("anthropic", "message batches")),
        ("/audio/speech", [], ("openai-chat", "audio")),
        ("/images/generations", [], ("openai-chat", "image generation")),
        ("/cachedContents", [], ("gemini", "cachedContents")),
        ("/realtime/sessions", [], ("openai-chat", "realtime sessions")),
        ("/v1/images", [], None),
        ("/images", [], None),
        ("/archive", [], None),
        ("/v1/images/builds", [], None),
        ("/v1/sandboxes", [], None),
        ("/v1/filesystem", [], None),
    ],
)
def test_each_api_is_named_in_its_own_format(
    path: str, headers: list[tuple[bytes, bytes]], expected: tuple[str, str] | None
) -> None:
    assert find_unserved_api(HttpRequest("POST", path, "", headers, b"")) == expected
    assert is_unserved_path(path) == (expected is not None)


@pytest.mark.parametrize(
    ("path", "right"),
    [
        ("/v1/v1/messages", "/v1/messages"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("//v1/messages", "/v1/messages"),
        ("/v1/models/", "/v1/models"),
        ("/chat/completions/", "/v1/chat/completions"),
        ("/v1beta/openai/chat/completions", "/v1/chat/completions"),
        ("/v1beta/openai/models", "/v1/models"),
        ("/v1/v1beta/models/gem:generateContent", "/v1beta/models/gem:generateContent"),
        ("/anthropic/v1/messages", "/v1/messages"),
        ("/v1/files/", None),
        ("/v1/sandboxes/sb-1/proxy/8000//v1/messages", None),
        ("/v1/messages", None),
    ],
)
def test_intended_path_is_suggested(path: str, right: str | None) -> None:
    assert suggest_model_path(path) == right


@pytest.mark.parametrize("path", ["/v1beta/models/imagen-4:predict", "/v1/models/gem:batchGenerateContent"])
def test_methods_for_images_and_batches_are_not_served(path: str) -> None:
    assert not is_model_path(path)


@pytest.mark.parametrize(
    ("path", "full"),
    [
        ("/messages", "/v1/messages"),
        ("/messages/count_tokens", "/v1/messages/count_tokens"),
        ("/chat/completions", "/v1/chat/completions"),
        ("/responses", "/v1/responses"),
        ("/embeddings", "/v1/embeddings"),
        ("/models", "/v1/models"),
        ("/models/gpt-5", "/v1/models/gpt-5"),
        ("/models/gem:generateContent", "/v1beta/models/gem:generateContent"),
        ("/v1/messages", "/v1/messages"),
        ("/chats", "/chats"),
    ],
)
def test_a_missing_version_is_added(path: str, full: str) -> None:
    assert add_api_version(path) == full
    assert path == "/chats" or is_model_path(full)
