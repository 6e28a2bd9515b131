"""Answer small model requests on the main port with the model proxy's HTTP code instead of the ASGI server.

This takes a quarter less time. Only complete, plain requests in one piece take this path; everything else on the same
connection, and the next request if it is of another kind, goes to the ASGI server.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable
from typing import cast

import structlog

from paddock.api.http.allowed_hosts import AllowedHosts
from paddock.api.http.outer_middleware import REQUEST_ID_PATTERN
from paddock.llm.request_kind import POST_PATHS
from paddock.llm.wire.base import Handler, HttpRequest, ResponseWriter
from paddock.llm.wire.http_heads import http_error_body
from paddock.llm.wire.http_server_connection import HttpListenerContext, HttpServerConnection
from paddock.llm.wire.memory_budget import UNCOUNTED_BYTES
from paddock.llm.wire.response_writer import HttpResponseWriter
from paddock.telemetry.prometheus import RequestMetrics

ReturnConnection = Callable[[bytes], None]
_STARTS = tuple(f"POST {path} HTTP/1.1\r\n".encode() for path in POST_PATHS)
_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]{1,6}) *(?=\r\n|$)")
_EXCLUDED_HEADERS = re.compile(
    rb"\r\n(?:(?:origin|upgrade|transfer-encoding|expect|connection) *:(?! *keep-alive)|host *: *[0-9]{1,5}-sb-)"
)
"""Also the host names of previews: a program in a sandbox may have a model API of its own."""
_KNOWN_HOSTS = 1000
log = structlog.get_logger()


def is_fast_path_model_request(data: bytes) -> bool:
    """Return whether the data is one complete model request that the ASGI server is not needed for."""
    if not data.startswith(_STARTS) or len(data) > UNCOUNTED_BYTES:
        return False
    end = data.find(b"\r\n\r\n")
    head = data[: max(end, 0)].lower()
    length = _LENGTH.search(head)
    return length is not None and end + 4 + int(length[1]) == len(data) and not _EXCLUDED_HEADERS.search(head)


class FastPathConnection(HttpServerConnection):
    """A main-port connection handled by the model proxy while its requests are for models."""

    __slots__ = ("_give_back",)

    def __init__(
        self, server: HttpListenerContext, loop: asyncio.AbstractEventLoop, give_back: ReturnConnection
    ) -> None:
        super().__init__(server, loop)
        self._give_back = give_back

    def _read(self, data: bytes) -> None:
        if self._parser.has_partial_request or is_fast_path_model_request(data):
            super()._read(data)
            return
        self._transport = None
        self._parser.close()
        self._server.leave(self)
        self._give_back(data)


class ModelFastPathHandler:
    """Does for model requests what the outer middleware does: checks the host, assigns a request id, counts, logs."""

    def __init__(self, handler: Handler, hosts: AllowedHosts, traffic: RequestMetrics) -> None:
        self._handler = handler
        self._traffic = traffic
        self._hosts = hosts
        self._accepted: set[bytes] = set()

    async def __call__(self, request: HttpRequest, reply: ResponseWriter) -> None:
        host = request.header(b"host") or b""
        shown = (request.header(b"x-request-id") or b"").decode("latin-1")
        # Request ids are unique but not secret, so the fast generator is enough.
        request_id = shown if REQUEST_ID_PATTERN.fullmatch(shown) else f"{random.getrandbits(64):016x}"
        wire = cast(HttpResponseWriter, reply)
        wire.default_header = (b"x-request-id", request_id.encode())
        started = time.perf_counter()
        try:
            if host in self._accepted or self._accept_host(host):
                await self._handler(request, reply)
            else:
                name = host.decode("latin-1")[:200]
                body = http_error_body(421, f"this server does not answer to the name {name}; see server.allowed_hosts")
                await reply.send(421, [(b"content-type", b"application/json")], body)
        finally:
            taken = time.perf_counter() - started
            self._traffic.count_request(request.method, wire.status or 0, taken)
            log.debug(
                "request",
                request=request_id,
                method=request.method,
                path=request.path,
                status=wire.status,
                milliseconds=round(taken * 1000, 1),
            )

    def _accept_host(self, host: bytes) -> bool:
        accepted = self._hosts.allows_name(host.decode("latin-1"))
        if accepted and len(self._accepted) < _KNOWN_HOSTS:
            self._accepted.add(host)
        return accepted
