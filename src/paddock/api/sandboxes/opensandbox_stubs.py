"""Routes of OpenSandbox's API that have no function here: templates and client metrics."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import Field

from paddock.api.http.authorization import SandboxReader, SandboxWriter
from paddock.api.http.body_models import RequestBody, ResponseBody
from paddock.api.http.error_responses import openapi_errors
from paddock.api.http.numbered_pages import PageNumber, PageSize, Pagination
from paddock.api.services import ApiServices
from paddock.errors import NotFound, Unsupported

NO_TEMPLATES = "templates are not supported; build an image from a recipe, or snapshot a sandbox"


class MetricsEventRequest(RequestBody):
    event_type: Literal["sandbox.create"]
    sandbox_id: str | None = None
    image: str | None = None
    create_duration_ms: int = Field(ge=0)
    success: bool


class SandboxTemplateListResponse(ResponseBody):
    items: list[dict[str, Any]] = []
    pagination: Pagination


class SandboxTemplateRequest(RequestBody):
    model_config = {"extra": "allow"}


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/metrics/events", status_code=204, tags=["General"], responses=openapi_errors())
    async def report_metrics_event(body: MetricsEventRequest, principal: SandboxReader) -> None:
        """Accept and ignore a client's measurement."""

    @router.get("/v1/templates", tags=["Templates"], responses=openapi_errors())
    async def list_templates(
        principal: SandboxReader, page: PageNumber = 1, page_size: PageSize = 20
    ) -> SandboxTemplateListResponse:
        """Return OpenSandbox's templates: always an empty list."""
        return SandboxTemplateListResponse(pagination=Pagination.for_total(page, page_size, 0))

    @router.post("/v1/templates", tags=["Templates"], status_code=201, responses=openapi_errors())
    async def create_template(body: SandboxTemplateRequest, principal: SandboxWriter) -> dict[str, Any]:
        """Refuse to create a template."""
        raise Unsupported(NO_TEMPLATES)

    @router.get("/v1/templates/{template_id}", tags=["Templates"], responses=openapi_errors(404))
    async def get_template(template_id: Annotated[str, Path()], principal: SandboxReader) -> dict[str, Any]:
        """Answer 404: there are no templates."""
        raise NotFound(NO_TEMPLATES)

    @router.delete("/v1/templates/{template_id}", tags=["Templates"], status_code=204, responses=openapi_errors(404))
    async def delete_template(template_id: Annotated[str, Path()], principal: SandboxWriter) -> None:
        """Answer 404: there are no templates."""
        raise NotFound(NO_TEMPLATES)

    return router
