"""An exchange that runs in a task of its own, so that its generator is iterated and closed by one task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import structlog

from paddock.errors import PaddockError
from paddock.mcp.protocol.messages import INTERNAL_ERROR, JsonRpcMessage, MessageId, make_error
from paddock.mcp.serving.http_messages import failure_message
from paddock.mcp.serving.message_buffer import MessageBuffer

CLEANUP_TIMEOUT = 5.0
"""Seconds in which an exchange must end after its response."""
log = structlog.get_logger()


class RunningExchange:
    """Reads an exchange ahead into a bounded buffer. Failures become an error response."""

    def __init__(self, messages: AsyncGenerator[JsonRpcMessage, None], message_id: MessageId) -> None:
        self.failure: PaddockError | None = None
        """The failure that became the error response."""
        self._id = message_id
        self._buffer = MessageBuffer()
        self._buffer.take_over(self)
        self._has_response = False
        self._task = asyncio.create_task(self._run(messages))

    def on_end(self, callback: Callable[[], object]) -> None:
        """Call this when the exchange has ended or was cancelled."""
        self._task.add_done_callback(lambda _: callback())

    async def next_message(self, timeout: float | None) -> JsonRpcMessage | None:
        """Return the next message, or None after `timeout`. Raises `BufferClosed` after the response."""
        found = await self._buffer.get(self, timeout)
        return None if found is None else found[1]

    def end_with(self, response: JsonRpcMessage) -> None:
        """Cancel the exchange, and let this be its response; nothing happens if it has one already."""
        if not self._has_response:
            self._has_response = True
            self._buffer.end_with(response)
            self._task.cancel()

    async def close(self) -> None:
        """Cancel the exchange unless it has its response, and wait until it has cleaned up."""
        if self._has_response:
            await asyncio.wait((self._task,), timeout=CLEANUP_TIMEOUT)
        if not self._task.done():
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, messages: AsyncGenerator[JsonRpcMessage, None]) -> None:
        try:
            async with aclosing(messages):
                async for message in messages:
                    if self._has_response:
                        continue  # Only to let the generator end.
                    self._has_response = message.is_response
                    await self._buffer.put(message)
                    if self._has_response:
                        self._buffer.close()
            if not self._has_response:
                await self._buffer.put(make_error(self._id, INTERNAL_ERROR, "the request ended without a response"))
        except PaddockError as error:
            if not self._has_response:
                self.failure = error
                await self._buffer.put(failure_message(error, self._id))
        except Exception:
            log.exception("unexpected error in MCP exchange")
            if not self._has_response:
                await self._buffer.put(make_error(self._id, INTERNAL_ERROR, "internal error; see the server's log"))
        finally:
            self._buffer.close()
