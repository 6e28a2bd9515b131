"""One question to a model, in OpenAI's chat format, and its answer as it comes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paddock import __version__
from paddock.cli.client import EXCHANGE, REPLAY, SCRIPT, Client
from paddock.cli.failure import CliError, Refused

_PATH = "/v1/chat/completions"
_WRITTEN_WITHIN = 2.0
"""Seconds in which the archive has surely written what has just ended."""


@dataclass
class Answer:
    """What came back, and when."""

    text: str = ""
    first_byte: float = 0.0
    """Seconds."""
    total: float = 0.0
    usage: dict[str, int] | None = None
    exchange: str | None = None
    script: str | None = None
    """The script that answered instead of a model, as the answer's own header says."""
    recording: bool = False
    """Whether a recording answered instead of a model."""
    finished: bool = False


async def ask(
    client: Client, model: str, prompt: str, *, stream: bool, show: Callable[[str], None] | None = None
) -> Answer:
    """Ask, and hand pieces of the answer to `show` as they come. Raises `Refused` with the provider's own reason."""
    document: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": prompt}]}
    if stream:
        document |= {"stream": True, "stream_options": {"include_usage": True}}
    headers = {"User-Agent": f"paddock/{__version__}"}
    began = time.monotonic()
    answer = Answer()
    async with client.request("POST", _PATH, json=document, headers=headers) as response:
        answer.exchange = response.headers.get(EXCHANGE)
        answer.script = response.headers.get(SCRIPT)
        answer.recording = REPLAY in response.headers
        if stream:
            async for events in client.lines(response):
                answer.first_byte = answer.first_byte or time.monotonic() - began
                for event in events:
                    _take(answer, event, show)
        else:
            answer.first_byte = time.monotonic() - began
            content = bytearray()
            async for piece in response.content.iter_any():
                content += piece
            _take_whole(answer, bytes(content))
    answer.total = time.monotonic() - began
    if not answer.finished:
        raise CliError("the answer broke off before its end", hint=_hint(answer.exchange))
    return answer


async def find_exchange(client: Client, exchange_id: str) -> dict[str, Any] | None:
    """What the server keeps of an exchange that has just ended; nothing if it keeps none, or does not tell us."""
    until = time.monotonic() + _WRITTEN_WITHIN
    while True:
        try:
            found: dict[str, Any] = await client.get(f"/v1/exchanges/{exchange_id}")
            return found
        except Refused as error:
            if error.status not in (403, 404):
                raise
            if error.status == 403 or time.monotonic() > until:
                return None
        await asyncio.sleep(0.05)


def _take(answer: Answer, event: dict[str, Any], show: Callable[[str], None] | None) -> None:
    if event.get("error"):
        raise CliError(_message(event["error"]), hint=_hint(answer.exchange))
    for choice in event.get("choices") or []:
        piece = (choice.get("delta") or {}).get("content") or ""
        answer.text += piece
        if piece and show:
            show(piece)
        answer.finished |= choice.get("finish_reason") is not None
    answer.usage = _usage(event) or answer.usage


def _take_whole(answer: Answer, content: bytes) -> None:
    import json

    try:
        document = json.loads(content)
        choice = document["choices"][0]
        text = choice["message"].get("content") or ""
        answer.text = text if isinstance(text, str) else json.dumps(text)
    except (ValueError, LookupError, TypeError, AttributeError):
        raise CliError("the answer is none that OpenAI's chat API gives", hint=_hint(answer.exchange)) from None
    answer.finished = True
    answer.usage = _usage(document)


def _usage(document: dict[str, Any]) -> dict[str, int] | None:
    usage = document.get("usage")
    if not isinstance(usage, dict):
        return None
    return {"input": usage.get("prompt_tokens") or 0, "output": usage.get("completion_tokens") or 0}


def _message(error: Any) -> str:
    return str(error.get("message") or error) if isinstance(error, dict) else str(error)


def _hint(exchange: str | None) -> str | None:
    return f"see all of it: paddock llm show {exchange}" if exchange else None
