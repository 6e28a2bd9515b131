"""Pack and unpack directory trees as tar streams."""

from __future__ import annotations

import os
import stat

from ..errors import ApiError
from ..exec.processes import ProcessRegistry
from .directory_trees import remove_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO, Any

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def find_gnu_tar(processes: ProcessRegistry) -> str | None:
    """Return the path of GNU tar, the only tar that never writes through links of an archive it unpacks."""
    for path in ("/bin/tar", "/usr/bin/tar"):
        if not os.access(path, os.X_OK):
            continue
        reader, writer = os.pipe()
        try:
            child = processes.spawn([path, "--version"], cwd="/", env={}, marker="tar", stdout=writer)
            child.close()
        except OSError:
            continue
        finally:
            os.close(writer)
            with os.fdopen(reader, "rb") as stream:
                about = stream.read()
        if b"GNU tar" in about:
            return path
    return None


def unpack_tar_with_python(stream: Any, directory: int, check_disk: Callable[[], None]) -> None:
    """Unpack a tar stream without following links: links are created last, names must stay below `directory`.

    `check_disk` raises an error when nothing may be written any more.
    """
    import tarfile

    links: list[tuple[str, str]] = []
    try:
        with tarfile.open(fileobj=stream, mode="r|*") as archive:
            for member in archive:
                parts = _safe_parts(member.name)
                if not parts:
                    continue
                name = "/".join(parts)
                _make_directories(directory, parts[:-1])
                if member.isdir():
                    _make_directories(directory, parts)
                elif member.isreg():
                    source = archive.extractfile(member)
                    assert source is not None
                    _write_file(directory, name, source, member.mode, check_disk)
                elif member.issym():
                    links.append((member.linkname, name))
                elif member.islnk():
                    _unlink(directory, name)
                    target = "/".join(_safe_parts(member.linkname))
                    os.link(target, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ApiError(
            400, "INVALID_FILE_CONTENT", f"the request body is not a readable tar archive: {error}"
        ) from None
    for target, name in links:
        _unlink(directory, name)
        os.symlink(target, name, dir_fd=directory)


def merge_directories(source: int, target: int) -> None:
    """Move all entries of one directory into another, merging directories and replacing files."""
    with os.scandir(source) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in found:
        present = _file_mode(name, target)
        if is_directory and present is not None and stat.S_ISDIR(present):
            below = os.open(name, _DIRECTORY, dir_fd=source)
            into = os.open(name, _DIRECTORY, dir_fd=target)
            try:
                merge_directories(below, into)
                os.fchmod(into, stat.S_IMODE(os.fstat(below).st_mode))
            finally:
                os.close(below)
                os.close(into)
            os.rmdir(name, dir_fd=source)
            continue
        if present is not None and stat.S_ISDIR(present):
            remove_tree(name, target)
        elif present is not None and is_directory:
            os.unlink(name, dir_fd=target)
        os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)


def _safe_parts(name: str) -> list[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ApiError(400, "INVALID_FILE_CONTENT", f"the archive's member {name!r} is outside the target directory")
    return parts


def _make_directories(directory: int, parts: list[str]) -> None:
    for depth in range(1, len(parts) + 1):
        name = "/".join(parts[:depth])
        kind = _file_mode(name, directory)
        if kind is None:
            os.mkdir(name, 0o755, dir_fd=directory)
        elif not stat.S_ISDIR(kind):
            raise ApiError(400, "INVALID_FILE_CONTENT", f"the archive has {name!r} as a directory and as a file")


def _write_file(directory: int, name: str, source: IO[bytes], mode: int, check_disk: Callable[[], None]) -> None:
    check_disk()
    _unlink(directory, name)
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
    with os.fdopen(descriptor, "wb") as target:
        while data := source.read(1 << 18):
            check_disk()
            target.write(data)
        os.fchmod(descriptor, mode & 0o777)


def _unlink(directory: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass


def _file_mode(name: str, directory: int) -> int | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
