"""Archived exchanges as a source of replay providers."""

from __future__ import annotations

from collections.abc import Sequence

from paddock.errors import NotFound
from paddock.llm.archive.archive import ExchangeArchive
from paddock.llm.replay.recording_files import RecordedExchange, is_recordable, to_recorded_exchange
from paddock.model.exchanges import ExchangeFilters


class ArchiveRecordingSource:
    """Provides a tenant's own archived exchanges for replay."""

    def __init__(self, archive: ExchangeArchive) -> None:
        self._archive = archive

    async def list_ids(self, tenant: str, since: float) -> Sequence[str]:
        """Return ids of exchanges that began at this time or later, oldest first."""
        await self._archive.flush()
        found: list[str] = []
        cursor: str | None = None
        while True:
            page, cursor = await self._archive.list_exchanges(
                tenant, ExchangeFilters(since=since), cursor=cursor, limit=1000
            )
            found += [summary.id for summary in page if summary.provider_kind != "replay"]
            if cursor is None:
                return found[::-1]

    async def fetch(self, tenant: str, id: str) -> RecordedExchange | None:
        try:
            exchange = await self._archive.get(tenant, id)
        except NotFound:
            return None
        return to_recorded_exchange(exchange) if is_recordable(exchange) else None
