"""A connection to chromium: its tabs and their events."""

from __future__ import annotations

import asyncio
import itertools

from ..tool_result import ToolError
from .browser_downloads import BrowserDownloads
from .browser_thread import ChromiumGoneBeforeCall
from .event_ring_buffer import EventRingBuffer, truncate_with_note
from .page_dialogs import PageDialogs
from .page_logs import ConsoleMessageLog, NetworkRequestLog
from .page_screenshots import RecentScreenshots
from .playwright_errors import CHROMIUM_ENDED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any

MAX_TABS = 50
DOWNLOAD_WAIT = 2.0
"""Seconds the call that started a download waits for its completion."""
TAB_WAIT = 3.0
"""Seconds a new tab gets to load its first page."""
PEEK_TIMEOUT = 2.0
"""Seconds a page gets to return its title; a busy page is described without it."""
TITLE_AND_FOCUS_SCRIPT = """() => {
    const e = document.activeElement;
    const at = n => (e.getAttribute && e.getAttribute(n)) || '';
    const named = e && e !== document.body && e !== document.documentElement;
    const label = named ? at('aria-label') || (e.labels && e.labels[0] && e.labels[0].innerText) || at('placeholder')
        || at('name') || at('title') || (e.innerText || '').slice(0, 80) : '';
    const what = named ? (at('role') || e.tagName.toLowerCase() + (at('type') ? ' ' + at('type') : '')) : '';
    return {title: String(document.title).slice(0, 300), hidden: document.visibilityState === 'hidden',
            focus: named ? (what + ' "' + String(label).trim().slice(0, 80) + '"') : ''};
}"""


class BrowserTab:
    """One page in the browser."""

    def __init__(self, identifier: str, page: Any) -> None:
        self.id = identifier
        self.page = page
        self.navigation_request: Any = None
        """The pending request that navigates this tab to another page."""
        self.page_arrived = asyncio.Event()
        self._protocol: Any = None

    async def protocol(self) -> Any:
        """Return a CDP session of this page, for features that Playwright lacks."""
        if self._protocol is None:
            self._protocol = await self.page.context.new_cdp_session(self.page)
        return self._protocol

    @property
    def url(self) -> str:
        return truncate_with_note(self.page.url, 2000)


