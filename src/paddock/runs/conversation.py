"""What a run's agent and its models said to each other, as the run's folder keeps it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from paddock.errors import PaddockError
from paddock.llm.archive.archive import Archive
from paddock.model.exchanges import Filters
from paddock.runs.folder import RunFolder

PATIENCE = 10.0
"""Seconds that the archive has to write what waits."""


async def conversation(archive: Archive, tenant: str, run_id: str) -> AsyncIterator[bytes]:
    """A line of JSON for each message, in the form of OpenAI's chat API, thread by thread.

    Beside the message's own fields each line has `thread`, the id of the conversation's first exchange, and `kind`:
    the main conversation, a branch of it, a sub-agent or a call on the side.
    """
    try:
        await asyncio.wait_for(archive.flush(), PATIENCE)
    except (PaddockError, TimeoutError):
        pass  # Then what was written before has to do.
    async for line in archive.export(tenant, Filters(run=run_id), "openai", unanswered=True):
        thread = json.loads(line)
        about = {"thread": thread["id"], "kind": thread["kind"]}
        for message in thread["messages"]:
            yield json.dumps({**about, **message}, ensure_ascii=False).encode(errors="replace") + b"\n"


async def write_conversation(archive: Archive, tenant: str, folder: RunFolder) -> int:
    """Keep all that was said in a run in its folder, in place of what was there, and say how many messages it is."""
    return await folder.write_lines(folder.conversation, conversation(archive, tenant, folder.run_id))
