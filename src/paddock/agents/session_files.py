"""Files of sessions: images, attachments and long tool results.

Files are addressed by their SHA-256, so a session stores the same file once.
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
UNKNOWN_TYPE = "application/octet-stream"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_SHA = re.compile(r"[0-9a-f]{64}")
_MIME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,63}/[A-Za-z0-9][A-Za-z0-9.+-]{0,63}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CHUNK_SIZE = 2**20
_HEAD_SIZE = 16


class SessionFiles:
    """Stores files below `root/SESSION/files/`, readable by their owner only."""

    def __init__(self, root: Path, max_size: int) -> None:
        self.root = root
        self.max_size = max_size

    async def store_file(self, session_id: str, data: bytes, *, name: str = "", mime: str | None = None) -> FileContent:
        """Store a file durably. Raises `TooLarge`, `HostFull`, `Unavailable`."""
        if len(data) > self.max_size:
            raise TooLarge(f"a file may have {format_size(self.max_size)}; this one has {len(data)} bytes")
        image_type = detect_image_type(data[:_HEAD_SIZE])
        sha = await run_disk_io(_write_file, self._directory(session_id), data)
        name = _CONTROL.sub("", name.replace("\\", "/").rpartition("/")[2])[:255]
        return FileContent(
            type="image" if image_type else "file",
            file=sha,
            name=name,
            mime=image_type or _choose_mime(mime, name),
            size=len(data),
        )

    async def read_file(self, session_id: str, sha: str) -> bytes:
        """Raises `NotFound`."""
        path = self.file_path(session_id, sha)
        try:
            return await run_disk_io(path.read_bytes)
        except FileNotFoundError:
            raise NotFound(f"The session has no file {sha}.") from None

    async def image_type(self, session_id: str, sha: str) -> str | None:
        """Return the MIME type of an image file, None for other files. Raises `NotFound`."""
        try:
            return detect_image_type(await run_disk_io(_read_head, self.file_path(session_id, sha)))
        except FileNotFoundError:
            raise NotFound(f"The session has no file {sha}.") from None

    def file_path(self, session_id: str, sha: str) -> Path:
        """Return the path of a file, which may not exist. Raises `NotFound` for invalid names."""
        if not _SHA.fullmatch(sha):
            raise NotFound(f"{sha[:80]!r} is not a file; files are named by their SHA-256.")
        return self._directory(session_id) / sha

    async def list_digests(self, session_id: str) -> list[str]:
        """Return the digests of all files of a session, in order."""
        return await run_disk_io(_list_names, self._directory(session_id))

    async def copy_files(self, from_id: str, to_id: str) -> None:
        """Copy all files of a session to another one."""
        await run_disk_io(_copy_files, self._directory(from_id), self._directory(to_id))

    async def remove_files(self, session_id: str) -> None:
        """Delete all files of a session. Idempotent."""
        await run_disk_io(shutil.rmtree, self._directory(session_id).parent, True)

    def _directory(self, session_id: str) -> Path:
        if not _ID.fullmatch(session_id):
            raise NotFound(f"{session_id[:80]!r} is not a session.")
        return self.root / session_id / "files"


def detect_image_type(head: bytes) -> str | None:
    """Return the MIME type of an image by its first bytes; None for anything else."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return None


async def run_disk_io(work: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
    """Run blocking disk work in a thread and translate its errors, except `FileNotFoundError`."""
    try:
        return await asyncio.to_thread(work, *arguments, **keywords)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise HostFull("the disk is full; the file cannot be stored") from error
        raise Unavailable(f"the file cannot be stored or read: {error.strerror}") from error


def create_private_file(path: Path) -> BinaryIO:
    """Create a new file that only its owner can read."""
    return open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))


def rename_file_durably(partial: Path, target: Path) -> None:
    """Rename a written file to its final name, durably."""
    os.replace(partial, target)
    directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _write_file(directory: Path, data: bytes) -> str:
    sha = hashlib.sha256(data).hexdigest()
    target = directory / sha
    if target.exists():
        return sha
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = directory / f".{secrets.token_hex(8)}"
    try:
        with create_private_file(partial) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        rename_file_durably(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return sha


def _read_head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD_SIZE)


def _list_names(directory: Path) -> list[str]:
    if not directory.is_dir():
        return []
    return sorted(name for name in os.listdir(directory) if _SHA.fullmatch(name))


def _copy_files(source: Path, target: Path) -> None:
    for name in _list_names(source):
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            # Files addressed by digest never change, so both sessions can share one.
            os.link(source / name, target / name)
        except FileExistsError:
            continue
        except OSError:
            partial = target / f".{secrets.token_hex(8)}"
            try:
                with (source / name).open("rb") as old, create_private_file(partial) as new:
                    shutil.copyfileobj(old, new, _CHUNK_SIZE)
                rename_file_durably(partial, target / name)
            finally:
                partial.unlink(missing_ok=True)


def _choose_mime(mime: str | None, name: str) -> str:
    declared_mime = (mime or "").partition(";")[0].strip()
    # Only bytes that start like an image get an image type; browsers and models fail on other files.
    if _MIME.fullmatch(declared_mime) and not declared_mime.lower().startswith("image/"):
        return declared_mime
    guessed = mimetypes.guess_type(name)[0] or UNKNOWN_TYPE
    return UNKNOWN_TYPE if guessed.startswith("image/") else guessed
