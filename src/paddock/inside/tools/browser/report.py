"""Says what a call has changed: the page, its title, the tabs, dialogs, downloads and the focus."""

from __future__ import annotations

import itertools

from ..results import Result
from .journal import cut

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .session import Session, Tab

MAX_EVENTS = 20
BUSY = "the page is busy with a script of its own and does not answer; browser_reload or browser_navigate end that"


class Before:
    """How things were when a call began."""

    def __init__(self, number: int, tab: Tab, url: str, look: dict[str, Any]) -> None:
        self.answered = bool(look)
        self.number = number
        self.tab = tab
        self.url = url
        self.title = look.get("title", "")
        self.focus = look.get("focus", "")


async def before(session: Session) -> Before:
    number = session.journal.last
    tab, look = await session.look()
    return Before(number, tab, tab.url, look)


def events_since(session: Session, earlier: Before) -> tuple[list[str], list[str]]:
    """What has happened, in words, and the files that it has brought."""
    events = session.journal.since(earlier.number)
    told = [(text, len(list(same))) for text, same in itertools.groupby(event["text"] for event in events)]
    lines = [text if times == 1 else f"{text} ({times} times)" for text, times in told[:MAX_EVENTS]]
    if len(told) > MAX_EVENTS:
        lines.append(f"And {len(told) - MAX_EVENTS} more things happened.")
    return lines, [event["path"] for event in events if event.get("path")]


async def report(session: Session, earlier: Before, done: str) -> Result:
    """Put what a call did and what came of it into one result."""
    tab = await session.current()
    url = tab.url
    asking = session.dialogs.pending
    look = {} if asking else await session.peek(tab)
    if await session.current() is not tab:
        # A tab was opened while the old one was looked at.
        tab = await session.current()
        url, look = tab.url, await session.peek(tab)
    title, focus = str(look.get("title", ""))[:300], str(look.get("focus", ""))[:200]
    events, files = events_since(session, earlier)
    lines = [done, *events] if done else events[:]
    known = bool(look) and earlier.answered
    changed = {"url": url != earlier.url, "title": known and title != earlier.title}
    changed["focus"] = known and focus != earlier.focus
    changed["tab"] = tab is not earlier.tab
    if changed["url"] or changed["tab"] or changed["title"]:
        named = f' "{title}"' if look else ""
        lines.append(f"The page is {cut(url, 300)}{named} in tab {tab.id}.")
    if changed["focus"]:
        lines.append(f"The focus is on {focus}." if focus else "Nothing has the focus now.")
    busy = not (look or asking or tab.leaving is not None or tab.page.is_closed())
    if busy:
        lines.append(f"Now {BUSY}.")
    elif not (events or any(changed.values())):
        lines.append("Address, title and focus are as before.")
    structured: dict[str, Any] = {"url": url, "title": title, "tab": tab.id, "changed": changed}
    if focus:
        structured["focus"] = focus
    if asking:
        structured["dialog"] = asking
    return Result("\n".join(lines), structured=structured, files=files)
