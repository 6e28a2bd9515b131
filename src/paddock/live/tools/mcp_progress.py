"""Sends `notifications/progress` while a tool runs, to MCP clients that asked for them.

The response is a stream of server-sent events: notifications, then the result. A call that ends before the first
notification is due gets a plain JSON response.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable

from paddock.live.tools.mcp_messages import McpResponse
from paddock.sandbox.daemon.tool_stream import OnOutput

EVENT_STREAM = "text/event-stream"
FIRST_AFTER = 0.5
"""Seconds until the first notification of output."""
OUTPUT_EVERY = 1.0
"""Seconds between notifications of output."""
SILENCE = 5.0
"""Seconds without output until a notification says how long the call has taken."""
MAX_MESSAGE = 500
"""Maximum characters of output in one notification: the end of its last line."""


class ToolProgressNotifier:
    """The progress of one tool call."""

    def __init__(self, token: str | int, call: Callable[[OnOutput], Awaitable[McpResponse]]) -> None:
        self._token = token
        self._last_line = ""
        self._has_output = asyncio.Event()
        self._progress = 0.0
        self._started = asyncio.get_running_loop().time()
        self._call = asyncio.ensure_future(call(self._receive_output))

    async def wait_for_first(self) -> McpResponse | None:
        """Return the response of a call that ends before the first notification is due, else `None`.

        Cancels the call if this is cancelled.
        """
        try:
            await asyncio.wait((self._call,), timeout=FIRST_AFTER)
            if not self._call.done() and not self._has_output.is_set():
                await self._wait_for_news(SILENCE - FIRST_AFTER)
        except BaseException:
            await self.close()
            raise
        return self._call.result() if self._call.done() else None

    async def events(self) -> AsyncGenerator[bytes]:
        """Yield notifications while the call runs, then its response. `close` this afterwards."""
        while not self._call.done():
            yield _event(self._next_notification())
            await asyncio.wait((self._call,), timeout=OUTPUT_EVERY)
            if not self._call.done() and not self._has_output.is_set():
                await self._wait_for_news(SILENCE - OUTPUT_EVERY)
        yield _event(self._call.result().body)

    async def close(self) -> None:
        """Cancel the call if it still runs."""
        self._call.cancel()
        await asyncio.gather(self._call, return_exceptions=True)

    def _receive_output(self, text: str) -> None:
        line = text.rstrip().rpartition("\n")[2].rpartition("\r")[2]
        if line:
            self._last_line = line[-MAX_MESSAGE:]
            self._has_output.set()

    async def _wait_for_news(self, seconds: float) -> None:
        output = asyncio.ensure_future(self._has_output.wait())
        try:
            await asyncio.wait((self._call, output), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            output.cancel()

    def _next_notification(self) -> bytes:
        seconds = asyncio.get_running_loop().time() - self._started
        # The protocol demands that progress grows with each notification.
        self._progress = max(round(seconds, 1), round(self._progress + 0.1, 1))
        message = self._last_line if self._has_output.is_set() else f"running for {seconds:.0f} s"
        self._has_output.clear()
        parameters = {"progressToken": self._token, "progress": self._progress, "message": message}
        document = {"jsonrpc": "2.0", "method": "notifications/progress", "params": parameters}
        return json.dumps(document).encode()


def _event(document: bytes) -> bytes:
    return b"event: message\ndata: " + document + b"\n\n"
