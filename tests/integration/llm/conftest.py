"""A scriptable fake provider behind a real Paddock server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.fake_provider import FakeProvider, run_fake_provider
from tests.support.server import Server, run_server

PROVIDER_KEY = "sk-provider-0123456789abcdefghijklmnop"
"""Must reach the provider only."""
RUN_SECRET = "run-secret-0123456789"
"""Must not be archived, although models see it."""
QUICK = {"connect_timeout": 2, "first_byte_timeout": 1, "stall_timeout": 0.5, "retries": 0}


def provider(url: str, kind: str, **more: Any) -> dict[str, Any]:
    base = f"{url}/v1" if kind == "openai" else url
    return {"kind": kind, "base_url": base, "key": PROVIDER_KEY, **QUICK, **more}


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeProvider]:
    with run_fake_provider() as running:
        yield running


@pytest.fixture(scope="module")
def other() -> Iterator[FakeProvider]:
    """A second provider, used as fallback."""
    with run_fake_provider() as running:
        yield running


@pytest.fixture(scope="module")
def settings(fake: FakeProvider, other: FakeProvider) -> dict[str, Any]:
    """Configuration of the server: one model per format, and some special ones."""
    return {
        "runs": {"secrets": {"TOKEN": RUN_SECRET}},
        "llm": {
            "providers": {
                "chat": provider(fake.url, "openai"),
                "responses": provider(fake.url, "openai", api="responses"),
                "anthropic": provider(fake.url, "anthropic"),
                "gemini": provider(fake.url, "gemini"),
                "patient": provider(fake.url, "openai", retries=2),
                "shaky": provider(fake.url, "openai"),
                "second": provider(other.url, "openai"),
                "replay-one": {"kind": "replay", "miss": "other-way"},
                "replay-two": {"kind": "replay", "miss": "one-way"},
                "nobody": provider("http://127.0.0.1:9", "openai"),
            },
            "models": {
                "chat-model": "chat/upstream-model",
                "same-name": "chat/same-name",
                "responses-model": "responses/upstream-model",
                "anthropic-model": "anthropic/upstream-model",
                "gemini-model": "gemini/upstream-model",
                "patient-model": "patient/upstream-model",
                "wild-*": "chat/tamed-*",
                "set": {
                    "provider": "chat",
                    "model": "upstream-model",
                    "defaults": {"temperature": 0.5},
                    "overrides": {"max_tokens": 7, "top_p": None},
                    "headers": {"X-Team": "blue"},
                },
                "with-headers": {
                    "provider": "anthropic",
                    "model": "upstream-model",
                    "headers": {"User-Agent": "mine", "Anthropic-Beta": "configured"},
                },
                "falling": {"provider": "shaky", "model": "first", "fallbacks": ["second-model"]},
                "gone": {"provider": "nobody", "model": "first", "fallbacks": ["second-model"]},
                "second-model": "second/second",
                "one-at-a-time": {"provider": "chat", "limits": {"concurrency": 1}},
                "anthropic-alone": {
                    "provider": "anthropic",
                    "model": "upstream-model",
                    "defaults": {"temperature": 0.5},
                    "limits": {"concurrency": 1},
                },
                "one-way": "replay-one/x",
                "other-way": "replay-two/x",
                "seldom": {"provider": "chat", "limits": {"requests_per_minute": 2}},
            },
            "ping_every": 0.2,
            "direct": True,
        },
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, settings: dict[str, Any]) -> Iterator[Server]:
    with run_server(tmp_path_factory.mktemp("paddock"), settings) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as made:
        yield made


@pytest.fixture(autouse=True)
def _reset_providers(fake: FakeProvider, other: FakeProvider) -> None:
    for each in (fake, other):
        each.received.clear()
        each.disconnects = 0
