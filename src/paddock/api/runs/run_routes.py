"""Routes for runs of tasks: create, list, follow, cancel, retry, and download results."""

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

from paddock.api.http import file_responses
from paddock.api.http.authorization import RunReader, RunWriter
from paddock.api.http.error_responses import openapi_errors
from paddock.api.http.event_log_responses import (
    EVENT_ID_NAME,
    EVENT_RESPONSES,
    RUN_STREAM_PREFIX,
    AcceptHeader,
    AfterEvent,
    EventPageLimit,
    EventPageResponse,
    LastEventId,
    respond_with_events,
)
from paddock.api.http.long_json_route import LongJsonRoute
from paddock.api.http.numbered_pages import PageNumber, PageSize, Pagination
from paddock.api.http.server_sent_events import MAX_RESUME_POSITION, STREAM_HEADERS, parse_resume_position
from paddock.api.http.visibility_change import ShareRequest
from paddock.api.runs.run_bodies import (
    RUN_GROUP_PATTERN,
    CancelRunRequest,
    CreateRunsRequest,
    CreateRunsResponse,
    DeliverableListResponse,
    DeliveredFileResponse,
    InputBundleResponse,
    MissingFileResponse,
    RunListResponse,
    RunResponse,
    RunSummaryResponse,
)
from paddock.api.services import ApiServices
from paddock.errors import InvalidInput, TooLarge
from paddock.model.runs import Run, RunState
from paddock.model.task import Task
from paddock.runs.results.run_folder import RunFolder

