"""Tools for what surrounds a page: cookies, downloads, console, network and dialogs."""

from __future__ import annotations

from ..results import Result, ToolError
from .journal import cut

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..registry import Tool
    from .kit import Call, Kit

MAX_COOKIES = 200
_COUNT = {"type": "integer", "minimum": 1, "maximum": 500, "default": 50, "description": "how many of the latest"}
_CLEAR = {"type": "boolean", "default": False, "description": "forget them afterwards"}
_MATCH = {"type": "string", "maxLength": 300, "default": "", "description": "only those that contain this"}


def tools(kit: Kit) -> list[Tool]:
    cookie = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 4000},
            "value": {"type": "string", "maxLength": 8000},
            "url": {"type": "string", "maxLength": 2000, "description": "for which page; the current one if left out"},
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
        kit.tool(
            "browser_cookies",
            "Get the cookies of the current page (or of all), set some, or clear them.",
            {
                "action": {"type": "string", "enum": ["get", "set", "clear"], "default": "get"},
                "cookies": {"type": "array", "maxItems": 100, "items": cookie, "description": "what to set"},
                "all": {"type": "boolean", "default": False, "description": "of every site"},
            },
            cookies,
        ),
        kit.tool(
            "browser_downloads",
            "List the downloads, with their state and path; with `wait`, once none is under way any more.",
            {"wait": {"type": "boolean", "default": False}},
            downloads,
            seconds=30,
            read_only=True,
        ),
        kit.tool(
            "browser_console",
            "The latest messages and errors of the pages' consoles.",
            {"count": _COUNT, "contains": _MATCH, "clear": _CLEAR},
            console,
            answers_dialogs=True,
            read_only=True,
        ),
        kit.tool(
            "browser_network",
            "The latest requests of the pages, with status or error.",
            {"count": _COUNT, "contains": _MATCH, "clear": _CLEAR},
            network,
            answers_dialogs=True,
            read_only=True,
        ),
        kit.tool(
            "browser_dialog",
            "Answer the dialog a page has opened; when there is none, say how the next one is to be answered. "
            "A dialog that is not answered is dismissed by the next other call.",
            {
                "accept": {"type": "boolean", "default": True, "description": "OK, or else Cancel"},
                "text": {"type": "string", "maxLength": 10_000, "description": "what to enter, where it asks for text"},
            },
            dialog,
            answers_dialogs=True,
            hands=True,
        ),
    ]


async def cookies(call: Call, action: str, all: bool, **more: Any) -> Result | str:
    context = call.session.context
    if action == "set":
        given = more.get("cookies") or []
        if not given:
            raise ToolError("give the cookies to set, each with name and value")
        await context.add_cookies([_whole(one, call.tab.page.url) for one in given])
        return f"Set {len(given)} cookie{'s' if len(given) > 1 else ''}."
    found = await (context.cookies() if all else context.cookies(call.tab.page.url))
    if action == "clear":
        for one in found:
            await context.clear_cookies(name=one["name"], domain=one["domain"], path=one["path"])
        return f"Cleared {len(found)} cookie{'s' if len(found) != 1 else ''}."
    lines = [f"{cut(one['name'], 200)}={cut(one['value'], 500)} ({one['domain']}{one['path']})" for one in found]
    if len(lines) > MAX_COOKIES:
        lines[MAX_COOKIES:] = [f"[… {len(lines) - MAX_COOKIES} more …]"]
    return Result("\n".join(lines) or "There are no cookies.", structured={"cookies": found[:MAX_COOKIES]})


async def downloads(call: Call, wait: bool) -> Result:
    kept = call.session.downloads
    late = wait and not await kept.wait(call.seconds)
    found = kept.listed()
    lines = [_line(one) for one in found]
    if late:
        lines.append(f"Not all were done after {call.seconds:g} s.")
    where = f"Downloads go to {kept.directory}."
    return Result("\n".join(lines or ["Nothing was downloaded yet."]) + f"\n{where}", structured={"downloads": found})


async def console(call: Call, count: int, contains: str, clear: bool) -> Result:
    ring = call.session.console.ring
    found = [one for one in ring.since(0) if contains in one["text"]][-count:]
    if clear:
        ring.clear()
    lines = [f"[{one['level']}] {one['text']}{' (' + one['source'] + ')' if one['source'] else ''}" for one in found]
    return Result("\n".join(lines) or "The console is empty.", structured={"messages": found})


async def network(call: Call, count: int, contains: str, clear: bool) -> Result:
    kept = call.session.network
    found = [one for one in kept.listed() if contains in one["url"]][-count:]
    if clear:
        kept.clear()
    lines = [f"{one['method']} {one['url']} {one['error'] or one['status'] or 'under way'}" for one in found]
    return Result("\n".join(lines) or "Nothing was fetched yet.", structured={"requests": found})


async def dialog(call: Call, accept: bool, text: str | None = None) -> str:
    if await call.session.dialogs.answer(accept, text):
        return ""
    call.session.dialogs.plan(accept, text)
    return f"No dialog is open; the next one will be {'accepted' if accept else 'dismissed'}."


def _whole(one: dict[str, Any], url: str) -> dict[str, Any]:
    if one.get("url") or one.get("domain"):
        return {"path": "/", **one} if one.get("domain") else one
    if not url.startswith("http"):
        raise ToolError("a cookie needs url or domain, because the current page has none")
    return {**one, "url": url}


def _line(one: dict[str, Any]) -> str:
    size = f"{one['received']} of {one['size'] or 'unknown'} bytes" if one["state"] == "running" else ""
    said = one["path"] or one["message"] or size
    return f"{one['name']}: {one['state']}{': ' + said if said else ''}"
