"""State of a running task, accumulated from its events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from paddock.cli.output.agent_text import clean_terminal_line, clean_terminal_text, summarize_tool_arguments
from paddock.cli.output.formatting import format_build_step, parse_time

RUN_STAGES = ("admit", "image", "sandbox", "inputs", "start", "watch", "collect", "verify", "release")
SUCCEEDED_STATE = "succeeded"
ENDED_STATES = ("succeeded", "failed", "timed_out", "cancelled", "lost", "over_budget")
RUN_STATES = ("queued", "running", *ENDED_STATES)

LineKind = Literal["said", "thought", "call", "result", "failure", "output", "error", "note", "passed"]


@dataclass(frozen=True)
class ProgressLine:
    """One line of a run's progress output."""

    kind: LineKind
    text: str
    title: str = ""
    """Tool name of a call."""
    continues: bool = False
    """Whether the text continues the previous line's message."""


@dataclass
class RunProgressState:
    """State of one run after the events seen so far."""

    name: str
    id: str = ""
    state: str = "queued"
    stage: str = ""
    step: str = ""
    """Current step of a long stage, such as a step of an image build."""
    image: str = ""
    """Image being built."""
    attempt: int = 1
    model: str = ""
    scripted: bool = False
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    reason: str = ""
    last_line: str = ""
    """Text of the latest progress line."""
    last_message: str = ""
    """The agent's latest message."""
    last_error: str = ""
    """The agent's latest error, unless a message followed."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    last_event_at: datetime | None = None
    """Time of the last event."""
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds per finished stage."""
    stage_started_at: datetime | None = None
    partial_text: str = ""
    """Streamed text after the last line break."""
    text_shown: bool = False
    """Whether lines of the streamed message have been shown."""
    last_event_number: int = 0
    """Number of the last event seen."""

    def apply_event(self, event: Mapping[str, Any]) -> list[ProgressLine]:
        """Update the state from an event and return the progress lines to show."""
        self.last_event_number = max(self.last_event_number, int(event.get("number") or 0))
        data: Mapping[str, Any] = event.get("data") or {}
        kind = str(event.get("type", "")).removeprefix("run.")
        self.last_event_at = at = parse_time(event.get("at"))
        self.started_at = self.started_at or at
        lines = self._streamed_text_lines(kind, data) + self._event_lines(kind, data, at)
        self._remember_last_message(kind, lines)
        if lines:
            self.last_line = clean_terminal_line(f"{lines[-1].title} {lines[-1].text}")
        return lines

    @property
    def final_messages(self) -> tuple[str, ...]:
        """The agent's last error and message, if any."""
        return tuple(text for text in (self.last_error, self.last_message) if text)

    @property
    def image_build_status(self) -> str:
        """Status of the image build, or empty."""
        return f"building image {self.image}".rstrip() + f": {self.step}" if self.step else ""

    def _remember_last_message(self, kind: str, lines: Sequence[ProgressLine]) -> None:
        for line in lines:
            if line.kind == "said":
                self.last_message, self.last_error = line.text, ""
            elif kind == "error":
                self.last_error = line.text

    def _event_lines(self, kind: str, data: Mapping[str, Any], at: datetime | None) -> list[ProgressLine]:
        text = str(data.get("text") or "")
        match kind:
            case "text" if data.get("join"):
                return []
            case "text":
                return [ProgressLine("said", clean_terminal_text(text).strip())] if text.strip() else []
            case "thinking":
                return [ProgressLine("thought", clean_terminal_line(text))] if text.strip() else []
            case "tool_call":
                return [
                    ProgressLine(
                        "call",
                        summarize_tool_arguments(data.get("arguments")),
                        clean_terminal_line(str(data.get("name") or "tool")),
                    )
                ]
            case "tool_result":
                return [
                    ProgressLine(
                        "failure" if data.get("failed") else "result", clean_terminal_line(text) or "(nothing)"
                    )
                ]
            case "output":
                return [ProgressLine("output", line) for line in clean_terminal_text(text).splitlines() if line.strip()]
            case "error":
                return [ProgressLine("error", clean_terminal_line(str(data.get("message") or "")))]
            case _:
                return self._apply_state_event(kind, data, at)

    def _streamed_text_lines(self, kind: str, data: Mapping[str, Any]) -> list[ProgressLine]:
        """Return the complete lines of streamed text."""
        continues, joins = self.text_shown, kind == "text" and bool(data.get("join"))
        if joins:
            whole, _, self.partial_text = f"{self.partial_text}{data.get('text') or ''}".rpartition("\n")
        else:
            whole, self.partial_text = self.partial_text, ""
        self.text_shown = joins and (continues or bool(whole.strip()))
        text = clean_terminal_text(whole).strip()
        return [ProgressLine("said", text, continues=continues)] if text else []

    def _apply_state_event(self, kind: str, data: Mapping[str, Any], at: datetime | None) -> list[ProgressLine]:
        match kind:
            case "started":
                self.state, self.attempt = "running", int(data.get("attempt") or self.attempt)
                self.model = str(data.get("model") or self.model)
                self.scripted = bool(data.get("scripted", self.scripted))
                if self.attempt > 1:
                    self.stages, self.stage = {}, ""
                if data.get("instead_of"):
                    missing = f"the server's default, because {data['instead_of']} is not configured"
                    return [ProgressLine("note", clean_terminal_line(f"model {self.model}: {missing}"))]
            case "stage":
                self._enter_stage(data, at)
            case "usage":
                self._apply_usage(data)
            case "checked":
                passed = bool(data.get("passed"))
                word = "passed" if passed else f"failed with exit code {data.get('exit_code')}"
                return [
                    ProgressLine(
                        "passed" if passed else "error",
                        f"check {clean_terminal_line(str(data.get('name', '')))}: {word}",
                    )
                ]
            case "model_failed":
                more = " (the agent retries)" if data.get("retried") else ""
                return [ProgressLine("note", clean_terminal_line(f"model request failed: {data.get('message')}{more}"))]
            case "missing":
                return [ProgressLine("note", clean_terminal_line(f"no {data.get('path')}: {data.get('reason')}"))]
            case "cancelling":
                return [ProgressLine("note", clean_terminal_line(f"cancelling: {data.get('reason') or 'requested'}"))]
            case "retrying":
                self._close_stage(at)
                self.state, self.stage = "queued", ""
                wait = float(data.get("wait") or 0)
                return [
                    ProgressLine(
                        "note",
                        clean_terminal_line(f"{data.get('state')}: {data.get('reason')}; retrying in {wait:.0f} s"),
                    )
                ]
            case "ended":
                self._close_stage(at)
                self.state, self.stage, self.ended_at = str(data.get("state") or "failed"), "", at
                self.reason = clean_terminal_line(str(data.get("reason") or ""))
        return []

    def _enter_stage(self, data: Mapping[str, Any], at: datetime | None) -> None:
        stage = str(data.get("stage") or "")
        if stage == "admit" and data.get("step"):
            stage = "image"  # The build is the end of this stage, and takes most of its time.
        self.state, self.step = "running", clean_terminal_line(str(data.get("step") or ""))
        self.image = clean_terminal_line(str(data.get("image") or ""))
        if self.step:
            self.step = format_build_step(data, self.step)
        if stage != self.stage or self.stage_started_at is None:
            self._close_stage(at)
            self.stage, self.stage_started_at = stage, at

    def _apply_usage(self, data: Mapping[str, Any]) -> None:
        self.turns = int(data.get("turns") or self.turns)
        self.input_tokens = int(data.get("input_tokens") or self.input_tokens)
        self.output_tokens = int(data.get("output_tokens") or self.output_tokens)
        if data.get("cost") is not None:
            self.cost = float(data["cost"])
        self.model = str(data.get("model") or self.model)
        self.scripted = bool(data.get("scripted", self.scripted))

    def _close_stage(self, at: datetime | None) -> None:
        if self.stage and self.stage_started_at and at:
            self.stages[self.stage] = self.stages.get(self.stage, 0.0) + (at - self.stage_started_at).total_seconds()
        self.stage_started_at = None

    def elapsed_seconds(self, now: datetime) -> float:
        """Return the seconds from queueing until the end or now."""
        return max(0.0, ((self.ended_at or now) - self.started_at).total_seconds()) if self.started_at else 0.0

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_STATES
