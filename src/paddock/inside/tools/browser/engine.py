"""The thread that speaks to chromium, and the way in and out of it for tools.

Playwright's asynchronous API lives in one loop in one thread. It is imported and started there when it is first
needed, or ahead of time by `warm`, because its driver needs half a second to come up.
"""

from __future__ import annotations

import os
import threading
import time

from ..display import START, socket_path
from ..results import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable
    from typing import Any, TypeVar

    from ..callers import Caller
    from .session import Session

    T = TypeVar("T")

ADDRESS = "http://127.0.0.1:9222"
CONNECTING = 15.0
"""Seconds that chromium gets to come up, or to come back."""
STARTING = 6.0
"""Seconds that a desktop gets to come up before it is said that there is none."""
GONE = 1.5
"""The same for one that was there before."""
ATTEMPT = 6.0
"""Seconds after which a page is suspected to hang, and to keep everybody out."""
ATTEMPTS = 3
"""Times that it is tried to speak to a chromium that is there."""
SPARE = 5.0
"""Seconds beyond its own limit after which a call is given up from outside."""
MISSING = "the browser tools need Playwright for Python in the image, as the images browser and mobile have it"


class Gone(ToolError):
    """Chromium ended while it was spoken to."""


class Stale(Gone):
    """Chromium had ended before anything was done."""


class Engine:
    """Chromium, found at its debugging address again and again."""

    def __init__(self, downloads: str, dress: Callable[[Session, Any], Awaitable[None]] | None = None) -> None:
        self._address = os.environ.get("PADDOCK_CDP") or ADDRESS
        self._downloads = downloads
        self._dress = dress
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connecting: asyncio.Lock | None = None
        self._driver: Any = None
        self._session: Session | None = None
        self._identity = ""

    def warm(self) -> None:
        """Start the driver and find chromium in the background; whoever calls a tool meanwhile waits for the same.

        Only in a box that says where its browser is: elsewhere tools are looked at, and not used.
        """
        if not os.environ.get("PADDOCK_CDP"):
            return
        threading.Thread(target=self._warm, name="browser-warm", daemon=True).start()

    def call(self, work: Callable[[Session], Awaitable[T]], seconds: float, caller: Caller) -> T:
        """Run something in the browser's thread and wait for it, `seconds` and a little at most, if the caller does."""
        import asyncio
        import concurrent.futures

        future = asyncio.run_coroutine_threadsafe(self._attended(work, caller), self._started())
        try:
            return future.result(CONNECTING + seconds + SPARE)
        except concurrent.futures.CancelledError:
            caller.check()
            raise ToolError("the browser broke this off; try again") from None
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise ToolError(f"the browser did not answer within {seconds:g} s; try again, or browser_reload") from None

    def _warm(self) -> None:
        import asyncio

        try:
            asyncio.run_coroutine_threadsafe(self._connected(), self._started()).result(CONNECTING + SPARE)
        except Exception:
            return  # Whoever calls a tool is told why.

    def _started(self) -> asyncio.AbstractEventLoop:
        import asyncio

        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._serve, args=(self._loop,), name="browser", daemon=True).start()
            return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        import asyncio

        asyncio.set_event_loop(loop)
        # What Playwright leaves behind when its driver dies is of no use to anybody.
        loop.set_exception_handler(lambda _, __: None)
        loop.run_forever()

    async def _attended(self, work: Callable[[Session], Awaitable[T]], caller: Caller) -> T:
        """Do something for as long as its caller waits for it."""
        import asyncio

        line = caller.fileno()
        if line < 0:
            return await self._run(work)
        loop = asyncio.get_running_loop()
        doing = asyncio.ensure_future(self._run(work))

        def hung_up() -> None:
            loop.remove_reader(line)
            doing.cancel()

        loop.add_reader(line, hung_up)
        try:
            return await doing
        finally:
            loop.remove_reader(line)

    async def _run(self, work: Callable[[Session], Awaitable[T]]) -> T:
        import asyncio

        from .faults import explained

        for again in (True, False):
            # Whoever comes next needs the connection too.
            session = await asyncio.shield(self._connected())
            try:
                return await work(session)
            except Stale:
                if not again:
                    raise
            except ToolError:
                raise
            except Exception as error:
                raise explained(error, session) from None
        raise Gone("chromium cannot be reached; try again")

    async def _connected(self) -> Session:
        import asyncio

        if self._connecting is None:
            self._connecting = asyncio.Lock()
        async with self._connecting:
            if self._session is None or not self._session.alive:
                if self._session is not None:
                    await self._session.leave()
                    self._session = None
                self._session = await self._connect()
            return self._session

    async def _connect(self) -> Session:
        from .rescue import identify, rescue
        from .session import Session

        for attempt in range(ATTEMPTS):
            await self._wait_for_chromium()
            try:
                session = Session(await self._attach(), self._downloads, self._dress)
                await session.open()
                break
            except Exception as error:
                if isinstance(error, ToolError) and not isinstance(error, Gone):
                    raise
                # The driver may have died with, or before, what it was connected to; a fresh one tells. Or a page
                # hangs. Or it was chromium's last moment.
                await self._drop_driver()
                if attempt == ATTEMPTS - 1:
                    raise ToolError(f"chromium at {self._address} does not answer: {str(error)[:200]}") from None
                await _quietly(rescue(self._address))
        identity = await identify(self._address)
        if self._identity and identity not in ("", self._identity):
            session.announce("Chromium had ended and was started again; the tabs it had are lost.")
        self._identity = identity
        return session

    async def _attach(self) -> Any:
        if self._driver is None:
            try:
                from playwright.async_api import async_playwright
            except ImportError:
                raise ToolError(MISSING) from None
            self._driver = await async_playwright().start()
        # Without the defaults what people see stays as it is, and pages know whether they are shown.
        return await self._driver.chromium.connect_over_cdp(
            self._address, no_defaults=True, is_local=True, timeout=ATTEMPT * 1000
        )

    async def _drop_driver(self) -> None:
        import asyncio

        driver, self._driver = self._driver, None
        if driver is not None:
            try:
                await asyncio.wait_for(driver.stop(), 3.0)
            except Exception:
                return  # It is gone already.

    async def _wait_for_chromium(self) -> None:
        import asyncio
        from urllib.parse import urlsplit

        where = urlsplit(self._address)
        begun = time.monotonic()
        # Whoever knew it running needs not wait long for a desktop that has been stopped.
        patience = GONE if self._identity else STARTING
        while True:
            try:
                _, writer = await asyncio.open_connection(where.hostname or "127.0.0.1", where.port or 9222)
            except OSError:
                waited = time.monotonic() - begun
                if waited > patience and not _has_screen():
                    raise ToolError(f"chromium and the desktop it is started with are not running; {START}") from None
                if waited > CONNECTING:
                    message = "chromium is not running; it is started with the desktop: stop that, and then"
                    raise ToolError(f"{message} {START}") from None
                await asyncio.sleep(0.03)
            else:
                writer.close()
                return


async def _quietly(work: Awaitable[object]) -> None:
    """Do something that only may help."""
    try:
        await work
    except Exception:
        return


def _has_screen() -> bool:
    """Whether the X server that chromium shows itself on takes anybody; true where nobody says which that is."""
    import socket

    name = os.environ.get("DISPLAY", "")
    if not name.startswith(":"):
        return True
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.2)
        try:
            probe.connect(socket_path(name))
        except socket.timeout:
            return True
        except OSError:
            return False
    return True
