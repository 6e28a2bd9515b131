"""Listens for changes of a server's lists, for as long as its connection is open."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

import structlog

from paddock.errors import PaddockError
from paddock.mcp.gateway.server_lists import ServerLists
from paddock.mcp.protocol import CallContext, McpEndpoint
from paddock.mcp.protocol.messages import make_request
from paddock.mcp.protocol.revisions import LISTEN, META_CLIENT_CAPABILITIES, META_REVISION, STATELESS_REVISION

MAX_FAILURES = 5
FIRST_PAUSE = 1.0
MAX_PAUSE = 60.0
LISTS_BY_NOTIFICATION = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}
log = structlog.get_logger()


class ListFollower:
    """Invalidates lists when their server announces a change. Stops if the server does not announce changes."""

    def __init__(self, endpoint: McpEndpoint, lists: ServerLists) -> None:
        self._endpoint = endpoint
        self._lists = lists
        self._task: asyncio.Task[None] | None = None

    def start(self, context: CallContext) -> None:
        """Begin to listen with the credentials of a caller."""
        if self._task is None:
            plain = replace(context, client_session=None, deadline=None)
            self._task = asyncio.create_task(self._follow(plain), name="MCP list changes")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self, context: CallContext) -> None:
        pause, failures = FIRST_PAUSE, 0
        while failures < MAX_FAILURES:
            try:
                if not await self._listen(context):
                    return
                pause, failures = FIRST_PAUSE, 0
                self._lists.invalidate()  # Changes may have been missed since.
            except PaddockError:
                failures += 1
            except Exception as error:
                log.warning("cannot follow lists of MCP server", error=repr(error))
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_PAUSE)

    async def _listen(self, context: CallContext) -> bool:
        """Listen until the stream ends; return whether the server announces changes at all."""
        wanted = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
        meta = {META_REVISION: STATELESS_REVISION, META_CLIENT_CAPABILITIES: {}}
        request = make_request("paddock-lists", LISTEN, {"_meta": meta, "notifications": wanted})
        announces = False
        async with aclosing(self._endpoint.exchange(request, context)) as messages:
            async for message in messages:
                if message.method == "notifications/subscriptions/acknowledged":
                    agreed = message.params_object().get("notifications")
                    announces = isinstance(agreed, dict) and any(agreed.values())
                    if not announces:
                        return False
                elif isinstance(message.method, str):
                    for method in LISTS_BY_NOTIFICATION.get(message.method, ()):
                        self._lists.invalidate(method)
                elif message.error_object():
                    return False
        return announces
