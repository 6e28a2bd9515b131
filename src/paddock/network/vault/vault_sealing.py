"""Encrypt what is stored of credential vaults."""

from __future__ import annotations

from pathlib import Path

from paddock.auth.sealing import SecretSealer, UnsealError
from paddock.errors import Unavailable
from paddock.model.credential_vault import VaultContent


class VaultSealer:
    """Seals contents for one sandbox each: a row of another sandbox cannot be opened in its place."""

    def __init__(self, sealer: SecretSealer) -> None:
        self._sealer = sealer

    @classmethod
    def open(cls, path: Path) -> VaultSealer:
        """Read the key from a file, or create it; without the file, stored vaults cannot be read."""
        return cls(SecretSealer.open(path))

    def seal(self, sandbox_id: str, content: VaultContent) -> bytes:
        return self._sealer.seal(sandbox_id, content.model_dump_json().encode())

    def unseal(self, sandbox_id: str, sealed: bytes) -> VaultContent:
        """Return the content. Raises `Unavailable` if it was sealed with another key or changed."""
        try:
            plain = self._sealer.unseal(sandbox_id, sealed)
        except UnsealError:
            raise Unavailable(
                f"the credential vault of {sandbox_id} cannot be decrypted: vault.key in the data directory was "
                "replaced; restore it, or create a new sandbox"
            ) from None
        return VaultContent.model_validate_json(plain)
