"""Builds the ASGI application: routes, middleware and WebSockets."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.routing import APIRoute
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from paddock.api.admin import (
    event_routes,
    health_routes,
    key_routes,
    login_routes,
    prometheus_metrics,
    server_info,
    server_log,
    websocket_tickets,
)
from paddock.api.admin.web_console import WebConsole
from paddock.api.dispatcher import RequestDispatcher
from paddock.api.http import error_responses, openapi_document
from paddock.api.http.allowed_origins import AllowedOrigins
from paddock.api.http.authentication import RequestAuthenticator
from paddock.api.http.body_limits import BodyLimiter
from paddock.api.http.outer_middleware import OuterMiddleware
from paddock.api.live import (
    desktop_start_stop,
    desktop_websocket,
    input_lease,
    mcp_endpoint,
    recordings,
    screen_grid_websocket,
    screenshots,
    terminals,
    tool_calls,
)
from paddock.api.llm import exchanges, models, usage, usage_series
from paddock.api.llm.model_proxy import ModelProxy
from paddock.api.mcp import call_routes, server_routes, sign_in_routes
from paddock.api.mcp.mcp_app import McpApp
from paddock.api.runs import run_routes, task_routes
from paddock.api.sandboxes import (
    diagnostics,
    file_transfer,
    image_build_routes,
    image_routes,
    kind_routes,
    network_policy,
    network_routes,
    opensandbox_stubs,
    pool_routes,
    preview_routes,
    sandbox_metrics,
    sandbox_routes,
    snapshot_routes,
    vault_routes,
)
from paddock.api.sandboxes.credential_vault import CredentialVaultEditor
from paddock.api.sandboxes.egress_sidecar import EgressSidecar
from paddock.api.sandboxes.port_proxy import PortProxy
from paddock.api.sandboxes.preview_addresses import PreviewAddresses
from paddock.api.sandboxes.preview_proxy import PreviewProxy
from paddock.api.services import ApiServices
from paddock.api.sessions import (
    agui_run,
    approval_routes,
    demo_session_route,
    session_file_routes,
    session_routes,
    session_websocket,
)
from paddock.errors import NotFound

ROUTE_MODULES = (
    session_file_routes,
    session_routes,
    approval_routes,
    health_routes,
    opensandbox_stubs,
    server_info,
    sandbox_routes,
    snapshot_routes,
    tool_calls,
    mcp_endpoint,
    screenshots,
    desktop_start_stop,
    input_lease,
    terminals,
    recordings,
    diagnostics,
    network_policy,
    network_routes,
    vault_routes,
    preview_routes,
    pool_routes,
    run_routes,
    task_routes,
    demo_session_route,
    agui_run,
    server_routes,
    sign_in_routes,
    call_routes,
    event_routes,
    image_build_routes,
    image_routes,
    key_routes,
    websocket_tickets,
    login_routes,
    server_log,
    sandbox_metrics,
    prometheus_metrics,
    kind_routes,
    file_transfer,
    models,
    exchanges,
    usage,
    usage_series,
)
"""Route order; the most used routers first."""
WEBSOCKET_MODULES = (desktop_websocket, terminals, screen_grid_websocket, session_websocket)
"""Modules with WebSockets. Errors raised before a WebSocket is accepted become refusals."""
EXPOSED_HEADERS = ["X-Request-ID", "Retry-After", "Location", "EXECD-COMMANDS-TAIL-CURSOR"]


def create_api_app(services: ApiServices) -> ASGIApp:
    """Build the complete API as one ASGI application."""
    settings = services.config.server
    admission = RequestAuthenticator(services.keys, services.logins)
    memory = services.gateway.tenant_memory
    policies = network_policy.NetworkPolicyEditor(services.fleet, services.networks)
    vaults = CredentialVaultEditor(services.vaults, services.events)
    proxy = PortProxy(services.fleet, admission, EgressSidecar(policies, vaults))
    models = ModelProxy(services.gateway, memory)
    routers = create_routers(services)
    origins = AllowedOrigins(settings)
    app: ASGIApp = RequestDispatcher(
        create_routes_app(routers),
        proxy,
        models,
        McpApp(services.mcp_edge, admission, origins, memory, services.fleet, services.logins.wait_until_invalid),
        admission,
        services.logins,
        BodyLimiter(routers, settings.max_body, memory),
        console=WebConsole(preview_host=settings.preview_host),
        sockets=create_websocket_app(services),
        tickets=services.live.tickets,
        origins=origins,
        loop=services.loop,
        paths=[route.path_regex for router in routers for route in router.routes if isinstance(route, APIRoute)],
    )
    if settings.cors_origins:
        app = CORSMiddleware(
            app,
            allow_origins=list(settings.cors_origins),
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=EXPOSED_HEADERS,
            max_age=600,
        )
    # Outside of CORS, which allows the API's origins.
    addresses = PreviewAddresses(settings.preview_host, services.preview_links)
    app = PreviewProxy(app, services.fleet, services.previews, addresses, settings)
    return OuterMiddleware(app, settings, services.traffic, services.loop)


def create_websocket_app(services: ApiServices) -> ASGIApp:
    """Build the server's own WebSockets. Errors before acceptance are handled by the dispatcher."""

    async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
        raise NotFound("there is no WebSocket at this address")

    found = [route for module in WEBSOCKET_MODULES for route in module.create_websocket_routes(services)]
    return Router(found, redirect_slashes=False, default=not_found)


def create_routers(services: ApiServices) -> list[APIRouter]:
    return [module.create_router(services) for module in ROUTE_MODULES]


def create_routes_app(routers: Iterable[APIRouter]) -> FastAPI:
    """Build the routes alone, without authentication, limits and proxy."""
    app = FastAPI(title="Paddock", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    for router in routers:
        app.include_router(router)
    error_responses.install_error_handlers(app)

    @app.get("/openapi.json", include_in_schema=False)
    def openapi() -> JSONResponse:
        return JSONResponse(openapi_document.build_openapi_document(app))

    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        return HTMLResponse(
            openapi_document.render_docs_page(openapi_document.build_openapi_document(app)),
            headers={"Content-Security-Policy": openapi_document.DOCS_CONTENT_POLICY},
        )

    return app
