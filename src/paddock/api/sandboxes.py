"""Sandboxes: made, listed, changed, paused, ended, reached."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated, Literal
from urllib.parse import parse_qsl

from fastapi import APIRouter, Body, Header, Path, Query, Request, Response
from pydantic import AwareDatetime, Field

from paddock.api import egress
from paddock.api.access import Reader, Writer
from paddock.api.creation import EXTENSIONS, OUR_PREFIX, CreateBody, check_metadata_key, checked_metadata, to_request
from paddock.api.errors import documented
from paddock.api.front import host_name, is_loopback_address
from paddock.api.services import Services
from paddock.api.wire import Asked, Moment, Pagination, Said, ShareBody
from paddock.auth.exposure import is_loopback
from paddock.errors import Conflict, InvalidInput, NotFound, Unsupported
from paddock.fleet.forwards import EXECD_PORT
from paddock.model.owners import Visibility
from paddock.model.sandbox import RUN, SESSION, Sandbox, SandboxState
from paddock.sandbox.base import TOKEN_HEADER

MAX_PAGE = 1_000_000


class Status(Said):
    state: SandboxState
    reason: str | None = None
    message: str | None = None
    last_transition_at: AwareDatetime | None = None


class ImageSaid(Said):
    uri: str


class Allocation(Said):
    mode: Literal["pool"] = "pool"
    pool_ref: str
    state: Literal["allocated"] = "allocated"


class SandboxSaid(Said):
    id: str = Field(examples=["sb-0123456789abcdef"])
    image: ImageSaid | None = None
    snapshot_id: str | None = None
    status: Status
    metadata: dict[str, str]
    extensions: dict[str, str] | None = None
    allocation: Allocation | None = None
    entrypoint: list[str] | None = None
    expires_at: AwareDatetime | None = None
    created_at: AwareDatetime
    subject: str | None = None
    """Stable id of its owner: a user or a key. Older sandboxes have none."""
    created_by: str | None = None
    """Name of the key that made it."""
    visibility: Visibility

    @classmethod
    def of(cls, sandbox: Sandbox) -> SandboxSaid:
        return cls(
            id=sandbox.id,
            image=ImageSaid(uri=sandbox.image) if sandbox.snapshot is None else None,
            snapshot_id=sandbox.snapshot,
            status=Status(
                state=sandbox.state,
                reason=sandbox.reason,
                message=sandbox.message,
                last_transition_at=sandbox.changed_at,
            ),
            metadata=dict(sandbox.metadata),
            extensions={
                key: value
                for key, value in sandbox.extensions.items()
                if not key.startswith(OUR_PREFIX) or key in EXTENSIONS
            }
            or None,
            allocation=Allocation(pool_ref=sandbox.pool) if sandbox.pool and sandbox.state.alive else None,
            entrypoint=list(sandbox.entrypoint) if sandbox.entrypoint else None,
            expires_at=sandbox.expires_at,
            created_at=sandbox.created_at,
            **dict(sandbox.ownership),
        )


class SandboxList(Said):
    items: list[SandboxSaid]
    pagination: Pagination


class RenewBody(Asked):
    expires_at: Moment


class Renewed(Said):
    expires_at: AwareDatetime


class Endpoint(Said):
    endpoint: str = Field(examples=["127.0.0.1:8420/v1/sandboxes/sb-0123456789abcdef/proxy/8000"])
    headers: dict[str, str] | None = None
    """What must be sent with every request to it."""


Page = Annotated[int, Query(ge=1, le=MAX_PAGE)]
PageSize = Annotated[int, Query(ge=1, le=200, alias="pageSize")]
Patch = Annotated[dict[str, str | None], Body(examples=[{"team": "search", "stage": None}])]
Port = Annotated[int, Path(ge=1, le=65535)]


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/sandboxes", tags=["Sandboxes"])
    fleet = services.fleet

    @router.post("", status_code=202, responses=documented(404, 409, 429, 502, 504), response_model_exclude_none=True)
    async def create_sandbox(
        body: CreateBody,
        principal: Writer,
        idempotency_key: Annotated[str | None, Header(max_length=255)] = None,
    ) -> SandboxSaid:
        """Make a sandbox and return it running.

        Asking again with the same `Idempotency-Key` (or `extensions.requestKey`) returns the first one.
        """
        return SandboxSaid.of(await fleet.create(principal.tenant, to_request(body, idempotency_key)))

    @router.get("", responses=documented(), response_model_exclude_none=True)
    async def list_sandboxes(
        principal: Reader,
        state: Annotated[list[str] | None, Query(description="One there is not matches nothing.")] = None,
        metadata: Annotated[str | None, Query(description="As `key=value&key=value`, percent-encoded.")] = None,
        page: Page = 1,
        page_size: PageSize = 20,
    ) -> SandboxList:
        """List sandboxes, newest first. Several states mean any of them; several metadata pairs mean all of them."""
        wanted = _metadata_filter(metadata)
        states = [each for each in SandboxState if each in state] if state else None
        found, total = await fleet.list(
            principal.tenant,
            states=states,
            metadata=wanted or None,
            page=page,
            page_size=page_size,
        )
        items = [SandboxSaid.of(sandbox) for sandbox in found]
        return SandboxList(items=items, pagination=Pagination.of(page, page_size, total))

    @router.get("/{sandbox_id}", responses=documented(404), response_model_exclude_none=True)
    async def get_sandbox(sandbox_id: str, principal: Reader) -> SandboxSaid:
        """All that is known of one sandbox."""
        return SandboxSaid.of(await fleet.get(principal.tenant, sandbox_id))

    @router.patch("/{sandbox_id}", responses=documented(404, 409), response_model_exclude_none=True)
    async def share_sandbox(sandbox_id: str, body: ShareBody, principal: Writer) -> SandboxSaid:
        """Share a sandbox with the tenant, or make it private. That of a session or a run follows it instead."""
        metadata = (await fleet.get(principal.tenant, sandbox_id)).metadata
        for key, owners in ((SESSION, services.sessions), (RUN, services.runs)):
            with suppress(NotFound):
                if key in metadata:
                    owner = await owners.get(principal.tenant, metadata[key])
                    raise Conflict(f"This sandbox belongs to {owner.id} and is shared with it; share that.")
        return SandboxSaid.of(await fleet.share(principal.tenant, sandbox_id, body.visibility))

    @router.delete("/{sandbox_id}", status_code=204, responses=documented(404, 409))
    async def delete_sandbox(sandbox_id: str, principal: Writer) -> None:
        """End a sandbox and remove what it wrote."""
        # Once begun it is finished, even if the client stops waiting.
        await asyncio.shield(fleet.spawn(fleet.delete(principal.tenant, sandbox_id)))

    @router.patch("/{sandbox_id}/metadata", responses=documented(404, 409), response_model_exclude_none=True)
    async def patch_sandbox_metadata(sandbox_id: str, patch: Patch, principal: Writer) -> SandboxSaid:
        """Change single entries of the metadata; `null` removes one."""
        for key in patch:
            check_metadata_key(key)
        checked_metadata(patch)
        return SandboxSaid.of(await fleet.patch_metadata(principal.tenant, sandbox_id, patch))

    @router.post("/{sandbox_id}/pause", status_code=202, responses=documented(404, 409, 502))
    async def pause_sandbox(sandbox_id: str, principal: Writer) -> Response:
        """Stop every process of a sandbox where it stands."""
        await fleet.pause(principal.tenant, sandbox_id)
        return Response(status_code=202)

    @router.post("/{sandbox_id}/resume", status_code=202, responses=documented(404, 409, 502))
    async def resume_sandbox(sandbox_id: str, principal: Writer) -> Response:
        """Let a paused sandbox go on."""
        await fleet.resume(principal.tenant, sandbox_id)
        return Response(status_code=202)

    @router.post("/{sandbox_id}/renew-expiration", responses=documented(404, 409))
    async def renew_sandbox_expiration(sandbox_id: str, body: RenewBody, principal: Writer) -> Renewed:
        """Give a sandbox another time to end."""
        renewed = await fleet.renew(principal.tenant, sandbox_id, body.expires_at)
        return Renewed(expires_at=renewed.expires_at or body.expires_at)

    @router.get("/{sandbox_id}/endpoints/{port}", responses=documented(404, 409, 429), response_model_exclude_none=True)
    async def get_sandbox_endpoint(
        sandbox_id: str,
        port: Port,
        request: Request,
        principal: Writer,
        use_server_proxy: bool = False,
        expires: Annotated[int | None, Query(ge=0)] = None,
    ) -> Endpoint:
        """Where a port of the sandbox can be reached, and the headers that go with it.

        A client on this machine gets a loopback port of its own unless it wants to go through the server. It takes
        the scope `sandboxes:write`, because the headers let their bearer run commands.
        """
        if expires is not None:
            raise Unsupported("signed endpoints need an ingress gateway; leave expires out")
        sandbox = await fleet.get(principal.tenant, sandbox_id)
        if sandbox.state not in (SandboxState.RUNNING, SandboxState.PAUSED):
            raise Conflict(f"sandbox {sandbox_id} is {sandbox.state}")
        headers = {TOKEN_HEADER: sandbox.token} if port in (EXECD_PORT, egress.PORT) else None
        host = request.headers["host"]
        name = host_name(host)
        direct = services.config.sandboxes.direct_endpoints and not use_server_proxy
        near = is_loopback(services.config.server.host) and (name == "localhost" or is_loopback_address(name))
        if not direct or not near or port == egress.PORT:
            return Endpoint(endpoint=f"{host}/v1/sandboxes/{sandbox_id}/proxy/{port}", headers=headers)
        address, _ = await fleet.endpoint(principal.tenant, sandbox_id, port)
        return Endpoint(endpoint=address, headers=headers)

    return router


def _metadata_filter(text: str | None) -> dict[str, str]:
    if not text:
        return {}
    try:
        wanted = dict(parse_qsl(text, keep_blank_values=True, strict_parsing=True, max_num_fields=100))
    except ValueError:
        raise InvalidInput("metadata: write key=value, several joined by &, each percent-encoded") from None
    return checked_metadata(wanted)
