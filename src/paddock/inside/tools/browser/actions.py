"""Tools that touch the page: click, type, choose, scroll, drag and upload."""

from __future__ import annotations

import os

from ..results import ToolError
from .journal import cut
from .keys import combination, modifiers
from .targets import ELEMENT, POINT, find, renamed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..registry import Tool
    from .kit import Call, Kit

MAX_TEXT = 100_000
TYPED = 2000
"""Characters that may be typed one by one; more are entered at once."""
_KEYS = {"type": "array", "maxItems": 4, "items": {"type": "string", "maxLength": 20}}
_BUTTON = {"type": "string", "enum": ["left", "right", "middle"], "default": "left"}


def tools(kit: Kit) -> list[Tool]:
    place = {**ELEMENT, **POINT}
    return [
        kit.tool(
            "browser_click",
            "Click an element, found by its ref, a selector or its text, or a point of the page.",
            {
                **place,
                "button": _BUTTON,
                "clicks": {"type": "integer", "minimum": 1, "maximum": 3, "default": 1},
                "modifiers": {**_KEYS, "default": [], "description": "keys to hold, such as ctrl"},
            },
            click,
            hands=True,
        ),
        kit.tool(
            "browser_input",
            "Enter text into a field: replaces what is in it, or with `type` types key by key at its end. "
            "Without an element, types into what has the focus.",
            {
                "value": {"type": "string", "maxLength": MAX_TEXT, "description": "the text, in any script"},
                **ELEMENT,
                "type": {"type": "boolean", "default": False, "description": "type it key by key, and add to the rest"},
                "submit": {"type": "boolean", "default": False, "description": "press Enter afterwards"},
            },
            enter,
            required=["value"],
            seconds=10,
            hands=True,
        ),
        kit.tool(
            "browser_press_keys",
            "Press a key or a combination such as ctrl+a, Enter or F5, in an element or in what has the focus.",
            {
                "keys": {"type": "string", "minLength": 1, "maxLength": 60},
                **ELEMENT,
                "times": {"type": "integer", "minimum": 1, "maximum": 100, "default": 1},
            },
            press,
            required=["keys"],
            hands=True,
        ),
        kit.tool("browser_hover", "Move the mouse over an element or a point.", place, hover, hands=True),
        kit.tool(
            "browser_select",
            "Choose one or more options of a list field, by label or value.",
            {**ELEMENT, "options": {"type": "array", "minItems": 1, "maxItems": 100, "items": {"type": "string"}}},
            select,
            required=["options"],
            hands=True,
        ),
        kit.tool(
            "browser_scroll",
            "Scroll the page or what is under a point, by pixels or to an end; or scroll until an element is visible.",
            {
                "direction": {"type": "string", "enum": ["down", "up", "left", "right", "top", "bottom"]},
                "pixels": {"type": "integer", "minimum": 1, "maximum": 100_000, "default": 500},
                **place,
            },
            scroll,
            hands=True,
        ),
        kit.tool(
            "browser_drag",
            "Drag one element or point to another.",
            {**renamed(place, "from_"), **renamed(place, "to_")},
            drag,
            seconds=10,
            hands=True,
        ),
        kit.tool(
            "browser_upload",
            "Put files of this computer into a file field, or into the chooser that a click on the element opens.",
            {
                **ELEMENT,
                "paths": {"type": "array", "minItems": 1, "maxItems": 50, "items": {"type": "string"}},
            },
            upload,
            required=["paths"],
            seconds=15,
            hands=True,
        ),
    ]


async def click(call: Call, button: str, clicks: int, **more: Any) -> str:
    held = modifiers(more.pop("modifiers"))
    target = await find(call.session, call.tab, more, call.seconds)
    if target.point is None:
        await target.locator.click(button=button, click_count=clicks, modifiers=held, timeout=call.milliseconds)
    else:
        for key in held:
            await call.page.keyboard.down(key)
        try:
            await call.page.mouse.click(*target.point, button=button, click_count=clicks)
        finally:
            for key in reversed(held):
                await call.page.keyboard.up(key)
    how = {1: "Clicked", 2: "Double-clicked", 3: "Triple-clicked"}[clicks]
    return f"{how} {target.name}{'' if button == 'left' else f' with the {button} button'}."


async def enter(call: Call, value: str, submit: bool, **more: Any) -> str:
    typed = more.pop("type")
    keyboard = call.page.keyboard
    if not any(more.get(name) for name in ELEMENT):
        await (_typed(keyboard, value) if typed else keyboard.insert_text(value))
        name = "what has the focus"
    else:
        target = await find(call.session, call.tab, more, call.seconds)
        name = target.name
        if typed:
            await target.locator.focus(timeout=call.milliseconds)
            await keyboard.press("End")
            await _typed(keyboard, value)
        else:
            await target.locator.fill(value, timeout=call.milliseconds)
    if submit:
        await keyboard.press("Enter")
    return f"Entered {len(value)} characters into {name}{' and pressed Enter' if submit else ''}."