class BrowserSession:
    """A connection to chromium until it ends. Used in the browser thread only."""

    def __init__(
        self, browser: Any, downloads: str, prepare_page: Callable[[BrowserSession, Any], Awaitable[None]] | None = None
    ) -> None:
        self.browser = browser
        self.is_broken = False
        self.events = EventRingBuffer()
        self.dialogs = PageDialogs(self.events)
        self.downloads = BrowserDownloads(downloads, self.events)
        self.console = ConsoleMessageLog()
        self.network = NetworkRequestLog()
        self.screenshots = RecentScreenshots()
        self.tabs: list[BrowserTab] = []
        self._current: BrowserTab | None = None
        self._unreported_event: int | None = None
        self._numbers = itertools.count(1)
        self._prepare_page = prepare_page
        self._expected_targets: set[str] = set()
        self._page_opened = asyncio.Event()
        self._tasks: set[asyncio.Future[Any]] = set()

    @property
    def is_alive(self) -> bool:
        return not self.is_broken and bool(self.browser.is_connected())

    @property
    def context(self) -> Any:
        """The default browser context. It vanishes shortly before the connection is reported as closed."""
        if not self.browser.contexts:
            self.is_broken = True
            raise ChromiumGoneBeforeCall(CHROMIUM_ENDED)
        return self.browser.contexts[0]

    async def listen(self) -> None:
        """Register event handlers, then adopt the open tabs."""
        context = self.context
        context.on("page", self._on_page)
        context.on("dialog", self._on_dialog)
        self.console.listen(context)
        self.network.listen(context)
        context.on("request", self._on_request)
        context.on("requestfailed", self._on_request_failed)
        for page in context.pages:
            self._adopt(page)
        cdp_session = await self.browser.new_browser_cdp_session()
        await self.downloads.listen(cdp_session)
        cdp_session.on("Target.targetCreated", self._on_target_created)
        cdp_session.on("Target.targetDestroyed", self._on_target_destroyed)
        await cdp_session.send("Target.setDiscoverTargets", {"discover": True})
        self._expected_targets.clear()
        if self._prepare_page is not None:
            for tab in list(self.tabs):
                await self._prepare_page(self, tab.page)

    def announce(self, text: str) -> None:
        """Add an event that the next call reports."""
        self._unreported_event = self.events.last_number
        self.events.add(kind="tab", text=text)

    def start_call(self) -> int:
        """Start a call; return the number of the last event that the call does not report."""
        unreported, self._unreported_event = self._unreported_event, None
        return self.events.last_number if unreported is None else unreported

    async def disconnect(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        try:
            await asyncio.wait_for(self.browser.close(), 2.0)
        except Exception:
            return  # It has ended already.

    async def current_tab(self) -> BrowserTab:
        """Return the tab that tools use; opens one if there is none."""
        if self._current is None or self._current.page.is_closed():
            self._current = self.tabs[-1] if self.tabs else self._adopt(await self.context.new_page())
        return self._current

    async def open_tab(self) -> BrowserTab:
        if len(self.tabs) >= MAX_TABS:
            raise ToolError(f"there are {len(self.tabs)} tabs already; close some with browser_tabs")
        tab = self._adopt(await self.context.new_page())
        self._current = tab
        if self._prepare_page is not None:
            await self._prepare_page(self, tab.page)
        return tab

    async def select_tab(self, tab: BrowserTab) -> None:
        self._current = tab
        await tab.page.bring_to_front()

    def find_tab(self, identifier: str) -> BrowserTab:
        for tab in self.tabs:
            if tab.id == identifier:
                return tab
        known = ", ".join(tab.id for tab in self.tabs) or "none"
        raise ToolError(f"unknown tab {identifier!r}; open tabs: {known}")

    async def read_title_and_focus(self, tab: BrowserTab, seconds: float = PEEK_TIMEOUT) -> dict[str, Any]:
        """Return title and focus of a page; empty if it is too busy to answer."""
        try:
            found = await asyncio.wait_for(tab.page.evaluate(TITLE_AND_FOCUS_SCRIPT), seconds)
        except Exception as error:
            self.note_error(error)
            return {}
        return found if isinstance(found, dict) else {}

    def note_error(self, error: Exception) -> None:
        """Detect from an error that Playwright's driver has ended, which it does not report otherwise.

        After that, calls fail as if the page was closed, although it has not reported that.
        """
        text = str(error)
        current = self._current
        closed = "has been closed" in text and current is not None and not current.page.is_closed()
        self.is_broken = self.is_broken or closed or "Connection closed" in text

    async def inspect_tabs(self) -> list[tuple[BrowserTab, dict[str, Any]]]:
        """Return all tabs with their title and focus."""

        async def describe_tab(tab: BrowserTab) -> tuple[BrowserTab, dict[str, Any]]:
            return tab, await self.read_title_and_focus(tab)

        return list(await asyncio.gather(*map(describe_tab, self.tabs)))

    async def inspect_current_tab(self) -> tuple[BrowserTab, dict[str, Any]]:
        """Return the current tab with title and focus; follows a person who has switched to another tab."""
        tab = await self.current_tab()
        if self.dialogs.pending:
            return tab, {}
        seen = await self.read_title_and_focus(tab)
        if len(self.tabs) < 2 or not seen.get("hidden"):
            return tab, seen
        others = [(other, state) for other, state in await self.inspect_tabs() if state.get("hidden") is False]
        if len(others) != 1:
            return tab, seen
        self._current = others[0][0]
        self.events.add(kind="tab", text=f"Tab {others[0][0].id} is visible now and is the current one.")
        return others[0]

    def interrupt_soon(self, tab: BrowserTab) -> None:
        """Terminate a page's script in the background, as soon as it continues."""
        self._start_task(self.interrupt(tab))

    async def interrupt(self, tab: BrowserTab) -> None:
        """Terminate the running script of a page."""
        try:
            protocol = await asyncio.wait_for(tab.protocol(), PEEK_TIMEOUT)
            await asyncio.wait_for(protocol.send("Runtime.terminateExecution"), PEEK_TIMEOUT)
        except Exception as error:
            self.note_error(error)

    async def free_tab(self, tab: BrowserTab) -> None:
        """Terminate the script of an unresponsive page; a page that stays unresponsive is replaced by a new tab."""
        await self.interrupt(tab)
        if await self.read_title_and_focus(tab):
            self.events.add(kind="tab", text="A script that kept the page busy was terminated.")
            return
        self.events.add(kind="tab", text=f"Tab {tab.id} was unresponsive and was closed.")
        await self.open_tab()
        self._start_task(tab.page.close())

    async def run_action(self, action: Coroutine[Any, Any, Any], seconds: float) -> Any:
        """Await an action; if a dialog opens, return None and let the action continue in the background."""
        task = asyncio.ensure_future(action)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
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

    async def wait_for_effects(self, tab: BrowserTab, seconds: float, since: int) -> None:
        """Wait briefly for effects of an action: a new page, a tab, a small download.

        `since` is the number of the last event before the action.
        """
        await asyncio.sleep(0.03)
        if self._expected_targets and not self.dialogs.pending:
            self._page_opened.clear()
            try:
                await asyncio.wait_for(self._page_opened.wait(), min(seconds, TAB_WAIT))
            except asyncio.TimeoutError:
                self._expected_targets.clear()
        tab = await self.current_tab() if tab.page.is_closed() else tab
        if tab.navigation_request is not None and not self.dialogs.pending:
            try:
                await self.run_action(self._wait_for_arrival(tab), seconds)
            except Exception:
                return  # The result describes the state reached by then.
        if self.downloads.running_since(since):
            await self.downloads.wait_until_finished(min(seconds, DOWNLOAD_WAIT), since)

    async def _wait_for_arrival(self, tab: BrowserTab) -> None:
        await tab.page_arrived.wait()
        await tab.page.wait_for_load_state("domcontentloaded")

    def _adopt(self, page: Any) -> BrowserTab:
        for known in self.tabs:
            if known.page is page:
                return known
        tab = BrowserTab(f"t{next(self._numbers)}", page)
        self.tabs.append(tab)
        page.on("close", self._on_close)
        page.on("crash", self._on_crash)
        page.on("framenavigated", self._on_navigation)
        return tab

    def tab_of(self, page: Any) -> BrowserTab | None:
        return next((tab for tab in self.tabs if tab.page is page), None)

    def _on_target_created(self, event: dict[str, Any]) -> None:
        """Note a tab that chromium has opened; Playwright reports it only once it has a page."""
        target_info = event.get("targetInfo", {})
        if target_info.get("type") == "page" and len(self._expected_targets) < MAX_TABS:
            self._expected_targets.add(str(target_info.get("targetId")))

    def _on_target_destroyed(self, event: dict[str, Any]) -> None:
        self._expected_targets.discard(str(event.get("targetId")))

    def _on_page(self, page: Any) -> None:
        if self._expected_targets:
            self._expected_targets.pop()
        self._page_opened.set()
        known = self.tab_of(page)
        tab = known or self._adopt(page)
        if self._prepare_page is not None:
            self._start_task(self._prepare_page(self, page))
        if known is None:
            if len(self.tabs) > MAX_TABS:
                self._start_task(page.close())
                return
            self._current = tab
            text = f"A new tab {tab.id} was opened and is now the current one."
            self.events.add(kind="tab", text=text, tab=tab.id)

    def _on_close(self, page: Any) -> None:
        tab = self.tab_of(page)
        if tab is not None:
            self.tabs.remove(tab)
            tab.page_arrived.set()
            self.dialogs.forget_page(page)
            self.events.add(kind="tab", text=f"Tab {tab.id} was closed.")

    def _on_crash(self, page: Any) -> None:
        tab = self.tab_of(page)
        if tab is not None:
            self.events.add(kind="tab", text=f"Tab {tab.id} has crashed and was closed.")
            tab.page_arrived.set()
            # A crashed page does not respond, not even to navigation.
            self._start_task(self._replace(tab))

    async def _replace(self, tab: BrowserTab) -> None:
        if len(self.tabs) == 1:
            self._current = self._adopt(await self.context.new_page())
        await tab.page.close()

    def _on_navigation(self, frame: Any) -> None:
        if frame.parent_frame is None:
            tab = self.tab_of(frame.page)
            if tab is not None:
                tab.navigation_request = None
                tab.page_arrived.set()

    def _on_request(self, request: Any) -> None:
        try:
            if not request.is_navigation_request() or request.frame.parent_frame is not None:
                return
            tab = self.tab_of(request.frame.page)
        except Exception:
            return  # The frame is not attached yet, or not any more.
        if tab is not None:
            tab.navigation_request = request
            tab.page_arrived.clear()

    def _on_request_failed(self, request: Any) -> None:
        for tab in self.tabs:
            if tab.navigation_request is request:
                tab.navigation_request = None
                tab.page_arrived.set()

    def _on_dialog(self, dialog: Any) -> None:
        self.dialogs.dialog_opened(dialog)

    def _start_task(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # Retrieve the exception, so that asyncio does not log it.
