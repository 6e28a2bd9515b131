"""Reading errors whose shape nobody promised, and the words for them."""

from __future__ import annotations

import json
import re
from typing import Any

from paddock.llm.neutral import Failure

KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_STATUS_OF_WORD = {
    **STATUSES,
    "invalid_api_key": 401,
    "insufficient_quota": 429,
    "rate_limit_exceeded": 429,
    "model_not_found": 404,
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "server_error": 500,
    "server_is_overloaded": 503,
    "slow_down": 503,
    # Google's words.
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
_VAGUE = (400, 500, 502)
"""Statuses that providers use for much else; the words of the error may say more, unless they blame the other side."""
_LONGEST = 2000
_BROKEN = 502
"""The status of an error inside an answer that began well, when it does not say."""


def kind_of(status: int) -> str:
    """Anthropic's word for a status."""
    return KINDS.get(status) or ("invalid_request_error" if 400 <= status < 500 else "api_error")


def any_failure(status: int, body: bytes) -> Failure:
    """An error of whatever shape, or none: its message if one can be found, and the kind its status or words say."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    failure = told_failure(value, status)
    if failure is not None:
        return failure
    message = _plain(body) or f"the provider answered {status} without saying why"
    return Failure(status, message[:_LONGEST], kind_of(status))


def told_failure(value: Any, status: int | None = None) -> Failure | None:
    """The failure that some JSON tells of, in any of the shapes that providers use; `None` when it tells of none.

    Without a status, as inside a stream, its own words say which it would have had.
    """
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return None
    told = value.get("error") or value
    if isinstance(told, str):
        told = {"message": told}
    if not isinstance(told, dict):
        return None
    message = told.get("message") or told.get("detail") or told.get("msg") or value.get("message")
    if not message and told is value:
        return None
    if not isinstance(message, str):
        message = _shown(message or told)
    code = told.get("code")
    words = (code, told.get("status"), told.get("type"))
    said = next((found for word in words if (found := _status(word)) is not None), None)
    if status is None:
        status = said or _BROKEN
    kind = kind_of(status)
    if said is not None and status in _VAGUE and (said < 500) == (status < 500):
        kind = kind_of(said)
    if "API_KEY_INVALID" in _shown(told.get("details") or ""):
        # Google calls a wrong key an invalid argument.
        kind = "authentication_error"
    return Failure(status, message[:_LONGEST], kind, code if isinstance(code, str) and code else None)


def _status(word: Any) -> int | None:
    if isinstance(word, str):
        if word in _STATUS_OF_WORD:
            return _STATUS_OF_WORD[word]
        word = int(word) if word.isascii() and word.isdecimal() and len(word) == 3 else None
    return word if isinstance(word, int) and 400 <= word < 600 else None


def _shown(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return ""


def _plain(body: bytes) -> str:
    text = body[: 4 * _LONGEST].decode(errors="replace")
    if "<html" in text[:1000].lower() or "<!doctype" in text[:1000].lower():
        text = re.sub(r"(?is)<(script|style)\b.*?</\1>|<[^>]*>", " ", text)
    return " ".join(text.split())
