"""Export of a run's network connections into its folder."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

from paddock.network.connection_history import ConnectionHistory
from paddock.runs.results.run_folder import RunFolder

_LEFT_OUT = {"sandbox", "tenant", "run", "session"}


async def write_attempt_connections(
    connections: ConnectionHistory, folder: RunFolder, attempt: int, sandbox_id: str
) -> int:
    """Append the connections of an attempt. Return the number of lines.

    Idempotent. A run whose programs connected to nothing has no file.
    """
    count = await folder.write_lines(
        folder.network, _connection_lines(connections, folder.network, attempt, sandbox_id)
    )
    if count == 0:
        folder.network.unlink()
    return count


async def _connection_lines(
    connections: ConnectionHistory, path: Path, attempt: int, sandbox_id: str
) -> AsyncIterator[bytes]:
    for line in await asyncio.to_thread(_earlier_lines, path, attempt):
        yield line
    async for record in connections.ended_connections(sandbox_id):
        document = {"attempt": attempt, **record.model_dump(mode="json", exclude=_LEFT_OUT, exclude_none=True)}
        yield json.dumps(document, ensure_ascii=False).encode(errors="replace")


def _earlier_lines(path: Path, attempt: int) -> list[bytes]:
    """Return the lines of earlier attempts."""
    if not path.exists():
        return []
    return [line for line in path.read_bytes().splitlines() if json.loads(line)["attempt"] < attempt]
