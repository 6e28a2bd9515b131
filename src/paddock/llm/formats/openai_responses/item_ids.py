"""IDs of output items, which encode the exchange that contains them."""

from __future__ import annotations

import re

from paddock.llm.formats.openai_shared import new_prefixed_id

_ITEM = re.compile(r"(?:msg|fc|ctc|rs)_([0-9a-f]{26})([0-9a-f]{4})")
_ITEM_IN_BODY = re.compile(rb'"(?:msg|fc|ctc|rs)_([0-9a-f]{26})[0-9a-f]{4}"')
_EXCHANGE = re.compile(r"ex-([0-9a-f]{26})")
_MOST_ITEMS = 0x10000


def new_output_item_id(prefix: str, exchange_id: str | None, index: int) -> str:
    """Return the ID of an output item; random if there is no exchange ID to encode."""
    named = _EXCHANGE.fullmatch(exchange_id or "")
    if named is None or index >= _MOST_ITEMS:
        return new_prefixed_id(prefix)
    return f"{prefix}{named[1]}{index:04x}"


def parse_output_item_id(item: str) -> tuple[str, int] | None:
    """Return the exchange ID and the output index encoded in an item ID; `None` for other IDs."""
    found = _ITEM.fullmatch(item)
    return (f"ex-{found[1]}", int(found[2], 16)) if found else None


def find_exchange_id_in_answer(body: bytes) -> str | None:
    """Return the exchange ID encoded in the first item ID of an answer; `None` if the proxy did not write its items."""
    found = _ITEM_IN_BODY.search(body)
    return f"ex-{found[1].decode()}" if found else None


def exchange_start_time(exchange_id: str) -> float:
    """Return when an exchange began, in seconds since 1970, from its ID."""
    return int(exchange_id[3:17], 16) / 1_000_000
