"""Blocks file writes while the sandbox is over its disk limit.

The host measures disk use and writes a notice into a directory that is read-only for the sandbox. Commands still run
then, so that files can be deleted, but they cannot write to files.
"""

from __future__ import annotations

from ..errors import ApiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_NOTICE_BYTES = 1000
LIMITED_SHELL_SCRIPT = 'echo "paddock: $1" >&2; shift; ulimit -f 0; exec "$@"'
"""`ulimit -f` sets the soft and the hard limit, so that programs cannot raise it again."""


class DiskLimitGuard:
    """Reads the host's notice that the disk limit is exceeded."""

    def __init__(self, notice: str | None) -> None:
        self._notice = notice

    def exceeded_reason(self) -> str:
        """Return the host's notice; empty while the disk is below its limit."""
        if self._notice is None:
            return ""
        try:
            with open(self._notice, "rb", buffering=0) as stream:
                return stream.read(MAX_NOTICE_BYTES).decode("utf-8", "replace") or "the disk limit is reached"
        except OSError:
            return ""

    def check(self) -> None:
        """Raise `ApiError` while the disk limit is exceeded."""
        if reason := self.exceeded_reason():
            raise ApiError(507, "DISK_FULL", reason)

    def wrap(self, argv: Sequence[str]) -> Sequence[str]:
        """Return an argv that runs `argv` without permission to write files while the limit is exceeded."""
        reason = self.exceeded_reason()
        return ["/bin/sh", "-c", LIMITED_SHELL_SCRIPT, "sh", reason, *argv] if reason else argv
