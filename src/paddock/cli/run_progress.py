"""What is known of a run while it goes on, put together from its events."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from paddock.cli.output import moment, plain

STAGES = ("admit", "sandbox", "inputs", "start", "watch", "collect", "verify", "release")
SUCCEEDED = "succeeded"
ENDED = ("succeeded", "failed", "timed_out", "cancelled", "lost", "over_budget")
STATES = ("queued", "running", *ENDED)
_STEERING = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    r"|\x1b[\]PX^_][^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # titles, links, and what else is a string
    r"|\x1b[ -/]*[0-~]?"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_TELLING = ("command", "file_path", "path", "filename", "pattern", "query", "url", "description", "prompt", "content")
"""Arguments of tools that say most about a call, the most telling first."""

Sort = Literal["said", "thought", "call", "result", "failure", "output", "error", "note", "passed"]


def tidy(text: str) -> str:
    """Text of an agent as people can read it: without colours, and unable to steer a terminal."""
    text = _STEERING.sub("", text.replace("\r\n", "\n"))
    # Of a line that was written over again, what came last is what was to be seen.
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    return plain("\n".join(lines).expandtabs(4))


def one_line(text: str) -> str:
    return " ".join(tidy(text).split())


def arguments_of(arguments: object) -> str:
    """A tool's arguments on one line: the most telling one alone, or all of them."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return one_line(str(arguments))
    if not isinstance(arguments, Mapping):
        return "" if arguments is None else one_line(json.dumps(arguments, ensure_ascii=False, default=str))
    for name in _TELLING:
        if isinstance(arguments.get(name), str) and arguments[name].strip():
            return one_line(arguments[name])
    return one_line(" ".join(f"{name}={_shown(value)}" for name, value in arguments.items()))


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


@dataclass(frozen=True)
class Line:
    """One thing to be told of a run."""

    sort: Sort
    text: str
    title: str = ""
    """The tool's name."""


