"""What is asked and said about runs."""

from __future__ import annotations

from typing import Any

from pydantic import AwareDatetime, Field, model_validator

from paddock.api.wire import Asked, Pagination, Said, Shared
from paddock.model.owners import Visibility
from paddock.model.runs import EndedBy, Result, Run, RunState, Stage
from paddock.runs.issues import IssueCode, Level

RUN_NAME = r"^[A-Za-z0-9][^\x00-\x20\x7f]{0,399}$"
GROUP = r"^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,99}$"


class RunBody(Asked):
    task: dict[str, Any] | None = Field(
        default=None,
        examples=[{"name": "hello", "goal": "Say hello.", "image": "host", "entrypoint": "echo hello"}],
    )
    """A task as a task file has it; what its inputs name on a disk goes into a bundle instead."""
    file: str | None = Field(default=None, min_length=1, max_length=255, examples=["hello.yaml"])
    """A task file that the server offers."""
    template: str | None = Field(default=None, min_length=1, max_length=255, examples=["hello-script"])
    """A sample task that ships with Paddock. Its script answers in place of a model, so it needs no API key."""
    inputs: str | None = Field(default=None, min_length=1, max_length=100)
    """Id of a bundle that was sent to `/v1/inputs`."""
    name: str | None = Field(default=None, pattern=RUN_NAME)
    """What a single run is called; as its task is if left out."""
    group: str | None = Field(default=None, pattern=GROUP)
    """What these runs have in common with others; made up for a matrix."""
    visibility: Shared | None = None
    """`private` for its owner alone, `tenant` for every key of the tenant. Its sandbox follows."""

    @model_validator(mode="after")
    def _one_task(self) -> RunBody:
        if sum(each is not None for each in (self.task, self.file, self.template)) != 1:
            raise ValueError("give one of 'task', 'file' and 'template'")
        if self.task is None and self.inputs is not None:
            raise ValueError("a file's inputs are where it is; 'inputs' goes with 'task'")
        if self.name is not None and (self.task is None or self.task.get("matrix")):
            raise ValueError("'name' is for a single run of a 'task'")
        return self


class CancelBody(Asked):
    hard: bool = False
    """End it at once, without what it has made so far."""
    reason: str | None = Field(default=None, min_length=1, max_length=500)


class BundleSaid(Said):
    id: str
    size: int


class TrafficSaid(Said):
    requests: int
    input_tokens: int
    output_tokens: int
    cost: float | None = None
    """US dollars; left out when nobody knows the price."""
    model: str | None = None
    scripted: bool
    """Whether a script or a recording answered, not a model."""
    failed: int
    last_error: str | None = None


class DeliveredSaid(Said):
    path: str
    size: int
    sha256: str
    note: str = ""
    """What is odd about it."""


class MissingSaid(Said):
    path: str
    required: bool
    reason: str


class CheckedSaid(Said):
    name: str
    passed: bool
    required: bool
    weight: float
    exit_code: int | None = None
    seconds: float
    output: str


class ResultBrief(Said):
    """What came of a run, in short."""

    state: RunState
    ended_by: EndedBy
    reason: str
    code: str
    """Of the reason, for programs: why the work ended, or the error that kept it from starting."""
    params: dict[str, str]
    """Values of the reason, for translations."""
    exit_code: int | None = None
    attempt: int
    turns: int
    traffic: TrafficSaid
    seconds: float
    score: float | None = None

    @classmethod
    def values(cls, result: Result) -> dict[str, Any]:
        dumped = result.model_dump()
        return {name: dumped[name] for name in cls.model_fields}

    @classmethod
    def of(cls, result: Result) -> ResultBrief:
        return cls(**cls.values(result))


class ResultSaid(ResultBrief):
    """What came of a run."""

    evidence: dict[str, Any]
    stages: dict[str, float]
    """Seconds that each stage took."""
    deliverables: list[DeliveredSaid]
    missing: list[MissingSaid]
    checks: list[CheckedSaid]

    @classmethod
    def of(cls, result: Result) -> ResultSaid:
        return cls(**cls.values(result))


class RunItem(Said):
    """A run among others."""

    id: str
    name: str
    group: str | None = None
    state: RunState
    stage: Stage
    """The stage under way, or the last one."""
    attempt: int
    priority: int
    agent: str | None = None
    model: str | None = None
    scripted: bool
    sandbox_id: str | None = None
    subject: str | None = None
    """Stable id of its owner: a user or a key. Older runs have none."""
    created_by: str | None = None
    """Name of the key that made it."""
    visibility: Visibility
    cancelling: str | None = None
    not_before: AwareDatetime | None = None
    created_at: AwareDatetime
    changed_at: AwareDatetime
    started_at: AwareDatetime | None = None
    ended_at: AwareDatetime | None = None
    result: ResultBrief | None = None

    @classmethod
    def values(cls, run: Run) -> dict[str, Any]:
        kept = {name: getattr(run, name) for name in cls.model_fields if name in Run.model_fields}
        return {**kept, "agent": run.task.agent}

    @classmethod
    def of(cls, run: Run) -> RunItem:
        return cls(**{**cls.values(run), "result": ResultBrief.of(run.result) if run.result else None})


class RunSaid(RunItem):
    """All that is known of a run."""

    task: dict[str, Any]
    """As a task file has it, without what may be a secret."""
    inputs: str | None = None
    result: ResultSaid | None = None

    @classmethod
    def with_task(cls, run: Run, task: dict[str, Any]) -> RunSaid:
        """`task` is the run's, with secrets hidden."""
        result = ResultSaid.of(run.result) if run.result else None
        return cls(**{**cls.values(run), "task": task, "result": result})


class RunsSaid(Said):
    runs: list[RunSaid]
    """One, or as many as the task's matrix gives."""


class RunList(Said):
    items: list[RunItem]
    pagination: Pagination


class DeliverableList(Said):
    items: list[DeliveredSaid]
    missing: list[MissingSaid]


class TaskItem(Said):
    """A task file that the server offers."""

    file: str
    name: str | None = None
    description: str | None = None
    error: str | None = None
    """What is wrong with it."""


class TaskList(Said):
    items: list[TaskItem]


class TaskSaid(Said):
    file: str
    name: str
    description: str
    task: dict[str, Any]
    runs: list[str]
    """Names of the runs it gives."""


class TemplateItem(Said):
    """A sample task that ships with Paddock."""

    name: str
    description: str
    agent: str | None = None
    model: str | None = None
    """The model it asks for when it is run as a task of your own."""
    image: str
    image_built: bool
    """Whether the image is ready; otherwise the first run builds it, which takes minutes."""
    scripted: bool
    """Whether it brings a script that answers in place of the model."""
    needs_key: bool
    """Whether it needs a model, and so a provider's API key, to run as it is."""


class TemplateItems(Said):
    items: list[TemplateItem]


class TemplateSaid(TemplateItem):
    """A sample task, whole."""

    task: dict[str, Any]
    """The task with its input files as texts."""


class ValidateBody(Asked):
    task: dict[str, Any]


class IssueSaid(Said):
    code: IssueCode
    level: Level
    field: str
    message: str
    params: dict[str, str]


class Verdict(Said):
    valid: bool
    """Whether a run of it is accepted."""
    ready: bool
    """Whether it can run now: it is valid and none of the issues is an error."""
    error: str | None = None
    """What is wrong, and how to put it right."""
    issues: list[IssueSaid]
    """What is missing, such as a model, and what to know before, such as an image that is built first."""
    runs: list[str]
    """Names of the runs it would give."""
    models: list[str] = []
    """Models that its runs would ask, each once; none for a script."""
