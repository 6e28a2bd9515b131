"""A connection to chromium: its tabs, and what happens in them."""

from __future__ import annotations

import asyncio
import itertools

from ..results import ToolError
from .dialogs import Dialogs
from .downloads import Downloads
from .engine import Stale
from .faults import ENDED
from .journal import Ring, cut
from .pictures import Shots
from .traffic import Console, Network

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any

MAX_TABS = 50
SAVING = 2.0
"""Seconds that a download gets to be told of as complete by what has begun it."""
OPENING = 3.0
"""Seconds that a tab which has been opened gets to show something."""
BRIEF = 2.0
"""Seconds a page gets to say its title; one that is busy for longer is described without it."""
PEEK = """() => {
    const e = document.activeElement;
    const at = n => (e.getAttribute && e.getAttribute(n)) || '';
    const named = e && e !== document.body && e !== document.documentElement;
    const label = named ? at('aria-label') || (e.labels && e.labels[0] && e.labels[0].innerText) || at('placeholder')
        || at('name') || at('title') || (e.innerText || '').slice(0, 80) : '';
    const what = named ? (at('role') || e.tagName.toLowerCase() + (at('type') ? ' ' + at('type') : '')) : '';
    return {title: String(document.title).slice(0, 300), hidden: document.visibilityState === 'hidden',
            focus: named ? (what + ' "' + String(label).trim().slice(0, 80) + '"') : ''};
}"""


class Tab:
    """One page in the browser."""

    def __init__(self, identifier: str, page: Any) -> None:
        self.id = identifier
        self.page = page
        self.leaving: Any = None
        """The request that will bring another page here, while it is under way."""
        self.arrived = asyncio.Event()
        self._protocol: Any = None

    async def protocol(self) -> Any:
        """Chromium's own protocol for this page, for what Playwright does not do."""
        if self._protocol is None:
            self._protocol = await self.page.context.new_cdp_session(self.page)
        return self._protocol

    @property
    def url(self) -> str:
        return cut(self.page.url, 2000)


