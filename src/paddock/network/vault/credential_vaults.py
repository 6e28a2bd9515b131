"""The credential vaults of all sandboxes: stored encrypted, changed by clients, used by the relay of connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from paddock.errors import Conflict, VaultDisabled
from paddock.model.credential_vault import CredentialVault, VaultContent
from paddock.model.sandbox import Sandbox
from paddock.network.vault.certificate_authority import SandboxCertificateAuthority, generate_authority
from paddock.network.vault.request_matching import CompiledBinding, compile_bindings
from paddock.network.vault.secret_masking import SecretMask
from paddock.network.vault.vault_changes import (
    NewBinding,
    NewCredential,
    VaultPatch,
    create_vault,
    delete_vault,
    patch_vault,
    require_vault,
    with_vault,
)
from paddock.network.vault.vault_sealing import VaultSealer
from paddock.store.vault_store import CredentialVaultStore


@dataclass(frozen=True)
class ActiveVault:
    """A vault as the relay of connections uses it; a change makes a new one."""

    authority: SandboxCertificateAuthority
    bindings: tuple[CompiledBinding, ...]
    secret_values: tuple[str, ...]
    """Values of now and before, which are masked in responses."""

    @cached_property
    def mask(self) -> SecretMask:
        return SecretMask(self.secret_values)

    def binds(self, scheme: str, host: str | None, port: int) -> bool:
        """Return whether some request to this host may get a credential."""
        return host is not None and any(binding.matches_host(scheme, host, port) for binding in self.bindings)


class CredentialVaults:
    """Reads and changes vaults on the thread of the server's event loop."""

    def __init__(self, store: CredentialVaultStore, sealer: VaultSealer) -> None:
        self._store = store
        self._sealer = sealer
        self._stored: set[str] = set()
        """Sandboxes with a row in the store."""
        self._contents: dict[str, VaultContent] = {}
        self._active: dict[str, ActiveVault] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self.on_changed: Callable[[str], None] = lambda sandbox_id: None
        """Called with the sandbox after a change, before it is acknowledged."""

    @classmethod
    async def load(cls, store: CredentialVaultStore, sealer: VaultSealer) -> CredentialVaults:
        """Create the vaults with a list of the stored ones, which are decrypted when their sandboxes are opened."""
        vaults = cls(store, sealer)
        vaults._stored.update(await store.sandboxes())
        return vaults

    @property
    def stored_sandboxes(self) -> Collection[str]:
        """Sandboxes for which something is stored."""
        return frozenset(self._stored)

    async def open(self, sandbox: Sandbox) -> ActiveVault | None:
        """Load the vault of a sandbox, or create its authority; `None` if the sandbox has no vault enabled."""
        if not sandbox.credential_vault:
            return None
        async with self._lock(sandbox.id):
            if sandbox.id not in self._active:
                sealed = await self._store.find(sandbox.id)
                if sealed is None:
                    key, certificate = await asyncio.to_thread(generate_authority, sandbox.id)
                    content = VaultContent(authority_key=key, authority_certificate=certificate)
                    self._stored.add(sandbox.id)
                    await self._store.put(sandbox.id, self._sealer.seal(sandbox.id, content))
                else:
                    content = self._sealer.unseal(sandbox.id, sealed)
                self._activate(sandbox.id, content)
            return self._active[sandbox.id]

    def active(self, sandbox_id: str) -> ActiveVault | None:
        """Return the vault for the relay of connections. Called on any thread."""
        return self._active.get(sandbox_id)

    async def get(self, sandbox: Sandbox) -> CredentialVault:
        """Return the vault. Raises `VaultDisabled`, and `NotFound` if no credentials were written."""
        return require_vault(await self._content(sandbox))

    async def create(
        self, sandbox: Sandbox, credentials: Sequence[NewCredential], bindings: Sequence[NewBinding]
    ) -> CredentialVault:
        """Write the first credentials and bindings. Raises `Conflict` if there is a vault."""
        return await self._change(sandbox, lambda content: create_vault(content, credentials, bindings))

    async def patch(self, sandbox: Sandbox, patch: VaultPatch) -> CredentialVault:
        """Change the vault; the change applies to the next request. Raises `Conflict` for another revision."""
        return await self._change(sandbox, lambda content: patch_vault(content, patch))

    async def put(self, sandbox: Sandbox, patch: VaultPatch) -> CredentialVault:
        """Change the vault like `patch`, but create it if there is none."""
        return await self._change(sandbox, lambda content: patch_vault(with_vault(content), patch))

    async def delete(self, sandbox: Sandbox) -> None:
        """Delete all credentials and bindings. Raises `NotFound` if there are none."""
        await self._store_change(sandbox, delete_vault)

    async def forget(self, sandbox_id: str) -> None:
        """Delete everything of a sandbox that has ended. Idempotent."""
        if sandbox_id not in self._stored:
            return
        async with self._lock(sandbox_id):
            self._contents.pop(sandbox_id, None)
            self._active.pop(sandbox_id, None)
            await self._store.delete(sandbox_id)
            self._stored.discard(sandbox_id)
        self._locks.pop(sandbox_id, None)

    async def _change(self, sandbox: Sandbox, change: Callable[[VaultContent], VaultContent]) -> CredentialVault:
        return require_vault(await self._store_change(sandbox, change))

    async def _store_change(self, sandbox: Sandbox, change: Callable[[VaultContent], VaultContent]) -> VaultContent:
        await self._content(sandbox)
        async with self._lock(sandbox.id):
            before = self._contents.get(sandbox.id)
            if before is None:
                raise Conflict(f"sandbox {sandbox.id} has just ended")
            content = change(before)
            await self._store.put(sandbox.id, self._sealer.seal(sandbox.id, content))
            self._activate(sandbox.id, content)
        self.on_changed(sandbox.id)
        return content

    async def _content(self, sandbox: Sandbox) -> VaultContent:
        if not sandbox.state.alive:
            raise Conflict(f"sandbox {sandbox.id} is {sandbox.state}, so it has no credential vault any more")
        if await self.open(sandbox) is None:
            raise VaultDisabled(
                f"sandbox {sandbox.id} was created without a credential vault; create it with credentialProxy: "
                "{enabled: true} (paddock sandbox create --vault)"
            )
        return self._contents[sandbox.id]

    def _activate(self, sandbox_id: str, content: VaultContent) -> None:
        earlier = self._active.get(sandbox_id)
        authority = (
            earlier.authority
            if earlier
            else SandboxCertificateAuthority(content.authority_key, content.authority_certificate)
        )
        vault = content.vault or CredentialVault(revision=content.last_revision)
        values = (*(each.value for each in vault.credentials), *content.retired_values)
        self._contents[sandbox_id] = content
        self._active[sandbox_id] = ActiveVault(authority, compile_bindings(vault), values)

    def _lock(self, sandbox_id: str) -> asyncio.Lock:
        return self._locks.setdefault(sandbox_id, asyncio.Lock())
