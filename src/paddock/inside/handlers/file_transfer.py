"""Handlers that upload and download file contents."""

from __future__ import annotations

import json
import os
import re
import socket
import stat

from ..daemon import Daemon
from ..errors import ApiError, missing_query_error
from ..files.atomic_file import AtomicFile
from ..files.file_attributes import FileAttributes, percent_encode
from ..http.buffered_socket import PeerDisconnected
from ..http.http11 import (
    BufferedSocket,
    ChunkedWriter,
    HttpReply,
    IncomingRequest,
    StreamingReply,
    render_response_head,
)
from ..http.json_fields import required_json_field
from ..http.multipart import MultipartReader
from .files import path_resolver_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

READ_SIZE = 256 * 1024
SEND_BUFFER = 1024 * 1024

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})\Z")


def upload_files(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    """Store every file of a multipart form; each `file` part follows the `metadata` part that describes it."""
    daemon.disk_limit.check()
    resolver = path_resolver_for(daemon, request)
    metadata: dict[str, Any] | None = None
    for part in MultipartReader(request.header("content-type"), request.body).parts():
        if part.name == "metadata":
            metadata = _metadata(part.text())
        elif part.name == "file":
            if metadata is None:
                raise _bad_metadata("a file part needs a metadata part before it")
            attributes = FileAttributes(metadata)
            path = required_json_field(metadata, "path", str)
            with resolver.resolve(path, follow=True, make_parents=True) as resolved, AtomicFile(resolved) as target:
                for piece in part.content():
                    daemon.disk_limit.check()
                    target.write(piece)
                target.commit(attributes)
            metadata = None
    if metadata is not None:
        raise _bad_metadata("a metadata part needs a file part after it")
    return HttpReply(200)


def download_file(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    path = request.query("path")
    if not path:
        raise missing_query_error("path")
    offset, limit = request.query_int("offset"), request.query_int("limit")
    byte_range = request.header("range")
    if byte_range and (offset is not None or limit is not None):
        raise ApiError(400, "INVALID_REQUEST_BODY", "send either a Range header or offset and limit, not both")
    with path_resolver_for(daemon, request).resolve(path, follow=True) as resolved:
        descriptor = resolved.open(os.O_RDONLY | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ApiError(400, "INVALID_FILE", f"{resolved.display_path} is not a regular file")
            name = os.path.basename(resolved.display_path)
            if offset is not None or limit is not None:
                return _LinesReply(descriptor, name, max(1, offset or 1), limit)
            return _FileReply(descriptor, name, status.st_size, byte_range)
        except BaseException:
            os.close(descriptor)
            raise


class _FileReply(HttpReply):
    """Sends a file or one byte range of it with sendfile."""

    def __init__(self, descriptor: int, name: str, size: int, byte_range: str) -> None:
        super().__init__(200, b"", [*_headers(name), ("Accept-Ranges", "bytes")])
        self._descriptor = descriptor
        self._start, self._length = 0, size
        if byte_range and (parsed := _parse_range(byte_range, size)) is not None:
            self.status = 206
            self._start, self._length = parsed
            last = self._start + self._length - 1
            self.headers.append(("Content-Range", f"bytes {self._start}-{last}/{size}"))

    def write(self, client: BufferedSocket, request: IncomingRequest) -> None:
        headers = [*self.headers, ("Content-Length", str(self._length))]
        with os.fdopen(self._descriptor, "rb", buffering=0) as stream:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
            client.send(render_response_head(self.status, headers, request.keep_alive))
            if request.method == "HEAD" or not self._length:
                return
            try:
                sent = client.socket.sendfile(stream, self._start, self._length)
            except OSError as error:
                raise PeerDisconnected from error
            if sent != self._length:
                client.abort()


class _LinesReply(StreamingReply):
    """Sends `limit` lines from line `offset` on, counted from 1."""

    def __init__(self, descriptor: int, name: str, offset: int, limit: int | None) -> None:
        super().__init__("application/octet-stream", self._send)
        self.headers = _headers(name)
        self._descriptor = descriptor
        self._offset = offset
        self._limit = limit

    def _send(self, chunks: ChunkedWriter) -> None:
        try:
            for block in self._blocks():
                chunks.send(block)
        finally:
            os.close(self._descriptor)

    def _blocks(self) -> Iterator[bytes]:
        to_skip, left = self._offset - 1, self._limit
        while left != 0 and (block := os.read(self._descriptor, READ_SIZE)):
            lines = block.count(b"\n")
            if to_skip > lines:
                to_skip -= lines
                continue
            start = _end_of_line(block, to_skip)
            block, to_skip = block[start:], 0
            if left is not None:
                lines = block.count(b"\n")
                if lines >= left:
                    block, left = block[: _end_of_line(block, left)], 0
                else:
                    left -= lines
            if block:
                yield block


def _end_of_line(block: bytes, count: int) -> int:
    position = 0
    for _ in range(count):
        position = block.index(b"\n", position) + 1
    return position


def _headers(name: str) -> list[tuple[str, str]]:
    return [
        ("Content-Type", "application/octet-stream"),
        ("Content-Disposition", f"attachment; filename*=UTF-8''{percent_encode(name)}"),
    ]


def _parse_range(header: str, size: int) -> tuple[int, int] | None:
    """Return start and length; None for a header to ignore. Raises `ApiError` if the range cannot be served."""
    match = _RANGE.match(header.strip())
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        length = min(int(match[2]), size)
        start = size - length
    else:
        start = int(match[1])
        length = min(int(match[2]) if match[2] else size - 1, size - 1) - start + 1
    if length <= 0 or start >= size:
        raise ApiError(416, "RANGE_NOT_SATISFIABLE", f"the file has {size} bytes; {header} is outside of it")
    return start, length


def _metadata(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except ValueError as error:
        raise _bad_metadata(f"the metadata part is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise _bad_metadata("the metadata part must be a JSON object")
    return document


def _bad_metadata(message: str) -> ApiError:
    return ApiError(400, "INVALID_FILE_METADATA", message)
