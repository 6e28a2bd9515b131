"""Routes for sandboxes: create, list, change, pause, delete, and endpoints of ports."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated, Literal
from urllib.parse import parse_qsl

from fastapi import APIRouter, Body, Header, Path, Query, Request, Response
from pydantic import AwareDatetime, Field

from paddock.api.http.allowed_hosts import host_name_without_port, is_loopback_address
from paddock.api.http.authorization import SandboxReader, SandboxWriter
from paddock.api.http.body_models import RequestBody, ResponseBody, UtcDateTime
from paddock.api.http.error_responses import openapi_errors
from paddock.api.http.numbered_pages import PageNumber, PageSize, Pagination
from paddock.api.http.visibility_change import ShareRequest
from paddock.api.sandboxes.create_request import (
    PADDOCK_PREFIX,
    PUBLIC_EXTENSIONS,
    CreateSandboxRequest,
    sandbox_request_from_body,
    validate_sandbox_metadata,
    validate_sandbox_metadata_key,
)
from paddock.api.sandboxes.egress_sidecar import EGRESS_PORT
from paddock.api.services import ApiServices
from paddock.auth.network_exposure import is_local_only_address
from paddock.errors import Conflict, InvalidInput, NotFound, Unsupported
from paddock.fleet.port_forwards import EXECD_PORT
from paddock.model.owners import Visibility
from paddock.model.sandbox import RUN_KEY, SESSION_KEY, Sandbox, SandboxState
from paddock.sandbox.base import TOKEN_HEADER


class OpenSandboxStatus(ResponseBody):
    state: SandboxState
    reason: str | None = None
    message: str | None = None
    last_transition_at: AwareDatetime | None = None


class SandboxImage(ResponseBody):
    uri: str


class PoolAllocation(ResponseBody):
    mode: Literal["pool"] = "pool"
    pool_ref: str
    state: Literal["allocated"] = "allocated"


class SandboxResponse(ResponseBody):
    id: str = Field(examples=["sb-0123456789abcdef"])
    image: SandboxImage | None = None
    snapshot_id: str | None = None
    status: OpenSandboxStatus
    metadata: dict[str, str]
    extensions: dict[str, str] | None = None
    allocation: PoolAllocation | None = None
    entrypoint: list[str] | None = None
    network: list[str]
    """Rules of its network policy; empty if it may reach nothing."""
    expires_at: AwareDatetime | None = None
    created_at: AwareDatetime
    subject: str | None = None
    """Stable id of its owner: a user or a key. Older sandboxes have none."""
    created_by: str | None = None
    """Name of the key that created it."""
    visibility: Visibility

    @classmethod
    def from_sandbox(cls, sandbox: Sandbox) -> SandboxResponse:
        return cls(
            id=sandbox.id,
            image=SandboxImage(uri=sandbox.image) if sandbox.snapshot is None else None,
            snapshot_id=sandbox.snapshot,
            status=OpenSandboxStatus(
                state=sandbox.state,
                reason=sandbox.reason,
                message=sandbox.message,
                last_transition_at=sandbox.changed_at,
            ),
            metadata=dict(sandbox.metadata),
            extensions={
                key: value
                for key, value in sandbox.extensions.items()
                if not key.startswith(PADDOCK_PREFIX) or key in PUBLIC_EXTENSIONS
            }
            or None,
            allocation=PoolAllocation(pool_ref=sandbox.pool) if sandbox.pool and sandbox.state.alive else None,
            entrypoint=list(sandbox.entrypoint) if sandbox.entrypoint else None,
            network=list(sandbox.network),
            expires_at=sandbox.expires_at,
            created_at=sandbox.created_at,
            **dict(sandbox.ownership),
        )


class SandboxListResponse(ResponseBody):
    items: list[SandboxResponse]
    pagination: Pagination


class RenewExpirationRequest(RequestBody):
    expires_at: UtcDateTime


class RenewExpirationResponse(ResponseBody):
    expires_at: AwareDatetime


class EndpointResponse(ResponseBody):
    endpoint: str = Field(examples=["127.0.0.1:8420/v1/sandboxes/sb-0123456789abcdef/proxy/8000"])
    headers: dict[str, str] | None = None
    """Headers to send with every request to the endpoint."""


MetadataPatch = Annotated[dict[str, str | None], Body(examples=[{"team": "search", "stage": None}])]
PortNumber = Annotated[int, Path(ge=1, le=65535)]


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/sandboxes", tags=["Sandboxes"])
    fleet = services.fleet

    @router.post(
        "", status_code=202, responses=openapi_errors(404, 409, 429, 502, 504), response_model_exclude_none=True
    )
    async def create_sandbox(
        body: CreateSandboxRequest,
        principal: SandboxWriter,
        idempotency_key: Annotated[str | None, Header(max_length=255)] = None,
    ) -> SandboxResponse:
        """Create a sandbox and return it running.

        Another request with the same `Idempotency-Key` (or `extensions.requestKey`) returns the same sandbox.
        """
        return SandboxResponse.from_sandbox(
            await fleet.create(principal.tenant, sandbox_request_from_body(body, idempotency_key))
        )

    @router.get("", responses=openapi_errors(), response_model_exclude_none=True)
    async def list_sandboxes(
        principal: SandboxReader,
        state: Annotated[list[str] | None, Query(description="Unknown states match nothing.")] = None,
        metadata: Annotated[str | None, Query(description="As `key=value&key=value`, percent-encoded.")] = None,
        page: PageNumber = 1,
        page_size: PageSize = 20,
    ) -> SandboxListResponse:
        """List sandboxes, newest first.

        Several states match any of them; several metadata pairs must all match.
        """
        wanted = _parse_metadata_filter(metadata)
        states = [each for each in SandboxState if each in state] if state else None
        found, total = await fleet.list(
            principal.tenant,
            states=states,
            metadata=wanted or None,
            page=page,
            page_size=page_size,
        )
        items = [SandboxResponse.from_sandbox(sandbox) for sandbox in found]
        return SandboxListResponse(items=items, pagination=Pagination.for_total(page, page_size, total))

    @router.get("/{sandbox_id}", responses=openapi_errors(404), response_model_exclude_none=True)
    async def get_sandbox(sandbox_id: str, principal: SandboxReader) -> SandboxResponse:
        """Return one sandbox."""
        return SandboxResponse.from_sandbox(await fleet.get(principal.tenant, sandbox_id))

    @router.patch("/{sandbox_id}", responses=openapi_errors(404, 409), response_model_exclude_none=True)
    async def share_sandbox(sandbox_id: str, body: ShareRequest, principal: SandboxWriter) -> SandboxResponse:
        """Share a sandbox with the tenant, or make it private.

        A sandbox of a session or a run has the visibility of its session or run.
        """
        metadata = (await fleet.get(principal.tenant, sandbox_id)).metadata
        for key, owners in ((SESSION_KEY, services.sessions), (RUN_KEY, services.runs)):
            with suppress(NotFound):
                if key in metadata:
                    owner = await owners.get(principal.tenant, metadata[key])
                    raise Conflict(f"This sandbox belongs to {owner.id} and is shared with it; share that.")
        return SandboxResponse.from_sandbox(await fleet.share(principal.tenant, sandbox_id, body.visibility))

    @router.delete("/{sandbox_id}", status_code=204, responses=openapi_errors(404, 409))
    async def delete_sandbox(sandbox_id: str, principal: SandboxWriter) -> None:
        """Stop a sandbox and delete its files."""
        # A deletion is finished even if the client disconnects.
        await asyncio.shield(fleet.spawn(fleet.delete(principal.tenant, sandbox_id)))

    @router.patch("/{sandbox_id}/metadata", responses=openapi_errors(404, 409), response_model_exclude_none=True)
    async def patch_sandbox_metadata(
        sandbox_id: str, patch: MetadataPatch, principal: SandboxWriter
    ) -> SandboxResponse:
        """Change single metadata entries; `null` removes one.

        `name` cannot become the name of another live sandbox of the tenant.
        """
        for key in patch:
            validate_sandbox_metadata_key(key)
        validate_sandbox_metadata(patch)
        return SandboxResponse.from_sandbox(await fleet.patch_metadata(principal.tenant, sandbox_id, patch))

    @router.post("/{sandbox_id}/pause", status_code=202, responses=openapi_errors(404, 409, 502))
    async def pause_sandbox(sandbox_id: str, principal: SandboxWriter) -> Response:
        """Pause all processes of a sandbox."""
        await fleet.pause(principal.tenant, sandbox_id)
        return Response(status_code=202)

    @router.post("/{sandbox_id}/resume", status_code=202, responses=openapi_errors(404, 409, 502))
    async def resume_sandbox(sandbox_id: str, principal: SandboxWriter) -> Response:
        """Resume a paused sandbox."""
        await fleet.resume(principal.tenant, sandbox_id)
        return Response(status_code=202)

    @router.post("/{sandbox_id}/renew-expiration", responses=openapi_errors(404, 409))
    async def renew_sandbox_expiration(
        sandbox_id: str, body: RenewExpirationRequest, principal: SandboxWriter
    ) -> RenewExpirationResponse:
        """Change when a sandbox expires."""
        sandbox = await fleet.renew(principal.tenant, sandbox_id, body.expires_at)
        return RenewExpirationResponse(expires_at=sandbox.expires_at or body.expires_at)

    @router.get(
        "/{sandbox_id}/endpoints/{port}", responses=openapi_errors(404, 409, 429), response_model_exclude_none=True
    )
    async def get_sandbox_endpoint(
        sandbox_id: str,
        port: PortNumber,
        request: Request,
        principal: SandboxWriter,
        use_server_proxy: bool = False,
        expires: Annotated[int | None, Query(ge=0)] = None,
    ) -> EndpointResponse:
        """Return the address of a port of the sandbox, and the headers to send with requests.

        A client on this machine gets a loopback port of its own unless it sets `use_server_proxy`. The scope
        `sandboxes:write` is required, because the headers allow running commands.
        """
        if expires is not None:
            raise Unsupported("signed endpoints need an ingress gateway; leave expires out")
        sandbox = await fleet.get(principal.tenant, sandbox_id)
        if sandbox.state not in (SandboxState.RUNNING, SandboxState.PAUSED):
            raise Conflict(f"sandbox {sandbox_id} is {sandbox.state}")
        tokens = {EXECD_PORT: sandbox.token, EGRESS_PORT: sandbox.network_token}
        headers = {TOKEN_HEADER: token} if (token := tokens.get(port)) else None
        host = request.headers["host"]
        name = host_name_without_port(host)
        is_direct_allowed = services.config.sandboxes.direct_endpoints and not use_server_proxy
        is_local_client = is_local_only_address(services.config.server.host) and (
            name == "localhost" or is_loopback_address(name)
        )
        if not is_direct_allowed or not is_local_client or port == EGRESS_PORT:
            return EndpointResponse(endpoint=f"{host}/v1/sandboxes/{sandbox_id}/proxy/{port}", headers=headers)
        address, _ = await fleet.open_endpoint(principal.tenant, sandbox_id, port)
        return EndpointResponse(endpoint=address, headers=headers)

    return router


def _parse_metadata_filter(text: str | None) -> dict[str, str]:
    if not text:
        return {}
    try:
        wanted = dict(parse_qsl(text, keep_blank_values=True, strict_parsing=True, max_num_fields=100))
    except ValueError:
        raise InvalidInput("metadata: write key=value, several joined by &, each percent-encoded") from None
    return validate_sandbox_metadata(wanted)
