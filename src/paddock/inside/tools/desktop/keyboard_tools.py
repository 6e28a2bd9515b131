"""Tools for the keyboard: press keys and enter text in any script."""

from __future__ import annotations

import time

from ..tool_registry import CallableTool
from ..tool_result import ToolCallResult, ToolError, quote_title
from .key_codes import (
    hold_keycodes,
    key_symbol_of_character,
    modifier_keycodes,
    parse_key_combination,
    press_keycodes,
    read_keymap,
    release_keycodes,
)
from .screen_changes import WAIT_SCHEMA, ScreenChanges
from .window_manager import focused_window, window_class_names
from .x_display import DesktopUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..tool_context import ToolContext
    from .x_display import XConnection

MAX_TYPED_PLAIN = 200
"""Characters of plain text that are typed; longer text is pasted."""
MAX_TYPED = 5000
PASTE_TIMEOUT = 1.5
"""Seconds a window gets to fetch pasted text."""
PASTE_PAUSE = 0.05

_TERMINALS = frozenset(
    "lxterminal gnome-terminal gnome-terminal-server xfce4-terminal mate-terminal konsole qterminal terminator tilix "
    "kitty alacritty deepin-terminal sakura roxterm terminology guake".split()
)
_OLD_TERMINALS = frozenset("xterm uxterm urxvt rxvt st st-256color aterm eterm".split())


def keyboard_tools(context: ToolContext) -> list[CallableTool]:
    return [
        CallableTool(
            "press_keys",
            "Press a key or a combination, such as ctrl+shift+t, enter or F5; several in sequence are separated by "
            "spaces, such as 'ctrl+a delete'.",
            {
                "keys": {"type": "string", "minLength": 1, "maxLength": 1000},
                "repeat": {"type": "integer", "minimum": 1, "maximum": 100, "default": 1},
                "wait": WAIT_SCHEMA,
            },
            ["keys"],
            press_keys,
            input=True,
            changes_screen=True,
        ),
        CallableTool(
            "input_text",
            "Enter text into the active window. Any script and emoji work: text that is not short ASCII is pasted "
            "through the clipboard, which is restored afterwards.",
            {
                "text": {"type": "string", "minLength": 1, "maxLength": 1_000_000},
                "enter": {"type": "boolean", "default": False, "description": "Press enter afterwards."},
                "method": {"type": "string", "enum": ["auto", "keys", "clipboard"], "default": "auto"},
                "wait": WAIT_SCHEMA,
            },
            ["text"],
            input_text,
            input=True,
            changes_screen=True,
        ),
    ]


def press_keys(context: ToolContext, keys: str, repeat: int, wait: float) -> ToolCallResult:
    names = keys.split()
    if not names:
        raise ToolError("keys must name at least one key; the space bar is called space")
    effects = ScreenChanges(context)
    with context.display.connection() as connection:
        combinations = [parse_key_combination(connection, name) for name in names]
        for _ in range(repeat):
            for codes in combinations:
                press_keycodes(connection, codes)
                release_keycodes(connection, codes)
        connection.x.sync()
    times = f" {repeat} times" if repeat > 1 else ""
    return effects.wait_and_describe(f"pressed {' '.join(names)}{times}", wait, keys=names)


def input_text(context: ToolContext, text: str, enter: bool, method: str, wait: float) -> ToolCallResult:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    effects = ScreenChanges(context)
    with context.display.connection() as connection:
        _check_focus(connection)
        plain = is_typable(connection, text)
    if method == "keys" and not plain:
        odd = next(c for c in text if not c.isascii() or not (c.isprintable() or c in "\n\t"))
        raise ToolError(f"the keyboard has no key for {odd!r}; use method auto or clipboard")
    if method == "keys" or (method == "auto" and plain and len(text) <= MAX_TYPED_PLAIN):
        way = "keys"
        _type_text(context, text)
    else:
        way = "clipboard"
        if not _paste_text(context, text):
            if not plain or method == "clipboard" or len(text) > MAX_TYPED:
                raise ToolError(_not_pasted_message(context))
            way = "keys"
            _type_text(context, text)
    if enter:
        with context.display.connection() as connection:
            codes = parse_key_combination(connection, "enter")
            press_keycodes(connection, codes)
            release_keycodes(connection, codes)
            connection.x.sync()
    what = f"wrote {len(text)} characters by {'typing' if way == 'keys' else 'pasting'}"
    return effects.wait_and_describe(what, wait, characters=len(text), method=way)


def is_typable(connection: XConnection, text: str) -> bool:
    """True if all characters are ASCII and on the keyboard."""
    if not text.isascii():
        return False
    known = read_keymap(connection)
    return all(key_symbol_of_character(character) in known for character in set(text))


def _type_text(context: ToolContext, text: str) -> None:
    """Type in portions, so that other threads can use the display and the window can keep up."""
    for begin in range(0, len(text), 100):
        context.caller.raise_if_disconnected()
        with context.display.connection() as connection:
            known = read_keymap(connection)
            shift = modifier_keycodes(connection, ["shift"])
            for character in text[begin : begin + 100]:
                code, shifted = known[key_symbol_of_character(character)]
                with hold_keycodes(connection, shift if shifted else ()):
                    press_keycodes(connection, [code])
                    release_keycodes(connection, [code])
            connection.x.sync()


def _paste_text(context: ToolContext, text: str) -> bool:
    """Put the text on the clipboard, press the paste keys, and restore the clipboard; False if it was not pasted."""
    clipboard = context.clipboard
    with context.display.connection() as connection:
        window, _ = focused_window(connection)
        keys, primary = _paste_keys(connection, window)
    try:
        before = clipboard.contents()
    except DesktopUnavailable:
        raise
    except ToolError:
        before = {}  # The clipboard's owner does not answer, so its contents cannot be restored.
    owner = clipboard.own_text(text, primary=primary)
    try:
        started_at = time.monotonic()
        with context.display.connection() as connection:
            codes = parse_key_combination(connection, keys)
            press_keycodes(connection, codes)
            release_keycodes(connection, codes)
            connection.x.sync()
        was_pasted = owner.wait_until_pasted(started_at, window, PASTE_TIMEOUT)
        time.sleep(PASTE_PAUSE)
    finally:
        clipboard.restore(before, owner)
    return was_pasted


def _paste_keys(connection: XConnection, window: int) -> tuple[str, bool]:
    """Return the paste keys of the window, and whether it pastes the primary selection."""
    if window:
        names = window_class_names(connection, connection.x.create_resource_object("window", window))
        lowered = {name.lower() for name in names}
        if lowered & _OLD_TERMINALS:
            return "shift+insert", True
        if lowered & _TERMINALS:
            return "ctrl+shift+v", False
    return "ctrl+v", False


def _check_focus(connection: XConnection) -> None:
    from Xlib import X

    if focused_window(connection)[0]:
        return
    managed = connection.root.get_property(connection.atom("_NET_ACTIVE_WINDOW"), X.AnyPropertyType, 0, 1) is not None
    holder = connection.x.get_input_focus().focus
    if managed or holder in (X.NONE, X.PointerRoot) or holder == connection.root:
        raise ToolError("no window has the focus; click into one or use activate_window first")


def _not_pasted_message(context: ToolContext) -> str:
    with context.display.connection() as connection:
        _, title = focused_window(connection)
    return f"the active window {quote_title(title)} did not take the text; click into a text field first"
