"""Serves previews: forwards the requests of visitors to ports of sandboxes, without an API key."""

from __future__ import annotations

import asyncio
import html
from collections import Counter
from collections.abc import Iterable
from http import HTTPStatus
from urllib.parse import quote

from starlette.types import ASGIApp, Receive, Scope, Send

from paddock.api.http.allowed_hosts import host_name_without_port
from paddock.api.http.authorization import parse_query_parameters, read_header
from paddock.api.http.error_responses import (
    refuse_websocket,
    sanitize_message,
    send_error_response,
    status_for_error,
)
from paddock.api.http.outer_middleware import PROXIED_SCOPE_KEY
from paddock.api.sandboxes.port_proxy import HeaderFilter, forward_to_sandbox
from paddock.api.sandboxes.preview_addresses import LINK_PARAMETER, HostTarget, PathTarget, PreviewAddresses
from paddock.api.sandboxes.preview_headers import HostPreviewHeaders, PathPreviewHeaders, cors_headers
from paddock.config.schema import ServerConfig
from paddock.errors import Conflict, Forbidden, NotFound, PaddockError, Unauthorized, Unavailable
from paddock.fleet.fleet import Fleet
from paddock.fleet.port_previews import PortPreviews
from paddock.model.previews import SandboxPreview
from paddock.model.sandbox import SandboxState

