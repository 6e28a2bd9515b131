"""Tools that read the page: snapshot, text, HTML, script results, screenshots and PDF."""

from __future__ import annotations

import os
import re

from ..tool_result import MAX_TEXT, ToolCallResult, ToolError, omit_middle_of_text
from .element_lookup import ELEMENT_SCHEMA, find_element_or_point
from .event_ring_buffer import truncate_with_note
from .page_screenshots import MAX_PIXELS, MAX_SIDE, VIEW_SCRIPT, ScreenshotGeometry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..tool_registry import CallableTool
    from .tool_factory import BrowserCall, BrowserToolFactory

MAX_PDF = 100 * 1024 * 1024
_LIMIT = {"type": "integer", "minimum": 1, "maximum": MAX_TEXT, "default": 30_000}
_LIMIT["description"] = "maximum number of characters; omissions are noted"
_PAGE_TEXT_SCRIPT = """([limit]) => {
    const text = document.body ? document.body.innerText : '';
    return [String(text).slice(0, limit), String(text).length - limit];
}"""
_ELEMENT_SCRIPT = """(e, [limit, name]) => {
    const text = String(e[name] || '');
    return [text.slice(0, limit), text.length - limit];
}"""
# Values that JSON cannot represent are converted with String().
_TO_TEXT_SCRIPT = """const shown = (value, limit) => {
    let text;
    try { text = JSON.stringify(value, null, 1); } catch (error) {}
    if (text === undefined) text = String(value);
    return [text.slice(0, limit), text.length - limit];
};"""


def page_reading_tools(factory: BrowserToolFactory) -> list[CallableTool]:
    return [
        factory.make_tool(
            "browser_snapshot",
            "Return the page as a tree of elements with roles, names, values, and refs for use in other tools.",
            {"max_chars": _LIMIT, "selector": ELEMENT_SCHEMA["selector"]},
            read_snapshot,
            seconds=10,
            read_only=True,
        ),
        factory.make_tool(
            "browser_get_text",
            "Return the visible text of the page or of one element.",
            {"max_chars": _LIMIT, **ELEMENT_SCHEMA},
            read_text,
            read_only=True,
        ),
        factory.make_tool(
            "browser_get_html",
            "Return the HTML of the page or of one element.",
            {"max_chars": _LIMIT, **ELEMENT_SCHEMA},
            read_html,
            read_only=True,
        ),
        factory.make_tool(
            "browser_evaluate",
            "Run JavaScript in the page and return its value: an expression such as document.title, or a function "
            "such as async () => { … }, which receives the element if one is given.",
            {"script": {"type": "string", "minLength": 1, "maxLength": 100_000}, **ELEMENT_SCHEMA},
            evaluate_script,
            required=["script"],
            acts=True,
        ),
        factory.make_tool(
            "browser_screenshot",
            "Take a screenshot of the visible part of the page, the whole page, or one element. Clicks can use its "
            "pixels by passing its `shot` id.",
            {
                "full_page": {"type": "boolean", "default": False},
                **ELEMENT_SCHEMA,
                "scale": {"type": "number", "minimum": 0.1, "maximum": 2, "default": 1},
                "format": {"type": "string", "enum": ["jpeg", "png"], "default": "jpeg"},
                "quality": {"type": "integer", "minimum": 1, "maximum": 100, "default": 80},
            },
            take_screenshot,
            seconds=10,
            read_only=True,
        ),
        factory.make_tool(
            "browser_pdf",
            "Print the page to a PDF file.",
            {
                "path": {"type": "string", "default": "page.pdf", "description": "path of the PDF file"},
                "landscape": {"type": "boolean", "default": False},
                "format": {"type": "string", "enum": ["A3", "A4", "A5", "Letter", "Legal"], "default": "A4"},
            },
            print_pdf,
            seconds=20,
        ),
    ]


