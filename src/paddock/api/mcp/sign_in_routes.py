"""Routes for sign-ins at MCP servers by OAuth: begin, state, end, and the pages that browsers come back to."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from paddock.api.http.authorization import McpUser, read_header
from paddock.api.http.error_responses import openapi_errors, status_for_error
from paddock.api.mcp.server_bodies import McpSignInResponse, McpSignOutResponse, StartedMcpSignInResponse
from paddock.api.mcp.sign_in_pages import choose_language, confirmation_page, failure_page, result_page
from paddock.api.services import ApiServices
from paddock.errors import McpSignInFailed, NotFound, PaddockError
from paddock.mcp.gateway.access import check_server_access
from paddock.mcp.gateway.contexts import principal_context
from paddock.mcp.gateway.server_directory import DeclaredServer
from paddock.mcp.oauth.public_address import CALLBACK_PATH, CLIENT_DOCUMENT_PATH, PublicAddress, client_document
from paddock.mcp.oauth.sign_in_rules import is_shared_sign_in, uses_oauth
from paddock.mcp.protocol import CallContext
from paddock.model.keys import Principal, Scope

_OPEN: dict[str, Any] = {"security": []}


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(tags=["MCP"])
    mcp = services.mcp_services
    sign_ins = mcp.sign_ins

    def address_of(request: Request) -> PublicAddress:
        configured = services.config.server.public_url
        # The host was checked: only names of this server come here.
        return PublicAddress(configured or f"{request.url.scheme}://{read_header(request.scope, b'host')}")

    def find(name: str, principal: Principal) -> tuple[DeclaredServer, CallContext]:
        context = principal_context(principal, "console" if principal.login else "http")
        declared = mcp.gateway.directory.find(name, context)
        check_server_access(declared, context)
        return declared, context

    def require_right(declared: DeclaredServer, principal: Principal) -> None:
        """Raise `Forbidden` if a sign-in counts for the whole tenant, and the key may not change its servers."""
        if is_shared_sign_in(declared.server):
            principal.require(Scope.MCP_WRITE)

    @router.post("/v1/mcp/servers/{name}/login", status_code=201, responses=openapi_errors(404, 409))
    async def start_mcp_sign_in(name: str, principal: McpUser, request: Request) -> StartedMcpSignInResponse:
        """Begin a sign-in at a server. Open `url` in a browser; it works once, within ten minutes."""
        declared, context = find(name, principal)
        require_right(declared, principal)
        started = await sign_ins.start(declared.server, context, address_of(request))
        return StartedMcpSignInResponse(
            id=started.pending.id,
            url=started.authorization_url,
            issuer=started.pending.endpoints.issuer,
            scopes=list(started.pending.scopes),
            expires_at=started.pending.expires_at,
        )

    @router.get("/v1/mcp/servers/{name}/login", responses=openapi_errors(404, 409))
    async def get_mcp_sign_in(name: str, principal: McpUser) -> McpSignInResponse:
        """Return whether the caller is signed in at a server, and how the last sign-in ended."""
        declared, context = find(name, principal)
        token, attempt = sign_ins.find(declared.server, context)
        return McpSignInResponse.from_state(declared.server, token, attempt, needed=uses_oauth(declared.server))

    @router.delete("/v1/mcp/servers/{name}/login", responses=openapi_errors(404, 409))
    async def end_mcp_sign_in(name: str, principal: McpUser) -> McpSignOutResponse:
        """Sign out at a server: delete the tokens, and revoke them where the authorization server can."""
        declared, context = find(name, principal)
        require_right(declared, principal)
        return McpSignOutResponse(revoked=await sign_ins.sign_out(declared.server, context))

    @router.get(CALLBACK_PATH, include_in_schema=False, response_class=HTMLResponse)
    async def receive_mcp_authorization(request: Request) -> Response:
        """Take the answer of an authorization server, and ask whether to continue."""
        language = choose_language(request.headers.get("accept-language", ""))
        fields = request.query_params
        repeated = any(len(fields.getlist(name)) > 1 for name in ("state", "code", "iss", "error"))
        try:
            if repeated:
                raise McpSignInFailed("the answer of the authorization server is invalid")
            found = sign_ins.receive(
                fields.get("state", ""), fields.get("code"), fields.get("iss"), fields.get("error")
            )
        except PaddockError as error:
            return failure_page(error.message, language)
        return confirmation_page(found, language)

    @router.post(CALLBACK_PATH, include_in_schema=False, response_class=HTMLResponse)
    async def confirm_mcp_sign_in(request: Request) -> Response:
        """Finish a sign-in that the person in the browser has confirmed."""
        language = choose_language(request.headers.get("accept-language", ""))
        fields = parse_qs((await request.body()).decode("latin-1"))
        secret = fields.get("confirm", [""])[0]
        try:
            if fields.get("answer") != ["continue"]:
                return result_page("refused", sign_ins.refuse(secret).server.name, language)
            return result_page("done", (await sign_ins.confirm(secret)).server.name, language)
        except PaddockError as error:
            return failure_page(error.message, language, max(400, status_for_error(error)))

    @router.get(CLIENT_DOCUMENT_PATH, responses=openapi_errors(404), openapi_extra=_OPEN)
    async def get_mcp_client_document(request: Request) -> dict[str, Any]:
        """Return the metadata by which authorization servers know this server. Its address is the client id."""
        document = client_document(address_of(request)) if services.config.server.public_url else None
        if document is None:
            raise NotFound("This server has no public https address; see the setting server.public_url.")
        return document

    return router
