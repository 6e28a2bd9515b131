"""Makes, recognises and keeps secrets."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import string
from pathlib import Path

PREFIX = "pdk_"
_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_LENGTH = 43
"""62^43 is more than 2^256, so 43 characters carry 32 random bytes."""
_SHAPE = re.compile(rf"{PREFIX}[0-9A-Za-z]{{{_LENGTH}}}")
_SHOWN = len(PREFIX) + 8


def new_secret() -> str:
    """A secret nobody can guess."""
    return PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))


def looks_like_secret(text: str) -> bool:
    """Whether it could be one of ours, so that anything else costs no look into the database."""
    return _SHAPE.fullmatch(text) is not None


def shown_prefix(secret: str) -> str:
    """The part by which its owner recognises it. The 35 characters that are left are still 208 bits."""
    return secret[:_SHOWN]


def digest(secret: str) -> str:
    """What is stored instead of the secret. No salt and no slow hash: there is nothing to guess in 256 random bits."""
    return hashlib.sha256(secret.encode()).hexdigest()


def read_secret(path: Path) -> str | None:
    """The secret kept in a file, if there is one."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def write_secret(path: Path, secret: str) -> None:
    """Keep a secret in a file that only its owner can read, whole or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(secret + "\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
