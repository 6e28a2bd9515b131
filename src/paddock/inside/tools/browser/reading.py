"""Tools that read the page: its tree of elements, text, HTML, pictures, and what a script makes of it."""

from __future__ import annotations

import os
import re

from ..results import MAX_TEXT, Result, ToolError, shorten
from .journal import cut
from .pictures import MAX_PIXELS, MAX_SIDE, VIEW, Shot
from .targets import ELEMENT, find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..registry import Tool
    from .kit import Call, Kit

MAX_PDF = 100 * 1024 * 1024
_LIMIT = {"type": "integer", "minimum": 1, "maximum": MAX_TEXT, "default": 30_000}
_LIMIT["description"] = "characters at most; what is left out is said"
_TREE = """([limit]) => {
    const text = document.body ? document.body.innerText : '';
    return [String(text).slice(0, limit), String(text).length - limit];
}"""
_OF = """(e, [limit, name]) => {
    const text = String(e[name] || '');
    return [text.slice(0, limit), text.length - limit];
}"""
# A value that JSON cannot carry is shown as the console would.
_SHOWN = """const shown = (value, limit) => {
    let text;
    try { text = JSON.stringify(value, null, 1); } catch (error) {}
    if (text === undefined) text = String(value);
    return [text.slice(0, limit), text.length - limit];
};"""


def tools(kit: Kit) -> list[Tool]:
    return [
        kit.tool(
            "browser_snapshot",
            "The page as a tree of its elements, with roles, names, values, and a ref for each to use in other tools.",
            {"max_chars": _LIMIT, "selector": ELEMENT["selector"]},
            snapshot,
            seconds=10,
            read_only=True,
        ),
        kit.tool(
            "browser_get_text",
            "The visible text of the page, or of one element.",
            {"max_chars": _LIMIT, **ELEMENT},
            text_of,
            read_only=True,
        ),
        kit.tool(
            "browser_get_html",
            "The HTML of the page, or of one element.",
            {"max_chars": _LIMIT, **ELEMENT},
            html_of,
            read_only=True,
        ),
        kit.tool(
            "browser_evaluate",
            "Run JavaScript in the page and return its value: an expression such as document.title, or a function "
            "such as async () => { … }, which gets the element when one is given.",
            {"script": {"type": "string", "minLength": 1, "maxLength": 100_000}, **ELEMENT},
            evaluate,
            required=["script"],
            hands=True,
        ),
        kit.tool(
            "browser_screenshot",
            "A picture of the visible part of the page, of the whole page, or of one element. Clicks can point into "
            "it by its name `shot`.",
            {
                "full_page": {"type": "boolean", "default": False},
                **ELEMENT,
                "scale": {"type": "number", "minimum": 0.1, "maximum": 2, "default": 1},
                "format": {"type": "string", "enum": ["jpeg", "png"], "default": "jpeg"},
                "quality": {"type": "integer", "minimum": 1, "maximum": 100, "default": 80},
            },
            screenshot,
            seconds=10,
            read_only=True,
        ),
        kit.tool(
            "browser_pdf",
            "Print the page into a PDF file.",
            {
                "path": {"type": "string", "default": "page.pdf", "description": "where to write it"},
                "landscape": {"type": "boolean", "default": False},
                "format": {"type": "string", "enum": ["A3", "A4", "A5", "Letter", "Legal"], "default": "A4"},
            },
            pdf,
            seconds=20,
        ),
    ]


async def snapshot(call: Call, max_chars: int, selector: str = "") -> Result:
    # The tree of the whole page is made in any case, because only that gives the refs that other tools know.
    if selector:
        target = await find(call.session, call.tab, {"selector": selector}, call.seconds)
        tree = await target.locator.aria_snapshot(mode="ai", timeout=call.milliseconds)
    else:
        tree = await call.page.aria_snapshot(mode="ai", timeout=call.milliseconds)
    head = f'Page {cut(call.tab.url, 500)} "{(await call.session.peek(call.tab)).get("title", "")}"'
    return Result(f"{head}\n{shorten(tree, max_chars) or '(the page is empty)'}")


async def text_of(call: Call, max_chars: int, **more: Any) -> Result:
    if any(more.get(way) for way in ELEMENT):
        target = await find(call.session, call.tab, more, call.seconds)
        return _bounded(await target.locator.evaluate(_OF, [max_chars, "innerText"]), max_chars)
    return _bounded(await call.page.evaluate(_TREE, [max_chars]), max_chars)


async def html_of(call: Call, max_chars: int, **more: Any) -> Result:
    if not any(more.get(way) for way in ELEMENT):
        more = {"selector": "html"}
    target = await find(call.session, call.tab, more, call.seconds)
    return _bounded(await target.locator.evaluate(_OF, [max_chars, "outerHTML"]), max_chars)


