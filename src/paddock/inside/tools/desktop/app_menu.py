"""Reads the desktop's application menu (.desktop files)."""

from __future__ import annotations

import os
import shlex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

MAX_ENTRIES = 500


def list_app_menu_entries() -> Iterator[dict[str, Any]]:
    """Yield the visible entries of the application menu."""
    home = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    data_directories = [home, *(os.environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share").split(":")]
    seen: set[str] = set()
    for data_directory in data_directories:
        directory = os.path.join(data_directory, "applications")
        try:
            names = sorted(os.listdir(directory))[:MAX_ENTRIES]
        except OSError:
            continue
        for name in names:
            if name.endswith(".desktop") and name not in seen:
                seen.add(name)
                entry = _entry(os.path.join(directory, name))
                if entry is not None:
                    yield entry


def _entry(path: str) -> dict[str, Any] | None:
    fields: dict[str, str] = {}
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            section = ""
            for line in stream.read(65536).splitlines():
                if line.startswith("["):
                    section = line.strip()
                elif section == "[Desktop Entry]" and "=" in line:
                    key, _, value = line.partition("=")
                    fields.setdefault(key.strip(), value.strip())
    except OSError:
        return None
    hidden = "true" in (fields.get("NoDisplay", "").lower(), fields.get("Hidden", "").lower())
    if hidden or fields.get("Type") != "Application" or not fields.get("Exec"):
        return None
    try:
        argv = [word for word in shlex.split(fields["Exec"]) if not (len(word) == 2 and word[0] == "%")]
    except ValueError:
        return None
    if fields.get("Terminal", "").lower() == "true":
        argv = ["x-terminal-emulator", "-e", *argv]
    identifier = os.path.basename(path)[: -len(".desktop")]
    named = {"id": identifier, "name": fields.get("Name", identifier), "comment": fields.get("Comment", "")}
    return {**named, "argv": argv} if argv else None


def find_app_menu_entry(app: str) -> dict[str, Any] | None:
    """Return the menu entry with this name or id."""
    wanted = app.lower()
    for entry in list_app_menu_entries():
        if wanted in (entry["id"].lower(), entry["name"].lower()):
            return entry
    return None
