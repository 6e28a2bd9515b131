"""Look names up on threads of their own, so that slow name servers delay only the sandboxes that ask them."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, TypeAlias

from paddock.network.addresses import IPAddress

MAX_LOOKUPS = 128
"""Names that are looked up at the same time for all sandboxes."""
MAX_SANDBOX_LOOKUPS = 8
"""Names that are looked up at the same time for one sandbox."""
_AddressInfo: TypeAlias = tuple[Any, ...]


class NameLookups:
    """Looks names up for all sandboxes. Used on the relay's thread.

    The event loop's own `getaddrinfo` has four threads for the whole process, which one slow name server would occupy.
    """

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(MAX_LOOKUPS)

    async def look_up(self, name: str, port: int, sandbox_lookups: asyncio.Semaphore) -> Sequence[IPAddress]:
        """Return the addresses of a name. Raises `OSError`.

        A lookup cannot be stopped: it counts until it ends, even if the caller is cancelled before.
        """
        await sandbox_lookups.acquire()
        try:
            await self._free.acquire()
        except BaseException:
            sandbox_lookups.release()
            raise
        lookup = _start_lookup(name, port)

        def release(done: asyncio.Future[list[_AddressInfo]]) -> None:
            self._free.release()
            sandbox_lookups.release()
            if not done.cancelled():
                done.exception()  # Read it, since a cancelled caller does not.

        lookup.add_done_callback(release)
        return addresses_of(await asyncio.shield(lookup))


def addresses_of(found: Sequence[_AddressInfo]) -> list[IPAddress]:
    """Return the distinct addresses of a `getaddrinfo` answer, in order."""
    return list(dict.fromkeys(ip_address(str(item[4][0]).partition("%")[0]) for item in found))


def _start_lookup(name: str, port: int) -> asyncio.Future[list[_AddressInfo]]:
    loop = asyncio.get_running_loop()
    lookup: asyncio.Future[list[_AddressInfo]] = loop.create_future()

    def finish(found: list[_AddressInfo], error: OSError | None) -> None:
        if lookup.done():
            return
        if error is None:
            lookup.set_result(found)
        else:
            lookup.set_exception(error)

    def run() -> None:
        found: list[_AddressInfo] = []
        error: OSError | None = None
        try:
            found = list(socket.getaddrinfo(name, port, type=socket.SOCK_STREAM))
        except OSError as failure:
            error = failure
        except UnicodeError as failure:
            error = OSError(f"the name is invalid: {failure}")
        with suppress(RuntimeError):  # The loop is closed already.
            loop.call_soon_threadsafe(finish, found, error)

    # A daemon thread, since the server must be able to stop before the name server answers.
    threading.Thread(target=run, name="resolve", daemon=True).start()
    return lookup
