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
_LONGEST = 2000


def kind_of(status: int) -> str:
    """Anthropic's word for a status."""
    return KINDS.get(status) or ("invalid_request_error" if 400 <= status < 500 else "api_error")


def error_object(body: bytes) -> dict[str, Any] | None:
    """The object that describes an error, in any of the shapes that providers use."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return None
    error = value.get("error")
    if isinstance(error, dict):
        return error
    if isinstance(error, str):
        return {"message": error}
    return value


def any_failure(status: int, body: bytes) -> Failure:
    """An error of whatever shape, or none: its message if one can be found, and the kind its status says."""
    error = error_object(body)
    message = None
    code = None
    if error is not None:
        message = next((error[key] for key in ("message", "detail", "msg") if isinstance(error.get(key), str)), None)
        code = error.get("code") if isinstance(error.get("code"), str) else None
    if not message:
        message = _plain(body) or f"the provider answered with status {status}"
    return Failure(status, message[:_LONGEST], kind_of(status), code)


def _plain(body: bytes) -> str:
    text = body[: 4 * _LONGEST].decode(errors="replace")
    if "<html" in text[:1000].lower() or "<!doctype" in text[:1000].lower():
        text = re.sub(r"(?is)<(script|style)\b.*?</\1>|<[^>]*>", " ", text)
    return " ".join(text.split())