MAX_REQUESTS = 128
"""Open requests and WebSockets of a sandbox's previews, so that visitors leave its daemon connections for the owner."""
_LINK_NEEDED = "this preview needs its link; copy it from the console, or from `paddock sandbox previews SANDBOX`"
_FRAMES = frozenset({"document", "frame", "iframe"})
_ERROR_POLICY = b"sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors "
_ERROR_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<body style="font:16px/1.6 system-ui,sans-serif;max-width:40rem;margin:4rem auto;padding:0 1rem">
<h1>{title}</h1><p>{message}</p>
"""


class PreviewProxy:
    """Middleware that answers requests to previews, and passes all others on."""

    def __init__(
        self, app: ASGIApp, fleet: Fleet, previews: PortPreviews, addresses: PreviewAddresses, config: ServerConfig
    ) -> None:
        self._app = app
        self._fleet = fleet
        self._previews = previews
        self._addresses = addresses
        self._frame_ancestors = console_sources(config)
        self._open_requests: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        at_host = self._addresses.read_host(scope)
        at_path = None if at_host is not None else self._addresses.read_path(scope)
        ancestors = b"'self'" if at_host is None else self._frame_ancestors
        try:
            if at_host is not None:
                await self._serve_host(at_host, scope, receive, send)
            elif at_path is not None:
                await self._serve_path(at_path, scope, receive, send)
            else:
                await self._app(scope, receive, send)
        except PaddockError as error:
            if scope["type"] == "websocket":
                scope.pop(PROXIED_SCOPE_KEY, None)
                extensions = scope.get("extensions") or {}
                await refuse_websocket(send, extensions, status_for_error(error), error.code, error.message)
            else:
                sender = _ErrorPage(scope, ancestors)
                await sender(send, status_for_error(error), error.code, error.message)

    async def _serve_path(self, target: PathTarget, scope: Scope, receive: Receive, send: Send) -> None:
        token = self._addresses.signer.read(target.token)
        if token is None:
            raise NotFound("there is no such preview; its link is incomplete or no longer valid")
        preview = self._previews.find(token.preview_id)
        _refuse_subresource_of_console(scope)
        if not token.signed and not preview.public:
            if _is_navigation(scope):
                # The console asks for a sign-in if necessary.
                await _redirect(send, f"/sandboxes/{quote(preview.sandbox)}/preview?port={preview.port}")
                return
            raise Unauthorized(_LINK_NEEDED)
        if not target.rest:
            query = scope["query_string"].decode("latin-1")
            await _redirect(send, target.prefix.decode("latin-1") + "/" + (f"?{query}" if query else ""))
            return
        is_opaque = read_header(scope, b"origin") == "null"
        if is_opaque and _is_preflight(scope):
            await _answer_preflight(scope, send)
            return
        headers = PathPreviewHeaders(preview.port, target.prefix, is_opaque)
        query = scope["query_string"]
        await self._forward(preview, target.rest, query, headers, b"'self'", scope, receive, send)

    async def _serve_host(self, target: HostTarget, scope: Scope, receive: Receive, send: Send) -> None:
        preview = self._previews.find_port(target.sandbox_id, target.port)
        if preview is None:
            raise NotFound("there is no preview at this address; it has expired or was closed")
        shown = parse_query_parameters(scope).get(LINK_PARAMETER, "")
        query = _remove_link_parameter(scope["query_string"]) if shown else scope["query_string"]
        raw_path = (scope.get("raw_path") or scope["path"].encode()).partition(b"?")[0]
        if not preview.public:
            is_shown = self._opens(shown, preview)
            if is_shown and scope["type"] == "http" and scope["method"] in ("GET", "HEAD"):
                # A path with two leading slashes would lead to another host.
                address = "/" + (raw_path.lstrip(b"/") + (b"?" + query if query else b"")).decode("latin-1")
                await _redirect(send, address, _link_cookie(scope, shown))
                return
            if not is_shown and not any(self._opens(each, preview) for each in _link_cookies(scope)):
                raise Unauthorized(_LINK_NEEDED)
        headers = HostPreviewHeaders(preview.port, self._frame_ancestors)
        await self._forward(preview, raw_path or b"/", query, headers, self._frame_ancestors, scope, receive, send)

    def _opens(self, text: str, preview: SandboxPreview) -> bool:
        token = self._addresses.signer.read(text)
        return token is not None and token.signed and token.preview_id == preview.id

    async def _forward(
        self,
        preview: SandboxPreview,
        path: bytes,
        query: bytes,
        headers: HeaderFilter,
        frame_ancestors: bytes,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Forward a request until it ends or the preview is closed."""
        sandbox = await self._fleet.sandboxes.get(preview.sandbox)
        if sandbox.state is not SandboxState.RUNNING:
            raise Conflict(f"the sandbox of this preview is {sandbox.state}, not {SandboxState.RUNNING}")
        if self._open_requests[sandbox.id] >= MAX_REQUESTS:
            raise Unavailable("this preview has too many open requests; try again in a moment")
        raw = b"/proxy/%d%s" % (preview.port, path) + (b"?" + query if query else b"")
        serving = asyncio.ensure_future(
            forward_to_sandbox(
                self._fleet.client(sandbox),
                raw.decode("latin-1"),
                headers,
                scope,
                receive,
                send,
                _ErrorPage(scope, frame_ancestors),
            )
        )
        closed = asyncio.create_task(self._previews.wait_until_closed(preview))
        self._open_requests[sandbox.id] += 1
        try:
            await asyncio.wait((serving, closed), return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
        finally:
            self._open_requests[sandbox.id] -= 1
            if not self._open_requests[sandbox.id]:
                del self._open_requests[sandbox.id]
            for task in (serving, closed):
                task.cancel()
            await asyncio.gather(serving, closed, return_exceptions=True)


class _ErrorPage:
    """Sends errors as pages that the console may frame, and as JSON to programs."""

    def __init__(self, scope: Scope, frame_ancestors: bytes) -> None:
        self._scope = scope
        self._frame_ancestors = frame_ancestors

    async def __call__(self, send: Send, status: int, code: str, message: str, *, close: bool = False) -> None:
        if not _is_navigation(self._scope):
            self._scope.pop(PROXIED_SCOPE_KEY, None)
            await send_error_response(send, status, code, message, close=close)
            return
        # Keeps the server from adding headers that forbid all frames.
        self._scope[PROXIED_SCOPE_KEY] = True
        title = HTTPStatus(status).phrase
        text = sanitize_message(message)
        body = _ERROR_PAGE.format(title=title, message=html.escape(text[:1].upper() + text[1:])).encode()
        headers = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-length", str(len(body)).encode()),
            (b"content-security-policy", _ERROR_POLICY + self._frame_ancestors),
            (b"cache-control", b"no-store"),
            (b"referrer-policy", b"no-referrer"),
            (b"x-content-type-options", b"nosniff"),
        ]
        if close:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if self._scope["method"] == "HEAD" else body})


