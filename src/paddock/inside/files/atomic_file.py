"""Atomic file writes: a temporary file that is renamed over the target."""

from __future__ import annotations

import os
import stat

from ..errors import ApiError
from ..file_descriptors import write_all
from .file_attributes import FileAttributes
from .paths import ResolvedPath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType


class AtomicFile:
    """A temporary file next to the target; `commit` renames it over the target, otherwise it is removed."""

    def __init__(self, path: ResolvedPath) -> None:
        self._path = path
        self._mode = 0o644
        try:
            status = path.stat()
        except FileNotFoundError:
            pass
        else:
            if stat.S_ISDIR(status.st_mode):
                raise ApiError(400, "INVALID_FILE", f"{path.display_path} is a directory")
            self._mode = stat.S_IMODE(status.st_mode)
        base = os.path.basename(path.name)[:100]
        self._temporary = path.sibling(f".{base}.{os.urandom(6).hex()}~")
        self._descriptor = self._temporary.open(os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._committed = False

    def __enter__(self) -> AtomicFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        os.close(self._descriptor)
        if not self._committed:
            os.unlink(self._temporary.name, dir_fd=self._path.parent_fd)

    def write(self, data: bytes | memoryview) -> None:
        write_all(self._descriptor, data)

    def commit(self, attributes: FileAttributes | None = None) -> None:
        os.chmod(self._descriptor, self._mode)
        if attributes is not None:
            attributes.apply(self._descriptor)
        parent = self._path.parent_fd
        os.rename(self._temporary.name, self._path.name, src_dir_fd=parent, dst_dir_fd=parent)
        self._committed = True
