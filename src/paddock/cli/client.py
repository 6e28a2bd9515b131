"""Talks HTTP to a Paddock server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from paddock.cli.context import no_server
from paddock.cli.failure import CliError, ConnectionLost, Refused

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

EXCHANGE = "x-paddock-exchange"
SCRIPT = "x-paddock-script"
REPLAY = "x-paddock-replay"
"""The header that says under which id an exchange with a model is kept."""
DAEMON = 44772
"""The port by whose name the daemon in every box is reached."""
QUICK = 30.0
STARTING = 180.0
"""How long a sandbox may take to be made, ended or kept."""
MAX_ANSWER = 64 * 2**20
MAX_LINE = 8 * 2**20
_PAGE = 100


class Client:
    """A server, by its address and a key. Use as an async context manager.

    Raises `NoServer` when nothing listens, `ConnectionLost` when an answer breaks off, `Refused` with the server's own
    code and message.
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
        return await self.ask("GET", path, params=_query(query))

    async def post(self, path: str, document: Any = None, *, timeout: float = STARTING) -> Any:
        return await self.ask("POST", path, json=document, timeout=timeout)

    async def delete(self, path: str, /, **query: Any) -> Any:
        return await self.ask("DELETE", path, params=_query(query), timeout=STARTING)

    async def ask(self, method: str, path: str, *, timeout: float = QUICK, **arguments: Any) -> Any:
        """One request; the answer's JSON, or None when it has no body."""
        async with self.request(method, path, timeout=timeout, **arguments) as answer:
            content = await _read(answer)
        if not content.strip():
            return None
        try:
            return json.loads(content)
        except ValueError:
            raise CliError(f"{self.url} does not answer like a Paddock server; is another program there?") from None

    async def items(self, path: str, **query: Any) -> list[dict[str, Any]]:
        """Every item of a listing, however many pages it has."""
        found: list[dict[str, Any]] = []
        for page in range(1, 1000):
            answer = await self.get(path, page=page, pageSize=_PAGE, **query)
            if isinstance(answer, list):
                return answer
            found += answer.get("items", [])
            if not (answer.get("pagination") or {}).get("hasNextPage"):
                break
        return found

    def box(self, sandbox_id: str, path: str) -> str:
        """The path of a call to the daemon in a sandbox."""
        return f"/v1/sandboxes/{quote(sandbox_id, safe='')}/proxy/{DAEMON}{path}"

    @asynccontextmanager
    async def request(
        self, method: str, path: str, *, timeout: float | None = None, **arguments: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One exchange, whose answer is read by the caller. Waits as long as it takes unless given a `timeout`."""
        import aiohttp

        patience = aiohttp.ClientTimeout(total=timeout, sock_connect=10.0)
        try:
            async with self._session.request(
                method, self._url(path), allow_redirects=False, timeout=patience, **arguments
            ) as answer:
                if answer.status >= 300:
                    raise self._refusal(answer.status, await _read(answer), answer.headers.get(EXCHANGE))
                yield answer
        except aiohttp.ClientConnectorError:
            raise no_server(self.url) from None
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
            raise ConnectionLost(f"the connection to {self.url} broke off") from None
        except TimeoutError:
            raise ConnectionLost(f"{self.url} did not answer in time") from None
        except aiohttp.ClientError as error:
            raise CliError(f"{self.url} does not answer like a Paddock server: {error}") from None

    @asynccontextmanager
    async def websocket(self, path: str, **query: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        import aiohttp

        try:
            async with self._session.ws_connect(
                self._url(path).with_query(query), max_msg_size=MAX_LINE, heartbeat=20.0
            ) as ws:
                yield ws
        except aiohttp.WSServerHandshakeError as error:
            raise self._refusal(error.status, b"") from None
        except aiohttp.ClientConnectorError:
            raise no_server(self.url) from None
        except (aiohttp.ClientConnectionError, TimeoutError):
            raise ConnectionLost(f"the connection to {self.url} broke off") from None

    async def lines(self, answer: aiohttp.ClientResponse) -> AsyncIterator[list[dict[str, Any]]]:
        """The JSON objects of a stream, bare or behind `data:`, those that came together together."""
        rest = b""
        async for piece in answer.content.iter_any():
            *lines, rest = (rest + piece).split(b"\n")
            if len(rest) > MAX_LINE:
                raise CliError("the answer has a line without end")
            documents = [document for line in lines if (document := _parse(line)) is not None]
            if documents:
                yield documents

    def _url(self, path: str) -> URL:
        from yarl import URL

        return self._base.join(URL(self._base.path.rstrip("/") + path, encoded=True))

    def _refusal(self, status: int, content: bytes, exchange: str | None = None) -> Refused:
        try:
            document = json.loads(content)
            inner = document.get("error")  # as the model APIs say it
            document = inner if isinstance(inner, dict) else document
            message = str(document["message"])
            code = str(document.get("code") or f"HTTP_{status}").upper()
        except (ValueError, KeyError, TypeError, AttributeError):
            code, message = f"HTTP_{status}", f"{self.url} answered with HTTP status {status}"
        hint = f"see all of it: paddock llm show {exchange}" if exchange and status != 404 else None
        if status == 401 and not self._has_key:
            hint = "set PADDOCK_API_KEY to a key that `paddock key create` printed"
        return Refused(status, code, message, hint=hint)


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for piece in answer.content.iter_any():
        content += piece
        if len(content) > MAX_ANSWER:
            raise CliError("the server's answer is too large")
    return bytes(content)


def _parse(line: bytes) -> dict[str, Any] | None:
    line = line.strip().removeprefix(b"data:").strip()
    if not line.startswith(b"{"):
        return None
    try:
        document = json.loads(line)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _query(query: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in query.items() if value is not None}
