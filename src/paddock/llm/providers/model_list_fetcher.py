"""Fetch a provider's list of models from the `/models` of OpenAI, Anthropic or Gemini, page by page."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import Any
from urllib.parse import quote

from paddock.llm.formats.model_list import ModelListEntry
from paddock.llm.providers.base import ModelListFailed, ProviderKeyRefused, is_bad_key_response
from paddock.llm.wire.base import UpstreamResponse

MAX_PAGES = 10
MAX_MODELS = 5000
MAX_PAGE_BYTES = 8 * 2**20
"""Maximum size of one page."""
_PAGE = 1000
_MAX_ID_CHARACTERS = 200

FetchPage = Callable[[bytes], Awaitable[UpstreamResponse]]
"""Sends a GET request to a path of the provider."""


async def fetch_openai_models(fetch: FetchPage) -> list[ModelListEntry]:
    """Fetch the models of OpenAI and compatible servers, which send one page."""
    page = await _fetch_page(fetch, b"/models")
    return list(_read_openai_models(page))


async def fetch_anthropic_models(fetch: FetchPage) -> list[ModelListEntry]:
    """Fetch the models of Anthropic, following `last_id` while there are more."""
    found: list[ModelListEntry] = []
    target = f"/v1/models?limit={_PAGE}"
    for _ in range(MAX_PAGES):
        page = await _fetch_page(fetch, target.encode())
        found += _read_anthropic_models(page)
        last = page.get("last_id")
        if page.get("has_more") is not True or not isinstance(last, str) or len(found) > MAX_MODELS:
            break
        target = f"/v1/models?limit={_PAGE}&after_id={quote(last, safe='')}"
    return found


async def fetch_gemini_models(fetch: FetchPage) -> list[ModelListEntry]:
    """Fetch the models of Google's API that generate text, following `nextPageToken`."""
    found: list[ModelListEntry] = []
    target = f"/v1beta/models?pageSize={_PAGE}"
    for _ in range(MAX_PAGES):
        page = await _fetch_page(fetch, target.encode())
        found += _read_gemini_models(page)
        token = page.get("nextPageToken")
        if not isinstance(token, str) or not token or len(found) > MAX_MODELS:
            break
        target = f"/v1beta/models?pageSize={_PAGE}&pageToken={quote(token, safe='')}"
    return found


async def _fetch_page(fetch: FetchPage, target: bytes) -> dict[str, Any]:
    """Fetch one page. Raises `ProviderKeyRefused`, `ModelListFailed` and `UpstreamError`."""
    response = await fetch(target)
    try:
        body = bytearray()
        while piece := await response.read_piece():
            body += piece
            if len(body) > MAX_PAGE_BYTES:
                raise ModelListFailed("its list of models is too long")
    finally:
        response.close()
    if response.status == 401 or is_bad_key_response(response.status, bytes(body)):
        raise ProviderKeyRefused(response.status)
    if response.status != 200:
        raise ModelListFailed(f"it answered with status {response.status} when asked for its models")
    try:
        page = json.loads(body)
    except (ValueError, RecursionError):
        page = None
    if not isinstance(page, dict):
        raise ModelListFailed("its list of models is not a JSON object")
    return page


def _read_openai_models(page: dict[str, Any]) -> Iterator[ModelListEntry]:
    for each in _items(page, "data"):
        if name := _text(each, "id"):
            yield ModelListEntry(
                name, owner=_text(each, "owned_by") or "paddock", created=_number(each, "created") or 0
            )


def _read_anthropic_models(page: dict[str, Any]) -> Iterator[ModelListEntry]:
    for each in _items(page, "data"):
        if name := _text(each, "id"):
            yield ModelListEntry(
                name,
                owner="anthropic",
                created=_timestamp(each.get("created_at")),
                name=_text(each, "display_name"),
                context=_number(each, "max_input_tokens"),
                output=_number(each, "max_tokens"),
            )


def _read_gemini_models(page: dict[str, Any]) -> Iterator[ModelListEntry]:
    for each in _items(page, "models"):
        name = (_text(each, "name") or "").removeprefix("models/")
        methods = each.get("supportedGenerationMethods")
        if name and (not isinstance(methods, list) or "generateContent" in methods):
            yield ModelListEntry(
                name,
                owner="google",
                name=_text(each, "displayName"),
                context=_number(each, "inputTokenLimit"),
                output=_number(each, "outputTokenLimit"),
            )


def _items(page: dict[str, Any], field: str) -> list[dict[str, Any]]:
    items = page.get(field)
    if not isinstance(items, list):
        raise ModelListFailed(f"its list of models has no {field}")
    return [each for each in items[:MAX_MODELS] if isinstance(each, dict)]


def _text(item: dict[str, Any], field: str) -> str | None:
    """Return a short printable text; any other value counts as missing."""
    value = item.get(field)
    return value if isinstance(value, str) and 0 < len(value) <= _MAX_ID_CHARACTERS and value.isprintable() else None


def _number(item: dict[str, Any], field: str) -> int | None:
    value = item.get(field)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**40 else None


def _timestamp(value: object) -> int:
    try:
        return max(0, int(datetime.fromisoformat(str(value)).timestamp()))
    except (ValueError, OverflowError):
        return 0
