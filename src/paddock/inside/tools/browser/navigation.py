"""Tools that go somewhere: pages, history, tabs, and waiting."""

from __future__ import annotations

import re

from ..results import Result, ToolError
from .journal import cut

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..registry import Tool
    from .kit import Call, Kit
    from .session import Tab

REST = 2.0
"""Seconds a page gets for its pictures and the like, once its text is there."""
UNTIL = {"load": "load", "dom": "domcontentloaded", "idle": "networkidle", "answer": "commit"}
_UNTIL = {
    "type": "string",
    "enum": list(UNTIL),
    "description": "when to go on: once everything has loaded, the text has (dom), nothing is fetched any more (idle), "
    "or the server answers; when left out, once the text has, and a moment for the rest",
}
_LOCAL = re.compile(r"(localhost|127\.|\[::1\]|10\.|192\.168\.|[^./]+(:\d+)?(/|$))")


def tools(kit: Kit) -> list[Tool]:
    seen = {"until": _UNTIL}
    return [
        kit.tool(
            "browser_navigate",
            "Open an address in the current tab. A page that does not finish loading is reported as far as it got.",
            {"url": {"type": "string", "minLength": 1, "maxLength": 100_000, "description": "the address"}, **seen},
            navigate,
            required=["url"],
            seconds=15,
            quiet=True,
            hands=True,
        ),
        kit.tool("browser_back", "Go back to the page before.", seen, back, seconds=10, quiet=True, hands=True),
        kit.tool("browser_forward", "Go forward again.", seen, forward, seconds=10, quiet=True, hands=True),
        kit.tool("browser_reload", "Load the page again.", seen, reload, seconds=15, quiet=True, hands=True),
        kit.tool(
            "browser_tabs",
            "List the tabs, open one, close one, or select the one to work on.",
            {
                "action": {"type": "string", "enum": ["list", "open", "close", "select"], "default": "list"},
                "tab": {"type": "string", "maxLength": 20, "description": "which one to close or select, such as t2"},
                "url": {"type": "string", "maxLength": 100_000, "description": "what to open"},
            },
            tabs,
            seconds=15,
            quiet=True,
            hands=True,
        ),
        kit.tool(
            "browser_wait_for",
            "Wait until a text or an element is there (or gone), or the page has loaded.",
            {
                "text": {"type": "string", "maxLength": 1000, "description": "a text that is to appear"},
                "selector": {"type": "string", "maxLength": 2000, "description": "an element that is to appear"},
                "gone": {"type": "boolean", "default": False, "description": "wait until it is gone instead"},
                "until": {"type": "string", "enum": ["load", "dom", "idle"], "description": "how far to have loaded"},
            },
            wait_for,
            seconds=10,
            read_only=True,
        ),
    ]


async def navigate(call: Call, url: str, until: str = "") -> str:
    address = address_of(url)
    shown = cut(address, 300)
    status = await _go(call, lambda wait, limit: call.page.goto(address, wait_until=wait, timeout=limit), until, shown)
    return f"Opened {shown}{status}."


async def back(call: Call, until: str = "") -> str:
    await _step(call, call.page.go_back, until, "the page before")
    return "Went back."


async def forward(call: Call, until: str = "") -> str:
    await _step(call, call.page.go_forward, until, "the next page")
    return "Went forward."


async def reload(call: Call, until: str = "") -> str:
    await _go(call, lambda wait, limit: call.page.reload(wait_until=wait, timeout=limit), until, "the page")
    return "Loaded the page again."


async def tabs(call: Call, action: str, tab: str = "", url: str = "") -> str | Result:
    session = call.session
    done = ""
    if action == "open":
        address = address_of(url) if url else ""
        opened = await session.open_tab()
        call.tab, call.page = opened, opened.page
        done = f"Opened tab {opened.id}."
        if address:
            done += " " + await navigate(call, url)
    elif action in ("close", "select"):
        chosen: Tab = session.tab(tab) if tab else call.tab
        if action == "select":
            await session.select(chosen)
            done = f"Tab {chosen.id} is the current one."
        else:
            if len(session.tabs) == 1:
                # Chromium ends with its last tab, and its window with it.
                await session.open_tab()
            await chosen.page.close()
            done = f"Closed tab {chosen.id}."
        call.tab = await session.current()
    listed = await _listed(call)
    lines = [f'{"*" if one["current"] else " "} {one["id"]} {one["url"]} "{one["title"]}"' for one in listed]
    return Result("\n".join(filter(None, [done, "Tabs:", *lines])), structured={"tabs": listed})


