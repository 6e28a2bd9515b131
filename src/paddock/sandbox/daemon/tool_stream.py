"""Streamed tool calls: JSON lines with output, the last one with the result.

The sandbox is untrusted: empty lines are refused, the total size is bounded, and nothing may follow the result.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import aiohttp

from paddock.errors import InvalidInput, SandboxGone
from paddock.sandbox.daemon.daemon_http import (
    BoundedLineSplitter,
    EventLoopYielder,
    daemon_error_from_reply,
    parse_long_json_object,
)

JSON_LINES_TYPE = "application/x-ndjson"
MAX_OUTPUT_BYTES = 64 * 2**10
"""Maximum output bytes before the result."""
_MAX_OUTPUT_AS_JSON = 2 * 2**20
"""Maximum bytes of that output as JSON, even if sent character by character."""
OnOutput: TypeAlias = Callable[[str], None]


async def read_tool_stream(answer: aiohttp.ClientResponse, max_bytes: int, on_output: OnOutput) -> dict[str, Any]:
    """Forward live output to `on_output` and return the result of at most `max_bytes` bytes.

    Raises `SandboxGone` for an invalid stream, or the error that the sandbox reports.
    """
    left, cut = MAX_OUTPUT_BYTES, False
    result: dict[str, Any] | None = None
    async for line in _lines(answer, max_bytes + _MAX_OUTPUT_AS_JSON):
        document = await parse_long_json_object(line)
        if result is not None:
            raise SandboxGone("the sandbox sent data after the result of a call")
        if isinstance(found := document.get("result"), dict):
            result = found
        elif isinstance(found := document.get("error"), dict):
            raise _refusal(found)
        else:
            text = document.get("output")
            is_cut = text == "" and document.get("cut") is True
            if not isinstance(text, str) or cut or not (text or is_cut):
                raise SandboxGone("the sandbox sent an invalid line during a call")
            cut = is_cut
            chunk = text.encode(errors="replace")
            left -= len(chunk)
            if left < 0:
                raise SandboxGone("the sandbox sent too much output during a call")
            if chunk:
                on_output(chunk.decode())
    if result is None:
        raise SandboxGone("the sandbox sent no result of the call")
    return result


async def _lines(answer: aiohttp.ClientResponse, max_bytes: int) -> AsyncIterator[bytes]:
    lines, size, yielder = BoundedLineSplitter(), 0, EventLoopYielder()
    async for piece in answer.content.iter_any():
        yielder.restart_slice()
        size += len(piece)
        if size > max_bytes:
            raise InvalidInput(f"the sandbox's reply is larger than {max_bytes} bytes")
        for line in lines.add(piece):
            await yielder.yield_if_due()
            yield line
    if lines.rest:
        raise SandboxGone("the sandbox closed the connection in the middle of a line")


def _refusal(error: dict[str, Any]) -> Exception:
    status = error.get("status")
    if not isinstance(status, int) or not 400 <= status <= 599:
        return SandboxGone("the sandbox sent an invalid reply")
    return daemon_error_from_reply(status, json.dumps(error))
