"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import stat

from .attributes import Attributes
from .errors import ApiError
from .pipes import write_all
from .places import Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType


class AtomicFile:
    """A temporary file beside the target, renamed over it by `commit`, removed otherwise."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._mode = 0o644
        try:
            status = place.stat()
        except FileNotFoundError:
            pass
        else:
            if stat.S_ISDIR(status.st_mode):
                raise ApiError(400, "INVALID_FILE", f"{place.shown} is a directory")
            self._mode = stat.S_IMODE(status.st_mode)
        base = os.path.basename(place.name)[:100]
        self._temporary = place.beside(f".{base}.{os.urandom(6).hex()}~")
        self._descriptor = self._temporary.open(os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._committed = False

    def __enter__(self) -> AtomicFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        os.close(self._descriptor)
        if not self._committed:
            os.unlink(self._temporary.name, dir_fd=self._place.parent)

    def write(self, data: bytes | memoryview) -> None:
        write_all(self._descriptor, data)

    def commit(self, attributes: Attributes | None = None) -> None:
        os.chmod(self._descriptor, self._mode)
        if attributes is not None:
            attributes.apply(self._descriptor)
        parent = self._place.parent
        os.rename(self._temporary.name, self._place.name, src_dir_fd=parent, dst_dir_fd=parent)
        self._committed = True
