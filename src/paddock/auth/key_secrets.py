"""Generate, recognise, hash and store the secrets of API keys."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import string
from pathlib import Path

SECRET_PREFIX = "pdk_"  # noqa: S105
_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_LENGTH = 43
"""62^43 is more than 2^256, so 43 characters carry 32 random bytes."""
_SECRET_PATTERN = re.compile(rf"{SECRET_PREFIX}[0-9A-Za-z]{{{_LENGTH}}}")
_PREFIX_LENGTH = len(SECRET_PREFIX) + 8


def generate_key_secret() -> str:
    """Generate a random secret."""
    return SECRET_PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))


def looks_like_key_secret(text: str) -> bool:
    """Return whether the text has the form of a secret; other text needs no database lookup."""
    return _SECRET_PATTERN.fullmatch(text) is not None


def key_secret_prefix(secret: str) -> str:
    """Return the part that identifies a key to its owner. The other 35 characters hold 208 bits."""
    return secret[:_PREFIX_LENGTH]


def hash_key_secret(secret: str) -> str:
    """Return the hash stored instead of a secret.

    No salt and no slow hash: 256 random bits cannot be guessed.
    """
    return hashlib.sha256(secret.encode()).hexdigest()


def read_key_secret_file(path: Path) -> str | None:
    """Return the secret stored in a file, or `None`."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def write_key_secret_file(path: Path, secret: str) -> None:
    """Write a secret atomically to a file that only its owner can read."""
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
