"""Where Windows paths lead: drives are directories of the box, and names differ in case alone for nobody."""

from __future__ import annotations

import os
import re

from .results import ToolError

_DRIVE = re.compile(r"([A-Za-z]):(.*)", re.DOTALL)
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
_FORBIDDEN = frozenset('<>:"|?*')
MAX_ENTRIES = 100_000
"""Names of a directory that are looked through for one that differs in case."""


def is_windows_path(path: str) -> bool:
    return "\\" in path or _DRIVE.match(path) is not None


def unix_path(path: str) -> str:
    """Return where a path leads that may be written as on Windows; one as on Unix stays as it is."""
    if not is_windows_path(path):
        return path
    if path.startswith("\\\\"):
        raise ToolError(f"{path!r} is on the network, and there is none; write a path such as C:\\users")
    if path.startswith("\\"):
        raise ToolError(f"{path!r} names no drive; write it with one, such as C:{path}")
    drive = _DRIVE.match(path)
    if drive is None:
        return "/".join(_parts(path))
    letter, rest = drive[1].lower(), drive[2]
    if rest and rest[0] not in "\\/":
        raise ToolError(f"{path!r} is relative to a drive's directory; write it whole, as in {drive[1]}:\\{rest}")
    directory = os.path.realpath(_root(letter, path))
    parts: list[str] = []
    for part in _parts(rest):
        if part == "..":
            del parts[-1:]
        else:
            parts.append(part)
    for part in parts:
        directory = os.path.join(directory, _actual(directory, part))
    return directory


def windows_path(path: str) -> str:
    """Return how Windows programs call a path: on C: what is there, anything else on Z:."""
    path = os.path.normpath(path)
    own = os.path.realpath(os.path.join(prefix(), "dosdevices", "c:"))
    real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    if real == own or real.startswith(own + "/"):
        path, letter = real[len(own) :], "C:"
    else:
        letter = "Z:"
    return letter + (path or "/").replace("/", "\\")


def prefix() -> str:
    return os.environ.get("WINEPREFIX") or os.path.expanduser("~/.wine")


def _root(letter: str, path: str) -> str:
    devices = os.path.join(prefix(), "dosdevices")
    root = os.path.join(devices, f"{letter}:")
    if os.path.isdir(root):
        return root
    try:
        known = sorted(name.upper() for name in os.listdir(devices) if re.fullmatch("[a-z]:", name))
    except OSError:
        known = []
    raise ToolError(f"there is no drive {letter.upper()}: for {path!r}; there are: {', '.join(known) or 'none'}")


def _parts(path: str) -> list[str]:
    parts = [part for part in re.split(r"[\\/]", path) if part not in ("", ".")]
    for part in parts:
        bad = next((letter for letter in part if letter in _FORBIDDEN or ord(letter) < 32), "")
        if bad:
            raise ToolError(f"{bad!r} cannot be in the name of a file on Windows: {part!r}")
        if _RESERVED.fullmatch(part):
            raise ToolError(f"{part!r} is the name of a device on Windows, and of no file")
        if part != ".." and part != part.rstrip(". "):
            raise ToolError(f"a name on Windows does not end with a dot or a space: {part!r}")
    return parts


def _actual(directory: str, name: str) -> str:
    """Return the name as it is written in the directory; names that differ in case alone are the same."""
    if os.path.lexists(os.path.join(directory, name)):
        return name
    wanted = name.casefold()
    try:
        with os.scandir(directory) as entries:
            for number, entry in enumerate(entries):
                if entry.name.casefold() == wanted:
                    return entry.name
                if number > MAX_ENTRIES:
                    break
    except OSError:
        pass
    return name