INPUTS_PATH = "/v1/inputs"
MAX_MATRIX_BYTES = 64 * 2**20
"""Largest size of the stored tasks of all runs that one request creates, in bytes."""
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
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Runs"], route_class=LongJsonRoute.with_workers(services.gateway.workers))
    runs, bundles, most = services.runs, services.runs.dependencies.bundles, services.config.runs.max_inputs

    async def store_inputs(tenant: str, packer: Callable[[BinaryIO], object]) -> str | None:
        with tempfile.TemporaryFile(prefix="paddock-inputs-") as file:
            if await asyncio.to_thread(packer, file) is None:
                return None
            file.seek(0)
            return await bundles.save(tenant, _file_chunks(file), most)

    @router.post("/inputs", status_code=201, responses=openapi_errors(), openapi_extra=_TAR)
    async def create_inputs(request: Request, principal: RunWriter) -> InputBundleResponse:
        """Upload files for a run's workspace as one tar archive with relative paths.

        The bundle is kept for a while, and as long as a run needs it.
        """
        bundle = await bundles.save(principal.tenant, _request_chunks(request), most)
        size = await asyncio.to_thread(lambda: bundles.bundle_path(principal.tenant, bundle).stat().st_size)
        return InputBundleResponse(id=bundle, size=size)

    def to_response(run: Run) -> RunResponse:
        return RunResponse.from_run_and_task(run, runs.dependencies.masked_task(run.task))

    @router.post("/runs", status_code=202, responses=openapi_errors(404, 409, 429), response_model_exclude_none=True)
    async def create_runs(
        body: CreateRunsRequest, principal: RunWriter, idempotency_key: IdempotencyKey = None
    ) -> CreateRunsResponse:
        """Run a task: one run, or one for each cell of its matrix.

        Another request with the same `Idempotency-Key` returns the same runs.
        """
        from paddock.api.runs.task_routes import check_planned_runs, load_offered_task, parse_task_request
        from paddock.runs.inputs.input_packer import pack_inline_inputs, pack_inputs
        from paddock.runs.tasks.matrix_expansion import expand_task_matrix
        from paddock.runs.tasks.task_templates import find_task_template, task_with_script_model

        tenant = principal.tenant
        if body.file is not None:
            loaded = await asyncio.to_thread(load_offered_task, services, body.file)
            task, inputs = (
                loaded.self_contained_task,
                await store_inputs(tenant, lambda sink: pack_inputs(loaded, sink)),
            )
        elif body.template is not None:
            loaded = await asyncio.to_thread(find_task_template, body.template, services.runs.dependencies.presets)
            task, inputs = (
                task_with_script_model(loaded.self_contained_task),
                await store_inputs(tenant, lambda sink: pack_inputs(loaded, sink)),
            )
        else:
            task, inputs = await parse_task_request(services, body.task or {}), body.inputs
            if task.inputs:
                if inputs is not None:
                    raise InvalidInput(
                        "a bundle was sent for this task; put the files of its 'inputs' into the bundle too"
                    )
                full_task = task
                inputs = await store_inputs(tenant, lambda sink: pack_inline_inputs(full_task, sink))
                task = task.model_copy(update={"inputs": ()})
        planned = [(body.name or name, each) for name, each in expand_task_matrix(task)]
        if len(planned) > 1 and len(planned) * await asyncio.to_thread(_task_size, task) > MAX_MATRIX_BYTES:
            raise TooLarge(
                f"each of the {len(planned)} runs of this matrix stores the task, at most {MAX_MATRIX_BYTES >> 20} "
                "MiB in total; shorten its goal or its script, or send a bundle"
            )
        if len(planned) > 1:
            await asyncio.to_thread(check_planned_runs, services, tenant, planned)
        group = body.group or (_new_group(idempotency_key) if len(planned) > 1 else None)
        created = [
            await runs.submit(
                tenant,
                each,
                inputs=inputs,
                request_key=_numbered_key(idempotency_key, number, len(planned)),
                group=group,
                name=name,
                visibility=body.visibility,
            )
            for number, (name, each) in enumerate(planned)
        ]
        return CreateRunsResponse(runs=[to_response(run) for run in created])

    @router.get("/runs", responses=openapi_errors(), response_model_exclude_none=True)
    async def list_runs(
        principal: RunReader,
        state: Annotated[list[RunState] | None, Query()] = None,
        name: Annotated[str | None, Query(max_length=400)] = None,
        group: Annotated[str | None, Query(pattern=RUN_GROUP_PATTERN)] = None,
        page: PageNumber = 1,
        page_size: PageSize = 20,
    ) -> RunListResponse:
        """List runs, newest first. Several states match any of them."""
        found, total = await runs.list(
            principal.tenant, states=state or None, name=name, group=group, page=page, page_size=page_size
        )
        return RunListResponse(
            items=[RunSummaryResponse.from_run(run) for run in found],
            pagination=Pagination.for_total(page, page_size, total),
        )

    @router.get("/runs/{run_id}", responses=openapi_errors(404), response_model_exclude_none=True)
    async def get_run(run_id: str, principal: RunReader) -> RunResponse:
        """Return one run with its task."""
        return to_response(await runs.get(principal.tenant, run_id))

    @router.delete("/runs/{run_id}", status_code=204, responses=openapi_errors(404, 409))
    async def delete_run(run_id: str, principal: RunWriter) -> None:
        """Delete a finished run with its folder and deliverables."""
        await runs.remove(principal.tenant, run_id)

    @router.patch("/runs/{run_id}", responses=openapi_errors(404, 409), response_model_exclude_none=True)
    async def share_run(run_id: str, body: ShareRequest, principal: RunWriter) -> RunResponse:
        """Share a run with the tenant, or make it private. Its sandbox, output and deliverables follow."""
        return to_response(await runs.share(principal.tenant, run_id, body.visibility))

    @router.post(
        "/runs/{run_id}/cancel", status_code=202, responses=openapi_errors(404, 409), response_model_exclude_none=True
    )
    async def cancel_run(run_id: str, principal: RunWriter, body: CancelRunRequest | None = None) -> RunResponse:
        """Cancel a run. Partial results are collected first, unless `hard` is set."""
        request_body = body or CancelRunRequest()
        reason = request_body.reason or "somebody asked for it"
        return to_response(await runs.cancel(principal.tenant, run_id, reason, hard=request_body.hard))

    @router.post(
        "/runs/{run_id}/retry",
        status_code=202,
        responses=openapi_errors(404, 409, 429),
        response_model_exclude_none=True,
    )
    async def retry_run(run_id: str, principal: RunWriter) -> RunResponse:
        """Create a new run of the same task and inputs."""
        return to_response(await runs.retry(principal.tenant, run_id))

    @router.get("/runs/{run_id}/events", responses={**openapi_errors(404), **EVENT_RESPONSES}, response_model=None)
    async def follow_run_events(
        run_id: str,
        principal: RunReader,
        after: AfterEvent = 0,
        limit: EventPageLimit = 100,
        last_event_id: LastEventId = None,
        accept: AcceptHeader = "",
    ) -> Response | EventPageResponse:
        """Follow the events of one run until it has ended. `id:` is the event's number in its stream."""
        await runs.get(principal.tenant, run_id)
        position = parse_resume_position(last_event_id, after, EVENT_ID_NAME)
        return await respond_with_events(
            services.events, f"{RUN_STREAM_PREFIX}{run_id}", principal.tenant, position, limit, accept
        )

    _add_file_routes(router, services)
    return router


