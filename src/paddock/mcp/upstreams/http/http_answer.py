"""Reads the messages of an HTTP response of an MCP server, and explains responses that are not MCP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

import msgspec
from aiohttp import ClientError, ClientResponse
from msgspec import Raw

from paddock.errors import InvalidInput, PaddockError, TooLarge, Unavailable
from paddock.mcp.protocol import JsonRpcMessage, decode_message
from paddock.mcp.protocol.event_stream import McpEventReader, McpStreamEvent
from paddock.mcp.upstreams.call_clock import CallClock

MAX_SHOWN_TEXT = 200
MIN_SECRET = 6
MAX_ERROR_SIZE = 64 * 1024
"""Bytes read of responses that are not MCP."""


class HttpRefused(Unavailable):
    """The server answered with something that is not MCP."""

    status = 0


class HttpAnswer:
    """One HTTP response, as JSON or as an event stream. Closing it cancels the request."""

    def __init__(
        self, server: str, response: ClientResponse, max_size: int, clock: CallClock, secrets: Iterable[str] = ()
    ) -> None:
        self._server = server
        self._response = response
        self._max_size = max_size
        self._clock = clock
        self._secrets = secrets
        """Values of headers that the server may repeat in its answer; they are masked in errors."""
        self.status = response.status
        self.media_type = response.content_type.lower() if "Content-Type" in response.headers else ""
        self.headers = response.headers
        self._reader = McpEventReader(max_size)
        self._peeked: bytes | None = None

    @property
    def last_event_id(self) -> str | None:
        return self._reader.last_id

    @property
    def retry(self) -> float | None:
        """Seconds after which an event stream that ended should be resumed."""
        return self._reader.retry

    @property
    def is_event_stream(self) -> bool:
        return self.media_type == "text/event-stream"

    def close(self) -> None:
        self._response.close()

    async def messages(self, endless: bool = False) -> AsyncGenerator[JsonRpcMessage, None]:
        """Yield the messages of the response. An endless stream has a size limit for each message only.

        Raises `Unavailable` for anything but MCP, `TooLarge` and `McpTimeout`.
        """
        if self.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise self._error("answers with compressed content, which was not asked for")
        if self.is_event_stream and 200 <= self.status < 300:
            async for message in self._stream_messages(endless):
                yield message
        elif self.media_type == "application/json" or self.media_type.endswith("+json"):
            for message in self._decode_body(await self.read_body(self._max_size)):
                yield message
        elif self.status in (202, 204):
            return
        else:
            raise self.refusal(await self.read_start())

    async def read_body(self, max_size: int) -> bytes:
        """Read the whole body. Raises `TooLarge`."""
        body = bytearray()
        while chunk := await self._read_chunk():
            body += chunk
            if len(body) > max_size:
                raise self._too_large()
        return bytes(body)

    async def read_start(self) -> bytes:
        """Read the beginning of a body that is not MCP."""
        body = bytearray()
        while len(body) < MAX_ERROR_SIZE and (chunk := await self._read_chunk()):
            body += chunk
        return bytes(body[:MAX_ERROR_SIZE])

    def refusal(self, body: bytes) -> PaddockError:
        """Return an error that explains a response without an MCP message."""
        if 300 <= self.status < 400:
            return self._error(
                f"redirects (status {self.status}), which is not followed; declare the final address, often with or "
                "without a trailing /"
            )
        if self.status in (401, 403):
            return self._error(f"refuses the credentials (status {self.status}); check its headers or sign in")
        if self.media_type in ("text/html", "application/xhtml+xml"):
            return self._error(f"answers with a web page (status {self.status}) instead of MCP; check its url")
        text = _shown_text(mask_secrets(body.decode(errors="replace"), self._secrets))
        if self.status >= 400:
            return self._error(f"answers with status {self.status}{f': {text}' if text else ''}")
        if not self.media_type:
            return self._error(f"answers with status {self.status} and no content")
        return self._error(f"answers with {self.media_type[:100]!r} instead of MCP; check its url")

    async def events(self, endless: bool = False) -> AsyncGenerator[McpStreamEvent, None]:
        """Yield the events of a stream. Raises `Unavailable`, `TooLarge` and `McpTimeout`."""
        received = 0
        while chunk := await self._read_chunk():
            received += len(chunk)
            if received > self._max_size and not endless:
                raise self._too_large()
            try:
                events = self._reader.feed(chunk)
            except TooLarge:
                raise self._too_large() from None
            for event in events:
                yield event

    async def _stream_messages(self, endless: bool) -> AsyncGenerator[JsonRpcMessage, None]:
        async with aclosing(self.events(endless)) as events:
            async for event in events:
                if event.event == "message" and event.data.strip():
                    for message in self._decode_body(event.data):
                        yield message

    def _decode_body(self, body: bytes) -> list[JsonRpcMessage]:
        try:
            if body.lstrip()[:1] == b"[":  # Batches were part of 2025-03-26.
                return [decode_message(bytes(each)) for each in msgspec.json.decode(body, type=list[Raw])]
            return [decode_message(body)]
        except (InvalidInput, msgspec.MsgspecError, ValueError, RecursionError) as error:
            if self.status >= 400:
                raise self.refusal(body) from None
            reason = error.message if isinstance(error, PaddockError) else "the message is not JSON-RPC 2.0"
            raise self._error(f"answers with invalid content: {reason[:MAX_SHOWN_TEXT]}") from None

    async def peek_error(self) -> bytes:
        """Return the body of a refusal, which can be read again."""
        self._peeked = await self.read_start()
        return self._peeked

    async def _read_chunk(self) -> bytes:
        if self._peeked is not None:
            peeked, self._peeked = self._peeked, None
            if peeked:
                return peeked
        try:
            async with self._clock.wait():
                chunk = await self._response.content.readany()
        except TimeoutError:
            raise self._clock.timeout_error() from None
        except (ClientError, ConnectionError):
            raise self._error("closed the connection before the end of its answer") from None
        self._clock.restart()
        return chunk

    def _too_large(self) -> TooLarge:
        return TooLarge(
            f"the answer of the MCP server {self._server} is larger than {self._max_size} bytes; see its "
            "limits.response_size"
        )

    def _error(self, problem: str) -> Unavailable:
        error = HttpRefused(f"the MCP server {self._server} {problem}")
        error.status = self.status
        return error


def mask_secrets(text: str, secrets: Iterable[str]) -> str:
    """Replace secrets in a text, the longest first; short values are no secrets."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= MIN_SECRET:
            text = text.replace(secret, "…")
    return text


def _shown_text(body: str) -> str:
    """Return the start of a text on one line, without control characters."""
    text = " ".join(body[: 4 * MAX_SHOWN_TEXT].split())
    return "".join(character for character in text if character.isprintable())[:MAX_SHOWN_TEXT]
