"""The archive as something to replay from."""

from __future__ import annotations

from collections.abc import Sequence

from paddock.errors import NotFound
from paddock.llm.archive.archive import Archive
from paddock.llm.recording import Recorded, is_recordable, recorded_of
from paddock.model.exchanges import Filters


class ArchiveSource:
    """A tenant's own exchanges, as they were kept."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    async def ids(self, tenant: str, since: float) -> Sequence[str]:
        """Ids of exchanges that began at this time or later, oldest first."""
        await self._archive.flush()
        found: list[str] = []
        cursor: str | None = None
        while True:
            page, cursor = await self._archive.list(tenant, Filters(since=since), cursor=cursor, limit=1000)
            found += [summary.id for summary in page if summary.provider_kind != "replay"]
            if cursor is None:
                return found[::-1]

    async def fetch(self, tenant: str, id: str) -> Recorded | None:
        try:
            exchange = await self._archive.get(tenant, id)
        except NotFound:
            return None
        return recorded_of(exchange) if is_recordable(exchange) else None
