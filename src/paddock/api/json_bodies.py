"""Parses long JSON bodies in a fraction of the time that the standard library takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute

_LONG = 2**20


class LongJson(APIRoute):
    """A route whose body may be long. Short bodies are parsed as everywhere else."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            return await handle(_Request(request.scope, request.receive, request._send))

        return handler


class _Request(Request):
    _parsed: Any = None

    async def json(self) -> Any:
        body = await self.body()
        if len(body) < _LONG:
            return await super().json()
        if self._parsed is None:
            try:
                self._parsed = msgspec.json.decode(body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise json.JSONDecodeError(str(error), "", 0) from None
        return self._parsed
