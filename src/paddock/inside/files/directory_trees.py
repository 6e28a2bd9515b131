"""List, search and remove directory trees without following links."""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def walk_directory_tree(directory: int, depth: int | None, prefix: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Yield the relative path and status of each entry below an open directory, sorted by name."""
    with os.scandir(directory) as entries:
        names = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    for name, is_directory in names:
        path = prefix + name
        try:
            yield path, os.stat(name, dir_fd=directory, follow_symlinks=False)
            if is_directory and (depth is None or depth > 1):
                below = os.open(name, _DIRECTORY, dir_fd=directory)
            else:
                continue
        except OSError:
            continue  # It vanished, or access is denied.
        try:
            yield from walk_directory_tree(below, None if depth is None else depth - 1, path + "/")
        finally:
            os.close(below)


def remove_tree(name: str, parent: int | None) -> None:
    """Remove a directory tree; links are removed, never followed."""
    directory = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        with os.scandir(directory) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for entry, is_directory in found:
            if is_directory:
                remove_tree(entry, directory)
            else:
                os.unlink(entry, dir_fd=directory)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=parent)


def compile_glob(pattern: str) -> re.Pattern[str]:
    """Compile a glob: `*` and `?` within a name, `**` across directories.

    A pattern without a slash is matched against names, one with a slash against relative paths.
    """
    anywhere = "(?:.*/)?" if "/" not in pattern else ""
    return re.compile(anywhere + _translate(pattern.lstrip("/")) + r"\Z", re.DOTALL)


def _translate(pattern: str) -> str:
    out, position = "", 0
    while position < len(pattern):
        if pattern.startswith("**/", position):
            out, position = out + "(?:.*/)?", position + 3
        elif pattern.startswith("**", position):
            out, position = out + ".*", position + 2
        elif pattern[position] == "*":
            out, position = out + "[^/]*", position + 1
        elif pattern[position] == "?":
            out, position = out + "[^/]", position + 1
        elif pattern[position] == "[" and (end := pattern.find("]", position + 2)) > 0:
            inside = pattern[position + 1 : end].replace("\\", "\\\\")
            inside = "^/" + inside[1:] if inside[0] in "!^" else inside
            out, position = f"{out}[{inside}]", end + 1
        elif pattern[position] == "{" and (end := pattern.find("}", position)) > 0:
            choices = "|".join(_translate(choice) for choice in pattern[position + 1 : end].split(","))
            out, position = f"{out}(?:{choices})", end + 1
        else:
            out, position = out + re.escape(pattern[position]), position + 1
    return out
