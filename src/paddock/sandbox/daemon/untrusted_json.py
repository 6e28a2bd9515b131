"""Decode JSON from sandboxes.

Decoding holds the event loop, in a thread too because of the interpreter's lock. So the cost is bounded before: values,
digits and text that is not ASCII are counted in slices, between which other tasks run.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec

from paddock.model.json_value_counter import MAX_JSON_DIGITS, JsonValueCounter, has_more_values

MAX_JSON_VALUES = 50_000
"""Maximum of values in a JSON document; characters in strings do not count."""
MAX_NON_ASCII_BYTES = 8 * 2**20
"""Maximum size of a document with characters that are not ASCII, whose strings take up to four times their size."""
LONG_JSON_BYTES = 2**20
_SLICE = 128 * 2**10


class JsonTooCostly(ValueError):
    """A document that takes too long to decode. The message says what it has."""


def decode_json(content: bytes) -> Any:
    """Decode a document of at most 1 MiB. Raises `ValueError`, and `RecursionError` for deep nesting."""
    if has_more_values(content, MAX_JSON_VALUES):
        raise _too_many_values()
    # Not `json.loads(content)`: values could be hidden from the counter in UTF-16.
    return json.loads(content.decode("utf-8", "surrogatepass"))


async def decode_long_json(content: bytes) -> Any:
    """Decode a document of any size. Raises as `decode_json` does."""
    if len(content) <= _SLICE:
        return decode_json(content)
    counter = JsonValueCounter()
    for start in range(0, len(content), _SLICE):
        if counter.feed(content[start : start + _SLICE]) > MAX_JSON_VALUES:
            raise _too_many_values()
        if counter.digits > MAX_JSON_DIGITS:
            raise JsonTooCostly(f"numbers of more than {MAX_JSON_DIGITS} digits")
        await asyncio.sleep(0)
    if len(content) <= LONG_JSON_BYTES:
        return json.loads(content.decode("utf-8", "surrogatepass"))
    if len(content) > MAX_NON_ASCII_BYTES and not content.isascii():
        raise JsonTooCostly(f"more than {MAX_NON_ASCII_BYTES >> 20} MiB, and not only ASCII text")
    return msgspec.json.decode(content)


def encode_json(value: Any) -> bytes:
    """Encode a value that was decoded from JSON."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError):  # Lone surrogates and large integers.
        return json.dumps(value).encode()


def _too_many_values() -> JsonTooCostly:
    return JsonTooCostly(f"more than {MAX_JSON_VALUES} values")
