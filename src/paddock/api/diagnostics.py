"""What a sandbox wrote and went through, for people who look for a mistake."""

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

from paddock.api.access import Reader
from paddock.api.errors import documented
from paddock.api.services import Services
from paddock.api.wire import Said
from paddock.config.units import parse_duration
from paddock.errors import InvalidInput, PaddockError
from paddock.model.events import Event, sandbox_stream
from paddock.model.sandbox import Sandbox, SandboxState
from paddock.sandbox.client import ENTRYPOINT, QUICK

LARGEST = 2**20
CURSOR = "EXECD-COMMANDS-TAIL-CURSOR"
LOG_SCOPES = ("container", "lifecycle", "all")
EVENT_SCOPES = ("runtime", "lifecycle", "all")
MOST_EVENTS = 500


class Diagnostic(Said):
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
EventLimit = Annotated[int, Query(ge=1, le=MOST_EVENTS)]
_EITHER: dict[int | str, dict[str, Any]] = {
    200: {
        "model": Diagnostic,
        "description": "JSON when `scope` is given, plain text otherwise.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
}
_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"description": "Plain text.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/diagnostics", tags=["Diagnostics"])
    fleet, log = services.fleet, services.events

    async def output(sandbox: Sandbox) -> tuple[str, bool]:
        """The end of what the entrypoint wrote, and whether there was more."""
        if sandbox.state is not SandboxState.RUNNING or sandbox.entrypoint is None:
            return "", False
        inside = fleet.client(sandbox)
        path = f"/command/{ENTRYPOINT}/logs"
        limit = aiohttp.ClientTimeout(total=QUICK)
        try:
            async with inside.request("HEAD", path, timeout=limit, raw=True) as head:
                end = int(head.headers.get(CURSOR, "0")) if head.status == 200 else 0
            start = max(0, end - LARGEST)
            async with inside.request("GET", f"{path}?cursor={start}", timeout=limit) as answer:
                content = await answer.content.readexactly(LARGEST)  # The box may send more than it said, or no end.
        except asyncio.IncompleteReadError as rest:
            content = rest.partial
        except (PaddockError, ValueError):
            return "", False
        return content.decode(errors="replace").replace("\0", "\ufffd"), start > 0

    async def happened(sandbox: Sandbox) -> Sequence[Event]:
        return await log.read(sandbox_stream(sandbox.id), 0, MOST_EVENTS, tenant=sandbox.tenant)

    @router.get("/logs", responses={**documented(404), **_EITHER}, response_model=None)
    async def get_sandbox_logs(
        sandbox_id: str,
        principal: Reader,
        scope: str | None = None,
        tail: Tail = 100,
        since: str | None = None,
        container: str | None = None,
    ) -> Response | Diagnostic:
        """What the sandbox's entrypoint wrote."""
        sandbox = await fleet.get(principal.tenant, sandbox_id)
        if scope is None:
            text, _ = await output(sandbox)
            _check_since(since)
            return PlainTextResponse(_last_lines(text, tail))
        _check_scope(scope, LOG_SCOPES)
        text, cut = ("", False) if scope == "lifecycle" else await output(sandbox)
        if scope in ("lifecycle", "all"):
            text = "".join(_line(event) for event in await happened(sandbox)) + text
        warnings = None
        if scope != "lifecycle" and sandbox.entrypoint is None:
            warnings = ["the sandbox was made without an entrypoint, so nothing of it is logged"]
        return _inline(sandbox, "logs", scope, text, cut, warnings)

    @router.get("/events", responses={**documented(404), **_EITHER}, response_model=None)
    async def get_sandbox_events(
        sandbox_id: str, principal: Reader, scope: str | None = None, limit: EventLimit = 50
    ) -> Response | Diagnostic:
        """What happened to the sandbox."""
        sandbox = await fleet.get(principal.tenant, sandbox_id)
        lines = [_line(event) for event in await happened(sandbox)]
        if scope is None:
            return PlainTextResponse("".join(lines[-limit:]))
        _check_scope(scope, EVENT_SCOPES)
        return _inline(sandbox, "events", scope, "".join(lines), False, None)

    @router.get("/inspect", responses={**documented(404), **_TEXT}, response_class=PlainTextResponse)
    async def inspect_sandbox(sandbox_id: str, principal: Reader) -> str:
        """All that is known of the sandbox."""
        return _inspection(await fleet.get(principal.tenant, sandbox_id))

    @router.get("/summary", responses={**documented(404), **_TEXT}, response_class=PlainTextResponse)
    async def summarise_sandbox(
        sandbox_id: str, principal: Reader, tail: Tail = 50, event_limit: EventLimit = 20
    ) -> str:
        """Inspection, events and logs in one."""
        sandbox = await fleet.get(principal.tenant, sandbox_id)
        lines = [_line(event) for event in await happened(sandbox)][-event_limit:]
        text, _ = await output(sandbox)
        parts = {"INSPECT": _inspection(sandbox), "EVENTS": "".join(lines), "LOGS": _last_lines(text, tail)}
        return "\n".join(f"{title}\n{'-' * len(title)}\n{content}" for title, content in parts.items())

    return router


def _inline(
    sandbox: Sandbox, kind: Literal["logs", "events"], scope: str, text: str, cut: bool, warnings: list[str] | None
) -> Diagnostic:
    return Diagnostic(
        sandbox_id=sandbox.id,
        kind=kind,
        scope=scope,
        content=text,
        content_length=len(text.encode()),
        truncated=cut,
        warnings=warnings,
    )


def _line(event: Event) -> str:
    data = " ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in event.data.items())
    return f"{event.at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ} {event.type} {data}".rstrip() + "\n"


def _inspection(sandbox: Sandbox) -> str:
    shown = sandbox.model_dump(mode="json", exclude={"token", "record", "env"}, exclude_none=True)
    shown["env"] = sorted(sandbox.env)  # Names only: values may be secrets.
    return json.dumps(shown, indent=2, ensure_ascii=False) + "\n"


def _last_lines(text: str, count: int) -> str:
    return "".join(text.splitlines(keepends=True)[-count:])


def _check_scope(scope: str, known: Sequence[str]) -> None:
    if scope not in known:
        raise InvalidInput(f"scope: use one of {', '.join(known)}")


def _check_since(since: str | None) -> None:
    """Output is not stamped with times, so what is asked for is checked and all of it is given."""
    if since is None:
        return
    try:
        timedelta(seconds=parse_duration(since))
    except (ValueError, OverflowError):
        raise InvalidInput("since: write a duration such as 10m or 1h") from None
