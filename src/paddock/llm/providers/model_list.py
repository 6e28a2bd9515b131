"""Read a provider's own list of models: OpenAI's, Anthropic's and Gemini's `/models`, page by page."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import Any
from urllib.parse import quote

from paddock.llm.formats.models import Listed
from paddock.llm.providers.base import Answered, KeyRefused, ListFailed, says_bad_key

MOST_PAGES = 10
MOST_MODELS = 5000
MOST_BYTES = 8 * 2**20
"""Of one page."""
_PAGE = 1000
_LONGEST_ID = 200

Fetch = Callable[[bytes], Awaitable[Answered]]
"""Sends a GET request to a path of the provider."""


async def openai_models(fetch: Fetch) -> list[Listed]:
    """Models of OpenAI and compatible servers, which answer in one page."""
    page = await _page(fetch, b"/models")
    return list(_openai(page))


async def anthropic_models(fetch: Fetch) -> list[Listed]:
    """Models of Anthropic, following `last_id` while there are more."""
    found: list[Listed] = []
    target = f"/v1/models?limit={_PAGE}"
    for _ in range(MOST_PAGES):
        page = await _page(fetch, target.encode())
        found += _anthropic(page)
        last = page.get("last_id")
        if page.get("has_more") is not True or not isinstance(last, str) or len(found) > MOST_MODELS:
            break
        target = f"/v1/models?limit={_PAGE}&after_id={quote(last, safe='')}"
    return found


async def gemini_models(fetch: Fetch) -> list[Listed]:
    """Models of Google's API that generate text, following `nextPageToken` while there is one."""
    found: list[Listed] = []
    target = f"/v1beta/models?pageSize={_PAGE}"
    for _ in range(MOST_PAGES):
        page = await _page(fetch, target.encode())
        found += _gemini(page)
        token = page.get("nextPageToken")
        if not isinstance(token, str) or not token or len(found) > MOST_MODELS:
            break
        target = f"/v1beta/models?pageSize={_PAGE}&pageToken={quote(token, safe='')}"
    return found


async def _page(fetch: Fetch, target: bytes) -> dict[str, Any]:
    """One page. Raises `KeyRefused`, `ListFailed` and `UpstreamError`."""
    answered = await fetch(target)
    try:
        body = bytearray()
        while piece := await answered.piece():
            body += piece
            if len(body) > MOST_BYTES:
                raise ListFailed("its list of models is too long")
    finally:
        answered.close()
    if answered.status == 401 or says_bad_key(answered.status, bytes(body)):
        raise KeyRefused(answered.status)
    if answered.status != 200:
        raise ListFailed(f"it answered with status {answered.status} when asked for its models")
    try:
        page = json.loads(body)
    except (ValueError, RecursionError):
        page = None
    if not isinstance(page, dict):
        raise ListFailed("its list of models is not a JSON object")
    return page


def _openai(page: dict[str, Any]) -> Iterator[Listed]:
    for each in _items(page, "data"):
        if name := _text(each, "id"):
            yield Listed(name, owner=_text(each, "owned_by") or "paddock", created=_number(each, "created") or 0)


def _anthropic(page: dict[str, Any]) -> Iterator[Listed]:
    for each in _items(page, "data"):
        if name := _text(each, "id"):
            yield Listed(
                name,
                owner="anthropic",
                created=_seconds(each.get("created_at")),
                name=_text(each, "display_name"),
                context=_number(each, "max_input_tokens"),
                output=_number(each, "max_tokens"),
            )


def _gemini(page: dict[str, Any]) -> Iterator[Listed]:
    for each in _items(page, "models"):
        name = (_text(each, "name") or "").removeprefix("models/")
        methods = each.get("supportedGenerationMethods")
        if name and (not isinstance(methods, list) or "generateContent" in methods):
            yield Listed(
                name,
                owner="google",
                name=_text(each, "displayName"),
                context=_number(each, "inputTokenLimit"),
                output=_number(each, "outputTokenLimit"),
            )


def _items(page: dict[str, Any], field: str) -> list[dict[str, Any]]:
    items = page.get(field)
    if not isinstance(items, list):
        raise ListFailed(f"its list of models has no {field}")
    return [each for each in items[:MOST_MODELS] if isinstance(each, dict)]


def _text(item: dict[str, Any], field: str) -> str | None:
    """A short printable text; anything else counts as missing."""
    value = item.get(field)
    return value if isinstance(value, str) and 0 < len(value) <= _LONGEST_ID and value.isprintable() else None


def _number(item: dict[str, Any], field: str) -> int | None:
    value = item.get(field)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**40 else None


def _seconds(value: object) -> int:
    try:
        return max(0, int(datetime.fromisoformat(str(value)).timestamp()))
    except (ValueError, OverflowError):
        return 0
