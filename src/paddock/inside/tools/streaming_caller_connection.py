"""Streams a tool's output to its client as JSON lines while the call runs, with the result as last line."""

from __future__ import annotations

import codecs
import json
import time

from ..errors import ApiError
from ..http.buffered_socket import PeerDisconnected
from ..http.http11 import ChunkedWriter, ndjson_error_line
from .caller_connection import CallerConnection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

NDJSON = "application/x-ndjson"
MAX_STREAMED = 64 * 1024
"""Bytes of one call's output that are streamed."""
FLUSH_SECONDS = 0.1
MAX_FLUSH_SECONDS = 2.0
"""Bounds of the seconds for which output is gathered before it is sent; they grow with the call's duration."""
_PARTS = 50


class StreamingCallerConnection(CallerConnection):
    """Sends `{"output": …}` lines, one `{"output": "", "cut": true}` at the limit, and `{"result": …}`.

    If a call ends before its first output was due, the output is only in its result.
    """

    def __init__(self, chunks: ChunkedWriter) -> None:
        super().__init__(chunks.client.socket)
        self._chunks = chunks
        self._decoders: dict[int, codecs.IncrementalDecoder] = {}
        self._gathered: list[str] = []
        self._bytes_left = MAX_STREAMED
        self._is_full = False
        self._started_at = time.monotonic()
        self._due_at = 0.0
        self._has_sent = False

    def receive_output(self, source: int, data: bytes) -> None:
        if self._is_full:
            return
        decoder = self._decoders.get(source)
        if decoder is None:
            decoder = self._decoders[source] = codecs.getincrementaldecoder("utf-8")("replace")
        self._gather(decoder.decode(data))

    def flush_output(self, seconds: float) -> float:
        if not self._gathered:
            return seconds
        left = self._due_at - time.monotonic()
        if left > 0:
            return min(seconds, left)
        try:
            self._send_gathered()
        except PeerDisconnected:
            # The tool checks for disconnection itself, where it can clean up.
            self._gathered, self._is_full = [], True
            self._chunks.client.abort()
        return seconds

    def send_result(self, document: Mapping[str, Any]) -> None:
        """Send the remaining output and the result."""
        self._send_rest()
        self._chunks.send(_json_line({"result": document}))

    def send_error(self, error: ApiError) -> None:
        """Send the remaining output and an error instead of a result."""
        self._send_rest()
        self._chunks.send(ndjson_error_line(error))

    def _gather(self, text: str) -> None:
        size = len(text.encode())
        if size > self._bytes_left:
            text, self._is_full = text.encode()[: self._bytes_left].decode("utf-8", "ignore"), True
        self._bytes_left -= size
        if text or self._is_full:
            if not self._gathered:
                now = time.monotonic()
                self._due_at = now + min(max((now - self._started_at) / _PARTS, FLUSH_SECONDS), MAX_FLUSH_SECONDS)
            self._gathered.append(text)

    def _send_rest(self) -> None:
        if self._has_sent:
            if not self._is_full:
                self._gather("".join(decoder.decode(b"", True) for decoder in self._decoders.values()))
            self._send_gathered()

    def _send_gathered(self) -> None:
        text, full = "".join(self._gathered), self._is_full and bool(self._gathered)
        self._gathered, self._has_sent = [], True
        lines = [_json_line({"output": text})] if text else []
        if full:
            lines.append(_json_line({"output": "", "cut": True}))
        if lines:
            self._chunks.send(b"".join(lines))


def _json_line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode() + b"\n"
