"""Callers who hear what a tool says while it is at work: lines of JSON, and the result as the last one."""

from __future__ import annotations

import codecs
import json
import time

from ..errors import ApiError
from ..http import Chunks, error_line
from ..wire import Disconnected
from .callers import Caller

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

LINES = "application/x-ndjson"
MOST = 64 * 1024
"""Bytes of one call's output that are told before its end."""
GATHER = 0.1
LONGEST_GATHER = 2.0
"""Seconds for which output is gathered before it is told: few at first, more the longer a call takes."""
_PARTS = 50


class Listener(Caller):
    """Tells `{"output": …}` as it comes, one `{"output": "", "cut": true}` where that is too much, `{"result": …}`.

    What a call says that is over before anything of it was due is only in its result.
    """

    def __init__(self, chunks: Chunks) -> None:
        super().__init__(chunks.wire.socket)
        self._chunks = chunks
        self._decoders: dict[int, codecs.IncrementalDecoder] = {}
        self._heard: list[str] = []
        self._room = MOST
        self._full = False
        self._began = time.monotonic()
        self._due = 0.0
        self._told = False

    def hear(self, source: int, data: bytes) -> None:
        if self._full:
            return
        decoder = self._decoders.get(source)
        if decoder is None:
            decoder = self._decoders[source] = codecs.getincrementaldecoder("utf-8")("replace")
        self._add(decoder.decode(data))

    def soon(self, seconds: float) -> float:
        if not self._heard:
            return seconds
        left = self._due - time.monotonic()
        if left > 0:
            return min(seconds, left)
        try:
            self._tell()
        except Disconnected:
            # A tool looks itself whether its caller is there, where it can leave in good order.
            self._heard, self._full = [], True
            self._chunks.wire.abort()
        return seconds

    def finish(self, document: Mapping[str, Any]) -> None:
        """Tell what came of the call."""
        self._tell_rest()
        self._chunks.send(_line({"result": document}))

    def fail(self, error: ApiError) -> None:
        """Tell that nothing came of it."""
        self._tell_rest()
        self._chunks.send(error_line(error))

    def _add(self, text: str) -> None:
        size = len(text.encode())
        if size > self._room:
            text, self._full = text.encode()[: self._room].decode("utf-8", "ignore"), True
        self._room -= size
        if text or self._full:
            if not self._heard:
                now = time.monotonic()
                self._due = now + min(max((now - self._began) / _PARTS, GATHER), LONGEST_GATHER)
            self._heard.append(text)

    def _tell_rest(self) -> None:
        if self._told:
            if not self._full:
                self._add("".join(decoder.decode(b"", True) for decoder in self._decoders.values()))
            self._tell()

    def _tell(self) -> None:
        text, full = "".join(self._heard), self._full and bool(self._heard)
        self._heard, self._told = [], True
        lines = [_line({"output": text})] if text else []
        if full:
            lines.append(_line({"output": "", "cut": True}))
        if lines:
            self._chunks.send(b"".join(lines))


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode() + b"\n"
