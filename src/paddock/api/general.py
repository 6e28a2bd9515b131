"""Whether the server is well, which it is, and what OpenSandbox's clients expect besides."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import Field

import paddock
from paddock.api.access import Reader, Writer
from paddock.api.errors import ErrorBody, documented
from paddock.api.sandboxes import Page, PageSize
from paddock.api.services import Services
from paddock.api.wire import Asked, Pagination, Said
from paddock.errors import NotFound, Unsupported

NO_TEMPLATES = "there are no templates here; make an image with a recipe, or keep a sandbox as a snapshot"
_OPEN: dict[str, Any] = {"security": []}
_FEW: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": meaning}
    for status, meaning in ((413, "Content Too Large"), (421, "Misdirected Request"), (503, "Service Unavailable"))
}


class Health(Said):
    status: Literal["healthy"] = "healthy"


class Version(Said):
    name: Literal["paddock"] = "paddock"
    version: str = paddock.__version__


class MetricsBody(Asked):
    event_type: Literal["sandbox.create"]
    sandbox_id: str | None = None
    image: str | None = None
    create_duration_ms: int = Field(ge=0)
    success: bool


class TemplateList(Said):
    items: list[dict[str, Any]] = []
    pagination: Pagination


class TemplateBody(Asked):
    model_config = {"extra": "allow"}


def routes(services: Services) -> APIRouter:
    router = APIRouter()

    def health() -> Health:
        """Whether the server answers."""
        return Health()

    async def ready() -> Health:
        """Whether the server can do its work: its database answers and can be written. If not, 503 says why."""
        await services.ready()
        return Health()

    def version() -> Version:
        """Which Paddock this is."""
        return Version()

    for prefix in ("", "/v1"):
        for path, answer in (("/health", health), ("/healthz", health), ("/readyz", ready), ("/version", version)):
            router.add_api_route(
                prefix + path,
                answer,
                tags=["General"],
                responses=_FEW,
                openapi_extra=_OPEN,
                operation_id=f"{prefix}{path}".strip("/").replace("/", "_"),
            )

    @router.post("/v1/metrics/events", status_code=204, tags=["General"], responses=documented())
    async def report_metrics_event(body: MetricsBody, principal: Reader) -> None:
        """Take note of what a client measured."""

    @router.get("/v1/templates", tags=["Templates"], responses=documented())
    async def list_templates(principal: Reader, page: Page = 1, page_size: PageSize = 20) -> TemplateList:
        """OpenSandbox's templates; there are none here."""
        return TemplateList(pagination=Pagination.of(page, page_size, 0))

    @router.post("/v1/templates", tags=["Templates"], status_code=201, responses=documented())
    async def create_template(body: TemplateBody, principal: Writer) -> dict[str, Any]:
        """Always refused."""
        raise Unsupported(NO_TEMPLATES)

    @router.get("/v1/templates/{template_id}", tags=["Templates"], responses=documented(404))
    async def get_template(template_id: Annotated[str, Path()], principal: Reader) -> dict[str, Any]:
        """There are none."""
        raise NotFound(NO_TEMPLATES)

    @router.delete("/v1/templates/{template_id}", tags=["Templates"], status_code=204, responses=documented(404))
    async def delete_template(template_id: Annotated[str, Path()], principal: Writer) -> None:
        """There are none."""
        raise NotFound(NO_TEMPLATES)

    return router
