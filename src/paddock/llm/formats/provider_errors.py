"""Parse error responses of providers in any shape, and classify them by status and error code."""

from __future__ import annotations

import json
import re
from typing import Any

from paddock.llm.formats.neutral import ModelFailure

ERROR_KINDS_BY_STATUS = {
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
STATUSES_BY_ERROR_KIND = {
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
_STATUS_BY_ERROR_CODE = {
    **STATUSES_BY_ERROR_KIND,
    "invalid_api_key": 401,
    "insufficient_quota": 429,
    "rate_limit_exceeded": 429,
    "model_not_found": 404,
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
    "server_error": 500,
    "server_is_overloaded": 503,
    "slow_down": 503,
    # Google's status names.
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
_VAGUE_STATUSES = (400, 500, 502)
"""Statuses that providers use loosely; a more specific error code of the same class (4xx, 5xx) wins."""
_MAX_MESSAGE_LENGTH = 2000
_DEFAULT_STREAM_STATUS = 502
"""Status of an error inside a stream that does not report one."""


def error_kind_for_status(status: int) -> str:
    """Return Anthropic's error type for an HTTP status."""
    return ERROR_KINDS_BY_STATUS.get(status) or ("invalid_request_error" if 400 <= status < 500 else "api_error")


def parse_provider_error(status: int, body: bytes) -> ModelFailure:
    """Parse an error response of any shape; the kind follows from the status and the error code."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    failure = find_error_in_json(value, status)
    if failure is not None:
        return failure
    message = _plain_text(body) or f"the provider answered {status} without a message"
    return ModelFailure(status, message[:_MAX_MESSAGE_LENGTH], error_kind_for_status(status))


def find_error_in_json(value: Any, status: int | None = None) -> ModelFailure | None:
    """Find an error in JSON, in any of the shapes that providers use; `None` if there is none.

    Without a status, as inside a stream, the status follows from the error code.
    """
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return None
    error = value.get("error") or value
    if isinstance(error, str):
        error = {"message": error}
    if not isinstance(error, dict):
        return None
    message = error.get("message") or error.get("detail") or error.get("msg") or value.get("message")
    if not message and error is value:
        return None
    if not isinstance(message, str):
        message = _dump_json(message or error)
    code = error.get("code")
    words = (code, error.get("status"), error.get("type"))
    code_status = next((found for word in words if (found := _status_of_code(word)) is not None), None)
    if status is None:
        status = code_status or _DEFAULT_STREAM_STATUS
    kind = error_kind_for_status(status)
    if code_status is not None and status in _VAGUE_STATUSES and (code_status < 500) == (status < 500):
        kind = error_kind_for_status(code_status)
    if "API_KEY_INVALID" in _dump_json(error.get("details") or ""):
        # Google reports an invalid key as an invalid argument.
        kind = "authentication_error"
    return ModelFailure(status, message[:_MAX_MESSAGE_LENGTH], kind, code if isinstance(code, str) and code else None)


def _status_of_code(word: Any) -> int | None:
    if isinstance(word, str):
        if word in _STATUS_BY_ERROR_CODE:
            return _STATUS_BY_ERROR_CODE[word]
        word = int(word) if word.isascii() and word.isdecimal() and len(word) == 3 else None
    return word if isinstance(word, int) and 400 <= word < 600 else None


def _dump_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return ""


def _plain_text(body: bytes) -> str:
    text = body[: 4 * _MAX_MESSAGE_LENGTH].decode(errors="replace")
    if "<html" in text[:1000].lower() or "<!doctype" in text[:1000].lower():
        text = re.sub(r"(?is)<(script|style)\b.*?</\1>|<[^>]*>", " ", text)
    return " ".join(text.split())
