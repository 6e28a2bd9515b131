"""Tools that act on a page: click, enter text, select, scroll, drag and upload."""

from __future__ import annotations

import os

from ..tool_result import ToolError
from .element_lookup import ELEMENT_SCHEMA, POINT_SCHEMA, find_element_or_point, prefix_schema_properties
from .event_ring_buffer import truncate_with_note
from .key_names import playwright_key_combination, playwright_modifiers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..tool_registry import CallableTool
    from .tool_factory import BrowserCall, BrowserToolFactory

MAX_TEXT = 100_000
MAX_TYPED = 2000
"""Characters that are typed one by one; the rest is inserted at once."""
_KEYS = {"type": "array", "maxItems": 4, "items": {"type": "string", "maxLength": 20}}
_BUTTON = {"type": "string", "enum": ["left", "right", "middle"], "default": "left"}


def page_action_tools(factory: BrowserToolFactory) -> list[CallableTool]:
    target_schema = {**ELEMENT_SCHEMA, **POINT_SCHEMA}
    return [
        factory.make_tool(
            "browser_click",
            "Click an element, given by ref, selector or text, or a point of the page.",
            {
                **target_schema,
                "button": _BUTTON,
                "clicks": {"type": "integer", "minimum": 1, "maximum": 3, "default": 1},
                "modifiers": {**_KEYS, "default": [], "description": "keys to hold, such as ctrl"},
            },
            click_element,
            acts=True,
        ),
        factory.make_tool(
            "browser_input",
            "Enter text into a field: replaces its content, or with `type` appends it key by key. "
            "Without an element, enters it into the focused field.",
            {
                "value": {"type": "string", "maxLength": MAX_TEXT, "description": "the text, in any script"},
                **ELEMENT_SCHEMA,
                "type": {"type": "boolean", "default": False, "description": "type it key by key and append it"},
                "submit": {"type": "boolean", "default": False, "description": "press Enter afterwards"},
            },
            enter_text,
            required=["value"],
            seconds=10,
            acts=True,
        ),
        factory.make_tool(
            "browser_press_keys",
            "Press a key or a combination such as ctrl+a, Enter or F5, in an element or in the focused one.",
            {
                "keys": {"type": "string", "minLength": 1, "maxLength": 60},
                **ELEMENT_SCHEMA,
                "times": {"type": "integer", "minimum": 1, "maximum": 100, "default": 1},
            },
            press_keys,
            required=["keys"],
            acts=True,
        ),
        factory.make_tool(
            "browser_hover", "Move the mouse over an element or a point.", target_schema, hover_over, acts=True
        ),
        factory.make_tool(
            "browser_select",
            "Select one or more options of a list field, by label or value.",
            {
                **ELEMENT_SCHEMA,
                "options": {"type": "array", "minItems": 1, "maxItems": 100, "items": {"type": "string"}},
            },
            select_options,
            required=["options"],
            acts=True,
        ),
        factory.make_tool(
            "browser_scroll",
            "Scroll the page, or the element at a point, by pixels or to an end; or scroll an element into view.",
            {
                "direction": {"type": "string", "enum": ["down", "up", "left", "right", "top", "bottom"]},
                "pixels": {"type": "integer", "minimum": 1, "maximum": 100_000, "default": 500},
                **target_schema,
            },
            scroll_page,
            acts=True,
        ),
        factory.make_tool(
            "browser_drag",
            "Drag one element or point to another.",
            {**prefix_schema_properties(target_schema, "from_"), **prefix_schema_properties(target_schema, "to_")},
            drag_to,
            seconds=10,
            acts=True,
        ),
        factory.make_tool(
            "browser_upload",
            "Choose files of this computer for a file field, or for the chooser that a click on the element opens.",
            {
                **ELEMENT_SCHEMA,
                "paths": {"type": "array", "minItems": 1, "maxItems": 50, "items": {"type": "string"}},
            },
            upload_files,
            required=["paths"],
            seconds=15,
            acts=True,
        ),
    ]


async def click_element(call: BrowserCall, button: str, clicks: int, **more: Any) -> str:
    held = playwright_modifiers(more.pop("modifiers"))
    target = await find_element_or_point(call.session, call.tab, more, call.seconds)
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


async def enter_text(call: BrowserCall, value: str, submit: bool, **more: Any) -> str:
    typed = more.pop("type")
    keyboard = call.page.keyboard
    if not any(more.get(name) for name in ELEMENT_SCHEMA):
        await (_type_text(keyboard, value) if typed else keyboard.insert_text(value))
        name = "the focused element"
    else:
        target = await find_element_or_point(call.session, call.tab, more, call.seconds)
        name = target.name
        if typed:
            await target.locator.focus(timeout=call.milliseconds)
            await keyboard.press("End")
            await _type_text(keyboard, value)
        else:
            await target.locator.fill(value, timeout=call.milliseconds)
    if submit:
        await keyboard.press("Enter")
    return f"Entered {len(value)} characters into {name}{' and pressed Enter' if submit else ''}."