async def wait_for(call: Call, gone: bool, text: str = "", selector: str = "", until: str = "") -> str:
    said = [name for name, value in (("text", text), ("selector", selector), ("until", until)) if value]
    if len(said) != 1:
        raise ToolError("say what to wait for: give one of text, selector and until")
    if until:
        await call.page.wait_for_load_state(UNTIL[until], timeout=call.milliseconds)
        return "The page has loaded." if until != "idle" else "Nothing is being fetched any more."
    what = f'the text "{cut(text, 100)}"' if text else f"the element {cut(selector, 100)}"
    locator = call.page.get_by_text(text) if text else call.page.locator(selector)
    # Of several, one that can be seen is enough; none may be left for it to be gone.
    seen = locator.filter(visible=True).first
    try:
        await seen.wait_for(state="hidden" if gone else "visible", timeout=call.milliseconds)
    except Exception as error:
        if "Timeout" not in str(error):
            raise
        still = "is still there" if gone else "has not appeared"
        raise ToolError(f"{what} {still} after {call.seconds:g} s") from None
    return f"{what[:1].upper()}{what[1:]} is {'gone' if gone else 'there'}."


def address_of(text: str) -> str:
    """An address as people write it, made whole. Raises ToolError."""
    address = text.strip()
    scheme = re.match(r"([a-zA-Z][a-zA-Z0-9+.-]*):(?!\d+(/|$))", address)
    if scheme is None:
        if not address or (re.search(r"\s", address) and not address.startswith("/")):
            raise ToolError(f"{cut(text, 100)!r} is not an address; write one such as https://example.org")
        if address.startswith("/") and not address.startswith("//"):
            from urllib.parse import quote

            return "file://" + quote(address, safe="/?#%=&")
        return ("http://" if _LOCAL.match(address) else "https://") + address
    if scheme[1].lower() == "javascript":
        raise ToolError("javascript: addresses are not opened; use browser_evaluate")
    return address


async def _go(call: Call, move: Any, until: str, where: str) -> str:
    """Load a page; one that takes too long is left as far as it got. Returns a remark on the answer's status."""
    try:
        answer = await move(UNTIL[until or "dom"], call.milliseconds)
        if not until:
            await _rest(call)
    except Exception as error:
        text = str(error)
        if "ERR_ABORTED" in text and call.session.downloads.listed():
            return ", which is a download"
        if "Timeout" not in text:
            raise
        return await _late(call, where, text)
    return f" (HTTP {answer.status})" if answer is not None and answer.status >= 400 else ""


async def _step(call: Call, move: Any, until: str, where: str) -> None:
    """Move in the history. A page that chromium has kept is there at once, and does not load again."""
    history = await (await call.tab.protocol()).send("Page.getNavigationHistory")
    last = 0 if move == call.page.go_back else len(history["entries"]) - 1
    if history["currentIndex"] == last:
        raise ToolError(f"there is no {where.removeprefix('the ')} in this tab's history")
    await _go(call, lambda _, limit: move(wait_until="commit", timeout=limit), "answer", where)
    ready = "complete" if until in ("load", "idle") else "interactive"
    script = f"() => document.readyState === 'complete' || document.readyState === '{ready}'"
    await call.page.wait_for_function(script, timeout=call.milliseconds)


async def _rest(call: Call) -> None:
    try:
        await call.page.wait_for_load_state("load", timeout=min(REST, call.seconds) * 1000)
    except Exception as error:
        if "Timeout" not in str(error):
            raise


async def _late(call: Call, where: str, error: str) -> str:
    if call.tab.leaving is not None:
        call.tab.leaving = None
        await _stop(call)
        raise ToolError(f"{where} did not answer within {call.seconds:g} s; the page is what it was before")
    return f", which had not finished loading after {call.seconds:g} s; this is as far as it got"


async def _stop(call: Call) -> None:
    import asyncio

    try:
        protocol = await call.tab.protocol()
        await asyncio.wait_for(protocol.send("Page.stopLoading"), 1.0)
    except Exception:
        return  # Then it goes on loading, and the next call sees what comes of it.


async def _listed(call: Call) -> list[dict[str, Any]]:
    current = await call.session.current()
    return [
        {"id": tab.id, "url": cut(tab.url, 500), "title": str(look.get("title", ""))[:200], "current": tab is current}
        for tab, look in await call.session.looks()
    ]
