"""Named queries about credential vaults. Contents are encrypted before they come here."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, delete, insert, select, update

from paddock.store.database import Store
from paddock.store.tables import credential_vaults


class CredentialVaultStore:
    """Encrypted contents by sandbox."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, sandbox_id: str) -> bytes | None:
        statement = select(credential_vaults.c.sealed).where(credential_vaults.c.sandbox == sandbox_id)

        def work(connection: Connection) -> bytes | None:
            return connection.execute(statement).scalar_one_or_none()

        return await self._store.read(work)

    async def sandboxes(self) -> Collection[str]:
        """Return the sandboxes with a vault."""

        def work(connection: Connection) -> Collection[str]:
            return list(connection.execute(select(credential_vaults.c.sandbox)).scalars())

        return await self._store.read(work)

    async def put(self, sandbox_id: str, sealed: bytes) -> None:
        """Store the content in place of an earlier one."""

        def work(connection: Connection) -> None:
            row = credential_vaults.c.sandbox == sandbox_id
            if not connection.execute(update(credential_vaults).where(row).values(sealed=sealed)).rowcount:
                connection.execute(insert(credential_vaults).values(sandbox=sandbox_id, sealed=sealed))

        await self._store.write(work)

    async def delete(self, sandbox_id: str) -> None:
        """Delete the content. Idempotent."""

        def work(connection: Connection) -> None:
            connection.execute(delete(credential_vaults).where(credential_vaults.c.sandbox == sandbox_id))

        await self._store.write(work)
