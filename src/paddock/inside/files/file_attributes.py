"""Owner, group and mode of files, and file metadata as JSON."""

from __future__ import annotations

import errno
import os
import stat
from functools import lru_cache

from ..errors import ApiError, invalid_body_error
from ..http.json_fields import format_rfc3339, optional_json_field
from .paths import ResolvedPath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class FileAttributes:
    """Mode and owner that a request sets; modes are octal digits read as a number, such as 755."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.mode = _parse_mode(optional_json_field(document, "mode", int))
        self.uid = _parse_identity(optional_json_field(document, "owner", str), "user")
        self.gid = _parse_identity(optional_json_field(document, "group", str), "group")

    def apply(self, file: int | str) -> None:
        """Apply mode and owner to a file or descriptor. Raises `ApiError` for an owner that is not allowed."""
        if self.uid != -1 or self.gid != -1:
            try:
                os.chown(file, self.uid, self.gid)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.EPERM):
                    raise
                raise self._owner_error() from None
        if self.mode is not None:
            os.chmod(file, self.mode)

    def _owner_error(self) -> ApiError:
        requested = [f"the user {user_name_of_uid(self.uid)}"] if self.uid != -1 else []
        requested += [f"the group {group_name_of_gid(self.gid)}"] if self.gid != -1 else []
        own = f"{user_name_of_uid(os.getuid())}, group {group_name_of_gid(os.getgid())}"
        message = f"files of this sandbox can only belong to {own}, not to {' and '.join(requested)}"
        return ApiError(400, "INVALID_FILE_METADATA", message)


def file_metadata_from_status(shown: str, status: os.stat_result) -> dict[str, Any]:
    """Return a file's metadata; a path that is not UTF-8 has U+FFFD in `path` and its exact bytes in `path_raw`."""
    kind = stat.S_IFMT(status.st_mode)
    description: dict[str, Any] = {
        "path": printable_path(shown),
        "size": status.st_size,
        "modified_at": format_rfc3339(status.st_mtime),
        "created_at": format_rfc3339(status.st_ctime),
        "owner": user_name_of_uid(status.st_uid),
        "group": group_name_of_gid(status.st_gid),
        "mode": int(f"{stat.S_IMODE(status.st_mode):o}"),
        "type": {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}.get(kind, "other"),
    }
    if description["path"] != shown:
        description["path_raw"] = percent_encode(shown)
    return description


def read_file_metadata(resolved: ResolvedPath) -> dict[str, Any]:
    return file_metadata_from_status(resolved.display_path, resolved.stat())


def printable_path(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def percent_encode(text: str) -> str:
    safe = b"/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    return "".join(chr(byte) if byte in safe else f"%{byte:02X}" for byte in os.fsencode(text))


@lru_cache(256)
def user_name_of_uid(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


@lru_cache(256)
def group_name_of_gid(gid: int) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _parse_mode(digits: int | None) -> int | None:
    if digits is None or digits == 0:
        return None
    try:
        mode = int(str(digits), 8)
    except ValueError:
        raise invalid_body_error(f"'mode' must be octal digits such as 644, not {digits}") from None
    if not 0 <= mode <= 0o7777:
        raise invalid_body_error(f"'mode' must be octal digits up to 7777, not {digits}")
    return mode


def _parse_identity(name: str | None, kind: str) -> int:
    if not name:
        return -1
    if name.isascii() and name.isdigit():
        return int(name)
    try:
        if kind == "user":
            import pwd

            return pwd.getpwnam(name).pw_uid
        import grp

        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise ApiError(400, "INVALID_FILE_METADATA", f"no {kind} named {name!r}") from None
