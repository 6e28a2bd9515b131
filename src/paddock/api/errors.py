"""Which error becomes which status, and what an error looks like on the wire."""

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

from paddock.api.wire import nearest_field
from paddock.errors import (
    BoxError,
    BoxStartError,
    BoxTimeout,
    Conflict,
    DiskFull,
    Forbidden,
    InvalidInput,
    NotFound,
    PaddockError,
    QuotaExceeded,
    TooLarge,
    Unauthorized,
    Unavailable,
    Unsupported,
)

STATUSES: Mapping[type[PaddockError], int] = {
    InvalidInput: 400,
    Unsupported: 400,
    Unauthorized: 401,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    TooLarge: 413,
    QuotaExceeded: 429,
    # Clients take 502 for passing trouble and try again; a box that does not start once does not start twice.
    BoxStartError: 500,
    BoxTimeout: 504,
    BoxError: 502,
    Unavailable: 503,
    DiskFull: 507,
    PaddockError: 500,
}
"""The nearest class in an error's ancestry counts."""

_MEANINGS = {
    400: ("INVALID_INPUT", "timeout: must be at least 1"),
    401: ("UNAUTHORIZED", "Send an API key as `Authorization: Bearer KEY` or `OPEN-SANDBOX-API-KEY: KEY`."),
    403: ("FORBIDDEN", "This key lacks the scope sandboxes:write; use one that has it."),
    404: ("NOT_FOUND", "There is no sandbox sb-0123456789abcdef."),
    405: ("METHOD_NOT_ALLOWED", "/v1/sandboxes does not answer PUT"),
    409: ("CONFLICT", "Sandbox sb-0123456789abcdef is Paused, so it cannot become Pausing."),
    413: ("TOO_LARGE", "the body is larger than server.max_body (67108864 bytes)"),
    421: ("MISDIRECTED", "this server does not answer to the name evil.example; see server.allowed_hosts"),
    429: ("QUOTA_EXCEEDED", "tenant default has its 100 sandboxes; delete one first"),
    500: ("INTERNAL_ERROR", "something went wrong here; the server's log says more"),
    502: ("SANDBOX_GONE", "the box does not answer any more"),
    503: ("UNAVAILABLE", "the host has only 900 MiB of disk free; sandboxes.min_free_disk wants more"),
    504: ("SANDBOX_TIMEOUT", "The box did not answer in time."),
}
RETRY_AFTER = {429: "5", 503: "5"}
_SHOWN_PROBLEMS = 3
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


class ErrorBody(BaseModel):
    """Every answer that is not a success."""

    code: str = Field(description="A stable word for programs.")
    message: str = Field(description="A sentence for people that says what to fix.")
    params: dict[str, str] | None = Field(default=None, description="Values of the message, for translations.")


def documented(*more: int) -> dict[int | str, dict[str, Any]]:
    """The error answers of a route, for its description: those every route may give, and `more`."""
    return {status: _described(status) for status in sorted({400, 401, 403, 413, 421, 500, 503, *more})}


def _described(status: int) -> dict[str, Any]:
    code, message = _MEANINGS[status]
    # Named, and not given as a model: FastAPI would make a validator of it for each status of each route.
    schema = {"$ref": f"#/components/schemas/{ErrorBody.__name__}"}
    described: dict[str, Any] = {
        "description": HTTPStatus(status).phrase,
        "content": {"application/json": {"schema": schema, "example": {"code": code, "message": message}}},
    }
    if status in RETRY_AFTER:
        described["headers"] = {
            "Retry-After": {"description": "Seconds to wait before trying again.", "schema": {"type": "integer"}}
        }
    return described


def status_of(error: PaddockError) -> int:
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def headers_for(status: int) -> dict[str, str]:
    if status == 401:
        return {"WWW-Authenticate": "Bearer"}
    return {"Retry-After": RETRY_AFTER[status]} if status in RETRY_AFTER else {}


def clean(text: str) -> str:
    """Text that is safe in a one-line message, whatever a client sent. Lines of it become parts of a sentence."""
    joined = "; ".join(line for part in text.split("\n") if (line := part.strip()))
    return _CONTROL.sub("\ufffd", joined.replace(":; ", ": "))


async def send_error(send: Send, status: int, code: str, message: str, *, close: bool = False) -> None:
    """Answer a plain ASGI request with an error."""
    body = json.dumps({"code": code, "message": clean(message)}).encode()
    headers = [(name.lower().encode(), value.encode()) for name, value in headers_for(status).items()]
    headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def refuse_websocket(send: Send, extensions: Mapping[str, Any], status: int, code: str, message: str) -> None:
    """Answer a WebSocket's opening handshake with an error instead of opening it."""
    if "websocket.http.response" not in extensions:
        await send({"type": "websocket.close", "code": 1008, "reason": code})
        return
    body = json.dumps({"code": code, "message": clean(message)}).encode()
    headers = [(name.lower().encode(), value.encode()) for name, value in headers_for(status).items()]
    headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})


def handle_errors(app: FastAPI) -> None:
    """Answer every error of an application's routes in our own form."""
    app.add_exception_handler(PaddockError, paddock_error)
    app.add_exception_handler(RequestValidationError, validation_error)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(Exception, unexpected_error)


def paddock_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PaddockError)
    status = status_of(error)
    return _answer(status, error.code, error.message, params=error.params)


def validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return _answer(400, InvalidInput.code, explain(error.errors()))


def http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    status = error.status_code
    code, _ = _MEANINGS.get(status, (HTTPStatus(status).name, ""))
    messages = {
        404: f"nothing is served at {request.url.path}",
        405: f"{request.url.path} does not answer {request.method}",
    }
    return _answer(status, code, messages.get(status, str(error.detail)), dict(error.headers or {}))


def unexpected_error(request: Request, error: Exception) -> JSONResponse:
    return _answer(500, *_MEANINGS[500])


def explain(problems: Iterable[Mapping[str, Any]]) -> str:
    """What is wrong with a request, in one line that names the fields."""
    listed = list(problems)
    told = "; ".join(_explain(problem) for problem in listed[:_SHOWN_PROBLEMS])
    more = len(listed) - _SHOWN_PROBLEMS
    return f"{told}; and {more} more" if more > 0 else told


def _explain(problem: Mapping[str, Any]) -> str:
    where, *path = problem["loc"]
    name = ".".join(str(part) for part in path)
    if problem["type"] == "json_invalid":
        return f"the body is not JSON: {problem.get('ctx', {}).get('error', 'it cannot be read')}"
    if problem["type"] == "extra_forbidden":
        near = nearest_field(str(path[-1]))
        return f"there is no field {name}" + (f"; did you mean {near}?" if near else "")
    message = str(problem["msg"]).removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if not path:
        return f"the {where}: {message}"
    return f"{name}: {message}"


def _answer(
    status: int,
    code: str,
    message: str,
    headers: dict[str, str] | None = None,
    params: Mapping[str, str] | None = None,
) -> JSONResponse:
    content: dict[str, Any] = {"code": code, "message": clean(message)}
    if params:
        content["params"] = {name: clean(value) for name, value in params.items()}
    return JSONResponse(content, status, {**headers_for(status), **(headers or {})})
