"""Small requests to models on the main port, answered by the LLM proxy's own HTTP instead of an ASGI server.

That takes a quarter less time. Only what is whole in one piece and plain goes this way; everything else on the same
connection, and the next request if it is another's business, is the ASGI server's.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable
from typing import cast

import structlog

from paddock.api.front import REQUEST_ID, Hosts
from paddock.llm.calls import POSTED
from paddock.llm.wire.base import Handler, HttpRequest, Reply
from paddock.llm.wire.heads import error_body
from paddock.llm.wire.inbound import House, Inbound
from paddock.llm.wire.reply import WireReply
from paddock.llm.wire.rooms import UNCOUNTED

GiveBack = Callable[[bytes], None]
_STARTS = tuple(f"POST {path} HTTP/1.1\r\n".encode() for path in POSTED)
_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]{1,6}) *(?=\r\n|$)")
_OTHERS = re.compile(rb"\r\n(?:origin|upgrade|transfer-encoding|expect|connection) *:(?! *keep-alive)")
_KNOWN_HOSTS = 1000
log = structlog.get_logger()


def is_quick(data: bytes) -> bool:
    """Whether this is one whole request that needs nothing of what an ASGI server does."""
    if not data.startswith(_STARTS) or len(data) > UNCOUNTED:
        return False
    end = data.find(b"\r\n\r\n")
    head = data[: max(end, 0)].lower()
    length = _LENGTH.search(head)
    return length is not None and end + 4 + int(length[1]) == len(data) and not _OTHERS.search(head)


class Lent(Inbound):
    """A connection of the main port, lent to the LLM proxy for as long as it is asked for models."""

    __slots__ = ("_give_back",)

    def __init__(self, house: House, loop: asyncio.AbstractEventLoop, give_back: GiveBack) -> None:
        super().__init__(house, loop)
        self._give_back = give_back

    def _feed(self, data: bytes) -> None:
        if self._reader.waits or is_quick(data):
            super()._feed(data)
            return
        self._transport = None
        self._reader.close()
        self._house.leave(self)
        self._give_back(data)


class QuickDoor:
    """Does for such requests what stands before the other routes: checks the host, names the request, logs."""

    def __init__(self, handler: Handler, hosts: Hosts) -> None:
        self._handler = handler
        self._hosts = hosts
        self._accepted: set[bytes] = set()

    async def __call__(self, request: HttpRequest, reply: Reply) -> None:
        host = request.header(b"host") or b""
        shown = (request.header(b"x-request-id") or b"").decode("latin-1")
        # It need not be a secret, only another one each time.
        request_id = shown if REQUEST_ID.fullmatch(shown) else f"{random.getrandbits(64):016x}"
        wire = cast(WireReply, reply)
        wire.name = (b"x-request-id", request_id.encode())
        started = time.perf_counter()
        if host in self._accepted or self._accept(host):
            await self._handler(request, reply)
        else:
            name = host.decode("latin-1")[:200]
            body = error_body(421, f"this server does not answer to the name {name}; see server.allowed_hosts")
            await reply.whole(421, [(b"content-type", b"application/json")], body)
        log.debug(
            "request",
            request=request_id,
            method=request.method,
            path=request.path,
            status=wire.status,
            milliseconds=round((time.perf_counter() - started) * 1000, 1),
        )

    def _accept(self, host: bytes) -> bool:
        accepted = self._hosts.knows(host.decode("latin-1"))
        if accepted and len(self._accepted) < _KNOWN_HOSTS:
            self._accepted.add(host)
        return accepted
