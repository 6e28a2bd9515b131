"""A route class that parses long JSON bodies with msgspec, and very long ones in a worker process."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from paddock.errors import TooLarge
from paddock.llm.offload.json_decoding import decode_json_in_worker
from paddock.llm.offload.worker_pool import OffloadWorkerPool, WorkersBusy
from paddock.llm.offload.worker_tasks import InvalidJson

_LONG_BODY = 2**20
_VERY_LONG_BODY = 4 * 2**20


class LongJsonRoute(APIRoute):
    """A route with fast parsing of bodies over 1 MiB. Short bodies are parsed by Starlette."""

    workers: OffloadWorkerPool

    @classmethod
    def with_workers(cls, workers: OffloadWorkerPool) -> type[LongJsonRoute]:
        """Return a route class that has `workers` parse very long bodies."""
        return type("LongJsonRoute", (cls,), {"workers": workers})

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            long_request = _LongJsonRequest(request.scope, request.receive, request._send)
            long_request.workers = self.workers
            return await handle(long_request)

        return handler


class _LongJsonRequest(Request):
    workers: OffloadWorkerPool
    _parsed: Any = None

    async def json(self) -> Any:
        body = await self.body()
        if len(body) < _LONG_BODY:
            return await super().json()
        if self._parsed is None:
            try:
                if len(body) < _VERY_LONG_BODY:
                    self._parsed = msgspec.json.decode(body)
                else:
                    self._parsed = await decode_json_in_worker(self.workers, body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidJson) as error:
                raise json.JSONDecodeError(str(error), "", 0) from None
            except TooLarge as error:
                raise HTTPException(413, error.message) from None
            except WorkersBusy as error:
                # FastAPI passes only its own exceptions on from here.
                raise HTTPException(503, error.message, {"Retry-After": str(error.retry_after)}) from None
        return self._parsed
