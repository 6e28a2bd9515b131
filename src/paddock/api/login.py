"""Logging a browser in and out, and telling who one is."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import AwareDatetime, Field, model_validator

from paddock.api.access import Anyone, header
from paddock.api.admission import CONSOLE, set_cookie
from paddock.api.errors import documented
from paddock.api.origins import is_own
from paddock.api.services import Services
from paddock.api.wire import Asked, Said
from paddock.auth.logins import LIFE
from paddock.errors import Forbidden
from paddock.model.keys import Principal, Scope

_OPEN: dict[str, Any] = {"security": []}
Secret = Annotated[str, Field(min_length=1, max_length=200)]


class LoginBody(Asked):
    """Either of both."""

    key: Secret | None = None
    code: Secret | None = None
    """From `POST /v1/login/codes`; it works once."""

    @model_validator(mode="after")
    def _is_one(self) -> LoginBody:
        if (self.key is None) == (self.code is None):
            raise ValueError("give a key or a code")
        return self


class Me(Said):
    key_id: str
    name: str
    """That of the key."""
    tenant: str
    scopes: list[Scope]
    user: str | None = None
    """Whom the key is for, if it says so."""
    subject: str
    """Owner of what is made with the key, as sessions, runs and sandboxes name it."""
    expires_at: AwareDatetime | None = None
    """When the key stops working."""
    login: bool
    """Whether it is a browser that is logged in, and shows no key."""


class LoggedIn(Me):
    proof: str
    """Goes into the header `X-Paddock-Console` of every request; the cookie is worth nothing without it."""


class CodeSaid(Said):
    code: str
    """Open the console at `/#code=CODE`."""
    expires_at: AwareDatetime


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Keys"])
    logins = services.logins

    async def me(principal: Principal) -> Me:
        key = await services.keys.get(principal.key_id)
        return Me(
            key_id=key.id,
            name=key.name,
            tenant=key.tenant,
            scopes=sorted(key.scopes),
            user=key.user,
            subject=key.subject,
            expires_at=key.expires_at,
            login=principal.login is not None,
        )

    @router.post("/login", responses=documented(429), response_model_exclude_none=True, openapi_extra=_OPEN)
    async def log_in(body: LoginBody, request: Request, response: Response) -> LoggedIn:
        """Log a browser in with a key or a code: from then on its cookie and the proof stand for the key."""
        _own_pages_only(request)
        address = request.client.host if request.client else ""
        if body.key is not None:
            opened = await logins.by_key(body.key.strip(), address)
        else:
            opened = await logins.by_code(body.code or "", address)
        response.headers["Set-Cookie"] = set_cookie(
            opened.cookie, secure=_is_secure(request), seconds=round(LIFE.total_seconds())
        )
        return LoggedIn(**dict(await me(opened.principal)), proof=opened.proof)

    @router.post("/logout", status_code=204, responses=documented())
    async def log_out(principal: Anyone, request: Request, response: Response) -> None:
        """Log this browser out. A key that is shown instead of a cookie goes on to work."""
        await logins.end(principal)
        response.headers["Set-Cookie"] = set_cookie("", secure=_is_secure(request), seconds=0)

    @router.post("/login/codes", status_code=201, responses=documented(429))
    async def create_login_code(principal: Anyone) -> CodeSaid:
        """Make a code that logs one browser in within two minutes, as whoever asks for it."""
        ticket = logins.codes.issue(principal)
        return CodeSaid(code=ticket.secret, expires_at=ticket.expires_at)

    @router.get("/me", responses=documented(), response_model_exclude_none=True)
    async def who_am_i(principal: Anyone) -> Me:
        """Who the key, or the login, that this request shows belongs to."""
        return await me(principal)

    return router


def _own_pages_only(request: Request) -> None:
    """Another site's page must not log anybody in, as somebody else for instance."""
    site = header(request.scope, b"sec-fetch-site")
    if ("origin" in request.headers and not is_own(request.scope)) or site not in ("", "same-origin", "none"):
        raise Forbidden("pages of other origins cannot sign in here")
    if site and not header(request.scope, CONSOLE):
        raise Forbidden("a browser logs in with the header X-Paddock-Console")


def _is_secure(request: Request) -> bool:
    """Whether the browser came over TLS, also where a proxy before us speaks it."""
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")
