"""Encrypt what is stored of credential vaults, with a key that is not in the database."""

from __future__ import annotations

import base64
import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from paddock.auth.key_secrets import read_key_secret_file, write_key_secret_file
from paddock.errors import ConfigError, Unavailable
from paddock.model.credential_vault import VaultContent

_NONCE_BYTES = 12
_KEY_BITS = 256


class VaultSealer:
    """Seals contents for one sandbox each: a row of another sandbox cannot be opened in its place."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    @classmethod
    def open(cls, path: Path) -> VaultSealer:
        """Read the key from a file, or create it; without the file, stored vaults cannot be read."""
        text = read_key_secret_file(path)
        if not text:
            text = base64.urlsafe_b64encode(AESGCM.generate_key(_KEY_BITS)).decode()
            write_key_secret_file(path, text)
        try:
            return cls(base64.urlsafe_b64decode(text))
        except ValueError:
            raise ConfigError(f"{path.name} in the data directory is no key; restore it from a backup") from None

    def seal(self, sandbox_id: str, content: VaultContent) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, content.model_dump_json().encode(), sandbox_id.encode())

    def unseal(self, sandbox_id: str, sealed: bytes) -> VaultContent:
        """Return the content. Raises `Unavailable` if it was sealed with another key or changed."""
        try:
            plain = self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], sandbox_id.encode())
        except InvalidTag:
            raise Unavailable(
                f"the credential vault of {sandbox_id} cannot be decrypted: vault.key in the data directory was "
                "replaced; restore it, or create a new sandbox"
            ) from None
        return VaultContent.model_validate_json(plain)
