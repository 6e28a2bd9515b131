"""Names of keys, and where they are on the X server's keyboard."""

from __future__ import annotations

from contextlib import contextmanager

from .results import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .display import Connection

MODIFIERS = {
    "ctrl": "Control_L", "control": "Control_L", "shift": "Shift_L", "alt": "Alt_L", "option": "Alt_L",
    "super": "Super_L", "win": "Super_L", "windows": "Super_L", "cmd": "Super_L", "command": "Super_L",
    "meta": "Super_L", "altgr": "ISO_Level3_Shift",
}  # fmt: skip
NAMES = {
    **MODIFIERS, "enter": "Return", "return": "Return", "esc": "Escape", "escape": "Escape", "tab": "Tab",
    "del": "Delete", "delete": "Delete", "backspace": "BackSpace", "space": "space", "insert": "Insert",
    "ins": "Insert", "home": "Home", "end": "End", "pageup": "Page_Up", "pgup": "Page_Up", "page_up": "Page_Up",
    "pagedown": "Page_Down", "pgdn": "Page_Down", "pgdown": "Page_Down", "page_down": "Page_Down", "up": "Up",
    "down": "Down", "left": "Left", "right": "Right", "arrowup": "Up", "arrowdown": "Down", "arrowleft": "Left",
    "arrowright": "Right", "capslock": "Caps_Lock", "numlock": "Num_Lock", "scrolllock": "Scroll_Lock",
    "printscreen": "Print", "prtsc": "Print", "pause": "Pause", "menu": "Menu", "plus": "plus", "minus": "minus",
    "comma": "comma", "period": "period", **{f"f{number}": f"F{number}" for number in range(1, 25)},
}  # fmt: skip
_CONTROLS = {"\n": "Return", "\t": "Tab"}


def keymap(connection: Connection) -> dict[int, tuple[int, bool]]:
    """Return for each key symbol the code of its key, and whether shift must be held."""
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


def symbol_of(name: str) -> int:
    """Return the key symbol of a name or a character. Raises ToolError that suggests what was meant."""
    from Xlib import XK

    known = NAMES.get(name.lower())
    if known is not None:
        return int(XK.string_to_keysym(known) or _extra(known))
    if len(name) == 1:
        return character(name)
    found = XK.string_to_keysym(name) or XK.string_to_keysym(name.lower()) or XK.string_to_keysym(name.capitalize())
    if found:
        return int(found)
    from difflib import get_close_matches

    close = get_close_matches(name.lower(), sorted(NAMES), 3, 0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else "keys are named like enter, tab, f5, pageup, ctrl+c"
    raise ToolError(f"there is no key {name!r}; {hint}")


def character(text: str) -> int:
    """Return the key symbol of one character."""
    from Xlib import XK

    if text in _CONTROLS:
        return int(XK.string_to_keysym(_CONTROLS[text]))
    code = ord(text)
    return code if 0x20 <= code <= 0x7E or 0xA0 <= code <= 0xFF else 0x01000000 | code


def combination(connection: Connection, text: str) -> list[int]:
    """Return the codes of the keys of `ctrl+shift+t`, in the order in which they are pressed."""
    names = split(text)
    modified = any(name.lower() in MODIFIERS for name in names[:-1])
    codes: list[int] = []
    for name in names:
        # With a modifier, T is the key of that letter: ctrl+T is not ctrl+shift+t.
        symbol = symbol_of(name.lower() if modified and len(name) == 1 else name)
        place = keymap(connection).get(symbol)
        if place is None:
            raise ToolError(f"the keyboard has no key for {name!r}; input_text writes any character")
        code, shifted = place
        if shifted:
            codes += [shift for shift in keycodes_of(connection, ["shift"]) if shift not in codes]
        codes.append(code)
    return codes


def split(text: str) -> list[str]:
    """Take `ctrl++` apart as ctrl and plus."""
    if text == "+":
        return ["plus"]
    if text.endswith("++"):
        return [*split(text[:-2]), "plus"]
    names = [name.strip() for name in text.split("+")]
    if not all(names):
        raise ToolError(f"{text!r} is not a combination of keys; write it like ctrl+shift+t")
    return names


def keycodes_of(connection: Connection, modifiers: Sequence[str]) -> list[int]:
    codes = []
    for name in modifiers:
        if name.lower() not in MODIFIERS:
            raise ToolError(f"{name!r} is not a modifier; there are: {', '.join(MODIFIERS)}")
        place = keymap(connection).get(symbol_of(name))
        if place is None:
            raise ToolError(f"the keyboard has no key for {name!r}")
        codes.append(place[0])
    return codes


def press(connection: Connection, codes: Sequence[int]) -> None:
    from Xlib import X
    from Xlib.ext import xtest

    for code in codes:
        xtest.fake_input(connection.x, X.KeyPress, code)


def release(connection: Connection, codes: Sequence[int]) -> None:
    from Xlib import X
    from Xlib.ext import xtest

    for code in reversed(codes):
        xtest.fake_input(connection.x, X.KeyRelease, code)


@contextmanager
def held(connection: Connection, codes: Sequence[int]) -> Iterator[None]:
    """Hold keys down meanwhile."""
    press(connection, codes)
    try:
        yield
    finally:
        release(connection, codes)


def _extra(name: str) -> int:
    from Xlib import XK

    XK.load_keysym_group("xkb")
    return int(XK.string_to_keysym(name))