def console_sources(config: ServerConfig) -> bytes:
    """Return the origins of the console, for `frame-ancestors` of previews with names of their own."""
    names = {name.lower() for name in config.allowed_hosts} | {
        "localhost",
        "127.0.0.1",
        config.host.strip("[]").lower(),
    }
    if "*" in names:
        return b"*"
    shown = (f"[{name}]" if ":" in name else name for name in sorted(names))
    return " ".join(["'self'", *(f"http://{name}:* https://{name}:*" for name in shown)]).encode()


def _is_navigation(scope: Scope) -> bool:
    """Return whether a browser loads a page."""
    is_read = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
    return is_read and "text/html" in read_header(scope, b"accept")


def _is_preflight(scope: Scope) -> bool:
    is_options = scope["type"] == "http" and scope["method"] == "OPTIONS"
    return is_options and read_header(scope, b"access-control-request-method") != ""


def _refuse_subresource_of_console(scope: Scope) -> None:
    """Raise `Forbidden` if the console's own page asks for anything but a page.

    A page of a preview has no origin, so its requests are cross-site to the browser. Without this, markup injected into
    the console could load scripts of sandboxes, since the console's content policy allows its own origin.
    """
    site, kind = read_header(scope, b"sec-fetch-site"), read_header(scope, b"sec-fetch-dest")
    if kind in ("serviceworker", "sharedworker") or (site == "same-origin" and kind not in _FRAMES):
        raise Forbidden("the console's own pages load previews in frames only")


async def _answer_preflight(scope: Scope, send: Send) -> None:
    """Answer for the program, which expects requests of its own page without a preflight."""
    headers = [*cors_headers(True), (b"access-control-max-age", b"600"), (b"vary", b"Origin")]
    for asked, allowed in (
        (b"access-control-request-method", b"access-control-allow-methods"),
        (b"access-control-request-headers", b"access-control-allow-headers"),
    ):
        if value := read_header(scope, asked):
            headers.append((allowed, value.encode("latin-1")))
    scope[PROXIED_SCOPE_KEY] = True
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def _redirect(send: Send, location: str, cookie: bytes | None = None) -> None:
    headers = [(b"location", location.encode("latin-1")), (b"content-length", b"0")]
    if cookie is not None:
        headers.append((b"set-cookie", cookie))
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _remove_link_parameter(query: bytes) -> bytes:
    return b"&".join(pair for pair in query.split(b"&") if pair.partition(b"=")[0] != LINK_PARAMETER.encode())


def _link_cookies(scope: Scope) -> Iterable[str]:
    for name, value in scope["headers"]:
        if name == b"cookie":
            for pair in value.decode("latin-1").split(";"):
                key, _, text = pair.strip().partition("=")
                if key == LINK_PARAMETER:
                    yield text


def _link_cookie(scope: Scope, token: str) -> bytes:
    """Return the cookie that stands for the link, on the preview's own name only."""
    parts = [f"{LINK_PARAMETER}={token}", "Path=/", "HttpOnly"]
    # Browsers keep secure cookies of names below `localhost` without TLS too.
    is_local = host_name_without_port(read_header(scope, b"host")).lower().endswith(".localhost")
    if is_local or scope["scheme"] in ("https", "wss") or read_header(scope, b"x-forwarded-proto") == "https":
        # In a frame of a console with another domain, only such a cookie is kept.
        framed = read_header(scope, b"sec-fetch-dest") in ("frame", "iframe")
        parts += ["Secure", *(["SameSite=None", "Partitioned"] if framed else ["SameSite=Lax"])]
    else:
        parts.append("SameSite=Lax")
    return "; ".join(parts).encode()
