"""Translates key names to key codes of the X server's keyboard."""

from __future__ import annotations

from contextlib import contextmanager

from ..tool_result import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .x_display import XConnection

MODIFIER_NAMES = {
    "ctrl": "Control_L", "control": "Control_L", "shift": "Shift_L", "alt": "Alt_L", "option": "Alt_L",
    "super": "Super_L", "win": "Super_L", "windows": "Super_L", "cmd": "Super_L", "command": "Super_L",
    "meta": "Super_L", "altgr": "ISO_Level3_Shift",
}  # fmt: skip
KEY_NAMES = {
    **MODIFIER_NAMES, "enter": "Return", "return": "Return", "esc": "Escape", "escape": "Escape", "tab": "Tab",
    "del": "Delete", "delete": "Delete", "backspace": "BackSpace", "space": "space", "insert": "Insert",
    "ins": "Insert", "home": "Home", "end": "End", "pageup": "Page_Up", "pgup": "Page_Up", "page_up": "Page_Up",
    "pagedown": "Page_Down", "pgdn": "Page_Down", "pgdown": "Page_Down", "page_down": "Page_Down", "up": "Up",
    "down": "Down", "left": "Left", "right": "Right", "arrowup": "Up", "arrowdown": "Down", "arrowleft": "Left",
    "arrowright": "Right", "capslock": "Caps_Lock", "numlock": "Num_Lock", "scrolllock": "Scroll_Lock",
    "printscreen": "Print", "prtsc": "Print", "pause": "Pause", "menu": "Menu", "plus": "plus", "minus": "minus",
    "comma": "comma", "period": "period", **{f"f{number}": f"F{number}" for number in range(1, 25)},
}  # fmt: skip
_CONTROLS = {"\n": "Return", "\t": "Tab"}


def read_keymap(connection: XConnection) -> dict[int, tuple[int, bool]]:
    """Return the key code of each key symbol, and whether shift must be held."""
    known: dict[int, tuple[int, bool]] | None = connection.cache.get("keys")
    if known is not None:
        return known
    information = connection.x.display.info
    first = information.min_keycode
    rows = connection.x.get_keyboard_mapping(first, information.max_keycode - first + 1)
    known = {}
    for level in (0, 1):
        for offset, symbols in enumerate(rows):
            if level < len(symbols) and symbols[level]:
                known.setdefault(symbols[level], (first + offset, level == 1))
    connection.cache["keys"] = known
    return known


def key_symbol_of_name(name: str) -> int:
    """Return the key symbol of a name or a character. Raises ToolError with similar names."""
    from Xlib import XK

    known = KEY_NAMES.get(name.lower())
    if known is not None:
        return int(XK.string_to_keysym(known) or _xkb_symbol(known))
    if len(name) == 1:
        return key_symbol_of_character(name)
    found = XK.string_to_keysym(name) or XK.string_to_keysym(name.lower()) or XK.string_to_keysym(name.capitalize())
    if found:
        return int(found)
    from difflib import get_close_matches

    close = get_close_matches(name.lower(), sorted(KEY_NAMES), 3, 0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else "keys are named like enter, tab, f5, pageup, ctrl+c"
    raise ToolError(f"there is no key {name!r}; {hint}")


def key_symbol_of_character(text: str) -> int:
    """Return the key symbol of one character."""
    from Xlib import XK

    if text in _CONTROLS:
        return int(XK.string_to_keysym(_CONTROLS[text]))
    code = ord(text)
    return code if 0x20 <= code <= 0x7E or 0xA0 <= code <= 0xFF else 0x01000000 | code


def parse_key_combination(connection: XConnection, text: str) -> list[int]:
    """Return the key codes of a combination such as `ctrl+shift+t`, in the order of pressing."""
    names = split_key_combination(text)
    modified = any(name.lower() in MODIFIER_NAMES for name in names[:-1])
    codes: list[int] = []
    for name in names:
        # With a modifier, case is ignored: ctrl+T is not ctrl+shift+t.
        symbol = key_symbol_of_name(name.lower() if modified and len(name) == 1 else name)
        key = read_keymap(connection).get(symbol)
        if key is None:
            raise ToolError(f"the keyboard has no key for {name!r}; input_text writes any character")
        code, shifted = key
        if shifted:
            codes += [shift for shift in modifier_keycodes(connection, ["shift"]) if shift not in codes]
        codes.append(code)
    return codes


def split_key_combination(text: str) -> list[str]:
    """Split a combination at its plus signs; `ctrl++` is ctrl and plus."""
    if text == "+":
        return ["plus"]
    if text.endswith("++"):
        return [*split_key_combination(text[:-2]), "plus"]
    names = [name.strip() for name in text.split("+")]
    if not all(names):
        raise ToolError(f"{text!r} is not a key combination; write it like ctrl+shift+t")
    return names


def modifier_keycodes(connection: XConnection, modifiers: Sequence[str]) -> list[int]:
    codes = []
    for name in modifiers:
        if name.lower() not in MODIFIER_NAMES:
            raise ToolError(f"{name!r} is not a modifier; the modifiers are: {', '.join(MODIFIER_NAMES)}")
        key = read_keymap(connection).get(key_symbol_of_name(name))
        if key is None:
            raise ToolError(f"the keyboard has no key for {name!r}")
        codes.append(key[0])
    return codes


def press_keycodes(connection: XConnection, codes: Sequence[int]) -> None:
    from Xlib import X
    from Xlib.ext import xtest

    for code in codes:
        xtest.fake_input(connection.x, X.KeyPress, code)


def release_keycodes(connection: XConnection, codes: Sequence[int]) -> None:
    from Xlib import X
    from Xlib.ext import xtest

    for code in reversed(codes):
        xtest.fake_input(connection.x, X.KeyRelease, code)


@contextmanager
def hold_keycodes(connection: XConnection, codes: Sequence[int]) -> Iterator[None]:
    """Hold keys down within the context."""
    press_keycodes(connection, codes)
    try:
        yield
    finally:
        release_keycodes(connection, codes)


def _xkb_symbol(name: str) -> int:
    from Xlib import XK

    XK.load_keysym_group("xkb")
    return int(XK.string_to_keysym(name))
