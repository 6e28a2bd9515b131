"""The files of sessions: pictures, what people attach, what is too long to be said.

A file is found by its SHA-256, so the same one is kept once in a session however often it is said.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import mimetypes
import os
import re
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, ParamSpec, TypeVar

from paddock.config.units import format_size
from paddock.errors import HostFull, NotFound, TooLarge, Unavailable
from paddock.model.sessions import FileContent

P = ParamSpec("P")
T = TypeVar("T")
UNKNOWN = "application/octet-stream"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_SHA = re.compile(r"[0-9a-f]{64}")
_MIME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,63}/[A-Za-z0-9][A-Za-z0-9.+-]{0,63}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_PIECE = 2**20
_HEAD = 16


class Files:
    """Keeps files below `root/SESSION/files/`, for the owner's eyes only."""

    def __init__(self, root: Path, largest: int) -> None:
        self.root = root
        self.largest = largest

    async def put(self, session_id: str, data: bytes, *, name: str = "", mime: str | None = None) -> FileContent:
        """Keep a file; when this returns it is on disk. Raises `TooLarge`, `HostFull`, `Unavailable`."""
        if len(data) > self.largest:
            raise TooLarge(f"a file may have {format_size(self.largest)}; this one has {len(data)} bytes")
        picture = sniff(data[:_HEAD])
        sha = await on_disk(_put, self._directory(session_id), data)
        name = _CONTROL.sub("", name.replace("\\", "/").rpartition("/")[2])[:255]
        return FileContent(
            type="image" if picture else "file",
            file=sha,
            name=name,
            mime=picture or _known_mime(mime, name),
            size=len(data),
        )

    async def read(self, session_id: str, sha: str) -> bytes:
        """Raises `NotFound`."""
        path = self.path(session_id, sha)
        try:
            return await on_disk(path.read_bytes)
        except FileNotFoundError:
            raise NotFound(f"The session has no file {sha}.") from None

    async def mime(self, session_id: str, sha: str) -> str | None:
        """What sort of picture a file is, `None` if it is something else. Raises `NotFound`."""
        try:
            return sniff(await on_disk(_head, self.path(session_id, sha)))
        except FileNotFoundError:
            raise NotFound(f"The session has no file {sha}.") from None

    def path(self, session_id: str, sha: str) -> Path:
        """Where a file is or would be. Raises `NotFound` for what cannot be a file's name."""
        if not _SHA.fullmatch(sha):
            raise NotFound(f"{sha[:80]!r} is no file; files are named by their SHA-256.")
        return self._directory(session_id) / sha

    async def names(self, session_id: str) -> list[str]:
        """All files of a session, in order."""
        return await on_disk(_names, self._directory(session_id))

    async def copy(self, from_id: str, to_id: str) -> None:
        """Give all files of a session to another one."""
        await on_disk(_copy, self._directory(from_id), self._directory(to_id))

    async def remove(self, session_id: str) -> None:
        """Forget all files of a session. Idempotent."""
        await on_disk(shutil.rmtree, self._directory(session_id).parent, True)

    def _directory(self, session_id: str) -> Path:
        if not _ID.fullmatch(session_id):
            raise NotFound(f"{session_id[:80]!r} is no session.")
        return self.root / session_id / "files"


def sniff(head: bytes) -> str | None:
    """The type of a picture by its first bytes; `None` for anything else."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return None


async def on_disk(work: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T:
    """Do what may wait for the disk, and tell what is wrong with it; a missing file is the caller's affair."""
    try:
        return await asyncio.to_thread(work, *arguments, **more)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise HostFull("the disk of this machine is too full to keep the file") from error
        raise Unavailable(f"the file cannot be kept or read: {error.strerror}") from error


def create(path: Path) -> BinaryIO:
    """A new file that only its owner can read."""
    return open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))


def settle(partial: Path, target: Path) -> None:
    """Give a file that is written its name, for good."""
    os.replace(partial, target)
    directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _put(directory: Path, data: bytes) -> str:
    sha = hashlib.sha256(data).hexdigest()
    target = directory / sha
    if target.exists():
        return sha
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = directory / f".{secrets.token_hex(8)}"
    try:
        with create(partial) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        settle(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return sha


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD)


def _names(directory: Path) -> list[str]:
    if not directory.is_dir():
        return []
    return sorted(name for name in os.listdir(directory) if _SHA.fullmatch(name))


def _copy(source: Path, target: Path) -> None:
    for name in _names(source):
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            # What is found by its digest never changes, so both may have the very same file.
            os.link(source / name, target / name)
        except FileExistsError:
            continue
        except OSError:
            partial = target / f".{secrets.token_hex(8)}"
            try:
                with (source / name).open("rb") as old, create(partial) as new:
                    shutil.copyfileobj(old, new, _PIECE)
                settle(partial, target / name)
            finally:
                partial.unlink(missing_ok=True)


def _known_mime(mime: str | None, name: str) -> str:
    given = (mime or "").partition(";")[0].strip()
    # Only what begins like a picture is called one; browsers and models would choke on anything else.
    if _MIME.fullmatch(given) and not given.lower().startswith("image/"):
        return given
    guessed = mimetypes.guess_type(name)[0] or UNKNOWN
    return UNKNOWN if guessed.startswith("image/") else guessed
