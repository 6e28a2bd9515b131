"""Answers what commands ask of a server from the data directory itself, where no server runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlencode

from paddock.cli.client import EXCHANGE, Client
from paddock.cli.context import Cli
from paddock.cli.failure import NoServer

if TYPE_CHECKING:
    from paddock.reader import Answer, Reader


class StoreClient(Client):
    """A client whose GET requests are answered in this process, read-only. Use as an async context manager."""

    def __init__(self, cli: Cli) -> None:
        self.url = cli.default_url
        self._cli = cli
        self._has_key = True
        self._held = AsyncExitStack()
        self._reader: Reader

    async def __aenter__(self) -> Self:
        from paddock.cli.local import open_to_read
        from paddock.reader import Reader

        config = self._cli.readable.config
        store = await self._held.enter_async_context(open_to_read(config.data))
        self._reader = await Reader.open(config, store)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._held.aclose()

    @asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        *,
        timeout: float | None = None,
        params: Any = None,
        headers: Mapping[str, str] | None = None,
        **_: Any,
    ) -> AsyncIterator[Any]:
        """One GET request, answered from the store. Raises as `Client.request` does."""
        if method != "GET":
            raise NoServer(f"no Paddock server at {self.url}; start one with: paddock serve")
        path, _mark, query = path.partition("?")
        answer = await self._reader.get(path, "&".join(filter(None, (query, urlencode(params or {})))), headers)
        if answer.status >= 300:
            raise self._refusal(answer.status, answer.body, answer.headers.get(EXCHANGE))
        yield _Answered(answer)


class _Answered:
    """What commands read of an answer."""

    def __init__(self, answer: Answer) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self.content = _Content(answer.body)


class _Content:
    def __init__(self, body: bytes) -> None:
        self._body = body

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self._body

    async def read(self, size: int = -1) -> bytes:
        return self._body if size < 0 else self._body[:size]
