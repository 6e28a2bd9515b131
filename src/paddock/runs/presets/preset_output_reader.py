"""Parse agent output by the rules of a preset.

The events do not depend on how the output is split into pieces. The output is untrusted: lines that are too
long, not JSON, or JSON without a matching rule become output events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from paddock.model.events import EventType
from paddock.runs.presets.output_rules import AgentOutputRule, EmittedEventKind
from paddock.runs.presets.output_value_finders import (
    MAX_LIST_ITEMS,
    MAX_TEXT_BYTES,
    ConditionChecker,
    ValueFinder,
    event_name_from_value,
    event_text_from_value,
    make_arguments_finder,
    make_condition_checker,
    make_first_value_finder,
    make_truth_checker,
    make_value_finder,
    truncate_event_text,
)
from paddock.runs.presets.preset import AgentPreset

MAX_LINE_BYTES = 4 * 2**20
STDOUT = "stdout"
_EVENT_TYPES = {
    EmittedEventKind.TEXT: EventType.RUN_TEXT,
    EmittedEventKind.THINKING: EventType.RUN_THINKING,
    EmittedEventKind.TOOL_CALL: EventType.RUN_TOOL_CALL,
    EmittedEventKind.TOOL_RESULT: EventType.RUN_TOOL_RESULT,
}


@dataclass(frozen=True)
class ParsedAgentEvent:
    """Event parsed from an agent's output."""

    type: EventType
    data: dict[str, Any]


def make_output_reader(preset: AgentPreset) -> PresetOutputReader:
    """Return a reader for the output of one run."""
    return PresetOutputReader(preset)


class PresetOutputReader:
    """Incremental parser of agent output."""

    def __init__(self, preset: AgentPreset) -> None:
        self.turns = 0
        """Number of turns seen in the output."""
        self.error: str | None = None
        """Failure reported by the agent; None if it then finished."""
        self.done = False
        """Whether the agent reported that it finished."""
        self.usage = {"input_tokens": 0, "output_tokens": 0}
        """Model usage reported by the agent; the model proxy's figures are authoritative."""
        self._structured = preset.output.format == "json-lines"
        self._rules = [_CompiledRule(rule) for rule in preset.output.rules]
        self._failures = [
            (make_condition_checker(each.when), make_first_value_finder(each.message))
            for each in preset.errors
            if each.when is not None
        ]
        self._patterns = [(re.compile(each.output), each.stream) for each in preset.errors if each.output is not None]
        self._turn = make_condition_checker(preset.turn.when) if preset.turn else None
        self._turn_id = make_first_value_finder(preset.turn.id) if preset.turn else make_first_value_finder(None)
        self._last_turn: str | None = None
        self._acting = False
        self._lines = {STDOUT: _LineSplitter(), "stderr": _LineSplitter()}
        self._joined: tuple[EmittedEventKind, str, int] | None = None
        self._last_error: str | None = None

    def feed(self, stream: str, data: bytes) -> list[ParsedAgentEvent]:
        """Return events completed by the next piece of `stdout` or `stderr`."""
        events: list[ParsedAgentEvent] = []
        for line, dropped in self._lines[stream].split(data):
            self._read(stream, line, dropped, events)
        return events

    def close(self) -> list[ParsedAgentEvent]:
        """Return events of unfinished lines at the end of the output."""
        events: list[ParsedAgentEvent] = []
        for stream, lines in self._lines.items():
            for line, dropped in lines.rest():
                self._read(stream, line, dropped, events)
        self._flush_text(events)
        return events

    def _read(self, stream: str, line: bytes, dropped: int, events: list[ParsedAgentEvent]) -> None:
        text = line.decode("utf-8", "replace").removesuffix("\r")
        if not text.strip():
            return
        if self._structured and stream == STDOUT and not dropped and (document := _parse_document(text)) is not None:
            try:
                if self._apply_rules(document, events):
                    return
            except RecursionError:
                pass
        for pattern, where in self._patterns:
            if where in (None, stream) and pattern.search(text[:MAX_TEXT_BYTES]):
                self._record_failure(text, events)
                return
        if stream == STDOUT:
            self._flush_text(events)
        events.append(
            ParsedAgentEvent(
                EventType.RUN_OUTPUT, {"stream": stream, "text": truncate_event_text(text, dropped=dropped)}
            )
        )

    def _apply_rules(self, document: dict[str, Any], events: list[ParsedAgentEvent]) -> bool:
        """Apply all matching rules. Return False if none matches the line or its items."""
        failure = next((message for check, message in self._failures if check(document)), None)
        made = [act for rule in self._rules for act in rule.acts(document)]
        if failure is None and not made:
            return False
        if self._turn is not None and self._turn(document):
            self._count_turn(event_text_from_value(self._turn_id(document)) or None)
        for rule, item in made:
            if not (rule.emit is EmittedEventKind.DONE and failure is not None):
                self._apply_rule(rule, item, events)
        if failure is not None:
            self._record_failure(
                event_text_from_value(failure(document)) or "the agent failed and did not say why", events
            )
        return True

    def _apply_rule(self, rule: _CompiledRule, item: Any, events: list[ParsedAgentEvent]) -> None:
        match rule.emit:
            case EmittedEventKind.NOTHING:
                return
            case EmittedEventKind.USAGE:
                for name, find in rule.counts.items():
                    self.usage[name] += _count_value(find(item))
                return
            case EmittedEventKind.DONE:
                self._flush_text(events)
                self.done, self.error = True, None
                return
            case EmittedEventKind.TEXT | EmittedEventKind.THINKING:
                if not (text := event_text_from_value(rule.text(item))):
                    return
                self._begin_turn()
                if rule.join:
                    self._join_text(rule.emit, text, events)
                    return
                data: dict[str, Any] = {"text": truncate_event_text(text)}
            case EmittedEventKind.TOOL_CALL:
                self._begin_turn()
                data = {"id": event_name_from_value(rule.id(item)), "name": event_name_from_value(rule.name(item))}
                data["arguments"] = rule.arguments(item)
            case EmittedEventKind.TOOL_RESULT:
                self._acting = False
                data = {
                    "id": event_name_from_value(rule.id(item)),
                    "text": truncate_event_text(event_text_from_value(rule.text(item))),
                }
                data["failed"] = rule.failed(item)
            case _:
                self._emit_error(truncate_event_text(event_text_from_value(rule.text(item))), events)
                return
        self._flush_text(events)
        events.append(ParsedAgentEvent(_EVENT_TYPES[rule.emit], data))

    def _begin_turn(self) -> None:
        """Start a turn with an agent's action, unless one is open or the preset has its own turn rule."""
        if self._turn is None and not self._acting:
            self.turns += 1
        self._acting = True

    def _count_turn(self, turn: str | None) -> None:
        if turn is None or turn != self._last_turn:
            self.turns += 1
        self._last_turn = turn and turn[:MAX_TEXT_BYTES]

    def _record_failure(self, message: str, events: list[ParsedAgentEvent]) -> None:
        self.error, self.done = truncate_event_text(message), False
        self._emit_error(self.error, events)

    def _emit_error(self, message: str, events: list[ParsedAgentEvent]) -> None:
        """Emit an error unless it repeats the previous one; many agents repeat it at their end."""
        self._flush_text(events)
        if message != self._last_error:
            events.append(ParsedAgentEvent(EventType.RUN_ERROR, {"message": message}))
        self._last_error = message

    def _join_text(self, sort: EmittedEventKind, text: str, events: list[ParsedAgentEvent]) -> None:
        if self._joined is not None and self._joined[0] is not sort:
            self._flush_text(events)
        _, so_far, dropped = self._joined or (sort, "", 0)
        free = MAX_TEXT_BYTES - len(so_far)
        # Count the excess, do not store it.
        dropped += len(text[free:].encode("utf-8", "replace")) if free < len(text) else 0
        self._joined = (sort, so_far + text[: max(0, free)], dropped)

    def _flush_text(self, events: list[ParsedAgentEvent]) -> None:
        """Emit the joined text."""
        if self._joined is not None:
            sort, text, dropped = self._joined
            self._joined = None
            events.append(ParsedAgentEvent(_EVENT_TYPES[sort], {"text": truncate_event_text(text, dropped=dropped)}))


