"""Named queries about MCP servers and sets of tenants, and about versions of tools."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import Connection, Table, delete, insert, select, update

from paddock.model.mcp_records import McpToolVersion, StoredMcpServer, StoredMcpSet
from paddock.store.database import Store
from paddock.store.row_mapping import model_to_row, row_to_model
from paddock.store.tables import mcp_servers, mcp_sets, mcp_tool_versions


class McpServerStore:
    """Servers, sets and versions of tools. The gateway keeps all of them in memory."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_servers(self) -> Sequence[StoredMcpServer]:
        def work(connection: Connection) -> Sequence[StoredMcpServer]:
            rows = connection.execute(select(mcp_servers)).mappings()
            return [row_to_model(StoredMcpServer, row) for row in rows]

        return await self._store.read(work)

    async def list_sets(self) -> Sequence[StoredMcpSet]:
        def work(connection: Connection) -> Sequence[StoredMcpSet]:
            return [row_to_model(StoredMcpSet, row) for row in connection.execute(select(mcp_sets)).mappings()]

        return await self._store.read(work)

    async def put_server(self, server: StoredMcpServer) -> None:
        """Add or replace a server."""
        await self._put(mcp_servers, server)

    async def put_set(self, chosen: StoredMcpSet) -> None:
        """Add or replace a set."""
        await self._put(mcp_sets, chosen)

    async def _put(self, table: Table, stored: StoredMcpServer | StoredMcpSet) -> None:
        row = model_to_row(stored)
        row["document"] = stored.document.model_dump(mode="json", exclude_defaults=True)
        same = table.c.tenant == str(stored.tenant), table.c.name == stored.name

        def work(connection: Connection) -> None:
            connection.execute(delete(table).where(*same))
            connection.execute(insert(table), row)

        await self._store.write(work)

    async def delete_server(self, tenant: str, name: str) -> None:
        """Delete a server with the versions of its tools. Idempotent."""
        versions = mcp_tool_versions

        def work(connection: Connection) -> None:
            connection.execute(
                delete(mcp_servers).where(mcp_servers.c.tenant == str(tenant), mcp_servers.c.name == name)
            )
            connection.execute(delete(versions).where(versions.c.tenant == str(tenant), versions.c.server == name))

        await self._store.write(work)

    async def delete_set(self, tenant: str, name: str) -> None:
        """Delete a set. Idempotent."""
        statement = delete(mcp_sets).where(mcp_sets.c.tenant == str(tenant), mcp_sets.c.name == name)
        await self._store.write(lambda connection: connection.execute(statement).rowcount)

    async def list_versions(self) -> Sequence[McpToolVersion]:
        """Return all versions of tools, the oldest first."""
        statement = select(mcp_tool_versions).order_by(mcp_tool_versions.c.seen_at)

        def work(connection: Connection) -> Sequence[McpToolVersion]:
            return [row_to_model(McpToolVersion, row) for row in connection.execute(statement).mappings()]

        return await self._store.read(work)

    async def add_versions(self, versions: Sequence[McpToolVersion]) -> None:
        """Add the versions that are not stored yet."""
        rows = [model_to_row(version) for version in versions]
        statement = insert(mcp_tool_versions).prefix_with("OR IGNORE")
        await self._store.write(lambda connection: connection.execute(statement, rows).rowcount)

    async def approve_versions(
        self, tenant: str, server: str, digests: Collection[str], approved_by: str | None, now: datetime
    ) -> None:
        """Mark versions as approved."""
        table = mcp_tool_versions
        statement = (
            update(table)
            .where(table.c.tenant == str(tenant), table.c.server == server, table.c.digest.in_(list(digests)))
            .values(approved=True, approved_by=approved_by, approved_at=now)
        )
        await self._store.write(lambda connection: connection.execute(statement).rowcount)

    async def delete_versions(self, tenant: str, server: str, digests: Collection[str]) -> None:
        table = mcp_tool_versions
        statement = delete(table).where(
            table.c.tenant == str(tenant), table.c.server == server, table.c.digest.in_(list(digests))
        )
        await self._store.write(lambda connection: connection.execute(statement).rowcount)