def _add_file_routes(router: APIRouter, services: ApiServices) -> None:
    runs = services.runs

    @router.get("/runs/{run_id}/deliverables", responses=openapi_errors(404))
    async def list_deliverables(run_id: str, principal: RunReader) -> DeliverableListResponse:
        """List the files a run has delivered, and the missing ones."""
        result = (await runs.get(principal.tenant, run_id)).result
        return DeliverableListResponse(
            items=[DeliveredFileResponse(**each.model_dump()) for each in result.deliverables] if result else [],
            missing=[MissingFileResponse(**each.model_dump()) for each in result.missing] if result else [],
        )

    @router.get(
        "/runs/{run_id}/deliverables/{path:path}", responses={**openapi_errors(404), **_FILE}, response_class=Response
    )
    async def get_deliverable(run_id: str, path: str, principal: RunReader) -> Response:
        """Download one file that a run has delivered."""
        run = await runs.get(principal.tenant, run_id)
        found = await asyncio.to_thread(
            file_responses.find_file_below, runs.dependencies.run_folder(run.id).deliverables, path
        )
        return file_responses.attachment_response(found, found.name)

    @router.get("/runs/{run_id}/logs/{name}", responses={**openapi_errors(404), **_LOG}, response_class=Response)
    async def get_log(
        run_id: str,
        name: Literal["agent.out", "agent.err"],
        principal: RunReader,
        follow: Annotated[bool, Query(description="Follow the output until the run has ended.")] = False,
        after: Annotated[int, Query(ge=0, le=MAX_RESUME_POSITION, description="Skip this many bytes.")] = 0,
        attempt: Annotated[int | None, Query(ge=1, le=1000, description="The last attempt if omitted.")] = None,
    ) -> Response:
        """Return the entrypoint's standard output or standard error."""
        run = await runs.get(principal.tenant, run_id)

        async def ended() -> bool:
            return (await runs.get(principal.tenant, run_id)).state.ended

        directory = _logs_directory(runs.dependencies.run_folder(run.id), attempt or run.attempt)
        pieces = file_responses.stream_growing_file(directory / name, after, ended if follow else None)
        return StreamingResponse(pieces, 200, STREAM_HEADERS, "text/plain; charset=utf-8")

    @router.get("/runs/{run_id}/archive", responses={**openapi_errors(404), **_ARCHIVE}, response_class=Response)
    async def get_archive(
        run_id: str, principal: RunReader, form: Annotated[Literal["tar", "zip"], Query(alias="format")] = "tar"
    ) -> Response:
        """Download a complete run folder: task, result, deliverables, logs, conversation and events."""
        run = await runs.get(principal.tenant, run_id)
        media = "application/x-tar" if form == "tar" else "application/zip"
        headers = {**STREAM_HEADERS, "Content-Disposition": file_responses.content_disposition(f"{run.id}.{form}")}
        return StreamingResponse(
            file_responses.stream_directory_archive(runs.dependencies.run_folder(run.id).path, run.id, form),
            200,
            headers,
            media,
        )


def _logs_directory(folder: RunFolder, attempt: int) -> Path:
    return folder.logs if attempt == 1 else folder.logs / f"attempt-{attempt}"


async def _file_chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, file_responses.CHUNK_SIZE):
        yield piece


async def _request_chunks(request: Request) -> AsyncIterator[bytes]:
    try:
        async for piece in request.stream():
            if piece:
                yield piece
    except ClientDisconnect:
        # Returning here would make a partial bundle look complete.
        raise InvalidInput("the bundle is incomplete; send it again") from None


def _task_size(task: Task) -> int:
    return len(task.model_dump_json())


def _new_group(key: str | None) -> str:
    """Return a group name; the same one for each request with the same idempotency key."""
    return f"group-{(uuid.uuid5(uuid.NAMESPACE_OID, key) if key else uuid.uuid4()).hex[:16]}"


def _numbered_key(key: str | None, number: int, count: int) -> str | None:
    return key if key is None or count == 1 else f"{key}/{number}"
