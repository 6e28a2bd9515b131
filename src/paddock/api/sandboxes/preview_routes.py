"""Routes for previews of a sandbox, and for the ports on which its programs listen."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import AwareDatetime, Field

from paddock.api.http.authorization import SandboxReader, SandboxWriter, read_header
from paddock.api.http.body_models import RequestBody, ResponseBody
from paddock.api.http.error_responses import openapi_errors
from paddock.api.sandboxes.preview_addresses import PreviewAddresses
from paddock.api.services import ApiServices
from paddock.errors import Conflict
from paddock.fleet.fleet import ONGOING_STATES
from paddock.fleet.port_previews import MAX_LIFETIME, RESERVED_PORTS
from paddock.model.previews import SandboxPreview

DEFAULT_LIFETIME = timedelta(hours=1)
PortNumber = Annotated[int, Path(ge=1, le=65535)]


class PreviewRequest(RequestBody):
    port: int = Field(ge=1, le=65535, examples=[3000])
    """Port on which a program in the sandbox listens, now or later."""
    ttl: int = Field(
        default=int(DEFAULT_LIFETIME.total_seconds()), ge=1, le=int(MAX_LIFETIME.total_seconds()), examples=[3600]
    )
    """Seconds until the preview expires. It ends with the sandbox at the latest."""
    public: bool = False
    """Whether `address` works for everyone who has it. Otherwise visitors need `link`, or must sign in."""


class PreviewResponse(ResponseBody):
    port: int
    public: bool
    address: str = Field(examples=["/preview/0123456789abcdef0123456789abcdef/"])
    """Relative to the server's address, or `//NAME/` if `server.preview_host` is set. Unless `public`, it opens for
    users of the console who may see the sandbox."""
    link: str
    """As `address`, but works without signing in. Treat it as a secret unless the preview is public."""
    created_at: AwareDatetime
    created_by: str | None = None
    expires_at: AwareDatetime


class PreviewListResponse(ResponseBody):
    items: list[PreviewResponse]


class ListeningPortResponse(ResponseBody):
    port: int


class ListeningPortsResponse(ResponseBody):
    items: list[ListeningPortResponse]


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}", tags=["Previews"])
    fleet, previews = services.fleet, services.previews
    addresses = PreviewAddresses(services.config.server.preview_host, services.preview_links)

    def describe(preview: SandboxPreview, request: Request) -> PreviewResponse:
        host = read_header(request.scope, b"host")
        return PreviewResponse(
            port=preview.port,
            public=preview.public,
            address=addresses.address(preview, host),
            link=addresses.link(preview, host),
            created_at=preview.created_at,
            created_by=preview.created_by,
            expires_at=preview.expires_at,
        )

    @router.post(
        "/previews", status_code=201, responses=openapi_errors(404, 409, 429), response_model_exclude_none=True
    )
    async def create_preview(
        sandbox_id: str, body: PreviewRequest, principal: SandboxWriter, request: Request
    ) -> PreviewResponse:
        """Open a preview of a port. If it has one, the preview keeps its address and gets the new terms."""
        async with fleet.sandbox_lock(sandbox_id):
            sandbox = await fleet.get(principal.tenant, sandbox_id)
            if sandbox.state not in ONGOING_STATES:
                raise Conflict(f"sandbox {sandbox_id} is {sandbox.state}; only a running or paused one has previews")
            preview = await previews.expose(
                sandbox,
                body.port,
                timedelta(seconds=body.ttl),
                public=body.public,
                created_by=principal.name or None,
            )
        return describe(preview, request)

    @router.get("/previews", responses=openapi_errors(404), response_model_exclude_none=True)
    async def list_previews(sandbox_id: str, principal: SandboxReader, request: Request) -> PreviewListResponse:
        """List the open previews of a sandbox by port."""
        sandbox = await fleet.get(principal.tenant, sandbox_id)
        return PreviewListResponse(items=[describe(each, request) for each in previews.list(sandbox.id)])

    @router.delete("/previews/{port}", status_code=204, responses=openapi_errors(404))
    async def delete_preview(sandbox_id: str, port: PortNumber, principal: SandboxWriter) -> None:
        """Close the preview of a port, and the connections of its visitors. Its address never works again."""
        sandbox = await fleet.get(principal.tenant, sandbox_id)
        await previews.unexpose(sandbox.id, port)

    @router.get("/ports", responses=openapi_errors(404, 409, 502, 504))
    async def list_listening_ports(sandbox_id: str, principal: SandboxReader) -> ListeningPortsResponse:
        """List the TCP ports on which programs in the sandbox listen, without the server's own services."""
        client = await fleet.running_client(principal.tenant, sandbox_id)
        ports = [each for each in await client.listening_ports() if each not in RESERVED_PORTS]
        return ListeningPortsResponse(items=[ListeningPortResponse(port=each) for each in ports])

    return router
