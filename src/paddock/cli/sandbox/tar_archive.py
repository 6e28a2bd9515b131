"""Packs and safely unpacks tar archives on the host.

Archives come from sandboxes, which may be hostile. No path is ever followed through a link: each directory on the way
is opened by itself, files are newly created, and symbolic links are created last, after all files are written.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from paddock.cli.output.errors import CliError
from paddock.model.file_names import escape_file_name

_OPEN_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_EXTENSION_HEADER_TYPES = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_MAX_HEADER_BYTES = 2**20
_CHUNK = 2**18


class UnsafeArchive(CliError):
    """The archive has an entry that could harm the host."""

    code = "UNSAFE_ARCHIVE"


class _BoundedTarInfo(tarfile.TarInfo):
    """Rejects oversized headers, which `tarfile` would read into memory."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in _EXTENSION_HEADER_TYPES and self.size > _MAX_HEADER_BYTES:
            raise UnsafeArchive(f"the archive has a header of {self.size} bytes")
        return super()._proc_member(archive)  # type: ignore[misc, no-any-return]


def pack_tar(source: Path, name: str, target: IO[bytes]) -> int:
    """Write a file or directory as a tar stream with root entry `name` (`.` for a directory's content).

    Returns the number of bytes in files.
    """
    total = 0

    def packed(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        nonlocal total
        if not (entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()):
            return None  # sockets and pipes cannot be copied
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        total += entry.size
        return entry

    with tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT, bufsize=_CHUNK) as archive:
        archive.add(source, arcname=name, filter=packed)
    return total


def tree_size_estimate(source: Path) -> int:
    """Return the bytes of all files, roughly the size of the tar stream."""
    if source.is_symlink() or not source.is_dir():
        return source.lstat().st_size
    total = 0
    for directory, _, files in os.walk(source):
        for name in files:
            try:
                total += os.lstat(os.path.join(directory, name)).st_size
            except FileNotFoundError:
                continue
    return total