@dataclass
class Progress:
    """One run, as far as its events have told."""

    name: str
    id: str = ""
    state: str = "queued"
    stage: str = ""
    step: str = ""
    """What is being done in the stage, where that takes long, such as a step of building the image."""
    image: str = ""
    """The image that is being built."""
    attempt: int = 1
    model: str = ""
    scripted: bool = False
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    reason: str = ""
    last: str = ""
    """The last line of what it said or did."""
    said: str = ""
    """What the agent said last."""
    error: str = ""
    """What it told of as an error, if it has said nothing since."""
    began: datetime | None = None
    ended: datetime | None = None
    at: datetime | None = None
    """When the last event happened."""
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds of the stages that are over."""
    stage_began: datetime | None = None
    speech: str = ""
    """Words of the agent that are not known to end here."""
    number: int = 0
    """The last event that was seen."""

    def note(self, event: Mapping[str, Any]) -> list[Line]:
        """Take an event in, and say what of it is worth a line."""
        self.number = max(self.number, int(event.get("number") or 0))
        data: Mapping[str, Any] = event.get("data") or {}
        kind = str(event.get("type", "")).removeprefix("run.")
        self.at = at = moment(event.get("at"))
        self.began = self.began or at
        lines = self._heard(kind, data) + self._told(kind, data, at)
        self._remember(kind, lines)
        if lines:
            self.last = one_line(f"{lines[-1].title} {lines[-1].text}")
        return lines

    @property
    def last_words(self) -> tuple[str, ...]:
        """What the agent said at the end, the latest first."""
        return tuple(text for text in (self.error, self.said) if text)

    @property
    def building(self) -> str:
        """Which image is built, and how far that is; empty when none is."""
        return f"building image {self.image}".rstrip() + f": {self.step}" if self.step else ""

    def _remember(self, kind: str, lines: Sequence[Line]) -> None:
        for line in lines:
            if line.sort == "said":
                self.said, self.error = line.text, ""
            elif kind == "error":
                self.error = line.text

    def _told(self, kind: str, data: Mapping[str, Any], at: datetime | None) -> list[Line]:
        text = str(data.get("text") or "")
        match kind:
            case "text" if data.get("join"):
                return []
            case "text":
                return [Line("said", tidy(text).strip())] if text.strip() else []
            case "thinking":
                return [Line("thought", one_line(text))] if text.strip() else []
            case "tool_call":
                return [Line("call", arguments_of(data.get("arguments")), one_line(str(data.get("name") or "tool")))]
            case "tool_result":
                return [Line("failure" if data.get("failed") else "result", one_line(text) or "(nothing)")]
            case "output":
                return [Line("output", line) for line in tidy(text).splitlines() if line.strip()]
            case "error":
                return [Line("error", one_line(str(data.get("message") or "")))]
            case _:
                return self._moved(kind, data, at)

    def _heard(self, kind: str, data: Mapping[str, Any]) -> list[Line]:
        """Words that come in pieces are told line by line."""
        if kind == "text" and data.get("join"):
            whole, _, self.speech = f"{self.speech}{data.get('text') or ''}".rpartition("\n")
        else:
            whole, self.speech = self.speech, ""
        return [Line("said", tidy(whole).strip())] if whole.strip() else []

    def _moved(self, kind: str, data: Mapping[str, Any], at: datetime | None) -> list[Line]:
        match kind:
            case "started":
                self.state, self.attempt = "running", int(data.get("attempt") or self.attempt)
                self.model = str(data.get("model") or self.model)
                self.scripted = bool(data.get("scripted", self.scripted))
                if self.attempt > 1:
                    self.stages, self.stage = {}, ""
                if data.get("instead_of"):
                    missing = f"the server's default, as it has no {data['instead_of']}"
                    return [Line("note", one_line(f"model {self.model}: {missing}"))]
            case "stage":
                self._enter(data, at)
            case "usage":
                self._count(data)
            case "checked":
                passed = bool(data.get("passed"))
                word = "passed" if passed else f"failed with exit code {data.get('exit_code')}"
                return [Line("passed" if passed else "error", f"check {one_line(str(data.get('name', '')))}: {word}")]
            case "missing":
                return [Line("note", one_line(f"no {data.get('path')}: {data.get('reason')}"))]
            case "cancelling":
                return [Line("note", one_line(f"cancelling: {data.get('reason') or 'somebody asked for it'}"))]
            case "retrying":
                self._close_stage(at)
                self.state, self.stage = "queued", ""
                wait = float(data.get("wait") or 0)
                return [Line("note", one_line(f"{data.get('state')}: {data.get('reason')}; again in {wait:.0f} s"))]
            case "ended":
                self._close_stage(at)
                self.state, self.stage, self.ended = str(data.get("state") or "failed"), "", at
                self.reason = one_line(str(data.get("reason") or ""))
        return []

    def _enter(self, data: Mapping[str, Any], at: datetime | None) -> None:
        stage, fraction = str(data.get("stage") or ""), data.get("fraction")
        self.state, self.step = "running", one_line(str(data.get("step") or ""))
        self.image = one_line(str(data.get("image") or ""))
        if self.step and fraction:
            self.step += f", {float(fraction):.0%}"
        if stage != self.stage or self.stage_began is None:
            self._close_stage(at)
            self.stage, self.stage_began = stage, at

    def _count(self, data: Mapping[str, Any]) -> None:
        self.turns = int(data.get("turns") or self.turns)
        self.input_tokens = int(data.get("input_tokens") or self.input_tokens)
        self.output_tokens = int(data.get("output_tokens") or self.output_tokens)
        if data.get("cost") is not None:
            self.cost = float(data["cost"])
        self.model = str(data.get("model") or self.model)
        self.scripted = bool(data.get("scripted", self.scripted))

    def _close_stage(self, at: datetime | None) -> None:
        if self.stage and self.stage_began and at:
            self.stages[self.stage] = self.stages.get(self.stage, 0.0) + (at - self.stage_began).total_seconds()
        self.stage_began = None

    def elapsed(self, now: datetime) -> float:
        """Seconds since it was queued, until its end."""
        return max(0.0, ((self.ended or now) - self.began).total_seconds()) if self.began else 0.0

    @property
    def over(self) -> bool:
        return self.state in ENDED
