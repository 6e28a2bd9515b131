"""A client without a server: GET requests are answered from the data directory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlencode

from paddock.cli.connection.server_client import EXCHANGE_HEADER, ServerClient
from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import NoServerError

if TYPE_CHECKING:
    from paddock.read_only_api import ReadOnlyApi, ReadOnlyApiResponse


class DataDirectoryClient(ServerClient):
    """Answers GET requests in this process, read-only. Use as an async context manager."""

    def __init__(self, cli: CliContext) -> None:
        self.url = cli.default_url
        self._cli = cli
        self._has_key = True
        self._held = AsyncExitStack()
        self._reader: ReadOnlyApi

    async def __aenter__(self) -> Self:
        from paddock.cli.connection.data_directory import open_store_read_only
        from paddock.read_only_api import ReadOnlyApi

        config = self._cli.lenient_config.config
        store = await self._held.enter_async_context(open_store_read_only(config.data))
        self._reader = await ReadOnlyApi.open(config, store)
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
        """Answer a GET request from the store. Raises the same errors as `ServerClient.request`."""
        if method != "GET":
            raise NoServerError(f"no Paddock server at {self.url}; start one with: paddock serve")
        path, _mark, query = path.partition("?")
        answer = await self._reader.get(path, "&".join(filter(None, (query, urlencode(params or {})))), headers)
        if answer.status >= 300:
            raise self._refusal_error(answer.status, answer.body, answer.headers.get(EXCHANGE_HEADER))
        yield _DataDirectoryResponse(answer)


class _DataDirectoryResponse:
    """The part of `aiohttp.ClientResponse` that commands use."""

    def __init__(self, answer: ReadOnlyApiResponse) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self.content = _ResponseContent(answer.body)


class _ResponseContent:
    def __init__(self, body: bytes) -> None:
        self._body = body

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self._body

    async def read(self, size: int = -1) -> bytes:
        return self._body if size < 0 else self._body[:size]
