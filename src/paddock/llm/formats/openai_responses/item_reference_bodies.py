"""Read and replace `item_reference` inputs of Responses requests. Items stay encoded as JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from paddock.errors import InvalidInput, TooLarge
from paddock.llm.formats.openai_responses.item_ids import parse_output_item_id

MAX_REFERENCED_ANSWERS = 5000
"""Answers whose items one request may refer to."""
MAX_ADDED_ITEM_BYTES = 64 * 2**20
"""Bytes that items may add to one request."""
_MARK = b'"item_reference"'
_COMPLETED = re.compile(rb"^data: (\{.*\"type\": ?\"response\.(?:completed|incomplete)\".*)$", re.MULTILINE)
_INVALID = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class _Response(msgspec.Struct):
    output: list[msgspec.Raw] = []


class _Completed(msgspec.Struct):
    response: _Response


class _Item(msgspec.Struct):
    id: str = ""


def has_item_references(body: bytes) -> bool:
    """Return whether a body may hold references to items."""
    return _MARK in body


def referenced_item_ids(body: bytes) -> dict[str, list[str]]:
    """Return the ids of referenced items by the exchange that each id names. Raises `TooLarge` for too many."""
    found: dict[str, list[str]] = {}
    _, items = _request_and_items(body)
    for item in items:
        identifier = _referenced_id(item)
        named = parse_output_item_id(identifier) if identifier is not None else None
        if identifier is None or named is None:
            continue
        if named[0] not in found and len(found) >= MAX_REFERENCED_ANSWERS:
            raise TooLarge(
                f"input refers to items of more than {MAX_REFERENCED_ANSWERS} answers; "
                "send the items themselves (`store: false` in the client), or fewer of them"
            )
        identifiers = found.setdefault(named[0], [])
        if identifier not in identifiers[-1:]:
            identifiers.append(identifier)
    return found


def find_completed_event(pieces: Sequence[bytes]) -> bytes:
    """Return the event with the complete answer from a stream, as it was sent; empty if there is none."""
    count = 1
    while True:
        ended = _COMPLETED.findall(b"".join(pieces[-count:]))
        if ended:
            return b"data: " + bytes(ended[-1])
        if count >= len(pieces):
            return b""
        count *= 2


def unresolved_item_reference_error(identifier: str, cause: str) -> InvalidInput:
    """Return the error for a reference to an item that cannot be put in its place."""
    return InvalidInput(
        f"the item_reference {identifier!r} cannot be resolved: {cause}. "
        "Send the item itself; clients do so with `store: false`."
    )


def find_answer_items(identifiers: Sequence[str], streamed: bool, answer: bytes) -> dict[str, bytes]:
    """Return the items with these ids from an answer's body, as JSON."""
    try:
        if streamed:
            ended = _COMPLETED.findall(answer)
            response = msgspec.json.decode(ended[-1], type=_Completed).response if ended else _Response()
        else:
            response = msgspec.json.decode(answer, type=_Response)
    except _INVALID:
        return {}
    found: dict[str, bytes] = {}
    for identifier in identifiers:
        named = parse_output_item_id(identifier)
        if named is not None and named[1] < len(response.output):
            item = bytes(response.output[named[1]])
            if _item_id(item) == identifier:
                found[identifier] = item
    return found


def replace_item_references(items: Mapping[str, bytes], body: bytes) -> bytes:
    """Return the body with the referenced items in place. Raises `TooLarge` if they would make it too long."""
    request, inputs = _request_and_items(body)
    resolved: list[Any] = []
    added = 0
    for item in inputs:
        found = items.get(_referenced_id(item) or "")
        resolved.append(item if found is None else msgspec.Raw(found))
        added += len(found) if found is not None else 0
        if added > MAX_ADDED_ITEM_BYTES:
            raise TooLarge(f"the referenced items have more than {MAX_ADDED_ITEM_BYTES} bytes; send fewer of them")
    return msgspec.json.encode({**request, "input": resolved})


def _request_and_items(body: bytes) -> tuple[dict[str, Any], list[Any]]:
    try:
        request = msgspec.json.decode(body)
    except _INVALID:
        return {}, []  # The reader of the format reports what is wrong.
    items = request.get("input") if isinstance(request, dict) else None
    return (request, items) if isinstance(items, list) else ({}, [])


def _referenced_id(item: Any) -> str | None:
    if not isinstance(item, dict) or item.get("type") != "item_reference":
        return None
    identifier = item.get("id")
    return identifier if isinstance(identifier, str) else None


def _item_id(item: bytes) -> str | None:
    try:
        return msgspec.json.decode(item, type=_Item).id
    except _INVALID:
        return None