class Session:
    """Chromium from connecting to its end. Used in the browser's own thread only."""

    def __init__(
        self, browser: Any, downloads: str, dress: Callable[[Session, Any], Awaitable[None]] | None = None
    ) -> None:
        self.browser = browser
        self.broken = False
        self.journal = Ring()
        self.dialogs = Dialogs(self.journal)
        self.downloads = Downloads(downloads, self.journal)
        self.console = Console()
        self.network = Network()
        self.shots = Shots()
        self.tabs: list[Tab] = []
        self._current: Tab | None = None
        self._untold: int | None = None
        self._numbers = itertools.count(1)
        self._dress = dress
        self._expected: set[str] = set()
        self._arrived = asyncio.Event()
        self._tasks: set[asyncio.Future[Any]] = set()

    @property
    def alive(self) -> bool:
        return not self.broken and bool(self.browser.is_connected())

    @property
    def context(self) -> Any:
        """Chromium's own profile. It is gone a moment before the connection is said to be."""
        if not self.browser.contexts:
            self.broken = True
            raise Stale(ENDED)
        return self.browser.contexts[0]

    async def open(self) -> None:
        """Listen to everything, then take over the tabs that are there."""
        context = self.context
        context.on("page", self._opened)
        context.on("dialog", self._asked)
        self.console.listen(context)
        self.network.listen(context)
        context.on("request", self._requested)
        context.on("requestfailed", self._failed)
        for page in context.pages:
            self._adopt(page)
        wire = await self.browser.new_browser_cdp_session()
        await self.downloads.open(wire)
        wire.on("Target.targetCreated", self._coming)
        wire.on("Target.targetDestroyed", self._gone)
        await wire.send("Target.setDiscoverTargets", {"discover": True})
        self._expected.clear()
        if self._dress is not None:
            for tab in list(self.tabs):
                await self._dress(self, tab.page)

    def announce(self, text: str) -> None:
        """Let the next call tell of something that nobody has called for."""
        self._untold = self.journal.last
        self.journal.add(kind="tab", text=text)

    def begin(self) -> int:
        """Return the number of the last entry of the journal that a new call has nothing to do with."""
        told, self._untold = self._untold, None
        return self.journal.last if told is None else told

    async def leave(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        try:
            await asyncio.wait_for(self.browser.close(), 2.0)
        except Exception:
            return  # It has ended already.

    async def current(self) -> Tab:
        """The tab that tools work on; there is always one."""
        if self._current is None or self._current.page.is_closed():
            self._current = self.tabs[-1] if self.tabs else self._adopt(await self.context.new_page())
        return self._current

    async def open_tab(self) -> Tab:
        if len(self.tabs) >= MAX_TABS:
            raise ToolError(f"there are {len(self.tabs)} tabs already; close some with browser_tabs")
        tab = self._adopt(await self.context.new_page())
        self._current = tab
        if self._dress is not None:
            await self._dress(self, tab.page)
        return tab

    async def select(self, tab: Tab) -> None:
        self._current = tab
        await tab.page.bring_to_front()

    def tab(self, identifier: str) -> Tab:
        for tab in self.tabs:
            if tab.id == identifier:
                return tab
        known = ", ".join(tab.id for tab in self.tabs) or "none"
        raise ToolError(f"there is no tab {identifier!r}; there are: {known}")

    async def peek(self, tab: Tab, seconds: float = BRIEF) -> dict[str, Any]:
        """The title and the focus, or nothing when the page is too busy to say."""
        try:
            found = await asyncio.wait_for(tab.page.evaluate(PEEK), seconds)
        except Exception as error:
            self.note(error)
            return {}
        return found if isinstance(found, dict) else {}

    def note(self, error: Exception) -> None:
        """Playwright's driver does not say that it has ended, except in what fails afterwards.

        To it everything is closed then; to us only what has said so.
        """
        text = str(error)
        current = self._current
        closed = "has been closed" in text and current is not None and not current.page.is_closed()
        self.broken = self.broken or closed or "Connection closed" in text

    async def looks(self) -> list[tuple[Tab, dict[str, Any]]]:
        """All tabs, with what they say of themselves."""

        async def look(tab: Tab) -> tuple[Tab, dict[str, Any]]:
            return tab, await self.peek(tab)

        return list(await asyncio.gather(*map(look, self.tabs)))

    async def look(self) -> tuple[Tab, dict[str, Any]]:
        """The current tab and what it says of itself; a person may have gone to another one, and is followed."""
        tab = await self.current()
        if self.dialogs.pending:
            return tab, {}
        seen = await self.peek(tab)
        if len(self.tabs) < 2 or not seen.get("hidden"):
            return tab, seen
        others = [(other, look) for other, look in await self.looks() if look.get("hidden") is False]
        if len(others) != 1:
            return tab, seen
        self._current = others[0][0]
        self.journal.add(kind="tab", text=f"Tab {others[0][0].id} is shown now; it is the current one.")
        return others[0]

    def interrupt_soon(self, tab: Tab) -> None:
        """End what a page's script does, as soon as it does it again."""
        self._start(self.interrupt(tab))

    async def interrupt(self, tab: Tab) -> None:
        """End what a page's script does now."""
        try:
            protocol = await asyncio.wait_for(tab.protocol(), BRIEF)
            await asyncio.wait_for(protocol.send("Runtime.terminateExecution"), BRIEF)
        except Exception as error:
            self.note(error)

    async def free(self, tab: Tab) -> None:
        """End the script that keeps a page from answering; a page that cannot be helped is given up for a new one."""
        await self.interrupt(tab)
        if await self.peek(tab):
            self.journal.add(kind="tab", text="A script that kept the page busy was ended.")
            return
        self.journal.add(kind="tab", text=f"Tab {tab.id} did not answer any more and was closed.")
        await self.open_tab()
        self._start(tab.page.close())

    async def act(self, action: Coroutine[Any, Any, Any], seconds: float) -> Any:
        """Await something a page may hold up by a dialog; then it goes on by itself when that is answered."""
        task = asyncio.ensure_future(action)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        opened = asyncio.ensure_future(self.dialogs.wait_opened())
        try:
            await asyncio.wait({task, opened}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            opened.cancel()
        if task.done():
            return task.result()
        if self.dialogs.pending:
            return None
        task.cancel()
        raise asyncio.TimeoutError("Timeout")

    async def settle(self, tab: Tab, seconds: float, since: int) -> None:
        """Give what an action has set off a moment: a new page, a tab, a small download.

        `since` is the journal's last entry before the action.
        """
        await asyncio.sleep(0.03)
        if self._expected and not self.dialogs.pending:
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), min(seconds, OPENING))
            except asyncio.TimeoutError:
                self._expected.clear()
        tab = await self.current() if tab.page.is_closed() else tab
        if tab.leaving is not None and not self.dialogs.pending:
            try:
                await self.act(self._arrival(tab), seconds)
            except Exception:
                return  # What there is by then is what the result tells.
        if self.downloads.running(since):
            await self.downloads.wait(min(seconds, SAVING), since)

    async def _arrival(self, tab: Tab) -> None:
        await tab.arrived.wait()
        await tab.page.wait_for_load_state("domcontentloaded")

    def _adopt(self, page: Any) -> Tab:
        for known in self.tabs:
            if known.page is page:
                return known
        tab = Tab(f"t{next(self._numbers)}", page)
        self.tabs.append(tab)
        page.on("close", self._closed)
        page.on("crash", self._crashed)
        page.on("framenavigated", self._navigated)
        return tab

    def tab_of(self, page: Any) -> Tab | None:
        return next((tab for tab in self.tabs if tab.page is page), None)

    def _coming(self, event: dict[str, Any]) -> None:
        """Chromium has opened a tab, of which Playwright tells only once there is something in it."""
        about = event.get("targetInfo", {})
        if about.get("type") == "page" and len(self._expected) < MAX_TABS:
            self._expected.add(str(about.get("targetId")))

    def _gone(self, event: dict[str, Any]) -> None:
        self._expected.discard(str(event.get("targetId")))

    def _opened(self, page: Any) -> None:
        if self._expected:
            self._expected.pop()
        self._arrived.set()
        known = self.tab_of(page)
        tab = known or self._adopt(page)
        if self._dress is not None:
            self._start(self._dress(self, page))
        if known is None:
            if len(self.tabs) > MAX_TABS:
                self._start(page.close())
                return
            self._current = tab
            text = f"A new tab {tab.id} was opened and is the current one now."
            self.journal.add(kind="tab", text=text, tab=tab.id)

    def _closed(self, page: Any) -> None:
        tab = self.tab_of(page)
        if tab is not None:
            self.tabs.remove(tab)
            tab.arrived.set()
            self.dialogs.forget(page)
            self.journal.add(kind="tab", text=f"Tab {tab.id} was closed.")

    def _crashed(self, page: Any) -> None:
        tab = self.tab_of(page)
        if tab is not None:
            self.journal.add(kind="tab", text=f"Tab {tab.id} has crashed and was closed.")
            tab.arrived.set()
            # A crashed page answers nothing any more, not even to a navigation.
            self._start(self._replace(tab))

    async def _replace(self, tab: Tab) -> None:
        if len(self.tabs) == 1:
            self._current = self._adopt(await self.context.new_page())
        await tab.page.close()

    def _navigated(self, frame: Any) -> None:
        if frame.parent_frame is None:
            tab = self.tab_of(frame.page)
            if tab is not None:
                tab.leaving = None
                tab.arrived.set()

    def _requested(self, request: Any) -> None:
        try:
            if not request.is_navigation_request() or request.frame.parent_frame is not None:
                return
            tab = self.tab_of(request.frame.page)
        except Exception:
            return  # The frame is not there yet, or not any more.
        if tab is not None:
            tab.leaving = request
            tab.arrived.clear()

    def _failed(self, request: Any) -> None:
        for tab in self.tabs:
            if tab.leaving is request:
                tab.leaving = None
                tab.arrived.set()

    def _asked(self, dialog: Any) -> None:
        self.dialogs.met(dialog)

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # Whoever started it has been answered; nobody asks any more.
