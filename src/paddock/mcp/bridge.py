"""Lets sandboxes reach the MCP servers that their task names, and nothing else of the network.

In a box, `http://127.0.0.1:8422/NAME` is the server called NAME. Requests and answers pass as they are, streams
included; what the server is to be told in secret is added on the way, and no box sees it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web
from multidict import CIMultiDict
from yarl import URL

from paddock.errors import Forbidden, InvalidInput, NotFound, PaddockError, TooLarge
from paddock.fleet.doors import Door
from paddock.fleet.requests import CreateSandbox
from paddock.fleet.sockets import from_a_page, hole_socket
from paddock.mcp.declared import ADDRESS, EXTENSION, PORT, Lookup, check_server, fill, read_declared
from paddock.mcp.reach import Reach
from paddock.model.sandbox import Hole, Sandbox
from paddock.model.task import McpServer

NAME = "mcp"
LARGEST_REQUEST = 16 * 2**20
CONNECT_TIMEOUT = 10.0
SILENCE = 3600.0
"""Seconds a server may say nothing: a tool may take long, and a stream of notifications may have none."""
SEND_STALL = 120.0
"""Seconds a program may leave its answer unread."""
IDLE = 4.0
"""Seconds a connection to a server is kept unused; less than servers do, so that none is used as it is closed."""
METHODS = ("GET", "POST", "DELETE")
_BELOW = re.compile(r"(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%(?!2[eEfF]|5[cC]|00)[0-9A-Fa-f]{2})*)*")
"""Paths that mean the same to everybody; an escaped dot or slash does not."""
_HOP = frozenset(
    "connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding upgrade"
    " expect host content-length".split()
)
"""Headers that are for the next one on the way only, or that are written anew."""
_STATUSES: dict[type[PaddockError], int] = {NotFound: 404, TooLarge: 413, Forbidden: 403, InvalidInput: 400}
log = structlog.get_logger()


class Bridges:
    """The attendant of a fleet that lets its sandboxes reach MCP servers."""

    def __init__(self, lookup: Lookup = lambda name: None, reach: Reach | None = None) -> None:
        self._lookup = lookup
        self.reach = reach or Reach()
        self._served: dict[str, _Bridge] = {}
        self._session: ClientSession | None = None

    @property
    def holes(self) -> tuple[Hole, ...]:
        return (Hole(name=NAME, port=PORT),)

    def check(self, request: CreateSandbox) -> None:
        """Raise `InvalidInput` for servers that make no sense, secrets that are not there, and holes where ours is."""
        if any(hole.name == NAME or hole.port == PORT for hole in request.holes):
            raise InvalidInput(f"the hole {NAME} and port {PORT} of a sandbox lead to MCP servers; use others")
        for server in read_declared(request.extensions).values():
            check_server(server, self._lookup)
            parts = urlsplit(server.url or "")
            try:
                self.reach.check(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
            except Forbidden as error:
                raise InvalidInput(f"mcp.{server.name}: {error.message}") from None

    async def prepare(self, sandbox: Sandbox) -> Mapping[str, str]:
        return {"PADDOCK_MCP_URL": ADDRESS} if EXTENSION in sandbox.extensions else {}

    async def started(self, sandbox: Sandbox, holes: Path) -> None:
        """Serve the sandbox's socket, in place of what an earlier server has left there."""
        servers = read_declared(sandbox.extensions)
        if not servers:
            return
        if self._session is None:
            self._session = _session(self.reach)
        bridge = _Bridge(servers, self._session, self.reach, self._lookup)
        try:
            async with hole_socket(holes, NAME) as bound:
                await bridge.listen(bound)
        except BaseException:
            await bridge.close()
            raise
        earlier = self._served.pop(sandbox.id, None)
        self._served[sandbox.id] = bridge
        if earlier is not None:
            await earlier.close()

    async def renewed(self, sandbox: Sandbox) -> None:
        """Nothing here ends before the sandbox does."""

    async def ended(self, sandbox_id: str) -> None:
        """Close its socket and every connection that came through it."""
        bridge = self._served.pop(sandbox_id, None)
        if bridge is not None:
            await bridge.close()

    async def attended(self) -> Collection[str]:
        return set(self._served)

    async def close(self) -> None:
        """Stop serving. The next server serves the boxes again."""
        while self._served:
            await self._served.popitem()[1].close()
        if self._session is not None:
            await self._session.close()
            self._session = None


