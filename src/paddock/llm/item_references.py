"""Resolve `item_reference` inputs of the Responses API to the items this proxy wrote.

Clients that expect the provider to store answers send references in place of earlier items. The ids of items that
the proxy writes name their exchange, so the archive has the items. References to other items stay as they are:
OpenAI resolves its own.
"""

from __future__ import annotations

import json
import re
from typing import Any, Protocol

import msgspec

from paddock.errors import PaddockError
from paddock.llm.exchange import Caller, Exchange, Outcome
from paddock.llm.formats.openai_responses.item_ids import exchange_of_item

MOST_EXCHANGES = 200
"""Exchanges read for one request."""
_MARK = b'"item_reference"'
_COMPLETED = re.compile(rb"^data: (\{.*\"type\": ?\"response\.(?:completed|incomplete)\".*)$", re.MULTILINE)


class ExchangeSource(Protocol):
    """Where exchanges are kept: the archive."""

    async def get(self, tenant: str, exchange_id: str) -> Exchange: ...


def has_references(body: bytes) -> bool:
    """Whether a body may hold references to items."""
    return _MARK in body


async def resolve_references(body: bytes, caller: Caller, archive: ExchangeSource) -> bytes:
    """Return the body with the references replaced that the caller's own exchanges answer."""
    try:
        request = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return body  # The reader of the format reports what is wrong.
    items = request.get("input") if isinstance(request, dict) else None
    if not isinstance(items, list):
        return body
    outputs: dict[str, list[Any]] = {}
    resolved, changed = [], False
    for item in items:
        found = await _find(item, caller, archive, outputs)
        changed = changed or found is not None
        resolved.append(item if found is None else found)
    return msgspec.json.encode({**request, "input": resolved}) if changed else body


async def _find(item: Any, caller: Caller, archive: ExchangeSource, outputs: dict[str, list[Any]]) -> Any | None:
    if not isinstance(item, dict) or item.get("type") != "item_reference" or not isinstance(item.get("id"), str):
        return None
    named = exchange_of_item(item["id"])
    if named is None:
        return None
    exchange_id, index = named
    if exchange_id not in outputs:
        if len(outputs) >= MOST_EXCHANGES:
            return None
        outputs[exchange_id] = await _output(exchange_id, caller, archive)
    output = outputs[exchange_id]
    return output[index] if index < len(output) and output[index].get("id") == item["id"] else None


async def _output(exchange_id: str, caller: Caller, archive: ExchangeSource) -> list[Any]:
    """The items an exchange answered with, if the caller's own key asked for it."""
    try:
        exchange = await archive.get(caller.tenant, exchange_id)
    except PaddockError:
        return []
    if exchange.caller.key_id != caller.key_id or exchange.outcome is not Outcome.OK:
        return []
    body = b"".join(piece for _, piece in exchange.response)
    if exchange.stream:
        ended = _COMPLETED.findall(body)
        body = ended[-1] if ended else b"{}"
    try:
        answer = json.loads(body)
    except ValueError:
        return []
    answer = answer.get("response", answer)
    output = answer.get("output")
    return [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
