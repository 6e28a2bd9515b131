"""A run of a task: where it stands, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import AwareDatetime, Field

from paddock.model.owners import Owned
from paddock.model.sandbox import Frozen
from paddock.model.task import Task


class RunState(StrEnum):
    """In the words that users read."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    LOST = "lost"
    """Its sandbox ended or stopped answering."""
    OVER_BUDGET = "over_budget"

    @property
    def ended(self) -> bool:
        return self not in (RunState.QUEUED, RunState.RUNNING)


class Stage(StrEnum):
    """What a run goes through, in this order. The stage of a run is the one under way, not the last that was done."""

    ADMIT = "admit"
    SANDBOX = "sandbox"
    INPUTS = "inputs"
    START = "start"
    WATCH = "watch"
    COLLECT = "collect"
    VERIFY = "verify"
    RELEASE = "release"


class EndedBy(StrEnum):
    """What ended the work."""

    EXIT = "exit"
    FILE = "file"
    OUTPUT = "output"
    SAYS = "says"
    VERIFIED = "verified"
    TURNS = "turns"
    BUDGET = "budget"
    TIMEOUT = "timeout"
    SILENCE = "silence"
    CANCEL = "cancel"
    AGENT_ERROR = "agent_error"
    """The agent told of an error, whatever its exit code."""
    OUT_OF_MEMORY = "out_of_memory"
    DISK_FULL = "disk_full"
    BOX_DIED = "box_died"
    BOX_SILENT = "box_silent"
    BOX_FROZEN = "box_frozen"
    SETUP = "setup"
    """It could not be begun: sandbox, inputs or entrypoint."""


class ReasonCode(StrEnum):
    """Why the work ended. Work that could not start has the code of its error instead."""

    EXITED = "EXITED"
    EXITED_EARLY = "EXITED_EARLY"
    EXITED_SILENT = "EXITED_SILENT"
    MODEL_UNANSWERED = "MODEL_UNANSWERED"
    AGENT_FAILED = "AGENT_FAILED"
    ENTRYPOINT_MISSING = "ENTRYPOINT_MISSING"
    ENTRYPOINT_LOST = "ENTRYPOINT_LOST"
    FILE_FOUND = "FILE_FOUND"
    OUTPUT_FOUND = "OUTPUT_FOUND"
    WORDS_FOUND = "WORDS_FOUND"
    CHECKS_PASSED = "CHECKS_PASSED"
    CHECKS_FAILED = "CHECKS_FAILED"
    DELIVERABLES_MISSING = "DELIVERABLES_MISSING"
    TURNS_SPENT = "TURNS_SPENT"
    REQUESTS_SPENT = "REQUESTS_SPENT"
    TOKENS_SPENT = "TOKENS_SPENT"
    COST_SPENT = "COST_SPENT"
    BUDGET_REFUSED = "BUDGET_REFUSED"
    TIMED_OUT = "TIMED_OUT"
    SILENT = "SILENT"
    CANCELLED = "CANCELLED"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    DISK_FULL = "DISK_FULL"
    SANDBOX_ENDED = "SANDBOX_ENDED"
    SANDBOX_DELETED = "SANDBOX_DELETED"
    SANDBOX_EXPIRED = "SANDBOX_EXPIRED"
    SANDBOX_IDLE = "SANDBOX_IDLE"
    SANDBOX_SILENT = "SANDBOX_SILENT"
    SANDBOX_FROZEN = "SANDBOX_FROZEN"
    HOST_ERROR = "HOST_ERROR"


class Delivered(Frozen):
    """One file that came back."""

    path: str
    """Below the run's `deliverables/`."""
    size: int
    sha256: str
    note: str = ""
    """What is odd about it, such as that it was written to while it was read."""


class Missing(Frozen):
    """A deliverable that did not come back, or not all of it."""

    path: str
    """In the sandbox; a pattern where the task has one."""
    required: bool
    reason: str


class Checked(Frozen):
    """What became of one of the task's checks."""

    name: str
    passed: bool
    required: bool
    weight: float
    exit_code: int | None
    seconds: float
    output: str = ""
    """The end of what it wrote."""


class Traffic(Frozen):
    """What a run has asked of models."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    """US dollars; none when nobody knows the price."""
    model: str | None = None
    scripted: bool = False
    """Whether a script or a recording answered, not a model."""
    failed: int = 0
    """Requests that nobody answered, or not to the end."""
    last_error: str | None = None
    last_at: float | None = None
    """Seconds since 1970, of the beginning or the end of a request, whichever was later."""
    under_way: int = 0


class Result(Frozen):
    """What came of a run."""

    state: RunState
    ended_by: EndedBy
    reason: str
    """A sentence."""
    code: str = ""
    """A `ReasonCode` or the code of an error; empty in results of older versions."""
    params: Mapping[str, str] = {}
    """Values of the reason, for translations."""
    exit_code: int | None = None
    evidence: Mapping[str, Any] = {}
    """What there is to go by: last output, counters, what the box said last."""
    attempt: int = 1
    turns: int = 0
    traffic: Traffic = Traffic()
    seconds: float = 0.0
    stages: Mapping[str, float] = {}
    """Seconds that each stage took."""
    deliverables: tuple[Delivered, ...] = ()
    missing: tuple[Missing, ...] = ()
    checks: tuple[Checked, ...] = ()
    score: float | None = None
    """Between 0 and 1: the weight of the checks that passed in that of all."""


class Run(Owned):
    """One run of a task."""

    id: str
    tenant: str
    name: str
    """The task's, with the agent and the model of its place in a matrix."""
    group: str | None = None
    """What the runs of one matrix, or of one request, have in common."""
    task: Task
    inputs: str | None = None
    """Id of the bundle with what is put into the sandbox."""
    state: RunState
    stage: Stage
    attempt: int = 1
    priority: int = 0
    sandbox_id: str | None = None
    model: str | None = None
    """The model that the agent is told to ask for."""
    scripted: bool = False
    request_key: str | None = None
    owner: str | None = None
    """The runner that sees to it."""
    owned_until: AwareDatetime | None = None
    """When another runner may take it over."""
    cancelling: str | None = None
    """Why it is to stop, once somebody has asked for that."""
    hard: bool = False
    """Whether it is to stop at once, and not to be asked first."""
    not_before: AwareDatetime | None = None
    """When it may be tried again."""
    created_at: AwareDatetime
    changed_at: AwareDatetime
    started_at: AwareDatetime | None = None
    ended_at: AwareDatetime | None = None
    progress: Mapping[str, Any] = Field(default_factory=dict)
    """What the stages have noted for whoever goes on with them: seconds per stage, the place in the output, how the
    work ended."""
    result: Result | None = None
