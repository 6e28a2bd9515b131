"""Map errors to HTTP statuses, and write error bodies."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.types import Send

from paddock.api.http.body_models import suggest_field_name
from paddock.errors import (
    Conflict,
    DiskFull,
    Forbidden,
    InvalidInput,
    McpTimeout,
    NotFound,
    PaddockError,
    QuotaExceeded,
    SandboxError,
    SandboxStartError,
    SandboxTimeout,
    TooLarge,
    Unauthorized,
    Unavailable,
    Unsupported,
    VaultDisabled,
    drop_stack_frames,
)

ERROR_STATUSES: Mapping[type[PaddockError], int] = {
    InvalidInput: 400,
    Unsupported: 400,
    Unauthorized: 401,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    VaultDisabled: 412,
    TooLarge: 413,
    QuotaExceeded: 429,
    # Clients retry after a 502, but a sandbox that failed to start will fail again.
    SandboxStartError: 500,
    SandboxTimeout: 504,
    SandboxError: 502,
    McpTimeout: 504,
    Unavailable: 503,
    DiskFull: 507,
    PaddockError: 500,
}
"""HTTP status by error class; the nearest class in an error's ancestry counts."""

_ERROR_EXAMPLES = {
    400: ("INVALID_INPUT", "timeout: must be at least 1"),
    401: ("UNAUTHORIZED", "Send an API key as `Authorization: Bearer KEY` or `OPEN-SANDBOX-API-KEY: KEY`."),
    403: ("FORBIDDEN", "This key lacks the scope sandboxes:write; use one that has it."),
    404: ("NOT_FOUND", "There is no sandbox sb-0123456789abcdef."),
    405: ("METHOD_NOT_ALLOWED", "/v1/sandboxes does not answer PUT"),
    409: ("CONFLICT", "Sandbox sb-0123456789abcdef is Paused, so it cannot become Pausing."),
    412: ("VAULT_DISABLED", "sandbox sb-0123456789abcdef was created without a credential vault"),
    413: ("TOO_LARGE", "the body is larger than server.max_body (67108864 bytes)"),
    421: ("MISDIRECTED", "this server does not answer to the name evil.example; see server.allowed_hosts"),
    429: ("QUOTA_EXCEEDED", "tenant default has its 100 sandboxes; delete one first"),
    500: ("INTERNAL_ERROR", "internal error; see the server's log"),
    502: ("SANDBOX_GONE", "the sandbox does not answer any more"),
    503: ("UNAVAILABLE", "the host has only 900 MiB of disk free; sandboxes.min_free_disk wants more"),
    504: ("SANDBOX_TIMEOUT", "The sandbox did not answer in time."),
}
RETRY_AFTER = {429: "5", 503: "5"}
_MAX_SHOWN_PROBLEMS = 3
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


class ErrorResponse(BaseModel):
    """The body of every error response."""

    code: str = Field(description="A stable identifier for programs.")
    message: str = Field(description="A sentence that says what went wrong and how to fix it.")
    params: dict[str, str] | None = Field(default=None, description="Values used in the message, for translations.")


def openapi_errors(*more: int) -> dict[int | str, dict[str, Any]]:
    """Describe the error answers of a route for OpenAPI: the ones every route may give, and `more`."""
    return {status: _error_doc(status) for status in sorted({400, 401, 403, 413, 421, 500, 503, *more})}


def _error_doc(status: int) -> dict[str, Any]:
    code, message = _ERROR_EXAMPLES[status]
    # A reference instead of `model`: FastAPI would build a validator for each status of each route.
    schema = {"$ref": f"#/components/schemas/{ErrorResponse.__name__}"}
    described: dict[str, Any] = {
        "description": HTTPStatus(status).phrase,
        "content": {"application/json": {"schema": schema, "example": {"code": code, "message": message}}},
    }
    if status in RETRY_AFTER:
        described["headers"] = {
            "Retry-After": {"description": "Seconds to wait before trying again.", "schema": {"type": "integer"}}
        }
    return described


def status_for_error(error: PaddockError) -> int:
    return next(ERROR_STATUSES[kind] for kind in type(error).__mro__ if kind in ERROR_STATUSES)


