"""The web console: the files that `make console` builds, and its page for every address that is nobody else's."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import mimetypes
import os
from dataclasses import dataclass
from pathlib import Path

from starlette.types import Scope, Send

import paddock
from paddock.api.access import header
from paddock.api.errors import send_error

STATIC = Path(paddock.__file__).parent / "console/static"
PAGE = "/index.html"
_HEALTH = "/health"
"""Probes get JSON there, and people who type the address the page of that name."""
_TAKEN = ("/v1", "/v1beta", "/mcp", "/docs", "/openapi.json", "/health", "/healthz", "/readyz", "/version")
_ASSETS = "/assets/"
"""What is below it has a hash of its content in its name."""
_COMPRESSED = {"br": ".br", "gzip": ".gz"}
_WORTH_COMPRESSING = 1024
_TEXTS = ("text/", "application/json", "application/manifest+json", "image/svg+xml")
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self'; connect-src 'self'; worker-src 'self' blob:; frame-src 'self' blob:; media-src 'self' blob:; "
    "manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PERMISSIONS = ", ".join(
    [
        *(
            f"{name}=()"
            for name in (
                "accelerometer autoplay camera display-capture encrypted-media geolocation gyroscope hid magnetometer "
                "microphone midi payment publickey-credentials-get screen-wake-lock serial usb xr-spatial-tracking"
            ).split()
        ),
        "clipboard-read=(self)",
        "clipboard-write=(self)",
        "fullscreen=(self)",
    ]
)
_FOR_PAGES = [
    (b"content-security-policy", POLICY.encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", PERMISSIONS.encode()),
]
_NOT_BUILT = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Paddock</title>
<body style="font:16px/1.6 system-ui,sans-serif;max-width:40rem;margin:4rem auto;padding:0 1rem">
<h1>The console has not been built</h1>
<p>This server runs from its source, where the console is built by a command of its own:</p>
<pre>make console</pre>
<p>Then load this page again; the server need not be started anew. Everything else works without it: see
<a href="/docs">the API</a>, or <code>paddock --help</code>.</p>
"""


@dataclass(frozen=True)
class _File:
    path: Path
    size: int
    etag: str


class Console:
    """Answers GET and HEAD for addresses that are not the API's. No key is needed: there is nothing secret in it."""

    def __init__(self, directory: Path = STATIC) -> None:
        self._directory = directory
        self._seen: tuple[int, int, int] | None = None
        self._files: dict[str, _File] = {}
        self._pressed: dict[str, bytes] = {}
        """Files that nobody compressed when they were built, compressed once."""

    @property
    def built(self) -> bool:
        return (self._directory / PAGE[1:]).is_file()

    def concerns(self, scope: Scope) -> bool:
        """Whether a request is for the console: its page, one of its files, or an address within it."""
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            return False
        path: str = scope["path"]
        if path == _HEALTH and "text/html" in header(scope, b"accept"):
            return True
        if any(path == taken or path.startswith(taken + "/") for taken in _TAKEN):
            return False
        if path == "/" or path.startswith(_ASSETS):
            return True
        self._look()
        return path in self._files or "text/html" in header(scope, b"accept")

    async def serve(self, scope: Scope, send: Send) -> None:
        path: str = scope["path"]
        self._look()
        if path in self._files and path != PAGE:
            await self._send_file(path, scope, send)
        elif path.startswith(_ASSETS):
            await send_error(send, 404, "NOT_FOUND", f"the console has no file {path}; load the page again")
        elif PAGE in self._files:
            await self._send_file(PAGE, scope, send)
        else:
            await _send(send, scope, 200, [(b"content-type", b"text/html; charset=utf-8")], _NOT_BUILT, page=True)

    def _look(self) -> None:
        """Know the files there are; only these are served, so that no path leads anywhere else."""
        try:
            page, assets = os.stat(self._directory / PAGE[1:]), os.stat(self._directory / _ASSETS[1:])
        except OSError:
            self._seen, self._files = None, {}
            return
        seen = (page.st_mtime_ns, page.st_ino, assets.st_mtime_ns)
        if seen == self._seen:
            return
        files: dict[str, _File] = {}
        for directory, _, names in os.walk(self._directory):
            for name in names:
                path = Path(directory) / name
                if path.is_symlink():
                    continue
                content = path.read_bytes()
                place = "/" + path.relative_to(self._directory).as_posix()
                files[place] = _File(path, len(content), f'"{hashlib.sha256(content).hexdigest()[:32]}"')
        self._seen, self._files, self._pressed = seen, files, {}

    async def _send_file(self, place: str, scope: Scope, send: Send) -> None:
        file = self._files[place]
        kind = _TYPES.get(file.path.suffix) or mimetypes.guess_type(place)[0] or "application/octet-stream"
        lasting = place.startswith(_ASSETS)
        headers = [
            (b"content-type", kind.encode()),
            (b"etag", file.etag.encode()),
            (b"cache-control", b"public, max-age=31536000, immutable" if lasting else b"no-cache"),
            (b"cross-origin-resource-policy", b"same-origin"),
            (b"vary", b"Accept-Encoding"),
        ]
        page = kind.startswith("text/html")
        if file.etag in header(scope, b"if-none-match"):
            await _send(send, scope, 304, headers, None, page=page)
            return
        encoding, content = await self._content(place, kind, header(scope, b"accept-encoding"))
        if encoding:
            headers.append((b"content-encoding", encoding.encode()))
        await _send(send, scope, 200, headers, content, page=page)

    async def _content(self, place: str, kind: str, accepted: str) -> tuple[str, bytes]:
        """A file, compressed if the client takes it so and it is worth it."""
        takes = {part.partition(";")[0].strip() for part in accepted.split(",") if ";q=0" not in part.replace(" ", "")}
        for encoding, suffix in _COMPRESSED.items():
            if encoding in takes and place + suffix in self._files:
                return encoding, await asyncio.to_thread(self._files[place + suffix].path.read_bytes)
        file = self._files[place]
        worth = file.size >= _WORTH_COMPRESSING and kind.startswith(_TEXTS)
        if "gzip" not in takes or not worth:
            return "", await asyncio.to_thread(file.path.read_bytes)
        if place not in self._pressed:
            self._pressed[place] = await asyncio.to_thread(lambda: gzip.compress(file.path.read_bytes(), 6, mtime=0))
        return "gzip", self._pressed[place]


async def _send(
    send: Send, scope: Scope, status: int, headers: list[tuple[bytes, bytes]], body: bytes | None, *, page: bool
) -> None:
    if page:
        headers = headers + _FOR_PAGES
    if body is not None:
        headers = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" or body is None else body})
