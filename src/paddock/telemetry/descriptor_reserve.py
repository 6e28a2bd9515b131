"""Reserve file descriptors for other uses. The kernel always assigns the lowest free descriptor number."""

from __future__ import annotations

import resource
import sys


def first_reserved_descriptor(reserve: int, share: int) -> int:
    """Return the descriptor number from which on descriptors are reserved for other uses.

    The reserve is smaller if the limit on open files is low: at most one part in `share`.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft - min(reserve, soft // share)
