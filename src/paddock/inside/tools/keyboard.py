"""Tools for the keyboard: press keys, and write text of any script."""

from __future__ import annotations

import time

from .display import DesktopGone
from .effects import WAIT, Effects
from .keys import character, combination, held, keycodes_of, keymap, press, release
from .manager import app_of, focus
from .registry import Tool
from .results import Result, ToolError, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .context import Context
    from .display import Connection

TYPED = 200
"""Characters up to which plain text is typed; what is longer is pasted."""
TYPED_AT_MOST = 5000
TAKING = 1.5
"""Seconds in which a window is expected to fetch what it is told to paste."""
PAUSE = 0.05

_TERMINALS = frozenset(
    "lxterminal gnome-terminal gnome-terminal-server xfce4-terminal mate-terminal konsole qterminal terminator tilix "
    "kitty alacritty deepin-terminal sakura roxterm terminology guake".split()
)
_OLD_TERMINALS = frozenset("xterm uxterm urxvt rxvt st st-256color aterm eterm".split())


def tools(context: Context) -> list[Tool]:
    return [
        Tool(
            "press_keys",
            "Press keys together, such as ctrl+shift+t, enter or F5; several one after another with spaces between, "
            "such as 'ctrl+a delete'.",
            {
                "keys": {"type": "string", "minLength": 1, "maxLength": 1000},
                "repeat": {"type": "integer", "minimum": 1, "maximum": 100, "default": 1},
                "wait": WAIT,
            },
            ["keys"],
            press_keys,
            input=True,
            changes_screen=True,
        ),
        Tool(
            "input_text",
            "Write text into the window that has the keyboard. Any script and emoji are fine: what is not plain and "
            "short goes through the clipboard, which gets its old contents back.",
            {
                "text": {"type": "string", "minLength": 1, "maxLength": 1_000_000},
                "enter": {"type": "boolean", "default": False, "description": "Press enter afterwards."},
                "method": {"type": "string", "enum": ["auto", "keys", "clipboard"], "default": "auto"},
                "wait": WAIT,
            },
            ["text"],
            input_text,
            input=True,
            changes_screen=True,
        ),
    ]


def press_keys(context: Context, keys: str, repeat: int, wait: float) -> Result:
    names = keys.split()
    if not names:
        raise ToolError("keys must name at least one key; the space bar is called space")
    effects = Effects(context)
    with context.display.session() as connection:
        combinations = [combination(connection, name) for name in names]
        for _ in range(repeat):
            for codes in combinations:
                press(connection, codes)
                release(connection, codes)
        connection.x.sync()
    times = f" {repeat} times" if repeat > 1 else ""
    return effects.result(f"pressed {' '.join(names)}{times}", wait, keys=names)


def input_text(context: Context, text: str, enter: bool, method: str, wait: float) -> Result:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    effects = Effects(context)
    with context.display.session() as connection:
        _check_focus(connection)
        plain = typeable(connection, text)
    if method == "keys" and not plain:
        odd = next(c for c in text if not c.isascii() or not (c.isprintable() or c in "\n\t"))
        raise ToolError(f"the keyboard has no key for {odd!r}; use method auto or clipboard")
    if method == "keys" or (method == "auto" and plain and len(text) <= TYPED):
        way = "keys"
        _type(context, text)
    else:
        way = "clipboard"
        if not _paste(context, text):
            if not plain or method == "clipboard" or len(text) > TYPED_AT_MOST:
                raise ToolError(_refusal(context))
            way = "keys"
            _type(context, text)
    if enter:
        with context.display.session() as connection:
            codes = combination(connection, "enter")
            press(connection, codes)
            release(connection, codes)
            connection.x.sync()
    what = f"wrote {len(text)} characters by {'typing' if way == 'keys' else 'pasting'}"
    return effects.result(what, wait, characters=len(text), method=way)


def typeable(connection: Connection, text: str) -> bool:
    """Whether every character is plain and on the keyboard."""
    if not text.isascii():
        return False
    known = keymap(connection)
    return all(character(letter) in known for letter in set(text))


def _type(context: Context, text: str) -> None:
    """Type in portions, between which others may use the display and the window may keep up."""
    for begin in range(0, len(text), 100):
        context.caller.check()
        with context.display.session() as connection:
            known = keymap(connection)
            shift = keycodes_of(connection, ["shift"])
            for letter in text[begin : begin + 100]:
                code, shifted = known[character(letter)]
                with held(connection, shift if shifted else ()):
                    press(connection, [code])
                    release(connection, [code])
            connection.x.sync()


def _paste(context: Context, text: str) -> bool:
    """Put the text on the clipboard, tell the window to paste, and give the clipboard back."""
    clipboard = context.clipboard
    with context.display.session() as connection:
        window, _ = focus(connection)
        keys, primary = _paste_keys(connection, window)
    try:
        before = clipboard.contents()
    except DesktopGone:
        raise
    except ToolError:
        before = {}  # Whoever owns the clipboard does not give it away; then it cannot be given back either.
    owner = clipboard.own_text(text, primary=primary)
    try:
        begun = time.monotonic()
        with context.display.session() as connection:
            codes = combination(connection, keys)
            press(connection, codes)
            release(connection, codes)
            connection.x.sync()
        taken = owner.wait_taken(begun, window, TAKING)
        time.sleep(PAUSE)
    finally:
        clipboard.restore(before, owner)
    return taken


def _paste_keys(connection: Connection, window: int) -> tuple[str, bool]:
    """Return how the window is told to paste, and whether it takes the selection rather than the clipboard."""
    if window:
        names = app_of(connection, connection.x.create_resource_object("window", window))
        lowered = {name.lower() for name in names}
        if lowered & _OLD_TERMINALS:
            return "shift+insert", True
        if lowered & _TERMINALS:
            return "ctrl+shift+v", False
    return "ctrl+v", False


def _check_focus(connection: Connection) -> None:
    from Xlib import X

    if focus(connection)[0]:
        return
    managed = connection.root.get_property(connection.atom("_NET_ACTIVE_WINDOW"), X.AnyPropertyType, 0, 1) is not None
    holder = connection.x.get_input_focus().focus
    if managed or holder in (X.NONE, X.PointerRoot) or holder == connection.root:
        raise ToolError("no window has the keyboard; click into one or use activate_window first")


def _refusal(context: Context) -> str:
    with context.display.session() as connection:
        _, title = focus(connection)
    return f"the active window {quoted(title)} did not take the text; click into a text field first"
