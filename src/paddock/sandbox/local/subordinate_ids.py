"""Subordinate ids of an ordinary user, which become the users and groups of a sandbox in root mode."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path

from paddock.sandbox.local.root_mode import ID_COUNT

MAPPING_PROGRAMS = ("newuidmap", "newgidmap")


def find_subordinate_ids(etc: Path = Path("/etc")) -> dict[str, tuple[int, int]] | None:
    """Return the first range of users and of groups as (first, count); None if this user can map none."""
    if any(shutil.which(program) is None for program in MAPPING_PROGRAMS):
        return None
    users, groups = (_first_range(etc / name) for name in ("subuid", "subgid"))
    return {"users": users, "groups": groups} if users and groups else None


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _first_range(path: Path) -> tuple[int, int] | None:
    uid = os.geteuid()
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        owner, _, numbers = line.partition(":")
        first, _, count = numbers.partition(":")
        if owner in (user_name(uid), str(uid)) and first.isdigit() and count.isdigit() and int(count):
            return int(first), min(int(count), ID_COUNT - 1)
    return None