def error_headers_for_status(status: int) -> dict[str, str]:
    if status == 401:
        return {"WWW-Authenticate": "Bearer"}
    return {"Retry-After": RETRY_AFTER[status]} if status in RETRY_AFTER else {}


def sanitize_message(text: str) -> str:
    """Make text from a client safe for a one-line message. Line breaks become semicolons."""
    joined = "; ".join(line for part in text.split("\n") if (line := part.strip()))
    return _CONTROL.sub("\ufffd", joined.replace(":; ", ": "))


async def send_error_response(send: Send, status: int, code: str, message: str, *, close: bool = False) -> None:
    """Answer a plain ASGI request with an error."""
    body = json.dumps({"code": code, "message": sanitize_message(message)}).encode()
    headers = [(name.lower().encode(), value.encode()) for name, value in error_headers_for_status(status).items()]
    headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def refuse_websocket(send: Send, extensions: Mapping[str, Any], status: int, code: str, message: str) -> None:
    """Reject a WebSocket's opening handshake with an error response."""
    body = json.dumps({"code": code, "message": sanitize_message(message)}).encode()
    await refuse_websocket_with_body(send, extensions, status, code, body)


async def refuse_websocket_with_body(
    send: Send, extensions: Mapping[str, Any], status: int, reason: str, body: bytes
) -> None:
    """Reject a WebSocket's opening handshake with JSON; servers that cannot send it close with `reason`."""
    if "websocket.http.response" not in extensions:
        await send({"type": "websocket.close", "code": 1008, "reason": reason})
        return
    headers = [(name.lower().encode(), value.encode()) for name, value in error_headers_for_status(status).items()]
    headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})


def install_error_handlers(app: FastAPI) -> None:
    """Register handlers that answer every error of the app with an `ErrorResponse`."""
    app.add_exception_handler(PaddockError, handle_paddock_error)
    app.add_exception_handler(RequestValidationError, handle_validation_error)
    app.add_exception_handler(HTTPException, handle_http_error)
    app.add_exception_handler(Exception, handle_unexpected_error)


def handle_paddock_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PaddockError)
    status = status_for_error(error)
    drop_stack_frames(error)
    return _error_response(status, error.code, error.message, params=error.params)


def handle_validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    drop_stack_frames(error)
    return _error_response(400, InvalidInput.code, describe_validation_errors(error.errors()))


def handle_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    drop_stack_frames(error)
    status = error.status_code
    code, _ = _ERROR_EXAMPLES.get(status, (HTTPStatus(status).name, ""))
    messages = {
        404: f"nothing is served at {request.url.path}",
        405: f"{request.url.path} does not answer {request.method}",
    }
    return _error_response(status, code, messages.get(status, str(error.detail)), dict(error.headers or {}))


def handle_unexpected_error(request: Request, error: Exception) -> JSONResponse:
    return _error_response(500, *_ERROR_EXAMPLES[500])


def describe_validation_errors(problems: Iterable[Mapping[str, Any]]) -> str:
    """Describe validation problems in one line that names the fields."""
    listed = list(problems)
    text = "; ".join(_describe_problem(problem) for problem in listed[:_MAX_SHOWN_PROBLEMS])
    more = len(listed) - _MAX_SHOWN_PROBLEMS
    return f"{text}; and {more} more" if more > 0 else text


def _describe_problem(problem: Mapping[str, Any]) -> str:
    location, *path = problem["loc"]
    name = ".".join(str(part) for part in path)
    if problem["type"] == "json_invalid":
        return f"the body is not JSON: {problem.get('ctx', {}).get('error', 'it cannot be read')}"
    if problem["type"] == "extra_forbidden":
        suggestion = suggest_field_name(str(path[-1]))
        return f"there is no field {name}" + (f"; did you mean {suggestion}?" if suggestion else "")
    message = str(problem["msg"]).removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if not path:
        return f"the {location}: {message}"
    return f"{name}: {message}"


def _error_response(
    status: int,
    code: str,
    message: str,
    headers: dict[str, str] | None = None,
    params: Mapping[str, str] | None = None,
) -> JSONResponse:
    content: dict[str, Any] = {"code": code, "message": sanitize_message(message)}
    if params:
        content["params"] = {name: sanitize_message(value) for name, value in params.items()}
    return JSONResponse(content, status, {**error_headers_for_status(status), **(headers or {})})