async def press_keys(call: BrowserCall, keys: str, times: int, **more: Any) -> str:
    pressed = playwright_key_combination(keys)
    name = ""
    if any(more.get(way) for way in ELEMENT_SCHEMA):
        target = await find_element_or_point(call.session, call.tab, more, call.seconds)
        await target.locator.focus(timeout=call.milliseconds)
        name = f" in {target.name}"
    for _ in range(times):
        await call.page.keyboard.press(pressed)
    return f"Pressed {keys}{f' {times} times' if times > 1 else ''}{name}."


async def hover_over(call: BrowserCall, **more: Any) -> str:
    target = await find_element_or_point(call.session, call.tab, more, call.seconds)
    if target.point is None:
        await target.locator.hover(timeout=call.milliseconds)
    else:
        await call.page.mouse.move(*target.point)
    return f"The mouse is over {target.name}."


async def select_options(call: BrowserCall, options: list[str], **more: Any) -> str:
    target = await find_element_or_point(call.session, call.tab, more, call.seconds)
    chosen = await target.locator.select_option(options, timeout=call.milliseconds)
    return f"Selected {', '.join(truncate_with_note(value, 100) for value in chosen) or 'nothing'} in {target.name}."


async def scroll_page(call: BrowserCall, pixels: int, direction: str = "", **more: Any) -> str:
    located = any(more.get(way) is not None for way in (*ELEMENT_SCHEMA, "x", "y"))
    target = await find_element_or_point(call.session, call.tab, more, call.seconds) if located else None
    if not direction:
        if target is None or target.locator is None:
            raise ToolError("give a direction to scroll, or an element to scroll into view")
        await target.locator.scroll_into_view_if_needed(timeout=call.milliseconds)
        return f"{target.name} is visible. {await _scroll_position(call)}"
    if direction in ("top", "bottom"):
        end = "0" if direction == "top" else "document.documentElement.scrollHeight"
        await call.page.evaluate(f"() => scrollTo({{top: {end}, behavior: 'instant'}})")
        return f"Scrolled to the {direction}. {await _scroll_position(call)}"
    # Wheel events go to the element under the mouse pointer.
    size = await call.page.evaluate("() => [innerWidth, innerHeight]")
    position = await target.center(call.seconds) if target is not None else (size[0] / 2, size[1] / 2)
    await call.page.mouse.move(*position)
    sign = -1 if direction in ("up", "left") else 1
    across = direction in ("left", "right")
    await call.page.mouse.wheel(sign * pixels if across else 0, 0 if across else sign * pixels)
    await call.page.evaluate("() => new Promise(done => setTimeout(done, 60))")
    return f"Scrolled {direction} by {pixels}. {await _scroll_position(call)}"


async def drag_to(call: BrowserCall, **more: Any) -> str:
    start = await find_element_or_point(call.session, call.tab, more, call.seconds, "from_")
    end = await find_element_or_point(call.session, call.tab, more, call.seconds, "to_")
    if start.locator is not None and end.locator is not None:
        await start.locator.drag_to(end.locator, timeout=call.milliseconds)
    else:
        mouse = call.page.mouse
        await mouse.move(*await start.center(call.seconds))
        await mouse.down()
        try:
            # Pages recognise a drag only if it moves in steps.
            await mouse.move(*await end.center(call.seconds), steps=10)
        finally:
            await mouse.up()
    return f"Dragged {start.name} to {end.name}."


async def upload_files(call: BrowserCall, paths: list[str], **more: Any) -> str:
    files = [call.context.absolute_path(path) for path in paths]
    _check_files(files)
    if not any(more.get(way) for way in ELEMENT_SCHEMA):
        more["selector"] = "input[type=file]"
    target = await find_element_or_point(call.session, call.tab, more, call.seconds)
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
            raise ToolError(f"the file {path} does not exist")


async def _type_text(keyboard: Any, value: str) -> None:
    await keyboard.type(value[:MAX_TYPED])
    if len(value) > MAX_TYPED:
        await keyboard.insert_text(value[MAX_TYPED:])


async def _scroll_position(call: BrowserCall) -> str:
    at = await call.page.evaluate(
        "() => [Math.round(scrollY), Math.round(scrollY + innerHeight), document.documentElement.scrollHeight]"
    )
    return f"The page shows {at[0]} to {at[1]} of {at[2]} pixels."
