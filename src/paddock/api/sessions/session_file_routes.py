"""Routes for files of chat sessions, and for export and import of whole sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import FileResponse, StreamingResponse
from starlette.requests import ClientDisconnect

from paddock.api.http import file_responses
from paddock.api.http.authorization import SessionReader, SessionWriter
from paddock.api.http.error_responses import openapi_errors
from paddock.api.http.server_sent_events import STREAM_HEADERS
from paddock.api.services import ApiServices
from paddock.api.sessions.session_bodies import json_response
from paddock.errors import InvalidInput
from paddock.model.sessions import Session

IMPORT_PATH = "/v1/sessions/import"
BUNDLE_MEDIA_TYPE = "application/gzip"
SAFE_IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")
"""Image types that browsers display without executing content."""
_HARMLESS = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox; default-src 'none'"}
"""Headers that keep browsers from executing any content of a file."""
_BYTES: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_BUNDLE_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "description": "A bundle.", "content": {"application/octet-stream": _BYTES}}
}
_FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file; images with their own media type.",
        "content": dict.fromkeys(("application/octet-stream", *SAFE_IMAGE_TYPES), _BYTES),
    },
    206: {"description": "The part of it that `Range` asks for.", "content": {"application/octet-stream": _BYTES}},
}
_BUNDLE: dict[int | str, dict[str, Any]] = {200: {"description": "The bundle.", "content": {BUNDLE_MEDIA_TYPE: _BYTES}}}
Sha256 = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/sessions", tags=["Sessions"])
    sessions = services.sessions

    @router.post(
        "/import",
        status_code=201,
        responses={**openapi_errors(429), 201: {"model": Session, "description": "The session."}},
        openapi_extra=_BUNDLE_BODY,
        response_model=None,
    )
    async def import_session(request: Request, principal: SessionWriter) -> Response:
        """Import an exported session as a new one. None of its actions are run again."""
        by = principal.name
        return json_response(await sessions.import_bundle(principal.tenant, _request_chunks(request), by), 201)

    @router.get("/{session_id}/export", responses={**openapi_errors(404), **_BUNDLE}, response_class=Response)
    async def export_session(session_id: str, principal: SessionReader) -> Response:
        """Export a session as one file that any Paddock server can import."""
        session = await sessions.get(principal.tenant, session_id)
        headers = {**STREAM_HEADERS, "Content-Disposition": file_responses.content_disposition(f"{session.id}.paddock")}
        return StreamingResponse(sessions.export_bundle(principal.tenant, session.id), 200, headers, BUNDLE_MEDIA_TYPE)

    @router.get("/{session_id}/files/{sha}", responses={**openapi_errors(404), **_FILE}, response_class=Response)
    async def get_session_file(session_id: str, sha: Sha256, principal: SessionReader) -> Response:
        """Return a file of a session by its SHA-256."""
        path, content = await sessions.find_attachment(principal.tenant, session_id, sha)
        if content.mime not in SAFE_IMAGE_TYPES:
            response = file_responses.attachment_response(path, content.name or sha)
            response.headers.update(_HARMLESS)
            return response
        # The address is a content hash, so the content never changes.
        headers = {"Cache-Control": "private, max-age=31536000, immutable", **_HARMLESS}
        return FileResponse(path, headers=headers, media_type=content.mime)

    return router


async def _request_chunks(request: Request) -> AsyncIterator[bytes]:
    try:
        async for piece in request.stream():
            if piece:
                yield piece
    except ClientDisconnect:
        # Returning here would make a partial bundle look complete.
        raise InvalidInput("the bundle is incomplete; send it again") from None
