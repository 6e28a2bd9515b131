"""Translates key names to Playwright's names."""

from __future__ import annotations

from ..tool_result import ToolError

_NAMES = {
    "ctrl": "Control",
    "control": "Control",
    "alt": "Alt",
    "option": "Alt",
    "shift": "Shift",
    "meta": "Meta",
    "cmd": "Meta",
    "command": "Meta",
    "super": "Meta",
    "win": "Meta",
    "enter": "Enter",
    "return": "Enter",
    "esc": "Escape",
    "escape": "Escape",
    "tab": "Tab",
    "space": "Space",
    "backspace": "Backspace",
    "delete": "Delete",
    "del": "Delete",
    "insert": "Insert",
    "home": "Home",
    "end": "End",
    "pageup": "PageUp",
    "page_up": "PageUp",
    "pagedown": "PageDown",
    "page_down": "PageDown",
    "up": "ArrowUp",
    "down": "ArrowDown",
    "left": "ArrowLeft",
    "right": "ArrowRight",
    "arrowup": "ArrowUp",
    "arrowdown": "ArrowDown",
    "arrowleft": "ArrowLeft",
    "arrowright": "ArrowRight",
    "capslock": "CapsLock",
    "plus": "+",
    "minus": "-",
    **{f"f{number}": f"F{number}" for number in range(1, 13)},
}
_MODIFIERS = ("Control", "Alt", "Shift", "Meta")


def playwright_key_combination(text: str) -> str:
    """Translate a combination such as `ctrl+shift+t` to Playwright's notation. Raises ToolError."""
    words = [word.strip() for word in text.replace("++", "+plus").split("+")] if text != "+" else ["plus"]
    keys = [_playwright_key(word, text) for word in words]
    for word in keys[:-1]:
        if word not in _MODIFIERS:
            raise ToolError(f"in {text!r} all keys but the last must be ctrl, alt, shift or meta")
    if len(keys) > 1 and len(keys[-1]) == 1 and "Shift" not in keys:
        keys[-1] = keys[-1].lower()
    return "+".join(keys)


def playwright_modifiers(words: list[str]) -> list[str]:
    found = []
    for word in words:
        found.append(_playwright_key(word, word))
        if found[-1] not in _MODIFIERS:
            raise ToolError(f"{word!r} is not a modifier; use ctrl, alt, shift or meta")
    return found


def _playwright_key(word: str, text: str) -> str:
    known = _NAMES.get(word.lower())
    if known is not None:
        return known
    if len(word) == 1 and word.isascii() and word.isprintable():
        return word
    from difflib import get_close_matches

    close = get_close_matches(word.lower(), _NAMES, 3, 0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else "write keys as in ctrl+a, Enter, F5, ArrowDown"
    more = "; use browser_input to enter text" if len(word) > 1 or not word.isascii() else ""
    raise ToolError(f"there is no key {word[:40]!r} in {text[:60]!r}; {hint}{more}")
