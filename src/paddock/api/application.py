"""Puts the routes and what stands before them together."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from paddock.api import (
    agui,
    approvals,
    box_mcp,
    box_tools,
    demo,
    desktop_socket,
    desktops,
    diagnostics,
    egress,
    errors,
    events,
    exchanges,
    general,
    image_builds,
    images,
    input,
    keys,
    kinds,
    login,
    logs,
    metrics,
    models,
    moving,
    pages,
    pools,
    recordings,
    runs,
    sandboxes,
    screens,
    screenshots,
    server,
    session_files,
    session_socket,
    sessions,
    snapshots,
    tasks,
    terminal,
    tickets,
    usage,
    usage_series,
)
from paddock.api.admission import Admission
from paddock.api.bodies import BodyRules
from paddock.api.console import Console
from paddock.api.front import Front
from paddock.api.gate import Gate
from paddock.api.llm import ModelDoor
from paddock.api.origins import Origins
from paddock.api.proxy import Proxy
from paddock.api.services import Services
from paddock.errors import NotFound

ROOMS = (
    session_files,
    sessions,
    approvals,
    general,
    server,
    sandboxes,
    snapshots,
    box_tools,
    box_mcp,
    screenshots,
    desktops,
    input,
    terminal,
    recordings,
    diagnostics,
    egress,
    pools,
    runs,
    tasks,
    demo,
    agui,
    events,
    image_builds,
    images,
    keys,
    tickets,
    login,
    logs,
    metrics,
    kinds,
    moving,
    models,
    exchanges,
    usage,
    usage_series,
)
"""In this order they are asked whose a request is, so those that are asked for most often are first."""
SOCKETS = (desktop_socket, terminal, screens, session_socket)
"""Rooms with WebSockets: `sockets(services)` gives their routes. What these raise before they accept is refused."""
SHOWN_TO_BROWSERS = ["X-Request-ID", "Retry-After", "Location", "EXECD-COMMANDS-TAIL-CURSOR"]


def make_app(services: Services) -> ASGIApp:
    """The whole API as one ASGI application."""
    settings = services.config.server
    admission = Admission(services.keys, services.logins)
    proxy, models = Proxy(services.fleet, admission), ModelDoor(services.gateway)
    routers = make_routers(services)
    app: ASGIApp = Gate(
        make_routes(routers),
        proxy,
        models,
        admission,
        services.logins,
        BodyRules(routers, settings.max_body),
        console=Console(),
        sockets=make_sockets(services),
        tickets=services.live.tickets,
        origins=Origins(settings),
    )
    if settings.cors_origins:
        app = CORSMiddleware(
            app,
            allow_origins=list(settings.cors_origins),
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=SHOWN_TO_BROWSERS,
            max_age=600,
        )
    return Front(app, settings, services.traffic, services.loop)


def make_sockets(services: Services) -> ASGIApp:
    """The WebSockets of the server itself. Errors before they are accepted are left to who stands before them."""

    async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
        raise NotFound("no WebSocket is here")

    found = [route for room in SOCKETS for route in room.sockets(services)]
    return Router(found, redirect_slashes=False, default=nothing)


def make_routers(services: Services) -> list[APIRouter]:
    return [room.routes(services) for room in ROOMS]


def make_routes(routers: Iterable[APIRouter]) -> FastAPI:
    """The routes alone, without keys, limits and proxy."""
    app = FastAPI(title="Paddock", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    for router in routers:
        app.include_router(router)
    errors.handle_errors(app)

    @app.get("/openapi.json", include_in_schema=False)
    def openapi() -> JSONResponse:
        return JSONResponse(pages.describe(app))

    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        return HTMLResponse(pages.page(pages.describe(app)), headers={"Content-Security-Policy": pages.POLICY})

    return app
