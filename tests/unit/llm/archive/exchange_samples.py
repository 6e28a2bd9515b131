"""Exchanges to archive."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from paddock.config.llm import ArchiveConfig
from paddock.llm.archive.archive import ExchangeArchive
from paddock.llm.exchange import Exchange, ExchangeIdGenerator, ModelCaller
from paddock.llm.formats.neutral import TokenUsage
from paddock.store.database import Store

START = 1_790_000_000.0
WORDS = Path(__file__).read_text().split()


@asynccontextmanager
async def archive(directory: Path, secrets: Sequence[str] = (), **settings: Any) -> AsyncIterator[ExchangeArchive]:
    async with await Store.open(directory / "p.db") as store:
        opened = await ExchangeArchive.open(store, ArchiveConfig(**settings), secrets)
        try:
            yield opened
        finally:
            await opened.close()


def chat_body(messages: list[dict[str, Any]], **more: Any) -> bytes:
    return json.dumps({"model": "fast", "messages": messages, **more}).encode()


def chat_answer(text: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    return json.dumps(
        {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    ).encode()


def chat_stream(pieces: Sequence[str]) -> list[bytes]:
    """Events of an answer, one event for each piece."""

    def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        return b"data: " + json.dumps(chunk).encode() + b"\n\n"

    content_events = [event({"content": piece}) for piece in pieces]
    return [event({"role": "assistant"}), *content_events, event({}, "stop"), b"data: [DONE]\n\n"]


def an_exchange(
    number: int = 0,
    messages: list[dict[str, Any]] | None = None,
    answer: str | Sequence[str] = "It is four.",
    *,
    tenant: str = "default",
    sandbox: str | None = "sb-1",
    key: str = "key-1",
    body: dict[str, Any] | None = None,
    **fields: Any,
) -> Exchange:
    """One in OpenAI's chat form; an answer in several texts is a stream."""
    at = START + number
    sent_messages = [{"role": "user", "content": f"What is two and two? ({number})"}] if messages is None else messages
    if isinstance(answer, str):
        response = [(0.25, chat_answer(answer))]
    else:
        response = [(round(0.25 + index / 100, 2), piece) for index, piece in enumerate(chat_stream(answer))]
    values: dict[str, Any] = {
        "id": ExchangeIdGenerator().new_id(at),
        "at": at,
        "caller": ModelCaller(tenant, key, sandbox),
        "format": "openai-chat",
        "operation": "generate",
        "model": "fast",
        "request": chat_body(sent_messages, **(body or {})),
        "stream": not isinstance(answer, str),
        "client": "tests/1.0",
        "route": "fast",
        "provider": "here",
        "provider_kind": "openai",
        "provider_model": "m",
        "provider_format": "openai-chat",
        "status": 200,
        "response": response,
        "usage": TokenUsage(3, 2),
        "cost": 0.001,
        "first_byte": 0.25,
        "total": 0.5,
    }
    return Exchange(**(values | fields))


def sentence(random: random.Random, size: int) -> str:
    """Text that compresses about as well as what people and programs write."""
    text = ""
    while len(text) < size:
        text += f"{random.choice(WORDS)} {random.randrange(1000)} "
    return text[:size]
