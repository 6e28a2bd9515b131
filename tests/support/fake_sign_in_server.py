"""An MCP server that wants a token, with its authorization server, at one address. Its answers can be changed."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode

from aiohttp import web

from tests.support.server import free_port

STATELESS = "2026-07-28"
ID_TOKEN_CLAIMS = {"email": "ada@example.org"}
Answer = Callable[[web.Request], web.StreamResponse]


@dataclass
class SeenRequest:
    path: str
    headers: dict[str, str]
    fields: dict[str, str]


@dataclass
class FakeSignInServer:
    """State of the server. Use it from any thread."""

    origin: str
    issuer: str
    lifetime: int | None = 3600
    """Seconds for which tokens are valid, as the server says."""
    scopes: str = ""
    """Scopes that calls need; in the demand of the server."""
    tool_scope: str = ""
    """Scope that calls of tools need beyond that."""
    answers: dict[str, Answer] = field(default_factory=dict)
    """Answers in place of the ordinary ones, by path."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Changes of the authorization server's metadata."""
    resource: dict[str, Any] = field(default_factory=dict)
    """Changes of the MCP server's metadata."""
    seen: list[SeenRequest] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    access_tokens: dict[str, str] = field(default_factory=dict)
    """Valid tokens, and their scopes."""
    refresh_tokens: set[str] = field(default_factory=set)
    hold_refresh: threading.Event | None = None

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    def requests_to(self, path: str) -> list[SeenRequest]:
        return [each for each in self.seen if each.path == path]

    def token_requests(self, grant: str) -> list[SeenRequest]:
        return [each for each in self.requests_to("/token") if each.fields.get("grant_type") == grant]

    def reset(self) -> None:
        """Forget all tokens and changes."""
        for each in (self.answers, self.metadata, self.resource, self.codes, self.access_tokens):
            each.clear()
        self.seen.clear()
        self.refresh_tokens.clear()
        self.lifetime, self.scopes, self.tool_scope, self.issuer = 3600, "", "", self.origin
        self.hold_refresh = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.text()
        is_form = request.content_type == "application/x-www-form-urlencoded"
        fields = {name: values[0] for name, values in parse_qs(body).items()} if is_form else dict(request.query)
        self.seen.append(SeenRequest(request.path, dict(request.headers), fields))
        if request.path in self.answers:
            return self.answers[request.path](request)
        match request.path:
            case "/mcp":
                return self._serve_mcp(request, body)
            case "/.well-known/oauth-protected-resource/mcp":
                return web.json_response(
                    {"resource": self.url, "authorization_servers": [self.issuer], **self.resource}
                )
            case "/.well-known/oauth-authorization-server":
                return web.json_response(self._authorization_metadata())
            case "/register":
                return web.json_response({"client_id": f"client-{secrets.token_hex(4)}"}, status=201)
            case "/authorize":
                return self._authorize(fields)
            case "/token":
                if self.hold_refresh is not None and fields.get("grant_type") == "refresh_token":
                    await asyncio.to_thread(self.hold_refresh.wait, 20)
                return self._issue(fields)
            case "/revoke":
                self.refresh_tokens.discard(fields["token"])
                self.access_tokens.pop(fields["token"], None)
                return web.Response()
        return web.Response(status=404)

    def _authorization_metadata(self) -> dict[str, Any]:
        endpoints = {"authorization": "authorize", "token": "token", "registration": "register", "revocation": "revoke"}
        return {
            "issuer": self.issuer,
            **{f"{name}_endpoint": f"{self.origin}/{path}" for name, path in endpoints.items()},
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
            **self.metadata,
        }

    def _authorize(self, fields: dict[str, str]) -> web.Response:
        code = secrets.token_hex(8)
        self.codes[code] = fields
        query = urlencode({"code": code, "state": fields["state"], "iss": self.issuer})
        return web.Response(status=302, headers={"Location": f"{fields['redirect_uri']}?{query}"})

    def _issue(self, fields: dict[str, str]) -> web.Response:
        if fields["grant_type"] == "authorization_code":
            asked = self.codes.pop(fields["code"], None)
            challenge = base64.urlsafe_b64encode(hashlib.sha256(fields["code_verifier"].encode()).digest()).rstrip(b"=")
            if asked is None or asked["code_challenge"] != challenge.decode():
                return web.json_response({"error": "invalid_grant"}, status=400)
            scope = asked.get("scope", "")
        elif fields.get("refresh_token") in self.refresh_tokens:
            self.refresh_tokens.remove(fields["refresh_token"])
            scope = self.scopes
        else:
            return web.json_response({"error": "invalid_grant"}, status=400)
        access, refresh = secrets.token_hex(16), secrets.token_hex(16)
        self.access_tokens[access] = scope
        self.refresh_tokens.add(refresh)
        claims = base64.urlsafe_b64encode(json.dumps(ID_TOKEN_CLAIMS).encode()).decode().rstrip("=")
        answer = {
            "access_token": access,
            "token_type": "Bearer",
            "refresh_token": refresh,
            "id_token": f"e30.{claims}.x",
        }
        if self.lifetime is not None:
            answer["expires_in"] = str(self.lifetime)
        return web.json_response(answer | ({"scope": scope} if scope else {}))

    def _serve_mcp(self, request: web.Request, body: str) -> web.Response:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        granted = set(self.access_tokens.get(token, "").split())
        place = f'resource_metadata="{self.origin}/.well-known/oauth-protected-resource/mcp"'
        if token not in self.access_tokens or not set(self.scopes.split()) <= granted:
            scope = f', scope="{self.scopes}"' if self.scopes else ""
            return web.Response(status=401, headers={"WWW-Authenticate": f"Bearer {place}{scope}"})
        message = json.loads(body)
        if message["method"] == "tools/call" and self.tool_scope and self.tool_scope not in granted:
            demand = f'Bearer error="insufficient_scope", scope="{self.tool_scope}", {place}'
            return web.Response(status=403, headers={"WWW-Authenticate": demand})
        server = {"name": "sign-in", "version": "1"}
        results: dict[str, dict[str, Any]] = {
            "server/discover": {"supportedVersions": [STATELESS], "capabilities": {"tools": {}}, "serverInfo": server},
            "tools/list": {"tools": [{"name": "whoami", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": f"token {token[:4]}"}]},
        }
        result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **results[message["method"]]}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})


@contextmanager
def fake_sign_in_server() -> Iterator[FakeSignInServer]:
    """Serve on a free port, in a thread of its own."""
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    fake = FakeSignInServer(origin, origin)
    ready, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", fake.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        ready.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert ready.wait(20)
    try:
        yield fake
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        loop.close()