class _Bridge(Door):
    """What one box reaches."""

    def __init__(self, servers: Mapping[str, McpServer], session: ClientSession, reach: Reach, lookup: Lookup) -> None:
        super().__init__(NAME, unpack=False)  # Bodies pass packed as they are.
        self._servers = servers
        self._session = session
        self._reach = reach
        self._lookup = lookup

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        if from_a_page(request.headers):
            return _refusal(403, "Web pages may not use the MCP servers of the sandbox they are seen in.")
        try:
            server, target = self._target(request)
            headers = self._headers(server, request)
            return await self._forward(request, server.name, target, headers)
        except PaddockError as error:
            status = next((code for kind, code in _STATUSES.items() if isinstance(error, kind)), 500)
            return _refusal(status, error.message)
        except ValueError:
            return _refusal(400, "The request has something in its address or headers that is no text.")
        except Exception:
            log.exception("a request to an MCP server failed in a way that nobody foresaw")
            raise

    def _target(self, request: web.BaseRequest) -> tuple[McpServer, URL]:
        """Which server is meant, and where what is asked for is there."""
        path, _, query = request.raw_path.partition("#")[0].partition("?")
        name, slash, below = path.removeprefix("/").partition("/")
        server = self._servers.get(name) if path.startswith("/") else None
        if server is None:
            there = ", ".join(f"/{each}" for each in self._servers)
            raise NotFound(f"There is no MCP server at {path[:200]}; there are: {there}.")
        if not _BELOW.fullmatch(slash + below) or {".", ".."} & set(below.split("/")):
            raise InvalidInput("The path has something in it that servers do not agree on.")
        base = urlsplit(server.url or "")
        whole = base.path + (f"/{below}" if below else slash) if not base.path.endswith("/") else base.path + below
        asked = "&".join(part for part in (base.query, query) if part)
        url = URL(f"{base.scheme}://{base.netloc}{whole or '/'}{'?' if asked else ''}{asked}", encoded=True)
        # Names are looked at when they are resolved, but addresses never are.
        self._reach.check(url.host or "", url.port or 0)
        return server, url

    def _headers(self, server: McpServer, request: web.BaseRequest) -> CIMultiDict[str]:
        told = {name.lower(): fill(server.name, name, value, self._lookup) for name, value in server.headers.items()}
        named = {each.strip().lower() for each in request.headers.get("Connection", "").split(",")}
        passed = CIMultiDict(
            (name, value)
            for name, value in request.headers.items()
            if name.lower() not in _HOP and name.lower() not in told and name.lower() not in named
        )
        passed.update(told)
        return passed

    async def _forward(
        self, request: web.BaseRequest, name: str, target: URL, headers: CIMultiDict[str]
    ) -> web.StreamResponse:
        if request.method not in METHODS:
            return _refusal(405, f"MCP is spoken with {', '.join(METHODS)}.", {"Allow": ", ".join(METHODS)})
        if (request.content_length or 0) > LARGEST_REQUEST:
            raise _too_large()
        if request.content_length is not None:
            headers["Content-Length"] = str(request.content_length)
        data = _body(request) if request.body_exists else None
        try:
            async with self._session.request(
                request.method, target, headers=headers, data=data, allow_redirects=False
            ) as answer:
                if 300 <= answer.status < 400 and answer.status != 304:
                    message = (
                        f"The MCP server {name} sends elsewhere (status {answer.status}), and that is not followed. "
                        "Write the address it means in the task, often with or without a / at its end."
                    )
                    return _refusal(502, message)
                return await _pass_on(request, answer)
        except TimeoutError:
            return _refusal(504, f"The MCP server {name} does not answer.")
        except ClientError as error:
            if isinstance(refused := error.__cause__ or error.__context__, PaddockError):
                raise refused from None
            log.info("an MCP server cannot be reached", server=name, error=repr(error))
            return _refusal(502, f"The MCP server {name} cannot be reached: {_reason(error)}.")


async def _pass_on(request: web.BaseRequest, answer: ClientResponse) -> web.StreamResponse:
    """Give the answer to the box as it comes. One that breaks off breaks the connection, or it would look whole."""
    headers = CIMultiDict(
        (name, value.encode(errors="replace").decode())
        for name, value in answer.headers.items()
        if name.lower() not in _HOP
    )
    if "Content-Length" in answer.headers:
        headers["Content-Length"] = answer.headers["Content-Length"]
    given = web.StreamResponse(status=answer.status, headers=headers)
    await given.prepare(request)
    try:
        async for piece in answer.content.iter_any():
            async with asyncio.timeout(SEND_STALL):
                await given.write(piece)
        await given.write_eof()
    except (ClientError, ConnectionError, TimeoutError):
        if request.transport is not None:
            request.transport.abort()
    return given


async def _body(request: web.BaseRequest) -> AsyncIterator[bytes]:
    sent = 0
    async for piece in request.content.iter_any():
        sent += len(piece)
        if sent > LARGEST_REQUEST:
            raise _too_large()
        yield piece


def _too_large() -> TooLarge:
    return TooLarge(f"The request is larger than {LARGEST_REQUEST >> 20} MiB.")


def _refusal(status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """No, in the words of MCP."""
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": message}}
    return web.Response(status=status, body=json.dumps(body), content_type="application/json", headers=headers)


def _reason(error: ClientError) -> str:
    cause = getattr(error, "os_error", None)
    return str(getattr(cause, "strerror", None) or type(error).__name__)


def _session(reach: Reach) -> ClientSession:
    return ClientSession(
        connector=TCPConnector(resolver=reach, limit=0, keepalive_timeout=IDLE, use_dns_cache=False),
        timeout=ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=SILENCE),
        # Sandboxes have nothing in common, so nothing is remembered for all of them.
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
    )