async def read_snapshot(call: BrowserCall, max_chars: int, selector: str = "") -> ToolCallResult:
    # Mode `ai` gives the refs that other tools accept.
    if selector:
        target = await find_element_or_point(call.session, call.tab, {"selector": selector}, call.seconds)
        tree = await target.locator.aria_snapshot(mode="ai", timeout=call.milliseconds)
    else:
        tree = await call.page.aria_snapshot(mode="ai", timeout=call.milliseconds)
    title = (await call.session.read_title_and_focus(call.tab)).get("title", "")
    head = f'Page {truncate_with_note(call.tab.url, 500)} "{title}"'
    return ToolCallResult(f"{head}\n{omit_middle_of_text(tree, max_chars) or '(the page is empty)'}")


async def read_text(call: BrowserCall, max_chars: int, **more: Any) -> ToolCallResult:
    if any(more.get(way) for way in ELEMENT_SCHEMA):
        target = await find_element_or_point(call.session, call.tab, more, call.seconds)
        return _bounded_result(await target.locator.evaluate(_ELEMENT_SCRIPT, [max_chars, "innerText"]), max_chars)
    return _bounded_result(await call.page.evaluate(_PAGE_TEXT_SCRIPT, [max_chars]), max_chars)


async def read_html(call: BrowserCall, max_chars: int, **more: Any) -> ToolCallResult:
    if not any(more.get(way) for way in ELEMENT_SCHEMA):
        more = {"selector": "html"}
    target = await find_element_or_point(call.session, call.tab, more, call.seconds)
    return _bounded_result(await target.locator.evaluate(_ELEMENT_SCRIPT, [max_chars, "outerHTML"]), max_chars)


async def evaluate_script(call: BrowserCall, script: str, **more: Any) -> ToolCallResult:
    if any(more.get(way) for way in ELEMENT_SCHEMA):
        target = await find_element_or_point(call.session, call.tab, more, call.seconds)
        value = f"await ({script.strip().rstrip(';')})(element)"
        source = f"async (element, limit) => {{ {_TO_TEXT_SCRIPT} return shown({value}, limit) }}"
        return _bounded_result(await target.locator.evaluate(source, MAX_TEXT, timeout=call.milliseconds), MAX_TEXT)
    # With CDP, the script may contain statements, ignores the page's content security policy, and is ended on timeout.
    protocol = await call.tab.protocol()
    source = _as_expression(script)
    ask = {"expression": source, "awaitPromise": True, "replMode": True, "userGesture": True}
    try:
        answer = await protocol.send("Runtime.evaluate", {**ask, "timeout": call.milliseconds})
    except Exception as error:
        if "Internal error" not in str(error):
            raise
        raise ToolError(f"the script ran for more than {call.seconds:g} s and was ended") from None
    _raise_script_error(answer)
    if answer["result"].get("subtype") == "promise":
        answer = await protocol.send("Runtime.awaitPromise", {"promiseObjectId": answer["result"]["objectId"]})
        _raise_script_error(answer)
    found = answer["result"]
    if "objectId" not in found:
        value = found.get("unserializableValue") or found.get("value", found["type"])
        text = _to_json(value) if "value" in found else str(value)
        return _bounded_result([text[:MAX_TEXT], len(text) - MAX_TEXT], MAX_TEXT)
    ask = {"objectId": found["objectId"], "returnByValue": True, "arguments": [{"value": MAX_TEXT}]}
    answer = await protocol.send(
        "Runtime.callFunctionOn",
        {**ask, "functionDeclaration": f"function (limit) {{ {_TO_TEXT_SCRIPT} return shown(this, limit) }}"},
    )
    _raise_script_error(answer)
    return _bounded_result(answer["result"].get("value"), MAX_TEXT)


