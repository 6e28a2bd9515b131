"""Runs of tasks: started, followed, stopped, and what they have made brought back."""

from __future__ import annotations

import asyncio
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect

from paddock.api import sending
from paddock.api.access import RunReader, RunWriter
from paddock.api.errors import documented
from paddock.api.events import DESCRIBED, RUNS, WHAT, Accept, After, EventPage, LastEventId, Limit, answer
from paddock.api.following import LARGEST, STREAM_HEADERS, place
from paddock.api.json_bodies import LongJson
from paddock.api.run_messages import (
    GROUP,
    BundleSaid,
    CancelBody,
    DeliverableList,
    DeliveredSaid,
    MissingSaid,
    RunBody,
    RunItem,
    RunList,
    RunSaid,
    RunsSaid,
)
from paddock.api.sandboxes import Page, PageSize
from paddock.api.services import Services
from paddock.api.wire import Pagination, ShareBody
from paddock.errors import InvalidInput, TooLarge
from paddock.model.runs import Run, RunState
from paddock.model.task import Task
from paddock.runs.folder import RunFolder

INPUTS = "/v1/inputs"
LARGEST_MATRIX = 64 * 2**20
"""Bytes of the tasks of all runs that one request makes."""
_BYTES: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_TAR: dict[str, Any] = {
    "requestBody": {"required": True, "description": "A tar.", "content": {"application/octet-stream": _BYTES}}
}
_TEXT: dict[str, Any] = {"schema": {"type": "string"}}
_FILE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file.", "content": {"application/octet-stream": _BYTES}},
    206: {"description": "The part of it that `Range` asks for.", "content": {"application/octet-stream": _BYTES}},
}
_LOG: dict[int | str, dict[str, Any]] = {200: {"description": "Text.", "content": {"text/plain": _TEXT}}}
_ARCHIVE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The archive.", "content": {"application/x-tar": _BYTES, "application/zip": _BYTES}}
}
Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Runs"], route_class=LongJson)
    runs, bundles, most = services.runs, services.runs.means.bundles, services.config.runs.max_inputs

    async def pack(tenant: str, packer: Callable[[BinaryIO], object]) -> str | None:
        with tempfile.TemporaryFile(prefix="paddock-inputs-") as file:
            if await asyncio.to_thread(packer, file) is None:
                return None
            file.seek(0)
            return await bundles.put(tenant, _read(file), most)

    @router.post("/inputs", status_code=201, responses=documented(), openapi_extra=_TAR)
    async def create_inputs(request: Request, principal: RunWriter) -> BundleSaid:
        """Send what a run finds in its workspace, as one tar archive whose paths are relative to it.

        The bundle is kept for a while, and as long as a run needs it.
        """
        bundle = await bundles.put(principal.tenant, _pieces(request), most)
        size = await asyncio.to_thread(lambda: bundles.path(principal.tenant, bundle).stat().st_size)
        return BundleSaid(id=bundle, size=size)

    def said(run: Run) -> RunSaid:
        return RunSaid.with_task(run, runs.means.readable(run.task))

    @router.post("/runs", status_code=202, responses=documented(404, 409, 429), response_model_exclude_none=True)
    async def create_runs(body: RunBody, principal: RunWriter, idempotency_key: Key = None) -> RunsSaid:
        """Run a task: one run, or one for each place of its matrix.

        Asking again with the same `Idempotency-Key` returns the same runs.
        """
        from paddock.api.tasks import check_all, offered, parsed
        from paddock.runs.inputs import pack_content, pack_inputs
        from paddock.runs.matrix import expand
        from paddock.runs.templates import find_template, on_script

        tenant = principal.tenant
        if body.file is not None:
            loaded = await asyncio.to_thread(offered, services, body.file)
            task, inputs = loaded.sent, await pack(tenant, lambda sink: pack_inputs(loaded, sink))
        elif body.template is not None:
            loaded = await asyncio.to_thread(find_template, body.template, services.runs.means.presets)
            task, inputs = on_script(loaded.sent), await pack(tenant, lambda sink: pack_inputs(loaded, sink))
        else:
            task, inputs = await asyncio.to_thread(parsed, services, body.task or {}), body.inputs
            if task.inputs:
                if inputs is not None:
                    raise InvalidInput("a bundle was sent for this task; put what its 'inputs' have into that too")
                whole = task
                inputs = await pack(tenant, lambda sink: pack_content(whole, sink))
                task = task.model_copy(update={"inputs": ()})
        planned = [(body.name or name, each) for name, each in expand(task)]
        if len(planned) > 1 and len(planned) * await asyncio.to_thread(_size_of, task) > LARGEST_MATRIX:
            raise TooLarge(
                f"each of the {len(planned)} runs of this matrix keeps the task, {LARGEST_MATRIX >> 20} MiB in all at "
                "most; make its goal or its script shorter, or send a bundle"
            )
        if len(planned) > 1:
            await asyncio.to_thread(check_all, services, tenant, planned)
        group = body.group or (_new_group(idempotency_key) if len(planned) > 1 else None)
        made = [
            await runs.submit(
                tenant,
                each,
                inputs=inputs,
                request_key=_numbered(idempotency_key, number, len(planned)),
                group=group,
                name=name,
                visibility=body.visibility,
            )
            for number, (name, each) in enumerate(planned)
        ]
        return RunsSaid(runs=[said(run) for run in made])

    @router.get("/runs", responses=documented(), response_model_exclude_none=True)
    async def list_runs(
        principal: RunReader,
        state: Annotated[list[RunState] | None, Query()] = None,
        name: Annotated[str | None, Query(max_length=400)] = None,
        group: Annotated[str | None, Query(pattern=GROUP)] = None,
        page: Page = 1,
        page_size: PageSize = 20,
    ) -> RunList:
        """List runs, newest first. Several states mean any of them."""
        found, total = await runs.list(
            principal.tenant, states=state or None, name=name, group=group, page=page, page_size=page_size
        )
        return RunList(items=[RunItem.of(run) for run in found], pagination=Pagination.of(page, page_size, total))

    @router.get("/runs/{run_id}", responses=documented(404), response_model_exclude_none=True)
    async def get_run(run_id: str, principal: RunReader) -> RunSaid:
        """All that is known of one run, its task included."""
        return said(await runs.get(principal.tenant, run_id))

    @router.delete("/runs/{run_id}", status_code=204, responses=documented(404, 409))
    async def delete_run(run_id: str, principal: RunWriter) -> None:
        """Forget a run that has ended, with its folder and what it has delivered."""
        await runs.remove(principal.tenant, run_id)

    @router.patch("/runs/{run_id}", responses=documented(404, 409), response_model_exclude_none=True)
    async def share_run(run_id: str, body: ShareBody, principal: RunWriter) -> RunSaid:
        """Share a run with the tenant, or make it private. Its sandbox, its output and its deliverables follow."""
        return said(await runs.share(principal.tenant, run_id, body.visibility))

    @router.post(
        "/runs/{run_id}/cancel", status_code=202, responses=documented(404, 409), response_model_exclude_none=True
    )
    async def cancel_run(run_id: str, principal: RunWriter, body: CancelBody | None = None) -> RunSaid:
        """Stop a run. What it has made so far is brought back first, unless it is to be `hard`."""
        asked = body or CancelBody()
        reason = asked.reason or "somebody asked for it"
        return said(await runs.cancel(principal.tenant, run_id, reason, hard=asked.hard))

    @router.post(
        "/runs/{run_id}/retry", status_code=202, responses=documented(404, 409, 429), response_model_exclude_none=True
    )
    async def retry_run(run_id: str, principal: RunWriter) -> RunSaid:
        """Make a new run of the same task and inputs."""
        return said(await runs.retry(principal.tenant, run_id))

    @router.get("/runs/{run_id}/events", responses={**documented(404), **DESCRIBED}, response_model=None)
    async def follow_run_events(
        run_id: str,
        principal: RunReader,
        after: After = 0,
        limit: Limit = 100,
        last_event_id: LastEventId = None,
        accept: Accept = "",
    ) -> Response | EventPage:
        """What happened and happens to one run, until it has ended. `id:` is the event's number in its stream."""
        await runs.get(principal.tenant, run_id)
        begins = place(last_event_id, after, WHAT)
        return await answer(services.events, f"{RUNS}{run_id}", principal.tenant, begins, limit, accept)

    _file_routes(router, services)
    return router


