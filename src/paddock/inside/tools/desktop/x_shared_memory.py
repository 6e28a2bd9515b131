"""MIT-SHM: shared memory into which the X server copies the screen."""

from __future__ import annotations

import ctypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_IPC_PRIVATE = 0
_IPC_RMID = 0
_IPC_CREAT = 0o1000
_Z_PIXMAP = 2
_M_ARENA_MAX = -8


class XSharedMemory:
    """A segment for pictures of up to `size` bytes. Raises OSError if the server does not support it."""

    def __init__(self, display: Any, size: int) -> None:
        from Xlib import error

        self.size = size
        self._address = 0
        extension = display.query_extension("MIT-SHM")
        if extension is None or not extension.present:
            raise OSError("the X server has no MIT-SHM extension")
        self._opcode = extension.major_opcode
        self._display = display
        self._requests = _requests()
        libc = self._libc = ctypes.CDLL(None, use_errno=True)
        libc.mallopt(_M_ARENA_MAX, 2)  # Limits malloc arenas; otherwise every encoding thread keeps some megabytes.
        libc.shmat.restype = ctypes.c_void_p
        libc.shmat.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
        libc.shmdt.argtypes = (ctypes.c_void_p,)
        identifier = libc.shmget(_IPC_PRIVATE, ctypes.c_size_t(size), _IPC_CREAT | 0o600)
        if identifier < 0:
            raise OSError(ctypes.get_errno(), "cannot allocate shared memory")
        try:
            address = libc.shmat(identifier, None, 0)
            if address in (None, ctypes.c_void_p(-1).value):
                raise OSError(ctypes.get_errno(), "cannot map shared memory")
            self._address = address
            self._segment = display.display.allocate_resource_id()
            refused = error.CatchError(error.BadAccess, error.BadValue, error.BadRequest)
            attach = {"opcode": self._opcode, "segment": self._segment, "memory": identifier, "read_only": False}
            self._requests["attach"](display=display.display, onerror=refused, **attach)
            display.sync()
            if refused.get_error() is not None:
                raise OSError("the X server refused the shared memory segment")
        finally:
            libc.shmctl(identifier, _IPC_RMID, None)  # The segment is freed when both sides have detached it.

    def capture(self, drawable: Any, x: int, y: int, width: int, height: int) -> bytes:
        """Return the pixels of an area, four bytes each."""
        request = self._requests["capture"]
        request(
            display=self._display.display,
            opcode=self._opcode,
            drawable=drawable.id,
            x=x,
            y=y,
            width=width,
            height=height,
            plane_mask=0xFFFFFFFF,
            format=_Z_PIXMAP,
            segment=self._segment,
            offset=0,
        )
        return ctypes.string_at(self._address, width * height * 4)

    def __del__(self) -> None:
        if self._address:
            self._libc.shmdt(self._address)


def _requests() -> dict[str, Any]:
    from Xlib.protocol import rq

    class Attach(rq.Request):  # type: ignore[misc]
        _request = rq.Struct(
            rq.Card8("opcode"),
            rq.Opcode(1),
            rq.RequestLength(),
            rq.Card32("segment"),
            rq.Card32("memory"),
            rq.Bool("read_only"),
            rq.Pad(3),
        )

    class Capture(rq.ReplyRequest):  # type: ignore[misc]
        _request = rq.Struct(
            rq.Card8("opcode"),
            rq.Opcode(4),
            rq.RequestLength(),
            rq.Card32("drawable"),
            rq.Int16("x"),
            rq.Int16("y"),
            rq.Card16("width"),
            rq.Card16("height"),
            rq.Card32("plane_mask"),
            rq.Card8("format"),
            rq.Pad(3),
            rq.Card32("segment"),
            rq.Card32("offset"),
        )
        _reply = rq.Struct(
            rq.ReplyCode(),
            rq.Card8("depth"),
            rq.Card16("sequence_number"),
            rq.ReplyLength(),
            rq.Card32("visual"),
            rq.Card32("size"),
            rq.Pad(16),
        )

    return {"attach": Attach, "capture": Capture}
