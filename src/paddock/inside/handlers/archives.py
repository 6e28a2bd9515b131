"""Handlers that pack and unpack directories as tar archives."""

from __future__ import annotations

import io
import os

from ..daemon import Daemon
from ..errors import ApiError, missing_query_error
from ..exec.processes import ChildProcess
from ..file_descriptors import open_unlinked_file, write_all
from ..files.directory_trees import remove_tree
from ..files.paths import ResolvedPath, api_error_from_os_error
from ..files.tar_archives import find_gnu_tar, merge_directories, unpack_tar_with_python
from ..http.http11 import ChunkedWriter, HttpReply, IncomingBody, IncomingRequest, StreamingReply
from .files import path_resolver_for

PIECE = 256 * 1024


def pack_directory(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    path = request.query("path")
    if not path:
        raise missing_query_error("path")
    gzip = request.query("gzip", "0") == "1"
    with path_resolver_for(daemon, request).resolve(path, follow=True) as resolved:
        directory = resolved.open(os.O_RDONLY | os.O_DIRECTORY)
    tar = find_gnu_tar(daemon.processes)
    kind = "application/gzip" if gzip else "application/x-tar"
    if tar is None:
        return StreamingReply(kind, lambda chunks: _pack_with_python(directory, gzip, chunks))
    return StreamingReply(kind, lambda chunks: _pack_with_tar(daemon, tar, directory, gzip, chunks))


def unpack_archive(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    daemon.disk_limit.check()
    path = request.query("path")
    if not path:
        raise missing_query_error("path")
    with path_resolver_for(daemon, request).resolve(path, follow=True, make_parents=True) as resolved:
        directory = _open_or_create(resolved)
    temporary = f".unpacking-{os.urandom(6).hex()}"
    try:
        os.mkdir(temporary, 0o700, dir_fd=directory)
        inner = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            _unpack_into(daemon, inner, request.body)
            merge_directories(inner, directory)
        finally:
            os.close(inner)
            remove_tree(temporary, directory)
    except OSError as error:
        raise api_error_from_os_error(error, path) from None
    finally:
        os.close(directory)
    return HttpReply(200)


def _pack_with_tar(daemon: Daemon, tar: str, directory: int, gzip: bool, chunks: ChunkedWriter) -> None:
    reader, writer = os.pipe()
    try:
        try:
            words = [tar, "-C", f"/proc/self/fd/{directory}", *(["-z"] if gzip else []), "-cf", "-", "."]
            child = _spawn_tar(daemon, words, directory, stdout=writer)
        finally:
            os.close(writer)
            os.close(directory)
        try:
            while data := os.read(reader, PIECE):
                chunks.send(data)
        except BaseException:
            daemon.processes.terminate(child)
            raise
        if child.wait(60.0) not in (0, 1):  # 1: a file changed while it was read.
            chunks.client.abort()
        child.close()
    finally:
        os.close(reader)


def _pack_with_python(directory: int, gzip: bool, chunks: ChunkedWriter) -> None:
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


def _open_or_create(resolved: ResolvedPath) -> int:
    try:
        os.mkdir(resolved.name, 0o755, dir_fd=resolved.parent_fd)
    except FileExistsError:
        pass
    return resolved.open(os.O_RDONLY | os.O_DIRECTORY)


def _unpack_into(daemon: Daemon, directory: int, body: IncomingBody) -> None:
    stream = _BodyReader(body)
    magic = stream.peek(2)
    tar = find_gnu_tar(daemon.processes)
    if tar is None:
        unpack_tar_with_python(stream, directory, daemon.disk_limit.check)
        return
    reader, writer = os.pipe()
    words = [tar, "-C", f"/proc/self/fd/{directory}", "--no-same-owner", "-xf", "-"]
    if magic == b"\x1f\x8b":
        words.insert(1, "-z")
    with os.fdopen(open_unlinked_file(daemon.settings.state), "rb") as error_output:
        try:
            child = _spawn_tar(daemon, words, directory, stdin=reader, stderr=error_output.fileno())
        finally:
            os.close(reader)
        _feed_tar(daemon, child, stream, writer)
        exit_code = child.wait(600.0)
        child.close()
        error_output.seek(0)
        first_error = error_output.readline(4096).decode("utf-8", "replace").strip()
    if exit_code != 0:
        raise ApiError(400, "INVALID_FILE_CONTENT", f"the archive cannot be unpacked safely: {first_error}")


def _feed_tar(daemon: Daemon, child: ChildProcess, stream: _BodyReader, writer: int) -> None:
    try:
        with os.fdopen(writer, "wb", buffering=0) as pipe:
            while data := stream.take_buffered():
                write_all(pipe.fileno(), data)
    except BrokenPipeError:
        pass  # tar stopped; its error output says why.
    except BaseException:
        daemon.processes.terminate(child)
        raise


def _spawn_tar(
    daemon: Daemon,
    words: list[str],
    directory: int,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
) -> ChildProcess:
    return daemon.processes.spawn(
        words,
        cwd="/",
        env=daemon.environment.variables({"LC_ALL": "C.UTF-8"}),
        marker=os.urandom(8).hex(),
        pass_fds=(directory,),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
    )


class _BodyReader:
    """A request body as a readable file object."""

    def __init__(self, body: IncomingBody) -> None:
        self._body = body
        self._buffer = b""

    def peek(self, size: int) -> bytes:
        while len(self._buffer) < size and (data := self._body.read_some()):
            self._buffer += data
        return self._buffer[:size]

    def take_buffered(self) -> bytes:
        data, self._buffer = self._buffer, b""
        return data or self._body.read_some()

    def read(self, size: int) -> bytes:
        """Return exactly `size` bytes; fewer only at the end of the body."""
        data = self.peek(size)
        self._buffer = self._buffer[size:]
        return data
