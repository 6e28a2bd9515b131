"""Thread that controls chromium through Playwright; tools submit coroutines to it.

Playwright's asynchronous API runs in one event loop in one thread. It is imported and started on first use, or ahead of
time by `connect_ahead`, because its driver needs half a second to start.
"""

from __future__ import annotations

import os
import threading
import time

from ..desktop.x_display import START_HINT, x_socket_path
from ..tool_result import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable
    from typing import Any, TypeVar

    from ..caller_connection import CallerConnection
    from .browser_session import BrowserSession

    T = TypeVar("T")

DEFAULT_ADDRESS = "http://127.0.0.1:9222"
CONNECT_TIMEOUT = 15.0
"""Seconds chromium gets to start or restart."""
DESKTOP_START_TIMEOUT = 6.0
"""Seconds a desktop gets to start before the call fails."""
DESKTOP_RETURN_TIMEOUT = 1.5
"""The same for a desktop that was running before."""
ATTACH_TIMEOUT = 6.0
"""Seconds after which an attach attempt is given up, because a page may hang and block it."""
ATTACH_ATTEMPTS = 3
"""Attempts to attach to a running chromium."""
SPARE_SECONDS = 5.0
"""Seconds beyond its own timeout after which a call is cancelled from outside."""
PLAYWRIGHT_MISSING = "the browser tools need Playwright for Python; use an image that has it, such as browser or mobile"


class ChromiumGone(ToolError):
    """Chromium ended during the call."""


class ChromiumGoneBeforeCall(ChromiumGone):
    """Chromium had ended before the call did anything, so it can be retried."""