class _CompiledRule:
    """Compiled rule."""

    def __init__(self, rule: AgentOutputRule) -> None:
        self.emit = rule.emit or EmittedEventKind.NOTHING
        self.join = rule.join
        self._check: ConditionChecker = make_condition_checker(rule.when)
        self._each: ValueFinder | None = make_value_finder(rule.each) if rule.each is not None else None
        self._rules = [_CompiledRule(each) for each in rule.rules]
        self.text: ValueFinder = make_first_value_finder(rule.text)
        self.id: ValueFinder = make_first_value_finder(rule.id)
        self.name: ValueFinder = make_first_value_finder(rule.name)
        self.arguments: ValueFinder = make_arguments_finder(rule.arguments)
        self.failed: ConditionChecker = make_truth_checker(rule.failed)
        paths = {"input_tokens": rule.input_tokens, "output_tokens": rule.output_tokens}
        self.counts = {name: make_value_finder(path) for name, path in paths.items() if path is not None}

    def acts(self, document: Any) -> Iterator[tuple[_CompiledRule, Any]]:
        """Yield the rule's matches: the document, or items of a list in it."""
        if not self._check(document):
            return
        if self._each is None:
            yield self, document
            return
        items = self._each(document)
        for item in items[:MAX_LIST_ITEMS] if isinstance(items, list) else ():
            for rule in self._rules:
                yield from rule.acts(item)


@dataclass
class _LineSplitter:
    """Split pieces into lines with a limited length."""

    held: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def split(self, data: bytes) -> Iterator[tuple[bytes, int]]:
        """Return completed lines, each with its number of dropped bytes."""
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._hold(end)
            yield from self._take()
        self._hold(rest)

    def rest(self) -> Iterator[tuple[bytes, int]]:
        """Return the unfinished last line."""
        if self.held:
            yield from self._take()

    def _hold(self, piece: bytes) -> None:
        free = MAX_LINE_BYTES - len(self.held)
        self.held += piece[:free]
        self.dropped += max(0, len(piece) - free)

    def _take(self) -> Iterator[tuple[bytes, int]]:
        line, dropped = bytes(self.held), self.dropped
        self.held.clear()
        self.dropped = 0
        yield line, dropped


def _parse_document(text: str) -> dict[str, Any] | None:
    """Parse a line as a JSON object, or return None."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _count_value(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0