async def take_screenshot(
    call: BrowserCall, full_page: bool, scale: float, format: str, quality: int, **more: Any
) -> ToolCallResult:
    page = call.page
    view = await page.evaluate(VIEW_SCRIPT)
    area = [view["x"], view["y"], view["width"], view["height"]]
    if any(more.get(way) for way in ELEMENT_SCHEMA):
        target = await find_element_or_point(call.session, call.tab, more, call.seconds)
        await target.locator.scroll_into_view_if_needed(timeout=call.milliseconds)
        view = await page.evaluate(VIEW_SCRIPT)
        bounds = await target.locator.bounding_box(timeout=call.milliseconds)
        if bounds is None or bounds["width"] < 1 or bounds["height"] < 1:
            raise ToolError(f"{target.name} is not visible, so no screenshot can be taken")
        area = [bounds["x"] + view["x"], bounds["y"] + view["y"], bounds["width"], bounds["height"]]
    elif full_page:
        area = [0, 0, *view["full"]]
    cropped = area[2] * scale > MAX_SIDE or area[3] * scale > MAX_SIDE
    area[2], area[3] = min(area[2], MAX_SIDE / scale), min(area[3], MAX_SIDE / scale)
    if area[2] * area[3] * scale * scale > MAX_PIXELS:
        cropped = True
        area[3] = MAX_PIXELS / (scale * scale * area[2])
    data, width, height = await _capture(call, area, scale, format, quality)
    shot = call.session.screenshots.add(ScreenshotGeometry(area[0], area[1], scale, width, height))
    note = "; the page exceeds the maximum size, so this is its upper part" if cropped else ""
    text = f"{width}x{height} pixels at scale {scale:g}{note}. Use its pixels with x, y and shot={shot}."
    structured = {"shot": shot, "width": width, "height": height, "scale": scale}
    return ToolCallResult(text, images=[(data, f"image/{format}")], structured=structured, shot=shot)


async def print_pdf(call: BrowserCall, path: str, landscape: bool, format: str) -> ToolCallResult:
    where = call.context.absolute_path(path)
    data = await call.page.pdf(landscape=landscape, format=format, print_background=True)
    if len(data) > MAX_PDF:
        raise ToolError(f"the PDF would have {len(data)} bytes; the limit is {MAX_PDF}")
    _write_file(where, data)
    return ToolCallResult(
        f"Printed the page to {where} ({len(data)} bytes).", files=[where], structured={"path": where}
    )


async def _capture(
    call: BrowserCall, area: list[float], scale: float, format: str, quality: int
) -> tuple[bytes, int, int]:
    """Take a screenshot with CDP, which scales for free and captures beyond the viewport."""
    from binascii import a2b_base64

    protocol = await call.tab.protocol()
    ask: dict[str, Any] = {"format": format, "captureBeyondViewport": True, "optimizeForSpeed": True}
    ask["clip"] = {"x": area[0], "y": area[1], "width": area[2], "height": area[3], "scale": scale}
    if format == "jpeg":
        ask["quality"] = quality
    answer = await protocol.send("Page.captureScreenshot", ask)
    data = a2b_base64(answer["data"])
    return (data, *_image_size(data, format, area, scale))


def _write_file(path: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as stream:
        stream.write(data)


def _image_size(data: bytes, format: str, area: list[float], scale: float) -> tuple[int, int]:
    if format == "png":
        return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        if 0xC0 <= data[at + 1] <= 0xC2:
            return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return round(area[2] * scale), round(area[3] * scale)


def _bounded_result(found: Any, limit: int) -> ToolCallResult:
    """Return a result from a text and the number of omitted characters; both come from the page and are checked."""
    if not isinstance(found, list) or len(found) != 2 or not isinstance(found[0], str):
        raise ToolError("the page returned no text")
    text, left = found[0][:limit], found[1]
    if isinstance(left, int) and left > 0:
        text += f"\n[… {left} characters left out …]"
    return ToolCallResult(text)


def _raise_script_error(answer: dict[str, Any]) -> None:
    """Raise ToolError if the script raised an exception."""
    exception = answer.get("exceptionDetails")
    if exception:
        message = (exception.get("exception") or {}).get("description") or exception.get("text") or "the script failed"
        raise ToolError(truncate_with_note(str(message).split("\n    at ")[0], 1000))


def _as_expression(script: str) -> str:
    """Return an expression that calls the script if it is a function, or evaluates it otherwise."""
    source = script.strip().rstrip(";")
    if re.match(r"(async\s+)?(function\b|\([^()]*\)\s*=>|\w+\s*=>)", source):
        return f"({source})()"
    # A leading brace means an object, not a block.
    return f"({source})" if source.startswith("{") else script


def _to_json(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)
