"""Paths of a credential vault's bindings, against paths that programs choose."""

from __future__ import annotations

import time

import pytest

from paddock.model.credential_vault import (
    CredentialAuth,
    CredentialAuthType,
    CredentialMatch,
    CredentialVault,
    VaultContent,
)
from paddock.network.vault.request_matching import compile_bindings, find_bindings
from paddock.network.vault.vault_changes import NewBinding, NewCredential, create_vault

EMPTY = VaultContent(authority_key="", authority_certificate="")


def vault_for(path: str) -> CredentialVault:
    match = CredentialMatch(hosts=("api.example.com",), paths=(path,))
    auth = CredentialAuth(type=CredentialAuthType.BEARER, credential="key")
    content = create_vault(EMPTY, [NewCredential("key", "s3cr3t-value")], [NewBinding("api", match, auth)])
    assert content.vault is not None
    return content.vault


@pytest.mark.parametrize("path", ["/*a*a*a*a*a*b", "/" + "a*" * 400 + "b", "/" + "*" * 500 + "b"])
def test_paths_take_no_longer_for_hostile_requests(path: str) -> None:
    bindings = compile_bindings(vault_for(path))
    began = time.thread_time()
    assert not find_bindings(bindings, "https", "api.example.com", 443, "GET", "/" + "a" * 2000)
    assert time.thread_time() - began < 1.0


def test_wildcards_stand_for_any_text() -> None:
    bindings = compile_bindings(vault_for("/v1/*/items/*"))
    for path, is_found in (("/v1/a/items/b", True), ("/v1/a/b/items/", True), ("/v1/items/b", False), ("/v1/a", False)):
        assert bool(find_bindings(bindings, "https", "api.example.com", 443, "GET", path)) is is_found
