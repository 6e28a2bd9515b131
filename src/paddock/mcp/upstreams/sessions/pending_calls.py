"""Requests of clients that a server with sessions has not answered yet."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TypeAlias

from msgspec import Raw, UnsetType

from paddock.errors import PaddockError, TooLarge
from paddock.mcp.protocol import CallContext, JsonRpcMessage
from paddock.mcp.upstreams.request_fields import RequestFields
from paddock.mcp.upstreams.sessions.legacy_translation import INPUT_METHODS

MAX_QUEUED_NOTIFICATIONS = 1_000
MAX_UNANSWERED_INPUTS = 16

CallItem: TypeAlias = JsonRpcMessage | PaddockError
"""A notification, the response, or an error that ends the call."""


class PendingCall:
    """One request under its own id, with everything the server sent for it that was not taken yet."""

    def __init__(
        self, call_id: int, request: JsonRpcMessage, fields: RequestFields, context: CallContext, max_size: int
    ) -> None:
        self.id = call_id
        self.method = request.method if isinstance(request.method, str) else ""
        self.request_id: int | str = request.id if isinstance(request.id, (int, str)) else call_id
        self.progress_token = fields.meta.progress_token
        self.log_level: str | UnsetType = fields.meta.log_level
        self.capabilities = fields.meta.capabilities
        self.context = context
        self.rounds = 0
        """How often the client was asked for input."""
        self.inputs: dict[str, JsonRpcMessage] = {}
        """Requests of the server that the client has not answered, by key."""
        self._items: deque[CallItem] = deque()
        self._arrived = asyncio.Event()
        self._max_size = max_size
        self._size = 0
        self._next_key = 1
        self.is_over = False
        """Whether the response or an error has arrived."""

    @property
    def takes_input(self) -> bool:
        return self.method in INPUT_METHODS and not self.is_over

    def continue_as(self, request: JsonRpcMessage, fields: RequestFields, context: CallContext) -> None:
        """Answer a repeated request from now on."""
        self.request_id = request.id if isinstance(request.id, (int, str)) else self.id
        self.progress_token = fields.meta.progress_token
        self.log_level = fields.meta.log_level
        self.context = context

    def add(self, item: CallItem) -> None:
        """Queue an item for the client. Too many notifications are dropped, too large answers become an error."""
        if self.is_over:
            return
        if isinstance(item, JsonRpcMessage):
            self._size += _message_size(item)
            if self._size > self._max_size:
                item = TooLarge(f"the answer is larger than {self._max_size} bytes; see limits.response_size")
            elif item.is_notification and len(self._items) >= MAX_QUEUED_NOTIFICATIONS:
                return
        if isinstance(item, PaddockError) or item.is_response:
            self.is_over = True
        self._items.append(item)
        self._arrived.set()

    def add_input(self, request: JsonRpcMessage) -> bool:
        """Ask the client what a server asks; False if too much is asked already."""
        if len(self.inputs) >= MAX_UNANSWERED_INPUTS:
            return False
        self.inputs[f"input-{self._next_key}"] = request
        self._next_key += 1
        self._arrived.set()
        return True

    def withdraw_input(self, server_id: object) -> None:
        """Forget a request that the server has cancelled."""
        for key in [key for key, each in self.inputs.items() if each.id == server_id]:
            del self.inputs[key]

    async def wait(self) -> None:
        """Wait until something can be taken."""
        while not self._items and not self.inputs:
            self._arrived.clear()
            await self._arrived.wait()

    def take(self) -> CallItem | None:
        """Return the next item; None if only input is asked for."""
        return self._items.popleft() if self._items else None


def _message_size(message: JsonRpcMessage) -> int:
    return sum(len(bytes(each)) for each in (message.params, message.result, message.error) if isinstance(each, Raw))