def _file_routes(router: APIRouter, services: Services) -> None:
    runs = services.runs

    @router.get("/runs/{run_id}/deliverables", responses=documented(404))
    async def list_deliverables(run_id: str, principal: RunReader) -> DeliverableList:
        """What a run has brought back, and what not."""
        result = (await runs.get(principal.tenant, run_id)).result
        return DeliverableList(
            items=[DeliveredSaid(**each.model_dump()) for each in result.deliverables] if result else [],
            missing=[MissingSaid(**each.model_dump()) for each in result.missing] if result else [],
        )

    @router.get(
        "/runs/{run_id}/deliverables/{path:path}", responses={**documented(404), **_FILE}, response_class=Response
    )
    async def get_deliverable(run_id: str, path: str, principal: RunReader) -> Response:
        """One file that a run has brought back."""
        run = await runs.get(principal.tenant, run_id)
        found = await asyncio.to_thread(sending.file_below, runs.means.folder(run.id).deliverables, path)
        return sending.attachment(found, found.name)

    @router.get("/runs/{run_id}/logs/{name}", responses={**documented(404), **_LOG}, response_class=Response)
    async def get_log(
        run_id: str,
        name: Literal["agent.out", "agent.err"],
        principal: RunReader,
        follow: Annotated[bool, Query(description="Go on as it grows, until the run has ended.")] = False,
        after: Annotated[int, Query(ge=0, le=LARGEST, description="Skip this many bytes.")] = 0,
        attempt: Annotated[int | None, Query(ge=1, le=1000, description="The last one if left out.")] = None,
    ) -> Response:
        """What the entrypoint has written to its standard output or standard error."""
        run = await runs.get(principal.tenant, run_id)

        async def ended() -> bool:
            return (await runs.get(principal.tenant, run_id)).state.ended

        directory = _logs_of(runs.means.folder(run.id), attempt or run.attempt)
        pieces = sending.growing(directory / name, after, ended if follow else None)
        return StreamingResponse(pieces, 200, STREAM_HEADERS, "text/plain; charset=utf-8")

    @router.get("/runs/{run_id}/archive", responses={**documented(404), **_ARCHIVE}, response_class=Response)
    async def get_archive(
        run_id: str, principal: RunReader, form: Annotated[Literal["tar", "zip"], Query(alias="format")] = "tar"
    ) -> Response:
        """A run's whole folder: the task, the result, deliverables, logs, conversation and events."""
        run = await runs.get(principal.tenant, run_id)
        media = "application/x-tar" if form == "tar" else "application/zip"
        headers = {**STREAM_HEADERS, "Content-Disposition": sending.disposition(f"{run.id}.{form}")}
        return StreamingResponse(sending.packed(runs.means.folder(run.id).path, run.id, form), 200, headers, media)


def _logs_of(folder: RunFolder, attempt: int) -> Path:
    return folder.logs if attempt == 1 else folder.logs / f"attempt-{attempt}"


async def _read(file: BinaryIO) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, sending.PIECE):
        yield piece


async def _pieces(request: Request) -> AsyncIterator[bytes]:
    try:
        async for piece in request.stream():
            if piece:
                yield piece
    except ClientDisconnect:
        # Ending here quietly would make half a bundle look like a whole one.
        raise InvalidInput("the bundle broke off; send it again") from None


def _size_of(task: Task) -> int:
    return len(task.model_dump_json())


def _new_group(key: str | None) -> str:
    """For those who ask again it must be the same."""
    return f"group-{(uuid.uuid5(uuid.NAMESPACE_OID, key) if key else uuid.uuid4()).hex[:16]}"


def _numbered(key: str | None, number: int, of: int) -> str | None:
    return key if key is None or of == 1 else f"{key}/{number}"
