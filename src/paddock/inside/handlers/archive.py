"""Whole directories in and out, as tar."""

from __future__ import annotations

import io
import os

from ..archives import find_gnu_tar, merge, unpack_with_python
from ..box import Box
from ..errors import ApiError, missing_query
from ..http import Body, Chunks, Reply, Request, StreamReply
from ..pipes import unnamed_file, write_all
from ..places import Place, explain
from ..processes import Child
from ..trees import remove_tree
from .files import places_of

PIECE = 256 * 1024


def pack(box: Box, request: Request) -> Reply:
    path = request.query("path")
    if not path:
        raise missing_query("path")
    gzip = request.query("gzip", "0") == "1"
    with places_of(box, request).find(path, follow=True) as place:
        directory = place.open(os.O_RDONLY | os.O_DIRECTORY)
    tar = find_gnu_tar(box.processes)
    kind = "application/gzip" if gzip else "application/x-tar"
    if tar is None:
        return StreamReply(kind, lambda chunks: _pack_with_python(directory, gzip, chunks))
    return StreamReply(kind, lambda chunks: _pack_with_tar(box, tar, directory, gzip, chunks))


def unpack(box: Box, request: Request) -> Reply:
    box.disk_limit.check()
    path = request.query("path")
    if not path:
        raise missing_query("path")
    with places_of(box, request).find(path, follow=True, make_parents=True) as place:
        directory = _open_or_make(place)
    temporary = f".unpacking-{os.urandom(6).hex()}"
    try:
        os.mkdir(temporary, 0o700, dir_fd=directory)
        inner = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            _unpack_into(box, inner, request.body)
            merge(inner, directory)
        finally:
            os.close(inner)
            remove_tree(temporary, directory)
    except OSError as error:
        raise explain(error, path) from None
    finally:
        os.close(directory)
    return Reply(200)


def _pack_with_tar(box: Box, tar: str, directory: int, gzip: bool, chunks: Chunks) -> None:
    reader, writer = os.pipe()
    try:
        try:
            words = [tar, "-C", f"/proc/self/fd/{directory}", *(["-z"] if gzip else []), "-cf", "-", "."]
            child = _spawn(box, words, directory, stdout=writer)
        finally:
            os.close(writer)
            os.close(directory)
        try:
            while data := os.read(reader, PIECE):
                chunks.send(data)
        except BaseException:
            box.processes.terminate(child)
            raise
        if child.wait(60.0) not in (0, 1):  # 1: a file changed while it was read.
            chunks.wire.abort()
        child.close()
    finally:
        os.close(reader)


def _pack_with_python(directory: int, gzip: bool, chunks: Chunks) -> None:
    import tarfile

    class Sink(io.RawIOBase):
        def write(self, data: bytes) -> int:  # type: ignore[override]
            chunks.send(bytes(data))
            return len(data)

    try:
        with tarfile.open(fileobj=Sink(), mode="w|gz" if gzip else "w|") as archive:
            archive.add(f"/proc/self/fd/{directory}/.", arcname=".")
    finally:
        os.close(directory)


def _open_or_make(place: Place) -> int:
    try:
        os.mkdir(place.name, 0o755, dir_fd=place.parent)
    except FileExistsError:
        pass
    return place.open(os.O_RDONLY | os.O_DIRECTORY)


def _unpack_into(box: Box, directory: int, body: Body) -> None:
    stream = _BodyReader(body)
    magic = stream.peek(2)
    tar = find_gnu_tar(box.processes)
    if tar is None:
        unpack_with_python(stream, directory)
        return
    reader, writer = os.pipe()
    words = [tar, "-C", f"/proc/self/fd/{directory}", "--no-same-owner", "-xf", "-"]
    if magic == b"\x1f\x8b":
        words.insert(1, "-z")
    with os.fdopen(unnamed_file(box.settings.state), "rb") as complaints:
        try:
            child = _spawn(box, words, directory, stdin=reader, stderr=complaints.fileno())
        finally:
            os.close(reader)
        _feed(box, child, stream, writer)
        exit_code = child.wait(600.0)
        child.close()
        complaints.seek(0)
        complaint = complaints.readline(4096).decode("utf-8", "replace").strip()
    if exit_code != 0:
        raise ApiError(400, "INVALID_FILE_CONTENT", f"the archive cannot be unpacked safely: {complaint}")


def _feed(box: Box, child: Child, stream: _BodyReader, writer: int) -> None:
    try:
        with os.fdopen(writer, "wb", buffering=0) as pipe:
            while data := stream.take():
                write_all(pipe.fileno(), data)
    except BrokenPipeError:
        pass  # tar gave up, and will say why.
    except BaseException:
        box.processes.terminate(child)
        raise


def _spawn(box: Box, words: list[str], directory: int, **streams: int) -> Child:
    return box.processes.spawn(
        words,
        cwd="/",
        env=box.environment.variables({"LC_ALL": "C.UTF-8"}),
        marker=os.urandom(8).hex(),
        pass_fds=(directory,),
        **streams,
    )


class _BodyReader:
    """A request body as a file."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._buffer = b""

    def peek(self, size: int) -> bytes:
        while len(self._buffer) < size and (data := self._body.read_some()):
            self._buffer += data
        return self._buffer[:size]

    def take(self) -> bytes:
        data, self._buffer = self._buffer, b""
        return data or self._body.read_some()

    def read(self, size: int) -> bytes:
        """Return exactly `size` bytes, fewer only at the end."""
        data = self.peek(size)
        self._buffer = self._buffer[size:]
        return data
