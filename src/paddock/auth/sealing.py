"""Encrypt secrets before they are stored, with a key that is not in the database."""

from __future__ import annotations

import base64
import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from paddock.auth.key_secrets import read_key_secret_file, write_key_secret_file
from paddock.errors import ConfigError

_NONCE_BYTES = 12
_KEY_BITS = 256


class UnsealError(Exception):
    """The content was sealed with another key or for another owner, or was changed."""


class SecretSealer:
    """Seals contents for one owner each: a content of another owner cannot be opened in its place."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    @classmethod
    def open(cls, path: Path) -> SecretSealer:
        """Read the key from a file, or create it; without the file, sealed contents cannot be read."""
        text = read_key_secret_file(path)
        if not text:
            text = base64.urlsafe_b64encode(AESGCM.generate_key(_KEY_BITS)).decode()
            write_key_secret_file(path, text)
        try:
            return cls(base64.urlsafe_b64decode(text))
        except ValueError:
            raise ConfigError(f"{path.name} in the data directory is no key; restore it from a backup") from None

    def seal(self, owner: str, content: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, content, owner.encode())

    def unseal(self, owner: str, sealed: bytes) -> bytes:
        """Return the content. Raises `UnsealError`."""
        try:
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], owner.encode())
        except (InvalidTag, ValueError):
            raise UnsealError from None
