"""Translates Windows paths to sandbox paths: drives are directories, names are case-insensitive."""

from __future__ import annotations

import os
import re

from ..tool_result import ToolError

_DRIVE = re.compile(r"([A-Za-z]):(.*)", re.DOTALL)
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
_FORBIDDEN = frozenset('<>:"|?*')
MAX_ENTRIES = 100_000
"""Directory entries that are searched for a name that differs in case only."""


def is_windows_path(path: str) -> bool:
    return "\\" in path or _DRIVE.match(path) is not None


def to_unix_path(path: str) -> str:
    """Translate a Windows path to a Unix path; a Unix path is returned unchanged."""
    if not is_windows_path(path):
        return path
    if path.startswith("\\\\"):
        raise ToolError(f"{path!r} is a network path, which is not available; use a path such as C:\\users")
    if path.startswith("\\"):
        raise ToolError(f"{path!r} has no drive; add one, such as C:{path}")
    drive = _DRIVE.match(path)
    if drive is None:
        return "/".join(_split_parts(path))
    drive_letter, rest = drive[1].lower(), drive[2]
    if rest and rest[0] not in "\\/":
        raise ToolError(
            f"{path!r} is relative to a drive's directory; use an absolute path such as {drive[1]}:\\{rest}"
        )
    directory = os.path.realpath(_drive_root(drive_letter, path))
    parts: list[str] = []
    for part in _split_parts(rest):
        if part == "..":
            del parts[-1:]
        else:
            parts.append(part)
    for part in parts:
        directory = os.path.join(directory, _existing_name(directory, part))
    return directory


def to_windows_path(path: str) -> str:
    """Return the Windows path of a Unix path: on C: if it is in that drive, otherwise on Z:."""
    path = os.path.normpath(path)
    own = os.path.realpath(os.path.join(wine_prefix(), "dosdevices", "c:"))
    real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    if real == own or real.startswith(own + "/"):
        path, drive_letter = real[len(own) :], "C:"
    else:
        drive_letter = "Z:"
    return drive_letter + (path or "/").replace("/", "\\")


def wine_prefix() -> str:
    return os.environ.get("WINEPREFIX") or os.path.expanduser("~/.wine")


def _drive_root(drive_letter: str, path: str) -> str:
    devices = os.path.join(wine_prefix(), "dosdevices")
    root = os.path.join(devices, f"{drive_letter}:")
    if os.path.isdir(root):
        return root
    try:
        known = sorted(name.upper() for name in os.listdir(devices) if re.fullmatch("[a-z]:", name))
    except OSError:
        known = []
    raise ToolError(f"there is no drive {drive_letter.upper()}: for {path!r}; there are: {', '.join(known) or 'none'}")


def _split_parts(path: str) -> list[str]:
    parts = [part for part in re.split(r"[\\/]", path) if part not in ("", ".")]
    for part in parts:
        bad = next((character for character in part if character in _FORBIDDEN or ord(character) < 32), "")
        if bad:
            raise ToolError(f"{bad!r} is not allowed in Windows file names: {part!r}")
        if _RESERVED.fullmatch(part):
            raise ToolError(f"{part!r} is a reserved device name on Windows")
        if part != ".." and part != part.rstrip(". "):
            raise ToolError(f"Windows file names must not end with a dot or a space: {part!r}")
    return parts


def _existing_name(directory: str, name: str) -> str:
    """Return a name in the case it has in the directory."""
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