class TarUnpacker:
    """Unpacks one tar stream into one directory."""

    def __init__(
        self, directory: Path, *, skip_unsafe: bool = False, skipped: Callable[[str], None] | None = None
    ) -> None:
        self._root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._skip_unsafe = skip_unsafe
        self._skipped = skipped or (lambda message: None)
        self._made: set[str] = set()
        self.total = 0
        """Bytes of all files unpacked so far."""
        self._renamed: dict[str, str] = {}
        """Archive names by local names, where they differ."""
        self._links: list[tuple[list[str], str]] = []
        self._directories: dict[str, tuple[list[str], int, float]] = {}

    def unpack(self, stream: IO[bytes]) -> None:
        """Unpack the stream. Raises `UnsafeArchive` for a dangerous entry, `CliError` for a broken archive."""
        try:
            with tarfile.open(fileobj=stream, mode="r|*", tarinfo=_BoundedTarInfo, errorlevel=2) as archive:
                for member in archive:
                    # Otherwise `tarfile` keeps every entry in memory.
                    archive.members = []  # type: ignore[attr-defined]
                    self._unpack_entry(archive, member)
            for parts, target in self._links:
                self._make_link(parts, target)
            self._finish_directories()
        except (tarfile.TarError, EOFError) as error:
            raise CliError(f"the archive is broken: {error}") from None
        finally:
            os.close(self._root)

    def _unpack_entry(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        try:
            parts = self._local_name(member)
            if member.issym():
                _check_link(parts, member.linkname)
            elif not (member.isreg() or member.isdir() or member.islnk()):
                raise UnsafeArchive(f"{member.name!r} is a device or a pipe")
        except UnsafeArchive as problem:
            if not self._skip_unsafe:
                problem.hint = "no file outside the target was touched; skip such entries with --skip-unsafe"
                raise
            return self._skipped(problem.message)
        if not parts:
            return None
        if parts != _split_entry_name(member.name):
            self._skipped(f"{member.name!r} is saved as {'/'.join(parts)!r}")
        if member.isdir():
            os.close(self._open_directory(parts))
            self._directories["/".join(parts)] = (parts, member.mode & 0o777, member.mtime)
        elif member.issym():
            self._links.append((parts, escape_file_name(member.linkname)))
        elif member.islnk():
            self._make_hard_link(parts, member.linkname)
        else:
            source = archive.extractfile(member)
            assert source is not None
            self._make_file(parts, source, member)
        return None

    def _local_name(self, member: tarfile.TarInfo) -> list[str]:
        """Return the entry's local name with control characters percent-escaped. Raises if two names collide."""
        original = _split_entry_name(member.name)
        parts = [escape_file_name(part) for part in original]
        here, there = "/".join(parts), "/".join(original)
        if self._renamed.get(here, there) != there or (here != there and here in self._made):
            raise UnsafeArchive(f"{member.name!r} would take the place of another entry as {here!r}")
        if here != there:
            self._renamed[here] = there
        return parts

    def _open_directory(self, parts: list[str]) -> int:
        """Open a directory below the root without following links, creating it if missing."""
        current = os.dup(self._root)
        for part in parts:
            try:
                try:
                    os.mkdir(part, 0o755, dir_fd=current)
                except FileExistsError:
                    pass
                below = os.open(part, _OPEN_DIRECTORY_FLAGS, dir_fd=current)
            except OSError as error:
                raise UnsafeArchive(f"{'/'.join(parts)!r} exists and is not a directory") from error
            finally:
                os.close(current)
            current = below
        return current

    def _make_file(self, parts: list[str], source: IO[bytes], member: tarfile.TarInfo) -> None:
        directory = self._open_directory(parts[:-1])
        try:
            _remove_existing_file(parts[-1], directory)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(parts[-1], flags, 0o600, dir_fd=directory), "wb") as target:
                while data := source.read(_CHUNK):
                    self.total += target.write(data)
                target.flush()
                os.fchmod(target.fileno(), member.mode & 0o777)
                os.utime(target.fileno(), (member.mtime, member.mtime))
        finally:
            os.close(directory)
        self._made.add("/".join(parts))

    def _make_hard_link(self, parts: list[str], linkname: str) -> None:
        target = [escape_file_name(part) for part in _split_entry_name(linkname)]
        if "/".join(target) not in self._made:
            raise UnsafeArchive(f"{'/'.join(parts)!r} links to {linkname!r}, which is not in the archive before it")
        source, directory = self._open_directory(target[:-1]), self._open_directory(parts[:-1])
        try:
            _remove_existing_file(parts[-1], directory)
            os.link(target[-1], parts[-1], src_dir_fd=source, dst_dir_fd=directory, follow_symlinks=False)
        finally:
            os.close(source)
            os.close(directory)
        self._made.add("/".join(parts))

    def _make_link(self, parts: list[str], target: str) -> None:
        directory = self._open_directory(parts[:-1])
        try:
            _remove_existing_file(parts[-1], directory)
            os.symlink(target, parts[-1], dir_fd=directory)
        finally:
            os.close(directory)

    def _finish_directories(self) -> None:
        # Last and deepest first, so that read-only directories are filled before they get their mode.
        for name in sorted(self._directories, reverse=True):
            parts, mode, mtime = self._directories[name]
            try:
                directory = self._open_directory(parts)
            except UnsafeArchive:
                continue  # a later entry of the same name replaced it
            try:
                os.fchmod(directory, mode)
                os.utime(directory, (mtime, mtime))
            finally:
                os.close(directory)


def _split_entry_name(name: str) -> list[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise UnsafeArchive(f"the archive's entry {name!r} is outside the target directory")
    return parts


def _check_link(parts: list[str], target: str) -> None:
    """Raise unless the link goes up first and then down, and not above the root, so that it stays inside."""
    steps = [step for step in target.split("/") if step not in ("", ".")]
    up = next((i for i, step in enumerate(steps) if step != ".."), len(steps))
    if target.startswith("/") or ".." in steps[up:] or up > len(parts) - 1 or not target or "\0" in target:
        raise UnsafeArchive(f"the link {'/'.join(parts)!r} points to {target!r}, outside the target directory")


def _remove_existing_file(name: str, directory: int) -> None:
    try:
        kind = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(kind):
        raise CliError(f"{name!r} is a local directory but a file in the archive; remove one of them")
    os.unlink(name, dir_fd=directory)


class CallbackWriter(io.RawIOBase):
    """A writable file that passes all data to a function."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._take(bytes(data))
        return len(data)


class CallbackReader(io.RawIOBase):
    """A readable file that gets its data from a function, until that returns nothing."""

    def __init__(self, give: Callable[[], bytes]) -> None:
        self._give = give
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, target: bytearray) -> int:  # type: ignore[override]
        if not self._rest:
            self._rest = self._give()
        count = min(len(target), len(self._rest))
        target[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
