"""Tools for cookies, downloads, console, network requests and dialogs."""

from __future__ import annotations

from ..tool_result import ToolCallResult, ToolError
from .event_ring_buffer import truncate_with_note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..tool_registry import CallableTool
    from .tool_factory import BrowserCall, BrowserToolFactory

MAX_COOKIES = 200
_COUNT = {"type": "integer", "minimum": 1, "maximum": 500, "default": 50, "description": "number of latest entries"}
_CLEAR = {"type": "boolean", "default": False, "description": "clear the log afterwards"}
_MATCH = {"type": "string", "maxLength": 300, "default": "", "description": "only entries that contain this text"}


def browser_state_tools(factory: BrowserToolFactory) -> list[CallableTool]:
    cookie = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 4000},
            "value": {"type": "string", "maxLength": 8000},
            "url": {
                "type": "string",
                "maxLength": 2000,
                "description": "the page it is for; the current one if absent",
            },
            "domain": {"type": "string", "maxLength": 300},
            "path": {"type": "string", "maxLength": 1000},
            "expires": {"type": "number", "description": "seconds since 1970"},
            "httpOnly": {"type": "boolean"},
            "secure": {"type": "boolean"},
            "sameSite": {"type": "string", "enum": ["Strict", "Lax", "None"]},
        },
        "required": ["name", "value"],
    }
    return [
        factory.make_tool(
            "browser_cookies",
            "Get the cookies of the current page (or of all), set some, or clear them.",
            {
                "action": {"type": "string", "enum": ["get", "set", "clear"], "default": "get"},
                "cookies": {"type": "array", "maxItems": 100, "items": cookie, "description": "cookies to set"},
                "all": {"type": "boolean", "default": False, "description": "cookies of all sites"},
            },
            manage_cookies,
        ),
        factory.make_tool(
            "browser_downloads",
            "List the downloads with state and path; with `wait`, after the running ones have finished.",
            {"wait": {"type": "boolean", "default": False}},
            list_downloads,
            seconds=30,
            read_only=True,
        ),
        factory.make_tool(
            "browser_console",
            "Return the latest console messages and errors of the pages.",
            {"count": _COUNT, "contains": _MATCH, "clear": _CLEAR},
            read_console,
            answers_dialogs=True,
            read_only=True,
        ),
        factory.make_tool(
            "browser_network",
            "Return the latest network requests of the pages, with status or error.",
            {"count": _COUNT, "contains": _MATCH, "clear": _CLEAR},
            list_requests,
            answers_dialogs=True,
            read_only=True,
        ),
        factory.make_tool(
            "browser_dialog",
            "Answer the dialog a page has opened; if there is none, set the answer of the next one. "
            "An unanswered dialog is dismissed by the next call of another tool.",
            {
                "accept": {"type": "boolean", "default": True, "description": "true for OK, false for Cancel"},
                "text": {"type": "string", "maxLength": 10_000, "description": "text to enter into a prompt"},
            },
            answer_dialog,
            answers_dialogs=True,
            acts=True,
        ),
    ]


async def manage_cookies(call: BrowserCall, action: str, all: bool, **more: Any) -> ToolCallResult | str:
    context = call.session.context
    if action == "set":
        new_cookies = more.get("cookies") or []
        if not new_cookies:
            raise ToolError("pass the cookies to set, each with name and value")
        await context.add_cookies([_complete_cookie(one, call.tab.page.url) for one in new_cookies])
        return f"Set {len(new_cookies)} cookie{'s' if len(new_cookies) > 1 else ''}."
    found = await (context.cookies() if all else context.cookies(call.tab.page.url))
    if action == "clear":
        for one in found:
            await context.clear_cookies(name=one["name"], domain=one["domain"], path=one["path"])
        return f"Cleared {len(found)} cookie{'s' if len(found) != 1 else ''}."
    lines = [
        f"{truncate_with_note(one['name'], 200)}={truncate_with_note(one['value'], 500)} ({one['domain']}{one['path']})"
        for one in found
    ]
    if len(lines) > MAX_COOKIES:
        lines[MAX_COOKIES:] = [f"[… {len(lines) - MAX_COOKIES} more …]"]
    return ToolCallResult("\n".join(lines) or "There are no cookies.", structured={"cookies": found[:MAX_COOKIES]})


async def list_downloads(call: BrowserCall, wait: bool) -> ToolCallResult:
    log = call.session.downloads
    late = wait and not await log.wait_until_finished(call.seconds)
    found = log.list_downloads()
    lines = [_download_line(one) for one in found]
    if late:
        lines.append(f"Some downloads were still running after {call.seconds:g} s.")
    where = f"Download directory: {log.directory}."
    return ToolCallResult("\n".join(lines or ["No downloads yet."]) + f"\n{where}", structured={"downloads": found})


async def read_console(call: BrowserCall, count: int, contains: str, clear: bool) -> ToolCallResult:
    ring = call.session.console.ring
    found = [one for one in ring.entries_since(0) if contains in one["text"]][-count:]
    if clear:
        ring.clear()
    lines = [f"[{one['level']}] {one['text']}{' (' + one['source'] + ')' if one['source'] else ''}" for one in found]
    return ToolCallResult("\n".join(lines) or "The console is empty.", structured={"messages": found})


async def list_requests(call: BrowserCall, count: int, contains: str, clear: bool) -> ToolCallResult:
    log = call.session.network
    found = [one for one in log.list_requests() if contains in one["url"]][-count:]
    if clear:
        log.clear()
    lines = [f"{one['method']} {one['url']} {one['error'] or one['status'] or 'pending'}" for one in found]
    return ToolCallResult("\n".join(lines) or "No requests yet.", structured={"requests": found})


async def answer_dialog(call: BrowserCall, accept: bool, text: str | None = None) -> str:
    if await call.session.dialogs.answer(accept, text):
        return ""
    call.session.dialogs.plan_answer(accept, text)
    return f"No dialog is open; the next one will be {'accepted' if accept else 'dismissed'}."


def _complete_cookie(one: dict[str, Any], url: str) -> dict[str, Any]:
    if one.get("url") or one.get("domain"):
        return {"path": "/", **one} if one.get("domain") else one
    if not url.startswith("http"):
        raise ToolError("a cookie needs url or domain, because the current page has none")
    return {**one, "url": url}


def _download_line(one: dict[str, Any]) -> str:
    size = f"{one['received']} of {one['size'] or 'unknown'} bytes" if one["state"] == "running" else ""
    detail = one["path"] or one["message"] or size
    return f"{one['name']}: {one['state']}{': ' + detail if detail else ''}"
