"""Named queries about browser logins."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, delete, insert, or_, select, update

from paddock.model.keys import BrowserLogin
from paddock.store.database import Store
from paddock.store.row_mapping import model_to_row, row_to_model
from paddock.store.tables import logins


class LoginStore:
    """Logins by the digest of their secrets."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def insert(self, login: BrowserLogin, max_logins: int) -> None:
        """Insert a login and delete the oldest ones of its key beyond `max_logins`."""
        of_same_key = logins.c.key_id == login.key_id
        newest = select(logins.c.digest).where(of_same_key).order_by(logins.c.used_at.desc()).limit(max_logins - 1)

        def work(connection: Connection) -> None:
            kept = list(connection.execute(newest).scalars())
            connection.execute(delete(logins).where(of_same_key, logins.c.digest.not_in(kept)))
            connection.execute(insert(logins), model_to_row(login))

        await self._store.write(work)

    async def get(self, digest: str) -> BrowserLogin | None:
        statement = select(logins).where(logins.c.digest == digest)

        def work(connection: Connection) -> BrowserLogin | None:
            row = connection.execute(statement).mappings().first()
            return None if row is None else row_to_model(BrowserLogin, row)

        return await self._store.read(work)

    async def record_use(self, digest: str, at: datetime) -> None:
        """Note when a login was last used."""
        statement = update(logins).where(logins.c.digest == digest).values(used_at=at)
        await self._store.write(lambda connection: connection.execute(statement).rowcount)

    async def delete(self, digest: str) -> None:
        """Delete a login. Idempotent."""
        statement = delete(logins).where(logins.c.digest == digest)
        await self._store.write(lambda connection: connection.execute(statement).rowcount)

    async def delete_expired(self, created_before: datetime, used_before: datetime) -> int:
        """Delete logins that were created or last used too long ago; return their number."""
        old = or_(logins.c.created_at < created_before, logins.c.used_at < used_before)
        return await self._store.write(lambda connection: connection.execute(delete(logins).where(old)).rowcount)
