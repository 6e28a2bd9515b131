"""Free the body of a failed request that is still referred to in a cycle, such as of an error and a stack frame.

The collector runs rarely, since it counts objects and not their size.
"""

from __future__ import annotations

import asyncio
import gc

LARGE_BODY = 2**20
DELAY = 0.05


def collect_after_large_body(size: int) -> None:
    """Collect young objects in a moment, when the request is over, if its body was large."""
    if size > LARGE_BODY:
        asyncio.get_running_loop().call_later(DELAY, gc.collect, 1)
