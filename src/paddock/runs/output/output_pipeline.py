"""Process an entrypoint's output: write logs, parse agent events, search end patterns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
from pydantic import ValidationError

from paddock.model.events import EventType
from paddock.model.runs import EndedBy, Run, RunReasonCode, RunState
from paddock.model.sandbox import FrozenModel
from paddock.runs.execution.end_conditions import RunEndVerdict
from paddock.runs.output.agent_event_publisher import AgentEvent, AgentEventPublisher, AgentOutputReader
from paddock.runs.output.output_follower import OutputPiece
from paddock.runs.output.output_logs import OutputLogs
from paddock.runs.output.pattern_search import MAX_LINE_CHARACTERS, LineSplitter, PatternSearch
from paddock.runs.output.secret_masking import SecretMasker

MAX_REREAD_BYTES = 32 * 2**20
"""Maximum output that a new server reads again to restore the reader's state; beyond it, reading starts in the
middle."""
log = structlog.get_logger()


class OutputPosition(FrozenModel):
    """Position of a watch, stored for the next server."""

    attempt: int
    began: float
    """Unix time of the entrypoint's start."""
    cursor: int = 0
    """Output position at a line start; everything before it is in the logs and events."""
    kept: Mapping[str, int] = {}
    """Bytes of each stream before the position."""
    nth: int = 0
    turns: int = 0
    told: int = 0
    told_to: int = 0
    """Number of the last published event, which may be later."""
    number: int = 0
    """Number of that event in the stream."""
    usage: Mapping[str, Any] = {}
    missed: int = 0
    """Skipped bytes."""
    verdict: RunEndVerdict | None = None

    @property
    def can_reread(self) -> bool:
        """True if the output can be read again from its beginning with the same result."""
        return self.missed == 0 and self.cursor <= MAX_REREAD_BYTES


def stored_position(run: Run) -> OutputPosition | None:
    """Return the position stored by an earlier server for this attempt."""
    try:
        position = OutputPosition.model_validate(run.progress["watch"])
    except (KeyError, ValidationError):
        return None
    return position if position.attempt == run.attempt else None


