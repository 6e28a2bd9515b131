"""Refuses that files grow while the sandbox is over its disk limit.

The host measures, and says so with a notice in a directory that the sandbox cannot write. Commands still run then, so
that files can be deleted, but none of them can write to one.
"""

from __future__ import annotations

from .errors import ApiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST = 1000
LIMITED = 'echo "paddock: $1" >&2; shift; ulimit -f 0; exec "$@"'
"""Both limits are set, the soft and the hard one, so that no program can take its own back."""


class DiskLimit:
    """What the host says about the disk right now."""

    def __init__(self, notice: str | None) -> None:
        self._notice = notice

    def reason(self) -> str:
        """Return why nothing may be written, or nothing."""
        if self._notice is None:
            return ""
        try:
            with open(self._notice, "rb", buffering=0) as stream:
                return stream.read(LONGEST).decode("utf-8", "replace") or "the disk limit is reached"
        except OSError:
            return ""

    def check(self) -> None:
        """Raise `ApiError` while nothing may be written."""
        if reason := self.reason():
            raise ApiError(507, "DISK_FULL", reason)

    def wrap(self, argv: Sequence[str]) -> Sequence[str]:
        """Return the words that start a program so that it keeps to the limit."""
        reason = self.reason()
        return ["/bin/sh", "-c", LIMITED, "sh", reason, *argv] if reason else argv
