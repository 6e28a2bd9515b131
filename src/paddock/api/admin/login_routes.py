"""Routes that log browsers in and out, and identify the caller."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import AwareDatetime, Field, model_validator

from paddock.api.http.allowed_origins import is_same_origin
from paddock.api.http.authentication import CONSOLE_HEADER, format_login_cookie
from paddock.api.http.authorization import AnyKey, read_header
from paddock.api.http.body_models import RequestBody, ResponseBody
from paddock.api.http.error_responses import openapi_errors
from paddock.api.services import ApiServices
from paddock.auth.logins import MAX_AGE
from paddock.errors import Forbidden
from paddock.model.keys import Principal, Scope

_OPEN: dict[str, Any] = {"security": []}
LoginSecret = Annotated[str, Field(min_length=1, max_length=200)]


class LoginRequest(RequestBody):
    """Exactly one of `key` and `code` is given."""

    key: LoginSecret | None = None
    code: LoginSecret | None = None
    """From `POST /v1/login/codes`; it works once."""

    @model_validator(mode="after")
    def _require_key_or_code(self) -> LoginRequest:
        if (self.key is None) == (self.code is None):
            raise ValueError("give a key or a code")
        return self


class IdentityResponse(ResponseBody):
    key_id: str
    name: str
    """Name of the key."""
    tenant: str
    scopes: list[Scope]
    user: str | None = None
    """The user the key is for, if it names one."""
    subject: str
    """Owner of everything created with the key, as named by sessions, runs and sandboxes."""
    expires_at: AwareDatetime | None = None
    """When the key stops working."""
    login: bool
    """Whether the request came from a logged-in browser instead of showing a key."""


class LoginResponse(IdentityResponse):
    proof: str
    """Sent in the header `X-Paddock-Console` of every request; the cookie is worthless without it."""


class LoginCodeResponse(ResponseBody):
    code: str
    """Open the console at `/#code=CODE`."""
    expires_at: AwareDatetime


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Keys"])
    logins = services.logins

    async def identify(principal: Principal) -> IdentityResponse:
        key = await services.keys.get(principal.key_id)
        return IdentityResponse(
            key_id=key.id,
            name=key.name,
            tenant=key.tenant,
            scopes=sorted(key.scopes),
            user=key.user,
            subject=key.subject,
            expires_at=key.expires_at,
            login=principal.login is not None,
        )

    @router.post("/login", responses=openapi_errors(429), response_model_exclude_none=True, openapi_extra=_OPEN)
    async def log_in(body: LoginRequest, request: Request, response: Response) -> LoginResponse:
        """Log a browser in with a key or a code: from then on its cookie and the proof replace the key."""
        _require_same_origin(request)
        address = request.client.host if request.client else ""
        if body.key is not None:
            login = await logins.log_in_with_key(body.key.strip(), address)
        else:
            login = await logins.log_in_with_code(body.code or "", address)
        response.headers["Set-Cookie"] = format_login_cookie(
            login.cookie, secure=_is_secure(request), seconds=round(MAX_AGE.total_seconds())
        )
        return LoginResponse(**dict(await identify(login.principal)), proof=login.proof)

    @router.post("/logout", status_code=204, responses=openapi_errors())
    async def log_out(principal: AnyKey, request: Request, response: Response) -> None:
        """Log this browser out. A key sent instead of a cookie keeps working."""
        await logins.log_out(principal)
        response.headers["Set-Cookie"] = format_login_cookie("", secure=_is_secure(request), seconds=0)

    @router.post("/login/codes", status_code=201, responses=openapi_errors(429))
    async def create_login_code(principal: AnyKey) -> LoginCodeResponse:
        """Create a code that logs one browser in as the caller, within two minutes."""
        ticket = logins.codes.issue(principal)
        return LoginCodeResponse(code=ticket.secret, expires_at=ticket.expires_at)

    @router.get("/me", responses=openapi_errors(), response_model_exclude_none=True)
    async def who_am_i(principal: AnyKey) -> IdentityResponse:
        """Return the identity of the key or login of this request."""
        return await identify(principal)

    return router


def _require_same_origin(request: Request) -> None:
    """Raise `Forbidden` if another site's page tries to log a user in."""
    site = read_header(request.scope, b"sec-fetch-site")
    if ("origin" in request.headers and not is_same_origin(request.scope)) or site not in ("", "same-origin", "none"):
        raise Forbidden("pages of other origins cannot sign in here")
    if site and not read_header(request.scope, CONSOLE_HEADER):
        raise Forbidden("a browser logs in with the header X-Paddock-Console")


def _is_secure(request: Request) -> bool:
    """Return whether the browser uses TLS, including through a reverse proxy."""
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")
