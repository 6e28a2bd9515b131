"""Ids of output items, which name the exchange they were written in."""

from __future__ import annotations

import re

from paddock.llm.formats.openai_shared import new_id

_ITEM = re.compile(r"(?:msg|fc|ctc|rs)_([0-9a-f]{26})([0-9a-f]{4})")
_EXCHANGE = re.compile(r"ex-([0-9a-f]{26})")
_MOST_ITEMS = 0x10000


def item_id(prefix: str, exchange_id: str | None, index: int) -> str:
    """Return the id of an exchange's output item; a random id where the exchange has none to name."""
    named = _EXCHANGE.fullmatch(exchange_id or "")
    if named is None or index >= _MOST_ITEMS:
        return new_id(prefix)
    return f"{prefix}{named[1]}{index:04x}"


def exchange_of_item(item: str) -> tuple[str, int] | None:
    """Return the exchange and the output index that an item's id names, or None for a foreign id."""
    found = _ITEM.fullmatch(item)
    return (f"ex-{found[1]}", int(found[2], 16)) if found else None
