"""HTTP client of a Paddock server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from paddock.cli.connection.server_address import no_server_error
from paddock.cli.output.errors import CliError, ConnectionLost, RequestRefused

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

EXCHANGE_HEADER = "x-paddock-exchange"
SCRIPT_HEADER = "x-paddock-script"
REPLAY_HEADER = "x-paddock-replay"
"""Response headers: the id of the recorded exchange, and whether a script or a recording answered."""
DAEMON_PORT = 44772
"""Port of the daemon in every sandbox, as named in proxy paths."""
REQUEST_SECONDS = 30.0
SLOW_REQUEST_SECONDS = 180.0
"""Timeout of requests that create, delete or snapshot a sandbox."""
MAX_RESPONSE_BYTES = 64 * 2**20
MAX_LINE_BYTES = 8 * 2**20
_PAGE = 100


class ServerClient:
    """Client of one server. Use as an async context manager.

    Raises `NoServerError` if nothing listens, `ConnectionLost` if a response breaks off, and `RequestRefused` with the
    server's own code and message.
    """

    def __init__(self, url: str, key: str | None) -> None:
        import aiohttp
        from yarl import URL

        self.url = url
        self._base = URL(url)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._has_key = key is not None
        self._session = aiohttp.ClientSession(
            headers=headers,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10.0),
            read_bufsize=2**20,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._session.close()

    async def get(self, path: str, /, **query: Any) -> Any:
        return await self.request_json("GET", path, params=_encode_query(query))

    async def post(self, path: str, document: Any = None, *, timeout: float = SLOW_REQUEST_SECONDS) -> Any:
        return await self.request_json("POST", path, json=document, timeout=timeout)

    async def delete(self, path: str, /, **query: Any) -> Any:
        return await self.request_json("DELETE", path, params=_encode_query(query), timeout=SLOW_REQUEST_SECONDS)

    async def request_json(self, method: str, path: str, *, timeout: float = REQUEST_SECONDS, **arguments: Any) -> Any:
        """Send a request and return the response's JSON, or None if it has no body."""
        async with self.request(method, path, timeout=timeout, **arguments) as answer:
            content = await _read_body(answer)
        if not content.strip():
            return None
        try:
            return json.loads(content)
        except ValueError:
            raise CliError(
                f"{self.url} does not respond like a Paddock server; is another program using this address?"
            ) from None

    async def list_all(self, path: str, **query: Any) -> list[dict[str, Any]]:
        """Return the items of all pages of a list."""
        found: list[dict[str, Any]] = []
        for page in range(1, 1000):
            answer = await self.get(path, page=page, pageSize=_PAGE, **query)
            if isinstance(answer, list):
                return answer
            found += answer.get("items", [])
            if not (answer.get("pagination") or {}).get("hasNextPage"):
                break
        return found

    def daemon_path(self, sandbox_id: str, path: str) -> str:
        """Return the path of a request to the daemon in a sandbox."""
        return f"/v1/sandboxes/{quote(sandbox_id, safe='')}/proxy/{DAEMON_PORT}{path}"

    @asynccontextmanager
    async def request(
        self, method: str, path: str, *, timeout: float | None = None, **arguments: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; the caller reads the response. Without `timeout` it may take any time."""
        import aiohttp

        patience = aiohttp.ClientTimeout(total=timeout, sock_connect=10.0)
        try:
            async with self._session.request(
                method, self._url(path), allow_redirects=False, timeout=patience, **arguments
            ) as answer:
                if answer.status >= 300:
                    raise self._refusal_error(
                        answer.status, await _read_body(answer), answer.headers.get(EXCHANGE_HEADER)
                    )
                yield answer
        except aiohttp.ClientConnectorError:
            raise no_server_error(self.url) from None
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
            raise ConnectionLost(f"the connection to {self.url} was lost") from None
        except TimeoutError:
            raise ConnectionLost(f"{self.url} did not answer in time") from None
        except aiohttp.ClientError as error:
            raise CliError(f"{self.url} does not respond like a Paddock server: {error}") from None

    @asynccontextmanager
    async def open_websocket(self, path: str, **query: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        import aiohttp

        try:
            async with self._session.ws_connect(
                self._url(path).with_query(query), max_msg_size=MAX_LINE_BYTES, heartbeat=20.0
            ) as ws:
                yield ws
        except aiohttp.WSServerHandshakeError as error:
            raise self._refusal_error(error.status, b"") from None
        except aiohttp.ClientConnectorError:
            raise no_server_error(self.url) from None
        except (aiohttp.ClientConnectionError, TimeoutError):
            raise ConnectionLost(f"the connection to {self.url} was lost") from None

    async def json_lines(self, answer: aiohttp.ClientResponse) -> AsyncIterator[list[dict[str, Any]]]:
        """Yield the JSON objects of a stream of JSON lines or server-sent events, in batches as they arrive."""
        rest = b""
        async for piece in answer.content.iter_any():
            *lines, rest = (rest + piece).split(b"\n")
            if len(rest) > MAX_LINE_BYTES:
                raise CliError(f"the response has a line longer than {MAX_LINE_BYTES // 2**20} MiB")
            documents = [document for line in lines if (document := _parse_json_line(line)) is not None]
            if documents:
                yield documents

    def _url(self, path: str) -> URL:
        from yarl import URL

        return self._base.join(URL(self._base.path.rstrip("/") + path, encoded=True))

    def _refusal_error(self, status: int, content: bytes, exchange: str | None = None) -> RequestRefused:
        try:
            document = json.loads(content)
            inner = document.get("error")  # the form of the model APIs
            document = inner if isinstance(inner, dict) else document
            message = str(document["message"])
            code = str(document.get("code") or f"HTTP_{status}").upper()
        except (ValueError, KeyError, TypeError, AttributeError):
            code, message = f"HTTP_{status}", f"{self.url} answered with HTTP status {status}"
        hint = f"details: paddock llm show {exchange}" if exchange and status != 404 else None
        if status == 401 and not self._has_key:
            hint = "set PADDOCK_API_KEY to a key created with `paddock key create`"
        return RequestRefused(status, code, message, hint=hint)


async def _read_body(answer: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for piece in answer.content.iter_any():
        content += piece
        if len(content) > MAX_RESPONSE_BYTES:
            raise CliError(f"the server's response is larger than {MAX_RESPONSE_BYTES // 2**20} MiB")
    return bytes(content)


def _parse_json_line(line: bytes) -> dict[str, Any] | None:
    line = line.strip().removeprefix(b"data:").strip()
    if not line.startswith(b"{"):
        return None
    try:
        document = json.loads(line)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _encode_query(query: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in query.items() if value is not None}
