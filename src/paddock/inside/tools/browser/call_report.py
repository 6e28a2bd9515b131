"""Describes what a call has changed: page, title, tab, focus, dialogs and downloads."""

from __future__ import annotations

import itertools

from ..tool_result import ToolCallResult
from .event_ring_buffer import truncate_with_note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .browser_session import BrowserSession, BrowserTab

MAX_EVENTS = 20
PAGE_BUSY = "the page is busy with a script and does not respond; browser_reload or browser_navigate ends it"


class PageStateBeforeCall:
    """State of the page when a call started."""

    def __init__(self, number: int, tab: BrowserTab, url: str, title_and_focus: dict[str, Any]) -> None:
        self.answered = bool(title_and_focus)
        self.number = number
        self.tab = tab
        self.url = url
        self.title = title_and_focus.get("title", "")
        self.focus = title_and_focus.get("focus", "")


async def read_page_state(session: BrowserSession) -> PageStateBeforeCall:
    number = session.events.last_number
    tab, title_and_focus = await session.inspect_current_tab()
    return PageStateBeforeCall(number, tab, tab.url, title_and_focus)


def describe_events_since(session: BrowserSession, earlier: PageStateBeforeCall) -> tuple[list[str], list[str]]:
    """Return descriptions of the events since the call started, and the paths of downloaded files."""
    events = session.events.entries_since(earlier.number)
    grouped = [(text, len(list(same))) for text, same in itertools.groupby(event["text"] for event in events)]
    lines = [text if times == 1 else f"{text} ({times} times)" for text, times in grouped[:MAX_EVENTS]]
    if len(grouped) > MAX_EVENTS:
        lines.append(f"And {len(grouped) - MAX_EVENTS} more events.")
    return lines, [event["path"] for event in events if event.get("path")]


async def report_page_changes(session: BrowserSession, earlier: PageStateBeforeCall, done: str) -> ToolCallResult:
    """Return a result with what a call did and what changed."""
    tab = await session.current_tab()
    url = tab.url
    pending_dialog = session.dialogs.pending
    title_and_focus = {} if pending_dialog else await session.read_title_and_focus(tab)
    if await session.current_tab() is not tab:
        # A new tab was opened while the old one was inspected.
        tab = await session.current_tab()
        url, title_and_focus = tab.url, await session.read_title_and_focus(tab)
    title, focus = str(title_and_focus.get("title", ""))[:300], str(title_and_focus.get("focus", ""))[:200]
    events, files = describe_events_since(session, earlier)
    lines = [done, *events] if done else events[:]
    known = bool(title_and_focus) and earlier.answered
    changed = {"url": url != earlier.url, "title": known and title != earlier.title}
    changed["focus"] = known and focus != earlier.focus
    changed["tab"] = tab is not earlier.tab
    if changed["url"] or changed["tab"] or changed["title"]:
        named = f' "{title}"' if title_and_focus else ""
        lines.append(f"The page is {truncate_with_note(url, 300)}{named} in tab {tab.id}.")
    if changed["focus"]:
        lines.append(f"The focus is now on {focus}." if focus else "No element has the focus now.")
    busy = not (title_and_focus or pending_dialog or tab.navigation_request is not None or tab.page.is_closed())
    if busy:
        lines.append(f"Now {PAGE_BUSY}.")
    elif not (events or any(changed.values())):
        lines.append("Address, title and focus have not changed.")
    structured: dict[str, Any] = {"url": url, "title": title, "tab": tab.id, "changed": changed}
    if focus:
        structured["focus"] = focus
    if pending_dialog:
        structured["dialog"] = pending_dialog
    return ToolCallResult("\n".join(lines), structured=structured, files=files)
