"""Stored vaults can be opened with their key and for their sandbox only."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.errors import ConfigError, Unavailable
from paddock.model.credential_vault import CredentialVault, VaultContent, VaultCredential
from paddock.network.vault.vault_sealing import VaultSealer

CREDENTIAL = VaultCredential(name="token", value="a-secret-value", revision=1)
CONTENT = VaultContent(
    authority_key="key",
    authority_certificate="certificate",
    vault=CredentialVault(revision=1, credentials=(CREDENTIAL,)),
)


def test_content_is_encrypted_and_read_by_the_next_server(tmp_path: Path) -> None:
    path = tmp_path / "vault.key"
    sealed = VaultSealer.open(path).seal("sb-1", CONTENT)
    assert b"a-secret-value" not in sealed and b"token" not in sealed
    assert VaultSealer.open(path).unseal("sb-1", sealed) == CONTENT
    assert path.stat().st_mode & 0o777 == 0o600
    assert VaultSealer.open(path).seal("sb-1", CONTENT) != sealed


def test_row_of_another_sandbox_a_changed_row_and_another_key_are_refused(tmp_path: Path) -> None:
    sealer = VaultSealer.open(tmp_path / "vault.key")
    sealed = sealer.seal("sb-1", CONTENT)
    changed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    other = VaultSealer.open(tmp_path / "other.key")
    for opener, sandbox, content in ((sealer, "sb-2", sealed), (sealer, "sb-1", changed), (other, "sb-1", sealed)):
        with pytest.raises(Unavailable, match=r"vault\.key"):
            opener.unseal(sandbox, content)


def test_damaged_key_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "vault.key").write_text("no key\n")
    with pytest.raises(ConfigError, match=r"vault\.key"):
        VaultSealer.open(tmp_path / "vault.key")


def test_values_are_not_in_texts_for_logs() -> None:
    assert "a-secret-value" not in repr(CONTENT) and "a-secret-value" not in str(CREDENTIAL)
