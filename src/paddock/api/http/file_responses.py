"""Files of the host as responses: single files, growing logs, and directories as archives."""

from __future__ import annotations

import asyncio
import os
import queue
import stat
import tarfile
import threading
import time
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Literal
from urllib.parse import quote

from starlette.responses import FileResponse

from paddock.errors import NotFound

CHUNK_SIZE = 2**18
_MAX_QUEUED_CHUNKS = 16
_POLL_SECONDS = 0.2
_EARLIEST_ZIP_YEAR = 1980
"""ZIP cannot express earlier years."""


def find_file_below(root: Path, path: str) -> Path:
    """Return a regular file below `root`, reached through no symlink. Raises `NotFound`."""
    missing = NotFound(f"there is no file {path!r} here")
    parts = PurePosixPath(path).parts
    if not parts or "\0" in path or PurePosixPath(path).is_absolute() or ".." in parts:
        raise missing
    file_path = root
    for part in parts:
        file_path = file_path / part
        try:
            kind = file_path.lstat().st_mode
        except (OSError, ValueError):
            raise missing from None
        if stat.S_ISLNK(kind):
            raise missing
    if not stat.S_ISREG(kind):
        raise missing
    return file_path


def walk_regular_files(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the regular files below a directory with their relative paths, sorted; symlinks are skipped."""
    for directory, names, files in os.walk(root):
        names.sort()
        for name in sorted(files):
            file_path = Path(directory) / name
            if stat.S_ISREG(file_path.lstat().st_mode):
                yield file_path.relative_to(root).as_posix(), file_path


def attachment_response(path: Path, name: str) -> FileResponse:
    """Respond with a file as a download: a browser must not render a sandbox's files as pages of this server."""
    headers = {"Content-Disposition": content_disposition(name), "Cache-Control": "no-store"}
    return FileResponse(path, headers=headers, media_type="application/octet-stream")


def content_disposition(name: str) -> str:
    safe = "".join(
        character if character.isascii() and character.isprintable() and character not in '"\\' else "_"
        for character in name
    )
    return f"attachment; filename=\"{safe}\"; filename*=UTF-8''{quote(name, safe='', errors='replace')}"


async def stream_growing_file(
    path: Path, after: int, ended: Callable[[], Awaitable[bool]] | None
) -> AsyncIterator[bytes]:
    """Yield a file from an offset to its end; with `ended`, continue until that returns true."""
    position = after
    while True:
        # Check before reading, so that everything written before the end is read.
        done = ended is None or await ended()
        while chunk := await asyncio.to_thread(_read_chunk, path, position):
            position += len(chunk)
            yield chunk
        if done:
            return
        await asyncio.sleep(_POLL_SECONDS)


def _read_chunk(path: Path, position: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(position)
            return file.read(CHUNK_SIZE)
    except FileNotFoundError:
        return b""


async def stream_directory_archive(root: Path, name: str, form: Literal["tar", "zip"]) -> AsyncIterator[bytes]:
    """Yield a directory as an archive, packed while it is sent."""
    chunks: queue.Queue[bytes | BaseException | None] = queue.Queue(_MAX_QUEUED_CHUNKS)
    sink = _QueueWriter(chunks)

    def work() -> None:
        try:
            (_write_tar if form == "tar" else _write_zip)(root, name, sink)  # type: ignore[arg-type]
            sink.flush()
            sink.put(None)
        except _ClientGone:
            pass
        except BaseException as error:
            try:
                sink.put(error)
            except _ClientGone:
                pass

    worker = threading.Thread(target=work, name="packing", daemon=True)
    worker.start()
    try:
        while (chunk := await asyncio.to_thread(chunks.get)) is not None:
            if isinstance(chunk, BaseException):
                raise chunk
            yield chunk
    finally:
        sink.client_gone = True


class _ClientGone(Exception):
    """The client has disconnected."""


class _QueueWriter:
    """A write-only file that queues its chunks for the event loop."""

    def __init__(self, chunks: queue.Queue[bytes | BaseException | None]) -> None:
        self._pieces = chunks
        self._held = bytearray()
        self.client_gone = False

    def write(self, data: bytes) -> int:
        self._held += data
        if len(self._held) >= CHUNK_SIZE:
            self.flush()
        return len(data)

    def flush(self) -> None:
        if self._held and not self.client_gone:
            self.put(bytes(self._held))
        self._held.clear()

    def put(self, chunk: bytes | BaseException | None) -> None:
        while not self.client_gone:
            try:
                self._pieces.put(chunk, timeout=0.5)
                return
            except queue.Full:
                continue
        raise _ClientGone


def _finished_files(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield all files except unfinished ones: names that start with a dot."""
    return ((name, file_path) for name, file_path in walk_regular_files(root) if not name.startswith("."))


def _write_tar(root: Path, name: str, sink: IO[bytes]) -> None:
    with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT, bufsize=CHUNK_SIZE) as archive:
        for path, file_path in _finished_files(root):
            archive.add(file_path, arcname=f"{name}/{path}", recursive=False, filter=_drop_owner)


def _drop_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _write_zip(root: Path, name: str, sink: IO[bytes]) -> None:
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path, file_path in _finished_files(root):
            status = file_path.stat()
            changed = time.localtime(status.st_mtime)[:6]
            modified = changed if changed[0] >= _EARLIEST_ZIP_YEAR else (_EARLIEST_ZIP_YEAR, 1, 1, 0, 0, 0)
            entry = zipfile.ZipInfo(f"{name}/{path}", modified)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (status.st_mode & 0o777 | stat.S_IFREG) << 16
            with file_path.open("rb") as file, archive.open(entry, "w", force_zip64=True) as target:
                while chunk := file.read(CHUNK_SIZE):
                    target.write(chunk)
