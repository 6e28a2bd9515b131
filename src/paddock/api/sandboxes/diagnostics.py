"""Routes for debugging a sandbox: its output, events and properties."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, timedelta
from typing import Annotated, Any, Literal

import aiohttp
from fastapi import APIRouter, Query
from fastapi.responses import PlainTextResponse
from starlette.responses import Response

from paddock.api.http.authorization import SandboxReader
from paddock.api.http.body_models import ResponseBody
from paddock.api.http.error_responses import openapi_errors
from paddock.api.services import ApiServices
from paddock.config.units import parse_duration
from paddock.errors import InvalidInput, PaddockError
from paddock.model.events import EventRecord, sandbox_event_stream
from paddock.model.sandbox import Sandbox, SandboxState
from paddock.sandbox.daemon.client import ENTRYPOINT, QUICK_TIMEOUT

MAX_OUTPUT = 2**20
TAIL_CURSOR_HEADER = "EXECD-COMMANDS-TAIL-CURSOR"
LOG_SCOPES = ("container", "lifecycle", "all")
EVENT_SCOPES = ("runtime", "lifecycle", "all")
MAX_EVENTS = 500


class DiagnosticResponse(ResponseBody):
    sandbox_id: str
    kind: Literal["logs", "events"]
    scope: str
    delivery: Literal["inline"] = "inline"
    content_type: str = "text/plain; charset=utf-8"
    content: str
    content_length: int
    truncated: bool
    warnings: list[str] | None = None


Tail = Annotated[int, Query(ge=1, le=10_000)]
EventLimit = Annotated[int, Query(ge=1, le=MAX_EVENTS)]
_JSON_OR_TEXT: dict[int | str, dict[str, Any]] = {
    200: {
        "model": DiagnosticResponse,
        "description": "JSON when `scope` is given, plain text otherwise.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
}
_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"description": "Plain text.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/diagnostics", tags=["Diagnostics"])
    fleet, log = services.fleet, services.events

    async def read_output(sandbox: Sandbox) -> tuple[str, bool]:
        """Return the end of the entrypoint's output, and whether it was truncated."""
        if sandbox.state is not SandboxState.RUNNING or sandbox.entrypoint is None:
            return "", False
        inside = fleet.client(sandbox)
        path = f"/command/{ENTRYPOINT}/logs"
        limit = aiohttp.ClientTimeout(total=QUICK_TIMEOUT)
        try:
            async with inside.request("HEAD", path, timeout=limit, raw=True) as head:
                end = int(head.headers.get(TAIL_CURSOR_HEADER, "0")) if head.status == 200 else 0
            start = max(0, end - MAX_OUTPUT)
            async with inside.request("GET", f"{path}?cursor={start}", timeout=limit) as answer:
                content = await answer.content.readexactly(MAX_OUTPUT)  # The sandbox may send more than it announced.
        except asyncio.IncompleteReadError as rest:
            content = rest.partial
        except (PaddockError, ValueError):
            return "", False
        return content.decode(errors="replace").replace("\0", "\ufffd"), start > 0

    async def read_events(sandbox: Sandbox) -> Sequence[EventRecord]:
        return await log.read(sandbox_event_stream(sandbox.id), 0, MAX_EVENTS, tenant=sandbox.tenant)

    @router.get("/logs", responses={**openapi_errors(404), **_JSON_OR_TEXT}, response_model=None)
    async def get_sandbox_logs(
        sandbox_id: str,
        principal: SandboxReader,
        scope: str | None = None,
        tail: Tail = 100,
        since: str | None = None,
        container: str | None = None,
    ) -> Response | DiagnosticResponse:
        """Return the output of the sandbox's entrypoint."""
        sandbox = await fleet.get(principal.tenant, sandbox_id)
        if scope is None:
            text, _ = await read_output(sandbox)
            _check_since(since)
            return PlainTextResponse(_last_lines(text, tail))
        _check_scope(scope, LOG_SCOPES)
        text, cut = ("", False) if scope == "lifecycle" else await read_output(sandbox)
        if scope in ("lifecycle", "all"):
            text = "".join(_format_event(event) for event in await read_events(sandbox)) + text
        warnings = None
        if scope != "lifecycle" and sandbox.entrypoint is None:
            warnings = ["the sandbox has no entrypoint, so it has no logs"]
        return _inline_response(sandbox, "logs", scope, text, cut, warnings)

    @router.get("/events", responses={**openapi_errors(404), **_JSON_OR_TEXT}, response_model=None)
    async def get_sandbox_events(
        sandbox_id: str, principal: SandboxReader, scope: str | None = None, limit: EventLimit = 50
    ) -> Response | DiagnosticResponse:
        """Return the sandbox's events."""
        sandbox = await fleet.get(principal.tenant, sandbox_id)
        lines = [_format_event(event) for event in await read_events(sandbox)]
        if scope is None:
            return PlainTextResponse("".join(lines[-limit:]))
        _check_scope(scope, EVENT_SCOPES)
        return _inline_response(sandbox, "events", scope, "".join(lines), False, None)

    @router.get("/inspect", responses={**openapi_errors(404), **_TEXT}, response_class=PlainTextResponse)
    async def inspect_sandbox(sandbox_id: str, principal: SandboxReader) -> str:
        """Return all properties of the sandbox."""
        return _inspect(await fleet.get(principal.tenant, sandbox_id))

    @router.get("/summary", responses={**openapi_errors(404), **_TEXT}, response_class=PlainTextResponse)
    async def summarise_sandbox(
        sandbox_id: str, principal: SandboxReader, tail: Tail = 50, event_limit: EventLimit = 20
    ) -> str:
        """Return inspection, events and logs in one text."""
        sandbox = await fleet.get(principal.tenant, sandbox_id)
        lines = [_format_event(event) for event in await read_events(sandbox)][-event_limit:]
        text, _ = await read_output(sandbox)
        parts = {"INSPECT": _inspect(sandbox), "EVENTS": "".join(lines), "LOGS": _last_lines(text, tail)}
        return "\n".join(f"{title}\n{'-' * len(title)}\n{content}" for title, content in parts.items())

    return router


def _inline_response(
    sandbox: Sandbox, kind: Literal["logs", "events"], scope: str, text: str, cut: bool, warnings: list[str] | None
) -> DiagnosticResponse:
    return DiagnosticResponse(
        sandbox_id=sandbox.id,
        kind=kind,
        scope=scope,
        content=text,
        content_length=len(text.encode()),
        truncated=cut,
        warnings=warnings,
    )


def _format_event(event: EventRecord) -> str:
    data = " ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in event.data.items())
    return f"{event.at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ} {event.type} {data}".rstrip() + "\n"


def _inspect(sandbox: Sandbox) -> str:
    shown = sandbox.model_dump(mode="json", exclude={"token", "record", "env"}, exclude_none=True)
    shown["env"] = sorted(sandbox.env)  # Names only: values may be secrets.
    return json.dumps(shown, indent=2, ensure_ascii=False) + "\n"


def _last_lines(text: str, count: int) -> str:
    return "".join(text.splitlines(keepends=True)[-count:])


def _check_scope(scope: str, known: Sequence[str]) -> None:
    if scope not in known:
        raise InvalidInput(f"scope: use one of {', '.join(known)}")


def _check_since(since: str | None) -> None:
    """Validate `since`; output has no timestamps, so all of it is returned."""
    if since is None:
        return
    try:
        timedelta(seconds=parse_duration(since))
    except (ValueError, OverflowError):
        raise InvalidInput("since: write a duration such as 10m or 1h") from None
