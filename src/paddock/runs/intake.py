"""Takes in what an entrypoint writes: into the logs, through the agent's reader, past the patterns that end the run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
from pydantic import ValidationError

from paddock.model.events import EventType
from paddock.model.runs import EndedBy, ReasonCode, Run, RunState
from paddock.model.sandbox import Frozen
from paddock.runs.ends import Verdict
from paddock.runs.following import Piece
from paddock.runs.masking import Masker
from paddock.runs.outputs import OutputLogs
from paddock.runs.patterns import LONGEST, Lines, Search
from paddock.runs.telling import AgentEvent, OutputReader, Telling

REPLAYED = 32 * 2**20
"""Output that a new server reads again, so that the agent's reader knows all it has seen; beyond that it begins in the
middle."""
log = structlog.get_logger()


class Place(Frozen):
    """How far a run has been watched; what is noted for the next server."""

    attempt: int
    began: float
    """When the entrypoint started, in seconds since 1970."""
    cursor: int = 0
    """A place in the output where a line begins, all before which is in the logs and in the events."""
    kept: Mapping[str, int] = {}
    """How much of each stream is before it."""
    nth: int = 0
    turns: int = 0
    told: int = 0
    told_to: int = 0
    """What has been told by then, which may be more."""
    number: int = 0
    """Number of the last event that tells of it."""
    usage: Mapping[str, Any] = {}
    missed: int = 0
    """Bytes that were never read."""
    verdict: Verdict | None = None

    @property
    def again(self) -> bool:
        """Whether the output can be read from its beginning once more, with the same result."""
        return self.missed == 0 and self.cursor <= REPLAYED


def noted(run: Run) -> Place | None:
    """What an earlier server has noted of this attempt."""
    try:
        place = Place.model_validate(run.progress["watch"])
    except (KeyError, ValidationError):
        return None
    return place if place.attempt == run.attempt else None


class Intake:
    """Everything that is done with the output of one run."""

    def __init__(
        self,
        run: Run,
        place: Place,
        logs: OutputLogs,
        telling: Telling,
        reader: OutputReader | None,
        decide: Callable[[Verdict], None],
        masker: Masker | None = None,
    ) -> None:
        end = run.task.end
        self._masker = masker or Masker()
        self._logs = logs
        self._telling = telling
        self._reader = reader
        self._decide = decide
        self._most_turns = end.turns
        self._lines = {"stdout": Lines(), "stderr": Lines()}
        self._open: set[str] = set()
        """Streams whose last line is not complete."""
        self._output = Search(end.output) if end.output is not None else None
        self._says = Search(end.says) if end.says is not None else None
        self._speech = ""
        self._quiet: tuple[str, ...] = ()
        self.place = place
        """A place where a line begins; noted once all before it has been told."""
        self.cursor = 0
        self._turns_before = 0
        self._known_to = 0
        """Where in the output to begin taking it in."""
        if not place.again:
            self._begin_at_place()
        self.last_output = time.time()
        self.turned = asyncio.Event()
        """Set when the agent has made another turn."""

    @property
    def turns(self) -> int:
        return self._turns_before + (self._reader.turns if self._reader is not None else 0)

    @property
    def error(self) -> str | None:
        return self._reader.error if self._reader is not None else None

    @property
    def too_slow(self) -> int:
        return sum(search.too_slow for search in (self._output, self._says) if search is not None)

    async def take(self, piece: Piece) -> None:
        self.last_output = time.time()
        if piece.missed and self.cursor < self.place.cursor:
            self._begin_at_place()  # The box has not kept what was to be read again.
        elif piece.missed:
            await self._release(piece.stream)
            self._miss(piece)
        stream, data = piece.stream, piece.data[max(0, self._known_to - (piece.cursor - len(piece.data))) :]
        if not data:
            return
        await self._accept(stream, self._masker.feed(stream, data), piece.cursor)

    async def _accept(self, stream: str, data: bytes, cursor: int) -> None:
        self.cursor = cursor
        if not data:
            self._open = self._open | {stream}  # Held back by the masker.
            return
        self._logs.write(stream, data)
        turns = self.turns
        if self._reader is None:
            self._telling.add_output(stream, data, cursor - self._masker.held(stream))
        else:
            events = self._read(self._reader, stream, data)
            self._telling.add(events, cursor)
            await self._listen(events)
        if self._output is not None:
            await self._look(self._output, self._lines[stream].feed(data), EndedBy.OUTPUT)
        if self.turns > turns:
            self.turned.set()
            self._count_turns()
        complete = data.endswith(b"\n") and not self._masker.held(stream)
        self._open = self._open - {stream} if complete else self._open | {stream}
        if not self._open:
            self._pass()

    async def look_at_rest(self) -> None:
        """Look at lines that are not complete, if nothing has come since the last time."""
        if self._output is None:
            return
        rest = tuple(lines.unfinished for lines in self._lines.values())
        if rest == self._quiet:
            await self._look(self._output, rest, EndedBy.OUTPUT)
        self._quiet = rest

    async def finish(self) -> None:
        """No more comes."""
        for stream in self._lines:
            await self._release(stream)
        if self._reader is not None:
            events = self._reader.close() or ()
            self._telling.add(events, self.cursor)
            await self._listen(events)
        if self._output is not None:
            await self._look(self._output, [lines.unfinished for lines in self._lines.values()], EndedBy.OUTPUT)
        self._pass()

    async def _release(self, stream: str) -> None:
        if rest := self._masker.flush(stream):
            await self._accept(stream, rest, self.cursor)

    async def close(self) -> None:
        for search in (self._output, self._says):
            if search is not None:
                await search.close()

    def _read(self, reader: OutputReader, stream: str, data: bytes) -> Sequence[AgentEvent]:
        try:
            return reader.feed(stream, data)
        except Exception:  # Whatever an agent writes, the run goes on and its logs have it.
            log.exception("the output of an agent was too much for its reader")
            return ()

    def _begin_at_place(self) -> None:
        place = self.place
        self.cursor = self._known_to = place.cursor
        self._logs.places.update(place.kept)
        self._telling.nth, self._turns_before = place.nth, place.turns

    def _pass(self) -> None:
        self.place = self.place.model_copy(
            update={
                "cursor": self.cursor,
                "kept": dict(self._logs.places),
                "nth": self._telling.nth,
                "turns": self.turns,
            }
        )

    def _miss(self, piece: Piece) -> None:
        """Say in the logs and the events that output was passed over, and let unfinished lines end there."""
        note = f"[paddock: {piece.missed} bytes of output are left out here]\n"
        if self._reader is not None:
            for stream in sorted(self._open):
                self._telling.add(self._read(self._reader, stream, b"\n"), self.cursor)
        self._open.clear()
        self._logs.write(piece.stream, f"\n{note}".encode())
        self._telling.add_note(piece.stream, note, piece.cursor - len(piece.data))
        self.place = self.place.model_copy(update={"missed": self.place.missed + piece.missed})

    async def _listen(self, events: Sequence[AgentEvent]) -> None:
        if self._says is None:
            return
        for event in events:
            if event.type is EventType.RUN_TEXT and isinstance(text := event.data.get("text"), str):
                between = "" if event.data.get("join") or not self._speech else "\n"
                self._speech = f"{self._speech}{between}{text}"[-LONGEST:]
                await self._look(self._says, [self._speech], EndedBy.SAYS)

    async def _look(self, search: Search, texts: Sequence[str], ended_by: EndedBy) -> None:
        found = await search.first(texts)
        if found is not None:
            what = "the agent said" if ended_by is EndedBy.SAYS else "the entrypoint wrote"
            evidence = {"found": found[-500:]}
            reason = f"{what} what ends the run"
            code = ReasonCode.WORDS_FOUND if ended_by is EndedBy.SAYS else ReasonCode.OUTPUT_FOUND
            self._decide(
                Verdict(state=RunState.SUCCEEDED, ended_by=ended_by, reason=reason, code=code, evidence=evidence)
            )

    def _count_turns(self) -> None:
        if self._most_turns is not None and self.turns > self._most_turns:
            reason = f"the agent made more than its {self._most_turns} turns"
            params = {"limit": str(self._most_turns)}
            self._decide(
                Verdict(
                    state=RunState.OVER_BUDGET,
                    ended_by=EndedBy.TURNS,
                    reason=reason,
                    code=ReasonCode.TURNS_SPENT,
                    params=params,
                )
            )
