"""Understands what agents write, by the rules of their presets.

However the bytes are cut into pieces, the same events come of them. What is written is only data: lines that are too
long, no JSON, or JSON that no rule knows are told as output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from paddock.model.events import EventType
from paddock.runs.presets.finding import (
    LONGEST,
    MOST_PARTS,
    Check,
    Find,
    arguments_of,
    checker,
    cut,
    finder,
    first,
    name_of,
    text_of,
    truth,
)
from paddock.runs.presets.preset import Preset
from paddock.runs.presets.rules import Emit, Rule

LONGEST_LINE = 4 * 2**20
STDOUT = "stdout"
_TYPES = {
    Emit.TEXT: EventType.RUN_TEXT,
    Emit.THINKING: EventType.RUN_THINKING,
    Emit.TOOL_CALL: EventType.RUN_TOOL_CALL,
    Emit.TOOL_RESULT: EventType.RUN_TOOL_RESULT,
}


@dataclass(frozen=True)
class AgentEvent:
    """Something an agent did, by its own account."""

    type: EventType
    data: dict[str, Any]


def reader(preset: Preset) -> OutputReader:
    """What understands the output of one run of an agent."""
    return OutputReader(preset)


class OutputReader:
    """Makes events of what an agent writes, piece by piece."""

    def __init__(self, preset: Preset) -> None:
        self.turns = 0
        """How often the agent has acted, as far as its output tells."""
        self.error: str | None = None
        """Why the agent has failed, by its own account; nothing if it went on to finish."""
        self.done = False
        """Whether the agent says that it has finished."""
        self.usage = {"input_tokens": 0, "output_tokens": 0}
        """What the agent says it has asked of models; the LLM proxy knows better."""
        self._structured = preset.output.format == "json-lines"
        self._rules = [_Compiled(rule) for rule in preset.output.rules]
        self._failures = [(checker(each.when), first(each.message)) for each in preset.errors if each.when is not None]
        self._patterns = [(re.compile(each.output), each.stream) for each in preset.errors if each.output is not None]
        self._turn = checker(preset.turn.when) if preset.turn else None
        self._turn_id = first(preset.turn.id) if preset.turn else first(None)
        self._last_turn: str | None = None
        self._acting = False
        self._lines = {STDOUT: _Lines(), "stderr": _Lines()}
        self._joined: tuple[Emit, str, int] | None = None
        self._last_error: str | None = None

    def feed(self, stream: str, data: bytes) -> list[AgentEvent]:
        """What the next piece of a stream, `stdout` or `stderr`, completes."""
        events: list[AgentEvent] = []
        for line, dropped in self._lines[stream].split(data):
            self._read(stream, line, dropped, events)
        return events

    def close(self) -> list[AgentEvent]:
        """What was left unfinished, now that nothing more comes."""
        events: list[AgentEvent] = []
        for stream, lines in self._lines.items():
            for line, dropped in lines.rest():
                self._read(stream, line, dropped, events)
        self._flush(events)
        return events

    def _read(self, stream: str, line: bytes, dropped: int, events: list[AgentEvent]) -> None:
        text = line.decode("utf-8", "replace").removesuffix("\r")
        if not text.strip():
            return
        if self._structured and stream == STDOUT and not dropped and (document := _document(text)) is not None:
            try:
                if self._understand(document, events):
                    return
            except RecursionError:
                pass
        for pattern, where in self._patterns:
            if where in (None, stream) and pattern.search(text[:LONGEST]):
                self._fail(text, events)
                return
        if stream == STDOUT:
            self._flush(events)
        events.append(AgentEvent(EventType.RUN_OUTPUT, {"stream": stream, "text": cut(text, dropped=dropped)}))

    def _understand(self, document: dict[str, Any], events: list[AgentEvent]) -> bool:
        """Apply all rules that fit. False if none does, or nothing is known of any item in the line."""
        failure = next((message for check, message in self._failures if check(document)), None)
        made = [act for rule in self._rules for act in rule.acts(document)]
        if failure is None and not made:
            return False
        if self._turn is not None and self._turn(document):
            self._count(text_of(self._turn_id(document)) or None)
        for rule, item in made:
            if not (rule.emit is Emit.DONE and failure is not None):
                self._act(rule, item, events)
        if failure is not None:
            self._fail(text_of(failure(document)) or "the agent failed and did not say why", events)
        return True

    def _act(self, rule: _Compiled, item: Any, events: list[AgentEvent]) -> None:
        match rule.emit:
            case Emit.NOTHING:
                return
            case Emit.USAGE:
                for name, find in rule.counts.items():
                    self.usage[name] += _count_of(find(item))
                return
            case Emit.DONE:
                self._flush(events)
                self.done, self.error = True, None
                return
            case Emit.TEXT | Emit.THINKING:
                if not (text := text_of(rule.text(item))):
                    return
                self._begin()
                if rule.join:
                    self._join(rule.emit, text, events)
                    return
                data: dict[str, Any] = {"text": cut(text)}
            case Emit.TOOL_CALL:
                self._begin()
                data = {"id": name_of(rule.id(item)), "name": name_of(rule.name(item))}
                data["arguments"] = rule.arguments(item)
            case Emit.TOOL_RESULT:
                self._acting = False
                data = {"id": name_of(rule.id(item)), "text": cut(text_of(rule.text(item)))}
                data["failed"] = rule.failed(item)
            case _:
                self._tell_error(cut(text_of(rule.text(item))), events)
                return
        self._flush(events)
        events.append(AgentEvent(_TYPES[rule.emit], data))

    def _begin(self) -> None:
        """The agent acts: that is a turn, unless it does so already, or its preset tells turns in another way."""
        if self._turn is None and not self._acting:
            self.turns += 1
        self._acting = True

    def _count(self, turn: str | None) -> None:
        if turn is None or turn != self._last_turn:
            self.turns += 1
        self._last_turn = turn and turn[:LONGEST]

    def _fail(self, message: str, events: list[AgentEvent]) -> None:
        self.error, self.done = cut(message), False
        self._tell_error(self.error, events)

    def _tell_error(self, message: str, events: list[AgentEvent]) -> None:
        """Tell of an error, but not again of the one before, as agents do that end with what went wrong last."""
        self._flush(events)
        if message != self._last_error:
            events.append(AgentEvent(EventType.RUN_ERROR, {"message": message}))
        self._last_error = message

    def _join(self, sort: Emit, text: str, events: list[AgentEvent]) -> None:
        if self._joined is not None and self._joined[0] is not sort:
            self._flush(events)
        _, so_far, dropped = self._joined or (sort, "", 0)
        room = LONGEST - len(so_far)
        # What does not fit is counted, not kept.
        dropped += len(text[room:].encode("utf-8", "replace")) if room < len(text) else 0
        self._joined = (sort, so_far + text[: max(0, room)], dropped)

    def _flush(self, events: list[AgentEvent]) -> None:
        """Tell the text whose pieces have come so far."""
        if self._joined is not None:
            sort, text, dropped = self._joined
            self._joined = None
            events.append(AgentEvent(_TYPES[sort], {"text": cut(text, dropped=dropped)}))


class _Compiled:
    """A rule, ready to be applied to many lines."""

    def __init__(self, rule: Rule) -> None:
        self.emit = rule.emit or Emit.NOTHING
        self.join = rule.join
        self._check: Check = checker(rule.when)
        self._each: Find | None = finder(rule.each) if rule.each is not None else None
        self._rules = [_Compiled(each) for each in rule.rules]
        self.text: Find = first(rule.text)
        self.id: Find = first(rule.id)
        self.name: Find = first(rule.name)
        self.arguments: Find = arguments_of(rule.arguments)
        self.failed: Check = truth(rule.failed)
        paths = {"input_tokens": rule.input_tokens, "output_tokens": rule.output_tokens}
        self.counts = {name: finder(path) for name, path in paths.items() if path is not None}

    def acts(self, document: Any) -> Iterator[tuple[_Compiled, Any]]:
        """What is to be done for a document, or for each item of a list in it."""
        if not self._check(document):
            return
        if self._each is None:
            yield self, document
            return
        items = self._each(document)
        for item in items[:MOST_PARTS] if isinstance(items, list) else ():
            for rule in self._rules:
                yield from rule.acts(item)


@dataclass
class _Lines:
    """Puts pieces together to lines, and keeps no more of one than is ever looked at."""

    held: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def split(self, data: bytes) -> Iterator[tuple[bytes, int]]:
        """The lines that a piece completes, each with how many bytes of it were dropped."""
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._hold(end)
            yield from self._take()
        self._hold(rest)

    def rest(self) -> Iterator[tuple[bytes, int]]:
        """The last line, if it has no end."""
        if self.held:
            yield from self._take()

    def _hold(self, piece: bytes) -> None:
        room = LONGEST_LINE - len(self.held)
        self.held += piece[:room]
        self.dropped += max(0, len(piece) - room)

    def _take(self) -> Iterator[tuple[bytes, int]]:
        line, dropped = bytes(self.held), self.dropped
        self.held.clear()
        self.dropped = 0
        yield line, dropped


def _document(text: str) -> dict[str, Any] | None:
    """The object that a line of JSON is, or None if it is none."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _count_of(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0