class BrowserThread:
    """Connection to chromium's debugging address, re-established when chromium restarts."""

    def __init__(
        self, downloads: str, prepare_page: Callable[[BrowserSession, Any], Awaitable[None]] | None = None
    ) -> None:
        self._address = os.environ.get("PADDOCK_CDP") or DEFAULT_ADDRESS
        self._downloads = downloads
        self._prepare_page = prepare_page
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connecting: asyncio.Lock | None = None
        self._driver: Any = None
        self._session: BrowserSession | None = None
        self._identity = ""

    def connect_ahead(self) -> None:
        """Start the driver and connect to chromium in the background; tool calls meanwhile wait for it.

        Does nothing without PADDOCK_CDP: elsewhere the tools are only listed.
        """
        if not os.environ.get("PADDOCK_CDP"):
            return
        threading.Thread(target=self._connect_and_wait, name="browser-warm", daemon=True).start()

    def run_in_thread(
        self, work: Callable[[BrowserSession], Awaitable[T]], seconds: float, caller: CallerConnection
    ) -> T:
        """Run a coroutine in the browser's thread and wait for it, unless the caller disconnects."""
        import asyncio
        import concurrent.futures

        future = asyncio.run_coroutine_threadsafe(self._run_until_disconnect(work, caller), self._running_loop())
        try:
            return future.result(CONNECT_TIMEOUT + seconds + SPARE_SECONDS)
        except concurrent.futures.CancelledError:
            caller.raise_if_disconnected()
            raise ToolError("the browser cancelled this call; try again") from None
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise ToolError(f"the browser did not answer within {seconds:g} s; try again, or browser_reload") from None

    def _connect_and_wait(self) -> None:
        import asyncio

        try:
            asyncio.run_coroutine_threadsafe(self._connected_session(), self._running_loop()).result(
                CONNECT_TIMEOUT + SPARE_SECONDS
            )
        except Exception:
            return  # Tool calls report the reason.

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        import asyncio

        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._serve, args=(self._loop,), name="browser", daemon=True).start()
            return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        import asyncio

        asyncio.set_event_loop(loop)
        # Ignore exceptions of Playwright's tasks when its driver dies.
        loop.set_exception_handler(lambda _, __: None)
        loop.run_forever()

    async def _run_until_disconnect(
        self, work: Callable[[BrowserSession], Awaitable[T]], caller: CallerConnection
    ) -> T:
        """Run a coroutine; cancel it when the caller disconnects."""
        import asyncio

        line = caller.fileno()
        if line < 0:
            return await self._run(work)
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(self._run(work))

        def cancel_task() -> None:
            loop.remove_reader(line)
            task.cancel()

        loop.add_reader(line, cancel_task)
        try:
            return await task
        finally:
            loop.remove_reader(line)

    async def _run(self, work: Callable[[BrowserSession], Awaitable[T]]) -> T:
        import asyncio

        from .playwright_errors import explain_playwright_error

        for again in (True, False):
            # Shielded, because later calls need the connection too.
            session = await asyncio.shield(self._connected_session())
            try:
                return await work(session)
            except ChromiumGoneBeforeCall:
                if not again:
                    raise
            except ToolError:
                raise
            except Exception as error:
                raise explain_playwright_error(error, session) from None
        raise ChromiumGone("chromium cannot be reached; try again")

    async def _connected_session(self) -> BrowserSession:
        import asyncio

        if self._connecting is None:
            self._connecting = asyncio.Lock()
        async with self._connecting:
            if self._session is None or not self._session.is_alive:
                if self._session is not None:
                    await self._session.disconnect()
                    self._session = None
                self._session = await self._connect()
            return self._session

    async def _connect(self) -> BrowserSession:
        from .browser_session import BrowserSession
        from .hung_pages import chromium_instance_id, free_hung_pages

        for attempt in range(ATTACH_ATTEMPTS):
            await self._wait_for_chromium()
            try:
                session = BrowserSession(await self._attach(), self._downloads, self._prepare_page)
                await session.listen()
                break
            except Exception as error:
                if isinstance(error, ToolError) and not isinstance(error, ChromiumGone):
                    raise
                # The driver may have died, a page may hang, or chromium may be exiting: retry with a new driver.
                await self._drop_driver()
                if attempt == ATTACH_ATTEMPTS - 1:
                    raise ToolError(f"chromium at {self._address} does not answer: {str(error)[:200]}") from None
                await _ignore_errors(free_hung_pages(self._address))
        identity = await chromium_instance_id(self._address)
        if self._identity and identity not in ("", self._identity):
            session.announce("Chromium had ended and was restarted; its tabs are lost.")
        self._identity = identity
        return session

    async def _attach(self) -> Any:
        if self._driver is None:
            try:
                from playwright.async_api import async_playwright
            except ImportError:
                raise ToolError(PLAYWRIGHT_MISSING) from None
            self._driver = await async_playwright().start()
        # Without Playwright's defaults, the window stays as people see it and pages know whether they are visible.
        return await self._driver.chromium.connect_over_cdp(
            self._address, no_defaults=True, is_local=True, timeout=ATTACH_TIMEOUT * 1000
        )

    async def _drop_driver(self) -> None:
        import asyncio

        driver, self._driver = self._driver, None
        if driver is not None:
            try:
                await asyncio.wait_for(driver.stop(), 3.0)
            except Exception:
                return  # It has ended already.

    async def _wait_for_chromium(self) -> None:
        import asyncio
        from urllib.parse import urlsplit

        where = urlsplit(self._address)
        started_at = time.monotonic()
        # A desktop that was running before and has been stopped is not waited for long.
        start_timeout = DESKTOP_RETURN_TIMEOUT if self._identity else DESKTOP_START_TIMEOUT
        while True:
            try:
                _, writer = await asyncio.open_connection(where.hostname or "127.0.0.1", where.port or 9222)
            except OSError:
                waited = time.monotonic() - started_at
                if waited > start_timeout and not _has_screen():
                    raise ToolError(f"chromium and its desktop are not running; {START_HINT}") from None
                if waited > CONNECT_TIMEOUT:
                    message = "chromium is not running; it starts with the desktop: stop the desktop, then"
                    raise ToolError(f"{message} {START_HINT}") from None
                await asyncio.sleep(0.03)
            else:
                writer.close()
                return


async def _ignore_errors(work: Awaitable[object]) -> None:
    """Await `work` and ignore its errors."""
    try:
        await work
    except Exception:
        return


def _has_screen() -> bool:
    """True if chromium's X server accepts connections, or if DISPLAY does not name a local one."""
    import socket

    name = os.environ.get("DISPLAY", "")
    if not name.startswith(":"):
        return True
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.2)
        try:
            probe.connect(x_socket_path(name))
        except socket.timeout:
            return True
        except OSError:
            return False
    return True