class OutputPipeline:
    """Processing of one run's output."""

    def __init__(
        self,
        run: Run,
        position: OutputPosition,
        logs: OutputLogs,
        publisher: AgentEventPublisher,
        reader: AgentOutputReader | None,
        decide: Callable[[RunEndVerdict], None],
        masker: SecretMasker | None = None,
    ) -> None:
        end = run.task.end
        self._masker = masker or SecretMasker()
        self._logs = logs
        self._publisher = publisher
        self._reader = reader
        self._decide = decide
        self._most_turns = end.turns
        self._lines = {"stdout": LineSplitter(), "stderr": LineSplitter()}
        self._unfinished_streams: set[str] = set()
        """Streams whose last line is incomplete."""
        self._output_search = PatternSearch(end.output) if end.output is not None else None
        self._agent_text_search = PatternSearch(end.says) if end.says is not None else None
        self._agent_text = ""
        self._last_unfinished: tuple[str, ...] = ()
        self.position = position
        """Position at a line start; stored once everything before it is published."""
        self.cursor = 0
        self._turns_before = 0
        self._processed_to = 0
        """Output position where processing starts."""
        if not position.can_reread:
            self._start_at_position()
        self.last_output = time.time()
        self.turned = asyncio.Event()
        """Set when the agent makes another turn."""

    @property
    def turns(self) -> int:
        return self._turns_before + (self._reader.turns if self._reader is not None else 0)

    @property
    def error(self) -> str | None:
        return self._reader.error if self._reader is not None else None

    @property
    def slow_searches(self) -> int:
        return sum(search.timeouts for search in (self._output_search, self._agent_text_search) if search is not None)

    async def process_piece(self, piece: OutputPiece) -> None:
        self.last_output = time.time()
        if piece.missed and self.cursor < self.position.cursor:
            self._start_at_position()  # The sandbox no longer has the output to read again.
        elif piece.missed:
            await self._flush_masker(piece.stream)
            self._record_missed_output(piece)
        stream, data = piece.stream, piece.data[max(0, self._processed_to - (piece.cursor - len(piece.data))) :]
        if not data:
            return
        await self._process_masked_output(stream, self._masker.feed(stream, data), piece.cursor)

    async def _process_masked_output(self, stream: str, data: bytes, cursor: int) -> None:
        self.cursor = cursor
        if not data:
            self._unfinished_streams = self._unfinished_streams | {stream}  # Held back by the secret masker.
            return
        self._logs.write(stream, data)
        turns = self.turns
        if self._reader is None:
            self._publisher.add_output(stream, data, cursor - self._masker.held_back_bytes(stream))
        else:
            events = self._parse_events(self._reader, stream, data)
            self._publisher.add_events(events, cursor)
            await self._search_agent_text(events)
        if self._output_search is not None:
            await self._search(self._output_search, self._lines[stream].feed(data), EndedBy.OUTPUT)
        if self.turns > turns:
            self.turned.set()
            self._check_turn_limit()
        complete = data.endswith(b"\n") and not self._masker.held_back_bytes(stream)
        self._unfinished_streams = (
            self._unfinished_streams - {stream} if complete else self._unfinished_streams | {stream}
        )
        if not self._unfinished_streams:
            self._advance_position()

    async def search_unfinished_lines(self) -> None:
        """Search incomplete lines that have not changed since the last call."""
        if self._output_search is None:
            return
        rest = tuple(lines.unfinished for lines in self._lines.values())
        if rest == self._last_unfinished:
            await self._search(self._output_search, rest, EndedBy.OUTPUT)
        self._last_unfinished = rest

    async def finish(self) -> None:
        """Process the rest after the end of the output."""
        for stream in self._lines:
            await self._flush_masker(stream)
        if self._reader is not None:
            events = self._reader.close() or ()
            self._publisher.add_events(events, self.cursor)
            await self._search_agent_text(events)
        if self._output_search is not None:
            await self._search(
                self._output_search, [lines.unfinished for lines in self._lines.values()], EndedBy.OUTPUT
            )
        self._advance_position()

    async def _flush_masker(self, stream: str) -> None:
        if rest := self._masker.flush(stream):
            await self._process_masked_output(stream, rest, self.cursor)

    async def close(self) -> None:
        for search in (self._output_search, self._agent_text_search):
            if search is not None:
                await search.close()

    def _parse_events(self, reader: AgentOutputReader, stream: str, data: bytes) -> Sequence[AgentEvent]:
        try:
            return reader.feed(stream, data)
        except Exception:  # A reader error must not end the run; the logs have the output.
            log.exception("reader failed on agent output")
            return ()

    def _start_at_position(self) -> None:
        position = self.position
        self.cursor = self._processed_to = position.cursor
        self._logs.positions.update(position.kept)
        self._publisher.nth, self._turns_before = position.nth, position.turns

    def _advance_position(self) -> None:
        self.position = self.position.model_copy(
            update={
                "cursor": self.cursor,
                "kept": dict(self._logs.positions),
                "nth": self._publisher.nth,
                "turns": self.turns,
            }
        )

    def _record_missed_output(self, piece: OutputPiece) -> None:
        """Note skipped output in the logs and events, and end unfinished lines there."""
        note = f"[paddock: {piece.missed} bytes of output are left out here]\n"
        if self._reader is not None:
            for stream in sorted(self._unfinished_streams):
                self._publisher.add_events(self._parse_events(self._reader, stream, b"\n"), self.cursor)
        self._unfinished_streams.clear()
        self._logs.write(piece.stream, f"\n{note}".encode())
        self._publisher.add_note(piece.stream, note, piece.cursor - len(piece.data))
        self.position = self.position.model_copy(update={"missed": self.position.missed + piece.missed})

    async def _search_agent_text(self, events: Sequence[AgentEvent]) -> None:
        if self._agent_text_search is None:
            return
        for event in events:
            if event.type is EventType.RUN_TEXT and isinstance(text := event.data.get("text"), str):
                separator = "" if event.data.get("join") or not self._agent_text else "\n"
                self._agent_text = f"{self._agent_text}{separator}{text}"[-MAX_LINE_CHARACTERS:]
                await self._search(self._agent_text_search, [self._agent_text], EndedBy.SAYS)

    async def _search(self, search: PatternSearch, texts: Sequence[str], ended_by: EndedBy) -> None:
        found = await search.find_first_match(texts)
        if found is not None:
            source = "the agent said" if ended_by is EndedBy.SAYS else "the entrypoint wrote"
            evidence = {"found": found[-500:]}
            reason = f"{source} what ends the run"
            code = RunReasonCode.WORDS_FOUND if ended_by is EndedBy.SAYS else RunReasonCode.OUTPUT_FOUND
            self._decide(
                RunEndVerdict(state=RunState.SUCCEEDED, ended_by=ended_by, reason=reason, code=code, evidence=evidence)
            )

    def _check_turn_limit(self) -> None:
        if self._most_turns is not None and self.turns > self._most_turns:
            reason = f"the agent made more than its {self._most_turns} turns"
            params = {"limit": str(self._most_turns)}
            self._decide(
                RunEndVerdict(
                    state=RunState.OVER_BUDGET,
                    ended_by=EndedBy.TURNS,
                    reason=reason,
                    code=RunReasonCode.TURNS_SPENT,
                    params=params,
                )
            )
