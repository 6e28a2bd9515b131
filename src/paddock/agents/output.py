"""Tells a session what its tools say while they run."""

from __future__ import annotations

import asyncio
from typing import Self

import structlog

from paddock.agents.telling import Telling
from paddock.errors import PaddockError
from paddock.events.log import EventLog
from paddock.model.session_events import CallOutput
from paddock.model.sessions import Call, Session
from paddock.sandbox.tool_stream import MAX_OUTPUT

TELLING = frozenset({"run_shell_command", "run_ipython_cell"})
"""Tools that say something before their end."""
_WITHIN = 5.0
log = structlog.get_logger()


class OutputTold:
    """The output of one call. Use as an async context manager: at its end all is told, and nothing follows."""

    def __init__(self, events: EventLog, session: Session, call: Call) -> None:
        self._telling = Telling(events, session)
        self._session = session
        self._call = call
        self._left = MAX_OUTPUT

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            async with asyncio.timeout(_WITHIN):
                await self._telling.finish()
        except (PaddockError, TimeoutError) as error:  # The result says it all again, and is kept by somebody else.
            log.warning("output could not be told", session=self._session.id, call=self._call.id, error=str(error))
        finally:
            self._telling.drop()

    def heard(self, text: str) -> None:
        """More of it. A call that is run anew tells no more than one that is not."""
        said = text.encode()[: self._left]
        self._left -= len(said)
        if told := said.decode(errors="ignore"):
            self._telling.piece(CallOutput, self._call.id, told, now=False)
