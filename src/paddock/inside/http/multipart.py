"""Streaming parser for `multipart/form-data`."""

from __future__ import annotations

import re

from ..errors import ApiError
from .http11 import IncomingBody

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_PART_HEADERS = 16 * 1024

_BOUNDARY = re.compile(r"""multipart/form-data\s*;.*?boundary=(?:"([^"]{1,70})"|([^\s";,]{1,70}))""", re.IGNORECASE)
_NAME = re.compile(r"""[;\s]name="((?:[^"\\]|\\.)*)\"""", re.IGNORECASE)


class MultipartReader:
    """Iterate over `parts()`; read each part's `content()` before the next part."""

    def __init__(self, content_type: str, body: IncomingBody) -> None:
        match = _BOUNDARY.search(content_type)
        if match is None:
            raise _malformed("the Content-Type must be multipart/form-data with a boundary")
        self._delimiter = b"\r\n--" + (match[1] or match[2]).encode("latin-1")
        self._body = body
        self._buffer = self._taken = b"\r\n"

    def parts(self) -> Iterator[MultipartFormPart]:
        for _ in self._until_delimiter():
            pass  # Skip the preamble.
        while self._take_bytes(2) == b"\r\n":
            part = MultipartFormPart(self._part_name(), self)
            yield part
            for _ in part.content():
                pass
        if self._taken != b"--":
            raise _malformed("a boundary is followed by garbage")
        while self._body.read_some():
            pass

    def _take_bytes(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._receive_more()
        self._taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return self._taken

    def _receive_more(self) -> None:
        data = self._body.read_some()
        if not data:
            raise _malformed("the body ends before its closing boundary")
        self._buffer = self._buffer + data if self._buffer else data

    def _part_name(self) -> str:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > MAX_PART_HEADERS:
                raise _malformed("the headers of a part are too large")
            self._receive_more()
        headers, self._buffer = self._buffer[:end].decode("utf-8", "surrogateescape"), self._buffer[end + 4 :]
        for line in headers.split("\r\n"):
            if line.lower().startswith("content-disposition:") and (match := _NAME.search(line)):
                return match[1]
        raise _malformed("a part has no name")

    def _until_delimiter(self) -> Iterator[memoryview]:
        overlap = len(self._delimiter) - 1
        while (end := self._buffer.find(self._delimiter)) < 0:
            complete_bytes = len(self._buffer) - overlap
            if complete_bytes > 0:
                yield memoryview(self._buffer)[:complete_bytes]
                self._buffer = self._buffer[complete_bytes:]
            self._receive_more()
        if end:
            yield memoryview(self._buffer)[:end]
        self._buffer = self._buffer[end + len(self._delimiter) :]


class MultipartFormPart:
    """One part of the form."""

    def __init__(self, name: str, source: MultipartReader) -> None:
        self.name = name
        self._chunks = source._until_delimiter()

    def content(self) -> Iterator[memoryview]:
        """Return the part's bytes in pieces; empty once they have been read."""
        return self._chunks

    def text(self, limit: int = 64 * 1024) -> bytes:
        data = b""
        for piece in self.content():
            data += piece
            if len(data) > limit:
                raise _malformed(f"the part {self.name!r} is larger than {limit} bytes")
        return data


def _malformed(message: str) -> ApiError:
    return ApiError(400, "INVALID_FILE_CONTENT", message)
