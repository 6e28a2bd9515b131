"""Tools for navigation: addresses, history, tabs, and waiting for a page."""

from __future__ import annotations

import re

from ..tool_result import ToolCallResult, ToolError
from .event_ring_buffer import truncate_with_note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..tool_registry import CallableTool
    from .browser_session import BrowserTab
    from .tool_factory import BrowserCall, BrowserToolFactory

LOAD_REST_SECONDS = 2.0
"""Seconds a page gets to load images and the like, after its text has loaded."""
LOAD_STATES = {"load": "load", "dom": "domcontentloaded", "idle": "networkidle", "answer": "commit"}
_UNTIL_SCHEMA = {
    "type": "string",
    "enum": list(LOAD_STATES),
    "description": "when to return: after everything has loaded (load), the text has (dom), no requests are running "
    "(idle), or the server has answered (answer); default: dom plus a short wait for the rest",
}
_LOCAL_ADDRESS = re.compile(r"(localhost|127\.|\[::1\]|10\.|192\.168\.|[^./]+(:\d+)?(/|$))")


def navigation_tools(factory: BrowserToolFactory) -> list[CallableTool]:
    seen = {"until": _UNTIL_SCHEMA}
    return [
        factory.make_tool(
            "browser_navigate",
            "Open an address in the current tab. A page that does not finish loading in time is reported as it is.",
            {"url": {"type": "string", "minLength": 1, "maxLength": 100_000, "description": "the address"}, **seen},
            open_address,
            required=["url"],
            seconds=15,
            leaves_page=True,
            acts=True,
        ),
        factory.make_tool(
            "browser_back", "Go back to the previous page.", seen, go_back, seconds=10, leaves_page=True, acts=True
        ),
        factory.make_tool(
            "browser_forward", "Go forward to the next page.", seen, go_forward, seconds=10, leaves_page=True, acts=True
        ),
        factory.make_tool(
            "browser_reload", "Reload the page.", seen, reload_page, seconds=15, leaves_page=True, acts=True
        ),
        factory.make_tool(
            "browser_tabs",
            "List, open, close or select tabs.",
            {
                "action": {"type": "string", "enum": ["list", "open", "close", "select"], "default": "list"},
                "tab": {"type": "string", "maxLength": 20, "description": "the tab to close or select, such as t2"},
                "url": {"type": "string", "maxLength": 100_000, "description": "address to open"},
            },
            manage_tabs,
            seconds=15,
            leaves_page=True,
            acts=True,
        ),
        factory.make_tool(
            "browser_wait_for",
            "Wait until a text or an element is visible (or gone), or the page has loaded.",
            {
                "text": {"type": "string", "maxLength": 1000, "description": "text to wait for"},
                "selector": {
                    "type": "string",
                    "maxLength": 2000,
                    "description": "CSS selector of the element to wait for",
                },
                "gone": {"type": "boolean", "default": False, "description": "wait until it is gone instead"},
                "until": {"type": "string", "enum": ["load", "dom", "idle"], "description": "load state to wait for"},
            },
            wait_for_page,
            seconds=10,
            read_only=True,
        ),
    ]


async def open_address(call: BrowserCall, url: str, until: str = "") -> str:
    address = add_url_scheme(url)
    shown = truncate_with_note(address, 300)
    status = await _load_page(
        call, lambda wait, limit: call.page.goto(address, wait_until=wait, timeout=limit), until, shown
    )
    return f"Opened {shown}{status}."


async def go_back(call: BrowserCall, until: str = "") -> str:
    await _move_in_history(call, call.page.go_back, until, "the previous page")
    return "Went back."


async def go_forward(call: BrowserCall, until: str = "") -> str:
    await _move_in_history(call, call.page.go_forward, until, "the next page")
    return "Went forward."


async def reload_page(call: BrowserCall, until: str = "") -> str:
    await _load_page(call, lambda wait, limit: call.page.reload(wait_until=wait, timeout=limit), until, "the page")
    return "Reloaded the page."


async def manage_tabs(call: BrowserCall, action: str, tab: str = "", url: str = "") -> str | ToolCallResult:
    session = call.session
    done = ""
    if action == "open":
        address = add_url_scheme(url) if url else ""
        opened = await session.open_tab()
        call.tab, call.page = opened, opened.page
        done = f"Opened tab {opened.id}."
        if address:
            done += " " + await open_address(call, url)
    elif action in ("close", "select"):
        chosen: BrowserTab = session.find_tab(tab) if tab else call.tab
        if action == "select":
            await session.select_tab(chosen)
            done = f"Tab {chosen.id} is now the current one."
        else:
            if len(session.tabs) == 1:
                # Chromium exits when its last tab is closed.
                await session.open_tab()
            await chosen.page.close()
            done = f"Closed tab {chosen.id}."
        call.tab = await session.current_tab()
    listed = await _list_tabs(call)
    lines = [f'{"*" if one["current"] else " "} {one["id"]} {one["url"]} "{one["title"]}"' for one in listed]
    return ToolCallResult("\n".join(filter(None, [done, "Tabs:", *lines])), structured={"tabs": listed})


