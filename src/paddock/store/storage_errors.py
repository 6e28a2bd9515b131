"""Translate errors of database and file system into user errors."""

from __future__ import annotations

import errno
from pathlib import Path

from sqlalchemy.exc import DBAPIError, IntegrityError

from paddock.errors import Conflict, PaddockError, Unavailable

_ADVICE = {
    "database or disk is full": "The disk that holds {path} is full; free some space and try again.",
    "disk I/O error": "The disk that holds {path} fails or is full; check it, then try again.",
    "database is locked": "Another program is writing to {path}; stop it and try again.",
    "file is not a database": "{path} is not a database; move it away or restore a copy.",
    "malformed": "{path} is damaged; restore a copy, or save what can be with `sqlite3 {path} .recover`.",
    "readonly database": "{path} cannot be written; check its permissions.",
    "unable to open database": "{path} cannot be opened; check the permissions of its directory.",
}


def explain_storage_error(error: OSError | DBAPIError, path: Path) -> PaddockError:
    """Return the user error for `error`."""
    if isinstance(error, IntegrityError):
        return Conflict("Something with this name or key exists already.")
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return Unavailable(_ADVICE["database or disk is full"].format(path=path))
        return Unavailable(f"{error.filename or path} cannot be used: {error.strerror}.")
    text = str(error.orig)
    for sign, advice in _ADVICE.items():
        if sign in text:
            return Unavailable(advice.format(path=path))
    return Unavailable(f"The database {path} fails: {text}.")
