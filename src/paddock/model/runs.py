"""Runs of tasks: state, stage and result."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import AwareDatetime, Field

from paddock.model.owners import Ownership
from paddock.model.sandbox import FrozenModel
from paddock.model.task import Task


class RunState(StrEnum):
    """State of a run, as users read it."""

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


class RunStage(StrEnum):
    """Stages of a run, in order. A run's stage is the current one, not the last completed one."""

    ADMIT = "admit"
    SANDBOX = "sandbox"
    INPUTS = "inputs"
    START = "start"
    WATCH = "watch"
    COLLECT = "collect"
    VERIFY = "verify"
    RELEASE = "release"


class EndedBy(StrEnum):
    """Condition that ended the work."""

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
    """The agent reported an error; its exit code does not count."""
    MODEL = "model"
    """The model's provider answered none of the requests."""
    OUT_OF_MEMORY = "out_of_memory"
    DISK_FULL = "disk_full"
    SANDBOX_DIED = "sandbox_died"
    SANDBOX_SILENT = "sandbox_silent"
    SANDBOX_FROZEN = "sandbox_frozen"
    SETUP = "setup"
    """Sandbox, inputs or entrypoint could not be set up."""


class RunReasonCode(StrEnum):
    """Reason for the end of the work. A run that could not start has the code of its error instead."""

    EXITED = "EXITED"
    EXITED_EARLY = "EXITED_EARLY"
    EXITED_SILENT = "EXITED_SILENT"
    MODEL_UNANSWERED = "MODEL_UNANSWERED"
    PROVIDER_UNREACHED = "PROVIDER_UNREACHED"
    PROVIDER_KEY_REFUSED = "PROVIDER_KEY_REFUSED"
    """The agent failed because the provider of its model refused the server's key."""
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


class DeliveredFile(FrozenModel):
    """One file copied out of the sandbox."""

    path: str
    """Path below the run's `deliverables/`."""
    size: int
    sha256: str
    note: str = ""
    """Caveat, such as a write during the copy."""


class MissingDeliverable(FrozenModel):
    """A deliverable that is missing or incomplete."""

    path: str
    """Path or pattern in the sandbox."""
    required: bool
    reason: str


class TaskCheckResult(FrozenModel):
    """Result of one check of the task."""

    name: str
    passed: bool
    required: bool
    weight: float
    exit_code: int | None
    seconds: float
    output: str = ""
    """End of the output."""


class ModelUsage(FrozenModel):
    """Model requests, tokens and cost of a run."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    """US dollars; `None` if a price is unknown."""
    model: str | None = None
    scripted: bool = False
    """Whether a scripted model or a recording answered."""
    failed: int = 0
    """Requests without a complete answer."""
    last_error: str | None = None
    last_at: float | None = None
    """Time of the latest start or end of a request, in seconds since 1970."""
    under_way: int = 0
    failing: int = 0
    """Failed requests since the last answered one."""
    unreached: int = 0
    """Those of them that no provider answered: none could be reached, or it reported a server error."""
    failing_since: float | None = None
    """Time of the first of them, in seconds since 1970."""


class RunResult(FrozenModel):
    """Result of a run."""

    state: RunState
    ended_by: EndedBy
    reason: str
    """One sentence in English."""
    code: str = ""
    """A `RunReasonCode` or the code of an error; empty in results of older versions."""
    params: Mapping[str, str] = {}
    """Values of the reason, for translations."""
    exit_code: int | None = None
    evidence: Mapping[str, Any] = {}
    """Facts behind the reason: last output, counters, last state of the sandbox."""
    attempt: int = 1
    turns: int = 0
    traffic: ModelUsage = ModelUsage()
    seconds: float = 0.0
    stages: Mapping[str, float] = {}
    """Seconds per stage, and of the image build (`image`), if there was one."""
    deliverables: tuple[DeliveredFile, ...] = ()
    missing: tuple[MissingDeliverable, ...] = ()
    checks: tuple[TaskCheckResult, ...] = ()
    score: float | None = None
    """Weight of the passed checks divided by the weight of all, 0 to 1."""


class Run(Ownership):
    """One run of a task."""

    id: str
    tenant: str
    name: str
    """Name of the task, with agent and model for runs of a matrix."""
    group: str | None = None
    """Id shared by the runs of one matrix or request."""
    task: Task
    inputs: str | None = None
    """Id of the uploaded bundle with the inputs."""
    state: RunState
    stage: RunStage
    attempt: int = 1
    priority: int = 0
    sandbox_id: str | None = None
    model: str | None = None
    """Model name given to the agent."""
    scripted: bool = False
    request_key: str | None = None
    owner: str | None = None
    """Runner that holds the lease."""
    owned_until: AwareDatetime | None = None
    """End of the lease."""
    cancelling: str | None = None
    """Reason of a requested cancellation."""
    hard: bool = False
    """Whether cancellation skips the graceful stop."""
    not_before: AwareDatetime | None = None
    """Earliest time of the next attempt."""
    created_at: AwareDatetime
    changed_at: AwareDatetime
    started_at: AwareDatetime | None = None
    ended_at: AwareDatetime | None = None
    progress: Mapping[str, Any] = Field(default_factory=dict)
    """State that stages need to resume: seconds per stage, output position, end of the work."""
    result: RunResult | None = None
