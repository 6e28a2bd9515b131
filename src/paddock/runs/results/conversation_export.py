"""Export of a run's conversation into its folder."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from paddock.errors import PaddockError
from paddock.llm.archive.archive import ExchangeArchive
from paddock.model.exchanges import ExchangeFilters
from paddock.runs.results.run_folder import RunFolder

ARCHIVE_FLUSH_TIMEOUT = 10.0
"""Timeout of flushing the archive."""


async def conversation_json_lines(archive: ExchangeArchive, tenant: str, run_id: str) -> AsyncIterator[bytes]:
    """Yield a JSON line per message in OpenAI's chat format, thread by thread.

    Each line also has `thread`, the id of the conversation's first exchange, and `kind`:
    the main conversation, a branch of it, a sub-agent or a call on the side.
    """
    try:
        await asyncio.wait_for(archive.flush(), ARCHIVE_FLUSH_TIMEOUT)
    except (PaddockError, TimeoutError):
        pass  # Use the exchanges that are already written.
    async for line in archive.export_conversations(tenant, ExchangeFilters(run=run_id), "openai", unanswered=True):
        thread = json.loads(line)
        thread_fields = {"thread": thread["id"], "kind": thread["kind"]}
        for message in thread["messages"]:
            yield json.dumps({**thread_fields, **message}, ensure_ascii=False).encode(errors="replace") + b"\n"


async def write_run_conversation(archive: ExchangeArchive, tenant: str, folder: RunFolder) -> int:
    """Write a run's conversation to its folder, replacing an earlier one. Return the number of messages."""
    return await folder.write_lines(folder.conversation, conversation_json_lines(archive, tenant, folder.run_id))
