"""Serves the web console: the built files, and its page for every address outside the API."""

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
from paddock.api.http.authorization import read_header
from paddock.api.http.error_responses import send_error_response

STATIC_DIRECTORY = Path(paddock.__file__).parent / "console/static"
INDEX_PAGE = "/index.html"
_HEALTH = "/health"
"""Probes get JSON there; browsers get the console's page of that name."""
_API_PREFIXES = ("/v1", "/v1beta", "/mcp", "/docs", "/openapi.json", "/health", "/healthz", "/readyz", "/version")
_ASSETS = "/assets/"
"""Files below it have a content hash in their names."""
_ENCODING_SUFFIXES = {"br": ".br", "gzip": ".gz"}
_MIN_COMPRESSED_SIZE = 1024
_TEXT_TYPES = ("text/", "application/json", "application/manifest+json", "image/svg+xml")
_MEDIA_TYPES = {
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
CONSOLE_CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self'; connect-src 'self'; worker-src 'self' blob:; frame-src 'self' blob:; media-src 'self' blob:; "
    "manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PERMISSIONS_POLICY = ", ".join(
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
_NOT_BUILT = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Paddock</title>
<body style="font:16px/1.6 system-ui,sans-serif;max-width:40rem;margin:4rem auto;padding:0 1rem">
<h1>The console has not been built</h1>
<p>This server runs from a source checkout. Build the console with:</p>
<pre>make console</pre>
<p>Then reload this page; no restart is needed. Everything else works without it: see
<a href="/docs">the API</a>, or <code>paddock --help</code>.</p>
"""


def console_page_headers(preview_host: str | None) -> list[tuple[bytes, bytes]]:
    """Return the headers of the console's page, which may frame previews."""
    policy = CONSOLE_CONTENT_POLICY
    if preview_host is not None:
        policy = policy.replace("frame-src 'self' ", f"frame-src 'self' *.{preview_host}:* ")
    return [
        (b"content-security-policy", policy.encode()),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"permissions-policy", PERMISSIONS_POLICY.encode()),
    ]


@dataclass(frozen=True)
class _File:
    path: Path
    size: int
    etag: str


class WebConsole:
    """Answers GET and HEAD for addresses outside the API. No key is needed: the files are public."""

    def __init__(self, directory: Path = STATIC_DIRECTORY, *, preview_host: str | None = None) -> None:
        self._directory = directory
        self._page_headers = console_page_headers(preview_host)
        self._last_state: tuple[int, int, int] | None = None
        self._files: dict[str, _File] = {}
        self._compressed: dict[str, bytes] = {}
        """Compressed content of files that the build did not compress."""

    @property
    def is_built(self) -> bool:
        return (self._directory / INDEX_PAGE[1:]).is_file()

    def handles(self, scope: Scope) -> bool:
        """Return whether the request is for the console: its page, a file, or an address within it."""
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            return False
        path: str = scope["path"]
        if path == _HEALTH and "text/html" in read_header(scope, b"accept"):
            return True
        if any(path == prefix or path.startswith(prefix + "/") for prefix in _API_PREFIXES):
            return False
        if path == "/" or path.startswith(_ASSETS):
            return True
        self._index_files()
        return path in self._files or "text/html" in read_header(scope, b"accept")

    async def serve(self, scope: Scope, send: Send) -> None:
        path: str = scope["path"]
        self._index_files()
        if path in self._files and path != INDEX_PAGE:
            await self._send_file(path, scope, send)
        elif path.startswith(_ASSETS):
            await send_error_response(send, 404, "NOT_FOUND", f"the console has no file {path}; load the page again")
        elif INDEX_PAGE in self._files:
            await self._send_file(INDEX_PAGE, scope, send)
        else:
            headers = [(b"content-type", b"text/html; charset=utf-8"), *self._page_headers]
            await _send_response(send, scope, 200, headers, _NOT_BUILT)

    def _index_files(self) -> None:
        """Index the files. Only indexed files are served, so no path can lead elsewhere."""
        try:
            page, assets = os.stat(self._directory / INDEX_PAGE[1:]), os.stat(self._directory / _ASSETS[1:])
        except OSError:
            self._last_state, self._files = None, {}
            return
        state = (page.st_mtime_ns, page.st_ino, assets.st_mtime_ns)
        if state == self._last_state:
            return
        files: dict[str, _File] = {}
        for directory, _, names in os.walk(self._directory):
            for name in names:
                path = Path(directory) / name
                if path.is_symlink():
                    continue
                content = path.read_bytes()
                address = "/" + path.relative_to(self._directory).as_posix()
                files[address] = _File(path, len(content), f'"{hashlib.sha256(content).hexdigest()[:32]}"')
        self._last_state, self._files, self._compressed = state, files, {}

    async def _send_file(self, address: str, scope: Scope, send: Send) -> None:
        file = self._files[address]
        kind = _MEDIA_TYPES.get(file.path.suffix) or mimetypes.guess_type(address)[0] or "application/octet-stream"
        immutable = address.startswith(_ASSETS)
        headers = [
            (b"content-type", kind.encode()),
            (b"etag", file.etag.encode()),
            (b"cache-control", b"public, max-age=31536000, immutable" if immutable else b"no-cache"),
            (b"cross-origin-resource-policy", b"same-origin"),
            (b"vary", b"Accept-Encoding"),
        ]
        if kind.startswith("text/html"):
            headers += self._page_headers
        if file.etag in read_header(scope, b"if-none-match"):
            await _send_response(send, scope, 304, headers, None)
            return
        encoding, content = await self._read_encoded(address, kind, read_header(scope, b"accept-encoding"))
        if encoding:
            headers.append((b"content-encoding", encoding.encode()))
        await _send_response(send, scope, 200, headers, content)

    async def _read_encoded(self, address: str, kind: str, accepted: str) -> tuple[str, bytes]:
        """Return a file's encoding and content, compressed if the client accepts it and it is worthwhile."""
        accepted_encodings = {
            part.partition(";")[0].strip() for part in accepted.split(",") if ";q=0" not in part.replace(" ", "")
        }
        for encoding, suffix in _ENCODING_SUFFIXES.items():
            if encoding in accepted_encodings and address + suffix in self._files:
                return encoding, await asyncio.to_thread(self._files[address + suffix].path.read_bytes)
        file = self._files[address]
        is_worthwhile = file.size >= _MIN_COMPRESSED_SIZE and kind.startswith(_TEXT_TYPES)
        if "gzip" not in accepted_encodings or not is_worthwhile:
            return "", await asyncio.to_thread(file.path.read_bytes)
        if address not in self._compressed:
            self._compressed[address] = await asyncio.to_thread(
                lambda: gzip.compress(file.path.read_bytes(), 6, mtime=0)
            )
        return "gzip", self._compressed[address]


async def _send_response(
    send: Send, scope: Scope, status: int, headers: list[tuple[bytes, bytes]], body: bytes | None
) -> None:
    if body is not None:
        headers = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" or body is None else body})