async def evaluate(call: Call, script: str, **more: Any) -> Result:
    if any(more.get(way) for way in ELEMENT):
        target = await find(call.session, call.tab, more, call.seconds)
        value = f"await ({script.strip().rstrip(';')})(element)"
        source = f"async (element, limit) => {{ {_SHOWN} return shown({value}, limit) }}"
        return _bounded(await target.locator.evaluate(source, MAX_TEXT, timeout=call.milliseconds), MAX_TEXT)
    # Asked for in chromium's own way, a script may have statements, is not stopped by what the page forbids its own
    # ones, and is ended when it takes too long.
    protocol = await call.tab.protocol()
    source = _called(script)
    ask = {"expression": source, "awaitPromise": True, "replMode": True, "userGesture": True}
    try:
        answer = await protocol.send("Runtime.evaluate", {**ask, "timeout": call.milliseconds})
    except Exception as error:
        if "Internal error" not in str(error):
            raise
        raise ToolError(f"the script ran for more than {call.seconds:g} s and was ended") from None
    _check(answer)
    if answer["result"].get("subtype") == "promise":
        answer = await protocol.send("Runtime.awaitPromise", {"promiseObjectId": answer["result"]["objectId"]})
        _check(answer)
    found = answer["result"]
    if "objectId" not in found:
        value = found.get("unserializableValue") or found.get("value", found["type"])
        text = _json(value) if "value" in found else str(value)
        return _bounded([text[:MAX_TEXT], len(text) - MAX_TEXT], MAX_TEXT)
    ask = {"objectId": found["objectId"], "returnByValue": True, "arguments": [{"value": MAX_TEXT}]}
    answer = await protocol.send(
        "Runtime.callFunctionOn",
        {**ask, "functionDeclaration": f"function (limit) {{ {_SHOWN} return shown(this, limit) }}"},
    )
    _check(answer)
    return _bounded(answer["result"].get("value"), MAX_TEXT)


async def screenshot(call: Call, full_page: bool, scale: float, format: str, quality: int, **more: Any) -> Result:
    page = call.page
    view = await page.evaluate(VIEW)
    area = [view["x"], view["y"], view["width"], view["height"]]
    if any(more.get(way) for way in ELEMENT):
        target = await find(call.session, call.tab, more, call.seconds)
        await target.locator.scroll_into_view_if_needed(timeout=call.milliseconds)
        view = await page.evaluate(VIEW)
        box = await target.locator.bounding_box(timeout=call.milliseconds)
        if box is None or box["width"] < 1 or box["height"] < 1:
            raise ToolError(f"{target.name} is not visible, so there is nothing to show")
        area = [box["x"] + view["x"], box["y"] + view["y"], box["width"], box["height"]]
    elif full_page:
        area = [0, 0, *view["full"]]
    cropped = area[2] * scale > MAX_SIDE or area[3] * scale > MAX_SIDE
    area[2], area[3] = min(area[2], MAX_SIDE / scale), min(area[3], MAX_SIDE / scale)
    if area[2] * area[3] * scale * scale > MAX_PIXELS:
        cropped = True
        area[3] = MAX_PIXELS / (scale * scale * area[2])
    data, width, height = await _capture(call, area, scale, format, quality)
    shot = call.session.shots.add(Shot(area[0], area[1], scale, width, height))
    note = "; the page is larger than a picture may be, so this is its upper part" if cropped else ""
    text = f"{width}x{height} pixels at scale {scale:g}{note}. Point into it with x, y and shot={shot}."
    structured = {"shot": shot, "width": width, "height": height, "scale": scale}
    return Result(text, images=[(data, f"image/{format}")], structured=structured, shot=shot)


async def pdf(call: Call, path: str, landscape: bool, format: str) -> Result:
    where = call.context.path(path)
    data = await call.page.pdf(landscape=landscape, format=format, print_background=True)
    if len(data) > MAX_PDF:
        raise ToolError(f"the PDF would have {len(data)} bytes; the limit is {MAX_PDF}")
    _write(where, data)
    return Result(f"Printed the page to {where} ({len(data)} bytes).", files=[where], structured={"path": where})


async def _capture(call: Call, area: list[float], scale: float, format: str, quality: int) -> tuple[bytes, int, int]:
    """Ask chromium itself, which scales for nothing and sees beyond the visible part."""
    from binascii import a2b_base64

    protocol = await call.tab.protocol()
    ask: dict[str, Any] = {"format": format, "captureBeyondViewport": True, "optimizeForSpeed": True}
    ask["clip"] = {"x": area[0], "y": area[1], "width": area[2], "height": area[3], "scale": scale}
    if format == "jpeg":
        ask["quality"] = quality
    answer = await protocol.send("Page.captureScreenshot", ask)
    data = a2b_base64(answer["data"])
    return (data, *_size(data, format, area, scale))


def _write(path: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as stream:
        stream.write(data)


def _size(data: bytes, format: str, area: list[float], scale: float) -> tuple[int, int]:
    if format == "png":
        return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        if 0xC0 <= data[at + 1] <= 0xC2:
            return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return round(area[2] * scale), round(area[3] * scale)


def _bounded(found: Any, limit: int) -> Result:
    """A text and how much of it was left out, of which a page might say anything."""
    if not isinstance(found, list) or len(found) != 2 or not isinstance(found[0], str):
        raise ToolError("the page gave no text")
    text, left = found[0][:limit], found[1]
    if isinstance(left, int) and left > 0:
        text += f"\n[… {left} characters left out …]"
    return Result(text)


def _check(answer: dict[str, Any]) -> None:
    """Raise what the script raised."""
    wrong = answer.get("exceptionDetails")
    if wrong:
        said = (wrong.get("exception") or {}).get("description") or wrong.get("text") or "the script failed"
        raise ToolError(cut(str(said).split("\n    at ")[0], 1000))


def _called(script: str) -> str:
    """A function is called; anything else is its own value."""
    source = script.strip().rstrip(";")
    if re.match(r"(async\s+)?(function\b|\([^()]*\)\s*=>|\w+\s*=>)", source):
        return f"({source})()"
    # What begins with a brace is meant as an object, not as a block.
    return f"({source})" if source.startswith("{") else script


def _json(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)
