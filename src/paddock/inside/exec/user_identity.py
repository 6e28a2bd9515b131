"""User and groups of a command, if they differ from the daemon's."""

from __future__ import annotations

import os

from ..errors import invalid_body_error, not_supported_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pwd


class UserIdentity:
    """A user with its groups, and the variables that follow from it."""

    __slots__ = ("gid", "groups", "uid", "variables")

    def __init__(self, uid: int, gid: int | None, account: pwd.struct_passwd | None) -> None:
        self.uid = uid
        self.gid = gid if gid is not None else account.pw_gid if account is not None else uid
        self.groups = [] if gid is not None or account is None else os.getgrouplist(account.pw_name, account.pw_gid)
        self.variables = {} if account is None else _variables_of(account)


def find_user_identity(uid: int | None, gid: int | None, name: str | None) -> UserIdentity | None:
    """Return the identity of a command, or None if it is the daemon's own.

    Without a group, a user has the groups of its account. Raises `ApiError` if the daemon cannot switch to it.
    """
    account = _find_account(uid, name)
    if name is not None and account is not None:
        uid = account.pw_uid
    if uid is None or (uid == os.getuid() and gid in (None, os.getgid())):
        return None
    if os.geteuid() != 0 or not _can_switch():
        raise not_supported_error(
            f"this sandbox runs as uid {os.getuid()} only; create it with user: root to run commands as other users"
        )
    identity = UserIdentity(uid, gid, account)
    for kind, number in (("uid", identity.uid), ("gid", identity.gid)):
        if not _is_mapped(number, f"/proc/self/{kind}_map"):
            raise not_supported_error(
                f"this sandbox has no {kind} {number}; the host's user that runs Paddock needs subordinate ids, "
                "65536 of them in /etc/subuid and /etc/subgid, and the package uidmap"
            )
    return identity


def _find_account(uid: int | None, name: str | None) -> pwd.struct_passwd | None:
    import pwd

    try:
        if name is not None:
            return pwd.getpwnam(name)
        return pwd.getpwuid(uid) if uid is not None else None
    except (KeyError, OverflowError):
        if name is None:
            return None
        raise invalid_body_error(f"there is no user {name!r} in this sandbox") from None


def _can_switch() -> bool:
    """Return whether the daemon has the capability CAP_SETUID."""
    with open("/proc/self/status") as file:
        effective = next((line.split()[1] for line in file if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> 7 & 1)


def _is_mapped(number: int, id_map: str) -> bool:
    with open(id_map) as file:
        ranges = [[int(word) for word in line.split()] for line in file]
    return any(first <= number < first + count for first, _, count in ranges)


def _variables_of(account: pwd.struct_passwd) -> dict[str, str]:
    return {
        "HOME": account.pw_dir or "/",
        "USER": account.pw_name,
        "LOGNAME": account.pw_name,
        "SHELL": account.pw_shell or "/bin/sh",
    }
