"""Named queries about sign-ins at MCP servers. Secrets are encrypted before they come here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, delete, insert, select

from paddock.model.mcp_oauth import SealedMcpToken, SealedOAuthClient
from paddock.store.database import Store
from paddock.store.row_mapping import model_to_row, row_to_model
from paddock.store.tables import mcp_oauth_clients, mcp_oauth_tokens


class McpOAuthStore:
    """Tokens, and registrations at authorization servers."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_tokens(self) -> Sequence[SealedMcpToken]:
        def work(connection: Connection) -> Sequence[SealedMcpToken]:
            rows = connection.execute(select(mcp_oauth_tokens)).mappings()
            return [row_to_model(SealedMcpToken, row) for row in rows]

        return await self._store.read(work)

    async def list_clients(self) -> Sequence[SealedOAuthClient]:
        def work(connection: Connection) -> Sequence[SealedOAuthClient]:
            rows = connection.execute(select(mcp_oauth_clients)).mappings()
            return [row_to_model(SealedOAuthClient, row) for row in rows]

        return await self._store.read(work)

    async def put_token(self, token: SealedMcpToken) -> None:
        """Store a token in place of an earlier one, of any issuer."""
        await self._replace(mcp_oauth_tokens, model_to_row(token))

    async def delete_token(self, tenant: str, subject: str, server: str, url: str) -> None:
        """Delete a token. Idempotent."""
        table = mcp_oauth_tokens
        statement = delete(table).where(
            table.c.tenant == tenant, table.c.subject == subject, table.c.server == server, table.c.url == url
        )
        await self._store.write(lambda connection: connection.execute(statement).rowcount)

    async def put_client(self, client: SealedOAuthClient) -> None:
        """Store a registration in place of an earlier one."""
        await self._replace(mcp_oauth_clients, model_to_row(client))

    async def delete_client(self, tenant: str, issuer: str, redirect_uri: str) -> None:
        """Delete a registration. Idempotent."""
        table = mcp_oauth_clients
        statement = delete(table).where(
            table.c.tenant == tenant, table.c.issuer == issuer, table.c.redirect_uri == redirect_uri
        )
        await self._store.write(lambda connection: connection.execute(statement).rowcount)

    async def _replace(self, table: Table, row: Mapping[str, Any]) -> None:
        """Store a row in place of the earlier one with the same primary key."""
        same = [column == row[column.name] for column in table.primary_key.columns]

        def work(connection: Connection) -> None:
            connection.execute(delete(table).where(*same))
            connection.execute(insert(table), row)

        await self._store.write(work)
