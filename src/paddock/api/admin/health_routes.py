"""Routes of health, readiness and version, which need no API key."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter

import paddock
from paddock.api.http.body_models import ResponseBody
from paddock.api.http.error_responses import ErrorResponse
from paddock.api.services import ApiServices

_NO_SECURITY: dict[str, Any] = {"security": []}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": meaning}
    for status, meaning in ((413, "Content Too Large"), (421, "Misdirected Request"), (503, "Service Unavailable"))
}


class HealthResponse(ResponseBody):
    status: Literal["healthy"] = "healthy"


class VersionResponse(ResponseBody):
    name: Literal["paddock"] = "paddock"
    version: str = paddock.__version__


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter()

    def health() -> HealthResponse:
        """Return 200 while the server answers."""
        return HealthResponse()

    async def ready() -> HealthResponse:
        """Return 200 if the database can be read and written, else 503 with the reason."""
        await services.ready()
        return HealthResponse()

    def version() -> VersionResponse:
        """Return the server's version."""
        return VersionResponse()

    for prefix in ("", "/v1"):
        for path, answer in (("/health", health), ("/healthz", health), ("/readyz", ready), ("/version", version)):
            router.add_api_route(
                prefix + path,
                answer,
                tags=["General"],
                responses=_RESPONSES,
                openapi_extra=_NO_SECURITY,
                operation_id=f"{prefix}{path}".strip("/").replace("/", "_"),
            )

    return router