async def wait_for_page(call: BrowserCall, gone: bool, text: str = "", selector: str = "", until: str = "") -> str:
    given = [name for name, value in (("text", text), ("selector", selector), ("until", until)) if value]
    if len(given) != 1:
        raise ToolError("give exactly one of text, selector and until")
    if until:
        await call.page.wait_for_load_state(LOAD_STATES[until], timeout=call.milliseconds)
        return "The page has loaded." if until != "idle" else "No requests are running."
    what = f'the text "{truncate_with_note(text, 100)}"' if text else f"the element {truncate_with_note(selector, 100)}"
    locator = call.page.get_by_text(text) if text else call.page.locator(selector)
    # Of several matches, one visible is enough to appear; all must be hidden to be gone.
    seen = locator.filter(visible=True).first
    try:
        await seen.wait_for(state="hidden" if gone else "visible", timeout=call.milliseconds)
    except Exception as error:
        if "Timeout" not in str(error):
            raise
        still = "is still visible" if gone else "has not appeared"
        raise ToolError(f"{what} {still} after {call.seconds:g} s") from None
    return f"{what[:1].upper()}{what[1:]} is {'gone' if gone else 'visible'}."


def add_url_scheme(text: str) -> str:
    """Complete an address that lacks a scheme. Raises ToolError."""
    address = text.strip()
    scheme = re.match(r"([a-zA-Z][a-zA-Z0-9+.-]*):(?!\d+(/|$))", address)
    if scheme is None:
        if not address or (re.search(r"\s", address) and not address.startswith("/")):
            raise ToolError(f"{truncate_with_note(text, 100)!r} is not an address; use one such as https://example.org")
        if address.startswith("/") and not address.startswith("//"):
            from urllib.parse import quote

            return "file://" + quote(address, safe="/?#%=&")
        return ("http://" if _LOCAL_ADDRESS.match(address) else "https://") + address
    if scheme[1].lower() == "javascript":
        raise ToolError("javascript: addresses are not allowed; use browser_evaluate")
    return address


async def _load_page(call: BrowserCall, move: Any, until: str, where: str) -> str:
    """Load a page, or as much of it as loads in time; return a note on the response status."""
    try:
        answer = await move(LOAD_STATES[until or "dom"], call.milliseconds)
        if not until:
            await _wait_for_rest(call)
    except Exception as error:
        text = str(error)
        if "ERR_ABORTED" in text and call.session.downloads.list_downloads():
            return ", which is a download"
        if "Timeout" not in text:
            raise
        return await _handle_timeout(call, where, text)
    return f" (HTTP {answer.status})" if answer is not None and answer.status >= 400 else ""


async def _move_in_history(call: BrowserCall, move: Any, until: str, where: str) -> None:
    """Go back or forward. A page from chromium's cache is shown at once and does not load again."""
    history = await (await call.tab.protocol()).send("Page.getNavigationHistory")
    last = 0 if move == call.page.go_back else len(history["entries"]) - 1
    if history["currentIndex"] == last:
        raise ToolError(f"there is no {where.removeprefix('the ')} in this tab's history")
    await _load_page(call, lambda _, limit: move(wait_until="commit", timeout=limit), "answer", where)
    ready = "complete" if until in ("load", "idle") else "interactive"
    script = f"() => document.readyState === 'complete' || document.readyState === '{ready}'"
    await call.page.wait_for_function(script, timeout=call.milliseconds)


async def _wait_for_rest(call: BrowserCall) -> None:
    try:
        await call.page.wait_for_load_state("load", timeout=min(LOAD_REST_SECONDS, call.seconds) * 1000)
    except Exception as error:
        if "Timeout" not in str(error):
            raise


async def _handle_timeout(call: BrowserCall, where: str, error: str) -> str:
    if call.tab.navigation_request is not None:
        call.tab.navigation_request = None
        await _stop_loading(call)
        raise ToolError(f"{where} did not answer within {call.seconds:g} s; the page has not changed")
    return f", which had not finished loading after {call.seconds:g} s"


async def _stop_loading(call: BrowserCall) -> None:
    import asyncio

    try:
        protocol = await call.tab.protocol()
        await asyncio.wait_for(protocol.send("Page.stopLoading"), 1.0)
    except Exception:
        return  # The page goes on loading; the next call reports the outcome.


async def _list_tabs(call: BrowserCall) -> list[dict[str, Any]]:
    current = await call.session.current_tab()
    return [
        {
            "id": tab.id,
            "url": truncate_with_note(tab.url, 500),
            "title": str(look.get("title", ""))[:200],
            "current": tab is current,
        }
        for tab, look in await call.session.inspect_tabs()
    ]