async def press(call: Call, keys: str, times: int, **more: Any) -> str:
    pressed = combination(keys)
    name = ""
    if any(more.get(way) for way in ELEMENT):
        target = await find(call.session, call.tab, more, call.seconds)
        await target.locator.focus(timeout=call.milliseconds)
        name = f" in {target.name}"
    for _ in range(times):
        await call.page.keyboard.press(pressed)
    return f"Pressed {keys}{f' {times} times' if times > 1 else ''}{name}."


async def hover(call: Call, **more: Any) -> str:
    target = await find(call.session, call.tab, more, call.seconds)
    if target.point is None:
        await target.locator.hover(timeout=call.milliseconds)
    else:
        await call.page.mouse.move(*target.point)
    return f"The mouse is over {target.name}."


async def select(call: Call, options: list[str], **more: Any) -> str:
    target = await find(call.session, call.tab, more, call.seconds)
    chosen = await target.locator.select_option(options, timeout=call.milliseconds)
    return f"Chose {', '.join(cut(value, 100) for value in chosen) or 'nothing'} in {target.name}."


async def scroll(call: Call, pixels: int, direction: str = "", **more: Any) -> str:
    located = any(more.get(way) is not None for way in (*ELEMENT, "x", "y"))
    target = await find(call.session, call.tab, more, call.seconds) if located else None
    if not direction:
        if target is None or target.locator is None:
            raise ToolError("say where to scroll: give a direction, or an element that is to be visible")
        await target.locator.scroll_into_view_if_needed(timeout=call.milliseconds)
        return f"{target.name} is in sight. {await _position(call)}"
    if direction in ("top", "bottom"):
        end = "0" if direction == "top" else "document.documentElement.scrollHeight"
        await call.page.evaluate(f"() => scrollTo({{top: {end}, behavior: 'instant'}})")
        return f"Scrolled to the {direction}. {await _position(call)}"
    # The wheel goes to what is under the mouse, as it would for a person.
    size = await call.page.evaluate("() => [innerWidth, innerHeight]")
    place = await target.place(call.seconds) if target is not None else (size[0] / 2, size[1] / 2)
    await call.page.mouse.move(*place)
    sign = -1 if direction in ("up", "left") else 1
    across = direction in ("left", "right")
    await call.page.mouse.wheel(sign * pixels if across else 0, 0 if across else sign * pixels)
    await call.page.evaluate("() => new Promise(done => setTimeout(done, 60))")
    return f"Scrolled {direction} by {pixels}. {await _position(call)}"


async def drag(call: Call, **more: Any) -> str:
    start = await find(call.session, call.tab, more, call.seconds, "from_")
    end = await find(call.session, call.tab, more, call.seconds, "to_")
    if start.locator is not None and end.locator is not None:
        await start.locator.drag_to(end.locator, timeout=call.milliseconds)
    else:
        mouse = call.page.mouse
        await mouse.move(*await start.place(call.seconds))
        await mouse.down()
        try:
            # Pages take a drag for one only when they see it move.
            await mouse.move(*await end.place(call.seconds), steps=10)
        finally:
            await mouse.up()
    return f"Dragged {start.name} to {end.name}."


async def upload(call: Call, paths: list[str], **more: Any) -> str:
    files = [call.context.path(path) for path in paths]
    _check_files(files)
    if not any(more.get(way) for way in ELEMENT):
        more["selector"] = "input[type=file]"
    target = await find(call.session, call.tab, more, call.seconds)
    is_field = await target.locator.evaluate("e => e.tagName === 'INPUT' && e.type === 'file'")
    if is_field:
        await target.locator.set_input_files(files, timeout=call.milliseconds)
    else:
        async with call.page.expect_file_chooser(timeout=call.milliseconds) as opening:
            await target.locator.click(timeout=call.milliseconds)
        chooser = await opening.value
        await chooser.set_files(files, timeout=call.milliseconds)
    return f"Gave {len(files)} file{'s' if len(files) > 1 else ''} to {target.name}."


def _check_files(paths: list[str]) -> None:
    for path in paths:
        if not os.path.isfile(path):
            raise ToolError(f"there is no file {path} to upload")


async def _typed(keyboard: Any, value: str) -> None:
    await keyboard.type(value[:TYPED])
    if len(value) > TYPED:
        await keyboard.insert_text(value[TYPED:])


async def _position(call: Call) -> str:
    at = await call.page.evaluate(
        "() => [Math.round(scrollY), Math.round(scrollY + innerHeight), document.documentElement.scrollHeight]"
    )
    return f"The page shows {at[0]} to {at[1]} of {at[2]} pixels."
