"""Where a path leads: a directory that is held open, and a name in it.

Without a root, a place is the plain path. With one (`X-Paddock-Root`), the path is walked component
by component on directory descriptors without ever letting the kernel follow a link, so neither `..`
nor a symbolic link, even one swapped in during the walk, leads out of the root.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager

from .errors import ApiError, file_not_found, forbidden, invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_LINKS = 40

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Place:
    """`os` functions take it as `name, dir_fd=place.parent`."""

    __slots__ = ("name", "parent", "shown")

    def __init__(self, parent: int | None, name: str, shown: str) -> None:
        self.parent = parent
        self.name = name
        self.shown = shown

    def open(self, flags: int, mode: int = 0o666) -> int:
        if self.parent is not None:
            flags |= os.O_NOFOLLOW
        return os.open(self.name, flags | os.O_CLOEXEC, mode, dir_fd=self.parent)

    def stat(self) -> os.stat_result:
        return os.stat(self.name, dir_fd=self.parent, follow_symlinks=False)

    def beside(self, name: str) -> Place:
        """A sibling in the same directory."""
        directory = os.path.dirname(self.name)
        return Place(self.parent, os.path.join(directory, name), os.path.join(os.path.dirname(self.shown), name))


class Places:
    """Finds places, anywhere or beneath one directory."""

    def __init__(self, root: str = "", cwd: str = "/") -> None:
        if root and not root.startswith("/"):
            raise invalid("X-Paddock-Root must be an absolute path")
        self._root = os.path.normpath(root) if root else ""
        self._cwd = cwd

    @contextmanager
    def find(self, path: str, *, follow: bool, make_parents: bool = False) -> Iterator[Place]:
        """Hold the place of `path` open; with `follow`, that of what a final link points to."""
        path = self._absolute(path)
        try:
            if not self._root:
                yield _free_place(path, follow, make_parents)
                return
            walk = _Walk(self._root, self._beneath(path), follow, make_parents)
            try:
                yield Place(walk.directory, walk.name, walk.shown)
            finally:
                walk.close()
        except OSError as error:
            raise explain(error, path) from None

    def _absolute(self, path: str) -> str:
        if not path:
            raise invalid("a path must not be empty")
        if "\0" in path:
            raise invalid("a path must not contain NUL")
        return os.path.join(self._root or self._cwd, path)

    def _beneath(self, path: str) -> list[str]:
        prefix = self._root.rstrip("/") + "/"
        if path != self._root and not path.startswith(prefix):
            raise forbidden(f"{path} is outside {self._root}")
        return [part for part in path[len(prefix) :].split("/") if part not in ("", ".")]


class _Walk:
    """Goes down from a root on open directories; `name` is `.` when the path is the root itself."""

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
                parts += reversed(self._follow(target))
            elif final:
                self.name = part
            else:
                self._enter(part)

    def _enter(self, part: str) -> None:
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
            raise forbidden(f"the path leads out of {self._root}")
        os.close(self._opened.pop())
        self._names.pop()

    def _link_target(self, part: str) -> str | None:
        try:
            return os.readlink(part, dir_fd=self.directory)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            raise

    def _follow(self, target: str) -> list[str]:
        self._links += 1
        if self._links > MAX_LINKS:
            raise invalid("the path has too many symbolic links")
        if target.startswith("/"):
            prefix = self._root.rstrip("/") + "/"
            if not (target + "/").startswith(prefix):
                raise forbidden(f"a symbolic link leads out of {self._root}")
            while len(self._opened) > 1:
                self._go_up()
            target = target[len(prefix) :]
        return [part for part in target.split("/") if part not in ("", ".")]


def _free_place(path: str, follow: bool, make_parents: bool) -> Place:
    shown = os.path.normpath(path)
    if follow and os.path.islink(path):
        path = os.path.realpath(path)
    path = path.rstrip("/") or "/"
    if make_parents:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    return Place(None, path, shown)


def explain(error: OSError, path: str) -> ApiError:
    """Turn what the kernel said about a path into an answer."""
    reason = f"{path}: {error.strerror or error}"
    if error.errno == errno.ENOENT:
        return file_not_found(path)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return forbidden(reason)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ApiError(507, "NO_SPACE", reason)
    if error.errno == errno.ELOOP:
        return forbidden(f"{path}: a symbolic link is in the way")
    if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.EINVAL, errno.ENAMETOOLONG):
        return ApiError(400, "INVALID_FILE", reason)
    return ApiError(500, "RUNTIME_ERROR", reason)
