"""What a tool says while it is at work, as a box streams it: lines of JSON, of which the last has the result.

A box is not to be trusted: every line says something, all of them together have a size, and after the last there is
nothing.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import aiohttp

from paddock.errors import BoxGone, InvalidInput
from paddock.sandbox.exchange import Lines, Turns, as_object, refusal

LINES = "application/x-ndjson"
MAX_OUTPUT = 64 * 2**10
"""Bytes of output that a box tells before a call's end."""
_AROUND = 2 * 2**20
"""Bytes that the output may take as JSON, told letter by letter."""
OnOutput: TypeAlias = Callable[[str], None]


async def read_stream(answer: aiohttp.ClientResponse, most: int, on_output: OnOutput) -> dict[str, Any]:
    """Hand on output as it comes, and return the result, of at most `most` bytes.

    Raises `BoxGone` for a stream that makes no sense, and what the box says went wrong.
    """
    left, cut = MAX_OUTPUT, False
    result: dict[str, Any] | None = None
    async for line in _lines(answer, most + _AROUND):
        document = as_object(line)
        if result is not None:
            raise BoxGone("the box goes on after it has said what came of a call")
        if isinstance(found := document.get("result"), dict):
            result = found
        elif isinstance(found := document.get("error"), dict):
            raise _refusal(found)
        else:
            text = document.get("output")
            ends = text == "" and document.get("cut") is True
            if not isinstance(text, str) or cut or not (text or ends):
                raise BoxGone("the box tells nonsense of a call that is under way")
            cut = ends
            told = text.encode(errors="replace")
            left -= len(told)
            if left < 0:
                raise BoxGone("the box tells more of a call that is under way than anybody asked for")
            if told:
                on_output(told.decode())
    if result is None:
        raise BoxGone("the box does not say what came of the call")
    return result


async def _lines(answer: aiohttp.ClientResponse, most: int) -> AsyncIterator[bytes]:
    lines, size, turns = Lines(), 0, Turns()
    async for piece in answer.content.iter_any():
        turns.begin()
        size += len(piece)
        if size > most:
            raise InvalidInput(f"the box's answer is larger than {most} bytes")
        for line in lines.add(piece):
            await turns.give()
            yield line
    if lines.rest:
        raise BoxGone("the box breaks off in the middle of a line")


def _refusal(error: dict[str, Any]) -> Exception:
    status = error.get("status")
    if not isinstance(status, int) or not 400 <= status <= 599:
        return BoxGone("the box answers nonsense")
    return refusal(status, json.dumps(error))
