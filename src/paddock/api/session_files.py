"""Files of chat sessions, and whole sessions as bundles."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import FileResponse, StreamingResponse
from starlette.requests import ClientDisconnect

from paddock.api import sending
from paddock.api.access import SessionReader, SessionWriter
from paddock.api.errors import documented
from paddock.api.following import STREAM_HEADERS
from paddock.api.services import Services
from paddock.api.session_messages import said
from paddock.errors import InvalidInput
from paddock.model.sessions import Session

IMPORT = "/v1/sessions/import"
BUNDLE = "application/gzip"
PICTURES = ("image/png", "image/jpeg", "image/webp", "image/gif")
"""What browsers show and never run."""
_HARMLESS = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox; default-src 'none'"}
"""Whatever a file is, a browser that opens it runs nothing of it."""
_BYTES: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_SENT: dict[str, Any] = {
    "requestBody": {"required": True, "description": "A bundle.", "content": {"application/octet-stream": _BYTES}}
}
_FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file; a picture as what it is.",
        "content": dict.fromkeys(("application/octet-stream", *PICTURES), _BYTES),
    },
    206: {"description": "The part of it that `Range` asks for.", "content": {"application/octet-stream": _BYTES}},
}
_BUNDLE: dict[int | str, dict[str, Any]] = {200: {"description": "The bundle.", "content": {BUNDLE: _BYTES}}}
Sha = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/sessions", tags=["Sessions"])
    sessions = services.sessions

    @router.post(
        "/import",
        status_code=201,
        responses={**documented(429), 201: {"model": Session, "description": "The session."}},
        openapi_extra=_SENT,
        response_model=None,
    )
    async def import_session(request: Request, principal: SessionWriter) -> Response:
        """Open a session that was exported, here or elsewhere, as a new one. Nothing of it is run."""
        by = principal.name
        return said(await sessions.import_bundle(principal.tenant, _pieces(request), by), 201)

    @router.get("/{session_id}/export", responses={**documented(404), **_BUNDLE}, response_class=Response)
    async def export_session(session_id: str, principal: SessionReader) -> Response:
        """A whole session in one file that any Paddock server can open."""
        session = await sessions.get(principal.tenant, session_id)
        headers = {**STREAM_HEADERS, "Content-Disposition": sending.disposition(f"{session.id}.paddock")}
        return StreamingResponse(sessions.export(principal.tenant, session.id), 200, headers, BUNDLE)

    @router.get("/{session_id}/files/{sha}", responses={**documented(404), **_FILE}, response_class=Response)
    async def get_session_file(session_id: str, sha: Sha, principal: SessionReader) -> Response:
        """A picture or another file of a session, by its SHA-256."""
        path, content = await sessions.attachment(principal.tenant, session_id, sha)
        if content.mime not in PICTURES:
            answer = sending.attachment(path, content.name or sha)
            answer.headers.update(_HARMLESS)
            return answer
        # Its name is what it holds, so it never becomes another.
        headers = {"Cache-Control": "private, max-age=31536000, immutable", **_HARMLESS}
        return FileResponse(path, headers=headers, media_type=content.mime)

    return router


async def _pieces(request: Request) -> AsyncIterator[bytes]:
    try:
        async for piece in request.stream():
            if piece:
                yield piece
    except ClientDisconnect:
        # Ending here quietly would make half a bundle look like a whole one.
        raise InvalidInput("the bundle broke off; send it again") from None
