"""Named queries about previews of sandboxes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, delete, insert, select

from paddock.model.previews import SandboxPreview
from paddock.store.database import Store, Work
from paddock.store.row_mapping import model_to_row, row_to_model
from paddock.store.tables import previews


class PreviewStore:
    """Previews by id."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_all(self) -> Sequence[SandboxPreview]:
        def work(connection: Connection) -> Sequence[SandboxPreview]:
            return [row_to_model(SandboxPreview, row) for row in connection.execute(select(previews)).mappings()]

        return await self._store.read(work)

    @staticmethod
    def replace_work(preview: SandboxPreview) -> Work[None]:
        """Return work that stores a preview in place of the one of the same port."""
        same_port = previews.c.sandbox == preview.sandbox, previews.c.port == preview.port

        def work(connection: Connection) -> None:
            connection.execute(delete(previews).where(*same_port))
            connection.execute(insert(previews), model_to_row(preview))

        return work

    @staticmethod
    def delete_work(ids: Collection[str]) -> Work[None]:
        """Return work that deletes previews. Idempotent."""
        statement = delete(previews).where(previews.c.id.in_(list(ids)))

        def work(connection: Connection) -> None:
            connection.execute(statement)

        return work
