"""Sends one question to a model in OpenAI's chat format and reads the answer, streamed or not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paddock import __version__
from paddock.cli.connection.server_client import EXCHANGE_HEADER, REPLAY_HEADER, SCRIPT_HEADER, ServerClient
from paddock.cli.output.errors import CliError, RequestRefused

_PATH = "/v1/chat/completions"
_ARCHIVE_SECONDS = 2.0
"""Seconds after which a finished exchange is certainly archived."""


@dataclass
class CompletionResult:
    """A model's answer with timings and usage."""

    text: str = ""
    first_byte: float = 0.0
    """Seconds."""
    total: float = 0.0
    usage: dict[str, int] | None = None
    exchange: str | None = None
    script: str | None = None
    """Name of the script that answered instead of a model, from the response's header."""
    recording: bool = False
    """Whether a recording answered instead of a model."""
    finished: bool = False


async def ask_model(
    client: ServerClient, model: str, prompt: str, *, stream: bool, show: Callable[[str], None] | None = None
) -> CompletionResult:
    """Ask a model and pass streamed text to `show`. Raises `RequestRefused` with the provider's reason."""
    document: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": prompt}]}
    if stream:
        document |= {"stream": True, "stream_options": {"include_usage": True}}
    headers = {"User-Agent": f"paddock/{__version__}"}
    began = time.monotonic()
    answer = CompletionResult()
    async with client.request("POST", _PATH, json=document, headers=headers) as response:
        answer.exchange = response.headers.get(EXCHANGE_HEADER)
        answer.script = response.headers.get(SCRIPT_HEADER)
        answer.recording = REPLAY_HEADER in response.headers
        if stream:
            async for events in client.json_lines(response):
                answer.first_byte = answer.first_byte or time.monotonic() - began
                for event in events:
                    _add_event(answer, event, show)
        else:
            answer.first_byte = time.monotonic() - began
            content = bytearray()
            async for piece in response.content.iter_any():
                content += piece
            _read_response(answer, bytes(content))
    answer.total = time.monotonic() - began
    if not answer.finished:
        raise CliError("the answer is incomplete: the stream ended early", hint=_show_exchange_hint(answer.exchange))
    return answer


async def find_archived_exchange(client: ServerClient, exchange_id: str) -> dict[str, Any] | None:
    """Return the archived exchange of a request that has just ended; None if not archived or not permitted."""
    until = time.monotonic() + _ARCHIVE_SECONDS
    while True:
        try:
            found: dict[str, Any] = await client.get(f"/v1/exchanges/{exchange_id}")
            return found
        except RequestRefused as error:
            if error.status not in (403, 404):
                raise
            if error.status == 403 or time.monotonic() > until:
                return None
        await asyncio.sleep(0.05)


def _add_event(answer: CompletionResult, event: dict[str, Any], show: Callable[[str], None] | None) -> None:
    if event.get("error"):
        raise CliError(_error_message(event["error"]), hint=_show_exchange_hint(answer.exchange))
    for choice in event.get("choices") or []:
        piece = (choice.get("delta") or {}).get("content") or ""
        answer.text += piece
        if piece and show:
            show(piece)
        answer.finished |= choice.get("finish_reason") is not None
    answer.usage = _token_usage(event) or answer.usage


def _read_response(answer: CompletionResult, content: bytes) -> None:
    import json

    try:
        document = json.loads(content)
        choice = document["choices"][0]
        text = choice["message"].get("content") or ""
        answer.text = text if isinstance(text, str) else json.dumps(text)
    except (ValueError, LookupError, TypeError, AttributeError):
        raise CliError(
            "the response is not in OpenAI's chat format", hint=_show_exchange_hint(answer.exchange)
        ) from None
    answer.finished = True
    answer.usage = _token_usage(document)


def _token_usage(document: dict[str, Any]) -> dict[str, int] | None:
    usage = document.get("usage")
    if not isinstance(usage, dict):
        return None
    return {"input": usage.get("prompt_tokens") or 0, "output": usage.get("completion_tokens") or 0}


def _error_message(error: Any) -> str:
    return str(error.get("message") or error) if isinstance(error, dict) else str(error)


def _show_exchange_hint(exchange: str | None) -> str | None:
    return f"details: paddock llm show {exchange}" if exchange else None
