"""Contract of the ways to a server with sessions: streamable HTTP, SSE, and a program's standard streams."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

from paddock.errors import PaddockError, Unavailable
from paddock.mcp.protocol import CallContext, JsonRpcMessage
from paddock.mcp.upstreams.call_clock import CallClock


class SessionExpired(Unavailable):
    """The server has ended the session; the request was not carried out."""


class SessionRefused(Unavailable):
    """The server answered that it does not start a session."""


class SessionReceiver(Protocol):
    """Receives what arrives on a channel."""

    def on_message(self, message: JsonRpcMessage, request_id: int | None) -> None:
        """Handle a message; `request_id` names the request of its stream, if requests have streams."""
        ...

    def on_request_failed(self, request_id: int, error: PaddockError) -> None: ...

    def on_channel_closed(self, error: PaddockError) -> None: ...


class SessionChannel(ABC):
    """A connection of one session. All methods are called by the session that owns it."""

    @abstractmethod
    async def open(self, receiver: SessionReceiver, context: CallContext, clock: CallClock) -> None:
        """Connect. Raises `PaddockError`."""

    @abstractmethod
    async def send_request(self, message: JsonRpcMessage, request_id: int, context: CallContext) -> None:
        """Send a request; its answer is given to the receiver. Raises `PaddockError`."""

    @abstractmethod
    async def send_other(self, message: JsonRpcMessage, context: CallContext) -> None:
        """Send a notification, or a response to a request of the server. Raises `PaddockError`."""

    def on_initialized(self, revision: str) -> None:
        """Use the negotiated revision from now on."""
        return

    def forget_request(self, request_id: int) -> None:
        """Stop reading the stream of a request that has ended or was cancelled."""
        return

    def listen(self, context: CallContext) -> None:
        """Receive notifications that belong to no request, if that needs a stream of its own."""
        return

    @abstractmethod
    async def close(self) -> None:
        """Disconnect, and end the session on the server. Does not raise `PaddockError`."""
