"""Streams the output of running calls to the session."""

from __future__ import annotations

import asyncio
from typing import Self

import structlog

from paddock.agents.event_batcher import SessionEventBatcher
from paddock.errors import PaddockError
from paddock.events.event_log import EventLog
from paddock.model.session_events import CallOutput
from paddock.model.sessions import Session, ToolCall
from paddock.sandbox.daemon.tool_stream import MAX_OUTPUT_BYTES

STREAMING_TOOLS = frozenset({"run_shell_command", "run_ipython_cell"})
"""Tools that produce output while they run."""
_CLOSE_TIMEOUT = 5.0
log = structlog.get_logger()


class CallOutputStream:
    """Async context manager that emits the output of one call; on exit, pending output is flushed."""

    def __init__(self, events: EventLog, session: Session, call: ToolCall) -> None:
        self._batcher = SessionEventBatcher(events, session)
        self._session = session
        self._call = call
        self._remaining = MAX_OUTPUT_BYTES

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await self._batcher.flush()
        except (PaddockError, TimeoutError) as error:  # The result, stored separately, repeats the output.
            log.warning("could not emit output of call", session=self._session.id, call=self._call.id, error=str(error))
        finally:
            self._batcher.discard_pending()

    def write(self, text: str) -> None:
        """Emit more output, up to the limit for one call."""
        data = text.encode()[: self._remaining]
        self._remaining -= len(data)
        if piece := data.decode(errors="ignore"):
            self._batcher.add_text(CallOutput, self._call.id, piece, at_once=False)
