"""Resolves paths to an open parent directory and a name in it, optionally confined to a root.

Without a root, the resolved path is the plain path. With one (`X-Paddock-Root`), the path is walked
component by component on directory descriptors without letting the kernel follow links, so neither
`..` nor a symbolic link, even one swapped in during the walk, leads out of the root.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager

from ..errors import ApiError, file_not_found_error, forbidden_error, invalid_body_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_LINKS = 40

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ResolvedPath:
    """A name in an open directory; pass it to `os` functions as `name, dir_fd=parent_fd`."""

    __slots__ = ("display_path", "name", "parent_fd")

    def __init__(self, parent: int | None, name: str, shown: str) -> None:
        self.parent_fd = parent
        self.name = name
        self.display_path = shown

    def open(self, flags: int, mode: int = 0o666) -> int:
        if self.parent_fd is not None:
            flags |= os.O_NOFOLLOW
        return os.open(self.name, flags | os.O_CLOEXEC, mode, dir_fd=self.parent_fd)

    def stat(self) -> os.stat_result:
        return os.stat(self.name, dir_fd=self.parent_fd, follow_symlinks=False)

    def sibling(self, name: str) -> ResolvedPath:
        """Return the path of another name in the same directory."""
        directory = os.path.dirname(self.name)
        return ResolvedPath(
            self.parent_fd, os.path.join(directory, name), os.path.join(os.path.dirname(self.display_path), name)
        )


class PathResolver:
    """Resolves paths, anywhere or below one root directory."""

    def __init__(self, root: str = "", cwd: str = "/") -> None:
        if root and not root.startswith("/"):
            raise invalid_body_error("X-Paddock-Root must be an absolute path")
        self._root = os.path.normpath(root) if root else ""
        self._cwd = cwd

    @contextmanager
    def resolve(self, path: str, *, follow: bool, make_parents: bool = False) -> Iterator[ResolvedPath]:
        """Hold the resolved `path` open; with `follow`, a final symbolic link is resolved as well."""
        path = self._absolute_path(path)
        try:
            if not self._root:
                yield _unconfined_path(path, follow, make_parents)
                return
            walk = _ConfinedWalk(self._root, self._parts_below_root(path), follow, make_parents)
            try:
                yield ResolvedPath(walk.directory, walk.name, walk.shown)
            finally:
                walk.close()
        except OSError as error:
            raise api_error_from_os_error(error, path) from None

    def _absolute_path(self, path: str) -> str:
        if not path:
            raise invalid_body_error("a path must not be empty")
        if "\0" in path:
            raise invalid_body_error("a path must not contain NUL")
        return os.path.join(self._root or self._cwd, path)

    def _parts_below_root(self, path: str) -> list[str]:
        prefix = self._root.rstrip("/") + "/"
        if path != self._root and not path.startswith(prefix):
            raise forbidden_error(f"{path} is outside {self._root}")
        return [part for part in path[len(prefix) :].split("/") if part not in ("", ".")]


class _ConfinedWalk:
    """Walks down from a root on open directories; `name` is `.` when the path is the root itself."""

    def __init__(self, root: str, parts: list[str], follow: bool, make_parents: bool) -> None:
        self._root = root
        self._make_parents = make_parents
        self._opened = [os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
        self._names: list[str] = []
        self._links = 0
        self.name = "."
        try:
            self._descend(parts, follow)
        except BaseException:
            self.close()
            raise

    @property
    def directory(self) -> int:
        return self._opened[-1]

    @property
    def shown(self) -> str:
        parts = self._names if self.name == "." else [*self._names, self.name]
        return os.path.join(self._root, *parts)

    def close(self) -> None:
        while self._opened:
            os.close(self._opened.pop())

    def _descend(self, parts: list[str], follow: bool) -> None:
        parts = list(reversed(parts))
        while parts:
            part = parts.pop()
            if part == "..":
                self._go_up()
                continue
            final = not parts
            target = self._link_target(part) if follow or not final else None
            if target is not None:
                parts += reversed(self._follow_link(target))
            elif final:
                self.name = part
            else:
                self._enter_directory(part)

    def _enter_directory(self, part: str) -> None:
        try:
            opened = os.open(part, _DIRECTORY, dir_fd=self.directory)
        except FileNotFoundError:
            if not self._make_parents:
                raise
            os.mkdir(part, 0o755, dir_fd=self.directory)
            opened = os.open(part, _DIRECTORY, dir_fd=self.directory)
        self._opened.append(opened)
        self._names.append(part)

    def _go_up(self) -> None:
        if len(self._opened) == 1:
            raise forbidden_error(f"the path leads out of {self._root}")
        os.close(self._opened.pop())
        self._names.pop()

    def _link_target(self, part: str) -> str | None:
        try:
            return os.readlink(part, dir_fd=self.directory)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            raise

    def _follow_link(self, target: str) -> list[str]:
        self._links += 1
        if self._links > MAX_LINKS:
            raise invalid_body_error("the path has too many symbolic links")
        if target.startswith("/"):
            prefix = self._root.rstrip("/") + "/"
            if not (target + "/").startswith(prefix):
                raise forbidden_error(f"a symbolic link leads out of {self._root}")
            while len(self._opened) > 1:
                self._go_up()
            target = target[len(prefix) :]
        return [part for part in target.split("/") if part not in ("", ".")]


def _unconfined_path(path: str, follow: bool, make_parents: bool) -> ResolvedPath:
    shown = os.path.normpath(path)
    if follow and os.path.islink(path):
        path = os.path.realpath(path)
    path = path.rstrip("/") or "/"
    if make_parents:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    return ResolvedPath(None, path, shown)


def api_error_from_os_error(error: OSError, path: str) -> ApiError:
    """Translate an OSError about a path into an `ApiError`."""
    reason = f"{path}: {error.strerror or error}"
    if error.errno == errno.ENOENT:
        return file_not_found_error(path)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return forbidden_error(reason)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ApiError(507, "NO_SPACE", reason)
    if error.errno == errno.ELOOP:
        return forbidden_error(f"{path}: a symbolic link is in the way")
    if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.EINVAL, errno.ENAMETOOLONG):
        return ApiError(400, "INVALID_FILE", reason)
    return ApiError(500, "RUNTIME_ERROR", reason)
