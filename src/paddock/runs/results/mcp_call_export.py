"""Export of a run's MCP calls into its folder."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from paddock.mcp.gateway.services import McpServices
from paddock.runs.results.run_folder import RunFolder

_LEFT_OUT = {"tenant", "run", "session"}


async def write_run_mcp_calls(mcp: McpServices, tenant: str, folder: RunFolder) -> int:
    """Write the calls of all attempts, oldest first, replacing an earlier file. Return their number.

    A run without calls has no file.
    """
    await mcp.gateway.recorder.flush()
    count = await folder.write_lines(folder.mcp_calls, _call_lines(mcp, tenant, folder.run_id))
    if count == 0:
        folder.mcp_calls.unlink()
    return count


async def _call_lines(mcp: McpServices, tenant: str, run_id: str) -> AsyncIterator[bytes]:
    after: str | None = None
    while records := await mcp.calls.list_of_run(tenant, run_id, after=after):
        for record in records:
            document = record.model_dump(mode="json", exclude=_LEFT_OUT, exclude_none=True)
            yield json.dumps(document, ensure_ascii=False).encode(errors="replace")
        after = records[-1].id
