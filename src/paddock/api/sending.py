"""Files of the host as answers: one by one, growing ones to their end, and whole directories packed."""

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

PIECE = 2**18
_AHEAD = 16
_LOOK_AGAIN = 0.2
_UNPACKABLE = 1980
"""Before this year ZIP knows no time."""


def file_below(root: Path, path: str) -> Path:
    """A regular file below a directory, reached through no link. Raises `NotFound`."""
    missing = NotFound(f"there is no file {path!r} here")
    parts = PurePosixPath(path).parts
    if not parts or "\0" in path or PurePosixPath(path).is_absolute() or ".." in parts:
        raise missing
    place = root
    for part in parts:
        place = place / part
        try:
            kind = place.lstat().st_mode
        except (OSError, ValueError):
            raise missing from None
        if stat.S_ISLNK(kind):
            raise missing
    if not stat.S_ISREG(kind):
        raise missing
    return place


def files_below(root: Path) -> Iterator[tuple[str, Path]]:
    """The regular files below a directory and their paths in it, in order; no link is followed."""
    for directory, names, files in os.walk(root):
        names.sort()
        for name in sorted(files):
            place = Path(directory) / name
            if stat.S_ISREG(place.lstat().st_mode):
                yield place.relative_to(root).as_posix(), place


def attachment(place: Path, name: str) -> FileResponse:
    """A file to be saved and not to be looked at: what a box made must not speak for this server in a browser."""
    headers = {"Content-Disposition": disposition(name), "Cache-Control": "no-store"}
    return FileResponse(place, headers=headers, media_type="application/octet-stream")


def disposition(name: str) -> str:
    safe = "".join(
        letter if letter.isascii() and letter.isprintable() and letter not in '"\\' else "_" for letter in name
    )
    return f"attachment; filename=\"{safe}\"; filename*=UTF-8''{quote(name, safe='', errors='replace')}"


async def growing(place: Path, after: int, ended: Callable[[], Awaitable[bool]] | None) -> AsyncIterator[bytes]:
    """A file from an offset to its end; to its last end while somebody may still write to it."""
    position = after
    while True:
        # Asked before reading: what is written before the end is read after it.
        done = ended is None or await ended()
        while piece := await asyncio.to_thread(_read, place, position):
            position += len(piece)
            yield piece
        if done:
            return
        await asyncio.sleep(_LOOK_AGAIN)


def _read(place: Path, position: int) -> bytes:
    try:
        with place.open("rb") as file:
            file.seek(position)
            return file.read(PIECE)
    except FileNotFoundError:
        return b""


async def packed(root: Path, name: str, form: Literal["tar", "zip"]) -> AsyncIterator[bytes]:
    """A directory as an archive, packed while it is sent."""
    pieces: queue.Queue[bytes | BaseException | None] = queue.Queue(_AHEAD)
    sink = _Sink(pieces)

    def work() -> None:
        try:
            (_tar if form == "tar" else _zip)(root, name, sink)  # type: ignore[arg-type]
            sink.flush()
            sink.put(None)
        except _Left:
            pass
        except BaseException as error:
            try:
                sink.put(error)
            except _Left:
                pass

    worker = threading.Thread(target=work, name="packing", daemon=True)
    worker.start()
    try:
        while (piece := await asyncio.to_thread(pieces.get)) is not None:
            if isinstance(piece, BaseException):
                raise piece
            yield piece
    finally:
        sink.left = True


class _Left(Exception):
    """Nobody wants the rest."""


class _Sink:
    """A file that cannot be looked back into, whose pieces somebody else takes away."""

    def __init__(self, pieces: queue.Queue[bytes | BaseException | None]) -> None:
        self._pieces = pieces
        self._held = bytearray()
        self.left = False

    def write(self, data: bytes) -> int:
        self._held += data
        if len(self._held) >= PIECE:
            self.flush()
        return len(data)

    def flush(self) -> None:
        if self._held and not self.left:
            self.put(bytes(self._held))
        self._held.clear()

    def put(self, piece: bytes | BaseException | None) -> None:
        while not self.left:
            try:
                self._pieces.put(piece, timeout=0.5)
                return
            except queue.Full:
                continue
        raise _Left


def _whole(root: Path) -> Iterator[tuple[str, Path]]:
    """All but what is still being written, which has a dot before its name at the top."""
    return ((path, place) for path, place in files_below(root) if not path.startswith("."))


def _tar(root: Path, name: str, sink: IO[bytes]) -> None:
    with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT, bufsize=PIECE) as archive:
        for path, place in _whole(root):
            archive.add(place, arcname=f"{name}/{path}", recursive=False, filter=_nobodys)


def _nobodys(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _zip(root: Path, name: str, sink: IO[bytes]) -> None:
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path, place in _whole(root):
            found = place.stat()
            changed = time.localtime(found.st_mtime)[:6]
            when = changed if changed[0] >= _UNPACKABLE else (_UNPACKABLE, 1, 1, 0, 0, 0)
            entry = zipfile.ZipInfo(f"{name}/{path}", when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (found.st_mode & 0o777 | stat.S_IFREG) << 16
            with place.open("rb") as file, archive.open(entry, "w", force_zip64=True) as target:
                while piece := file.read(PIECE):
                    target.write(piece)
