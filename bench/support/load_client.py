"""Requests of the gateway benchmarks and the compiled client that sends them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.gateways import Gateway

CHAT_PATH = "/v1/chat/completions"
MESSAGES_PATH = "/v1/messages"
CHUNKS_PER_STREAM = 200
"""Events of a stream, as the provider sends it."""
ATTEMPTS = 3
_NUMBER = "@" * 10
"""Replaced by a unique number in each request, so that the archive cannot deduplicate it."""
_SYSTEM = "You are a careful engineer. Read before you write, say what you are unsure of, and keep it short. " * 4
_QUESTION = f"Question {_NUMBER}: what does the build say, and which of the files that it names were changed last? " * 3


def chat_request(model: str = "bench", *, stream: bool = False) -> dict[str, object]:
    """Return a request in OpenAI's format, about a kilobyte."""
    messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": _QUESTION}]
    streaming = {"stream": True, "stream_options": {"include_usage": True}}
    return {"model": model, "max_tokens": 1024, "messages": messages, **(streaming if stream else {})}


def messages_request(model: str = "bench", *, stream: bool = False) -> dict[str, object]:
    """Return the same request in Anthropic's format."""
    messages = [{"role": "user", "content": _QUESTION}]
    streaming = {"stream": True} if stream else {}
    return {"model": model, "max_tokens": 1024, "system": _SYSTEM, "messages": messages, **streaming}


class LoadClient:
    """The compiled load client with its request counts."""

    def __init__(self, program: Path) -> None:
        self._program = program
        self.response_counts: dict[str, int] = {}

    async def __call__(
        self,
        gateway: Gateway,
        path: str,
        body: Mapping[str, object],
        *,
        connections: int,
        seconds: float = 0,
        requests: int = 0,
        stagger: float = 0,
    ) -> dict[str, Any]:
        """Send requests for some seconds, or a number of them, concurrently; every response must be complete."""
        for attempt in range(ATTEMPTS):
            try:
                result = await self._run(gateway, path, body, (connections, seconds, requests, round(stagger * 1e6)))
                break
            except RuntimeError as error:
                # LiteLLM may abort a response under load and is measured again; Paddock is not.
                if gateway.name != "litellm" or attempt == ATTEMPTS - 1:
                    raise
                print(f"! once more: {error}", flush=True)
                await wait_until_idle(gateway)
        self.response_counts[gateway.name] = self.response_counts.get(gateway.name, 0) + result["answers"]
        return result

    async def _run(
        self, gateway: Gateway, path: str, body: Mapping[str, object], bounds: tuple[float, ...]
    ) -> dict[str, Any]:
        end = "" if "stream" not in body else "data: [DONE]" if path == CHAT_PATH else '"message_stop"'
        process = await asyncio.create_subprocess_exec(
            *(str(self._program), str(gateway.port), *map(str, bounds), end),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate(gateway.encode_request(path, body))
        if process.returncode:
            raise RuntimeError(f"{gateway.name}, {path}: {errors.decode(errors='replace').strip()}")
        result: dict[str, Any] = json.loads(output)
        return result


async def wait_until_idle(gateway: Gateway, patience: float = 300) -> None:
    """Wait until the gateway is idle, so that its pending work does not disturb the next measurement."""
    quiet = 0
    async with asyncio.timeout(patience):
        while quiet < 3:
            before = gateway.cpu_seconds()
            await asyncio.sleep(0.1)
            quiet = quiet + 1 if gateway.cpu_seconds() - before < 0.01 else 0
