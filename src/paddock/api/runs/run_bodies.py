"""Request and response bodies of runs and tasks."""

from __future__ import annotations

from typing import Any

from pydantic import AwareDatetime, Field, model_validator

from paddock.api.http.body_models import RequestBody, ResponseBody
from paddock.api.http.numbered_pages import Pagination
from paddock.api.http.visibility_change import VisibilityField
from paddock.model.owners import Visibility
from paddock.model.runs import EndedBy, Run, RunResult, RunStage, RunState
from paddock.runs.tasks.readiness_issues import IssueCode, IssueLevel

RUN_NAME_PATTERN = r"^[A-Za-z0-9][^\x00-\x20\x7f]{0,399}$"
RUN_GROUP_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,99}$"


class CreateRunsRequest(RequestBody):
    task: dict[str, Any] | None = Field(
        default=None,
        examples=[{"name": "hello", "goal": "Say hello.", "image": "host", "entrypoint": "echo hello"}],
    )
    """A task as in a task file; local input files are sent as a bundle instead."""
    file: str | None = Field(default=None, min_length=1, max_length=255, examples=["hello.yaml"])
    """A task file that the server offers."""
    template: str | None = Field(default=None, min_length=1, max_length=255, examples=["hello-script"])
    """A sample task that ships with Paddock. Its script stands in for a model, so it needs no API key."""
    inputs: str | None = Field(default=None, min_length=1, max_length=100)
    """Id of a bundle uploaded to `/v1/inputs`."""
    name: str | None = Field(default=None, pattern=RUN_NAME_PATTERN)
    """Name of a single run; by default the task's name."""
    group: str | None = Field(default=None, pattern=RUN_GROUP_PATTERN)
    """A label shared by related runs; generated for a matrix."""
    visibility: VisibilityField | None = None
    """`private`: visible to the owner only. `tenant`: to every key of the tenant. Its sandbox follows."""

    @model_validator(mode="after")
    def _require_one_task(self) -> CreateRunsRequest:
        if sum(each is not None for each in (self.task, self.file, self.template)) != 1:
            raise ValueError("give one of 'task', 'file' and 'template'")
        if self.task is None and self.inputs is not None:
            raise ValueError("'inputs' goes with 'task'; a file's inputs lie beside it")
        if self.name is not None and (self.task is None or self.task.get("matrix")):
            raise ValueError("'name' is for a single run of a 'task'")
        return self


class CancelRunRequest(RequestBody):
    hard: bool = False
    """End it at once, without collecting partial results."""
    reason: str | None = Field(default=None, min_length=1, max_length=500)


class InputBundleResponse(ResponseBody):
    id: str
    size: int


class ModelTrafficResponse(ResponseBody):
    requests: int
    input_tokens: int
    output_tokens: int
    cost: float | None = None
    """US dollars; omitted if the price is unknown."""
    model: str | None = None
    scripted: bool
    """Whether a script or a recording answered instead of a model."""
    failed: int
    last_error: str | None = None


class DeliveredFileResponse(ResponseBody):
    path: str
    size: int
    sha256: str
    note: str = ""
    """A warning about the file."""


class MissingFileResponse(ResponseBody):
    path: str
    required: bool
    reason: str


class CheckResultResponse(ResponseBody):
    name: str
    passed: bool
    required: bool
    weight: float
    exit_code: int | None = None
    seconds: float
    output: str


class RunResultSummaryResponse(ResponseBody):
    """The result of a run, in short."""

    state: RunState
    ended_by: EndedBy
    reason: str
    code: str
    """Code of the reason: why the work ended, or the error that kept it from starting."""
    params: dict[str, str]
    """Values used in the reason, for translations."""
    exit_code: int | None = None
    attempt: int
    turns: int
    traffic: ModelTrafficResponse
    seconds: float
    score: float | None = None

    @classmethod
    def field_values(cls, result: RunResult) -> dict[str, Any]:
        dumped = result.model_dump()
        return {name: dumped[name] for name in cls.model_fields}

    @classmethod
    def from_result(cls, result: RunResult) -> RunResultSummaryResponse:
        return cls(**cls.field_values(result))


class RunResultResponse(RunResultSummaryResponse):
    """The result of a run."""

    evidence: dict[str, Any]
    stages: dict[str, float]
    """Seconds of each stage."""
    deliverables: list[DeliveredFileResponse]
    missing: list[MissingFileResponse]
    checks: list[CheckResultResponse]

    @classmethod
    def from_result(cls, result: RunResult) -> RunResultResponse:
        return cls(**cls.field_values(result))


class RunSummaryResponse(ResponseBody):
    """A run in a list."""

    id: str
    name: str
    group: str | None = None
    state: RunState
    stage: RunStage
    """The current stage, or the last one."""
    attempt: int
    priority: int
    agent: str | None = None
    model: str | None = None
    scripted: bool
    sandbox_id: str | None = None
    subject: str | None = None
    """Stable id of its owner: a user or a key. Older runs have none."""
    created_by: str | None = None
    """Name of the key that created it."""
    visibility: Visibility
    cancelling: str | None = None
    not_before: AwareDatetime | None = None
    created_at: AwareDatetime
    changed_at: AwareDatetime
    started_at: AwareDatetime | None = None
    ended_at: AwareDatetime | None = None
    result: RunResultSummaryResponse | None = None

    @classmethod
    def field_values(cls, run: Run) -> dict[str, Any]:
        kept = {name: getattr(run, name) for name in cls.model_fields if name in Run.model_fields}
        return {**kept, "agent": run.task.agent}

    @classmethod
    def from_run(cls, run: Run) -> RunSummaryResponse:
        return cls(
            **{
                **cls.field_values(run),
                "result": RunResultSummaryResponse.from_result(run.result) if run.result else None,
            }
        )


class RunResponse(RunSummaryResponse):
    """A run with its task."""

    task: dict[str, Any]
    """As in a task file, without secrets."""
    inputs: str | None = None
    result: RunResultResponse | None = None

    @classmethod
    def from_run_and_task(cls, run: Run, task: dict[str, Any]) -> RunResponse:
        """`task` is the run's task with secrets hidden."""
        result = RunResultResponse.from_result(run.result) if run.result else None
        return cls(**{**cls.field_values(run), "task": task, "result": result})


class CreateRunsResponse(ResponseBody):
    runs: list[RunResponse]
    """One run, or one for each cell of the task's matrix."""


class RunListResponse(ResponseBody):
    items: list[RunSummaryResponse]
    pagination: Pagination


class DeliverableListResponse(ResponseBody):
    items: list[DeliveredFileResponse]
    missing: list[MissingFileResponse]


class TaskFileResponse(ResponseBody):
    """A task file that the server offers."""

    file: str
    name: str | None = None
    description: str | None = None
    error: str | None = None
    """Why the file is invalid."""


class TaskListResponse(ResponseBody):
    items: list[TaskFileResponse]


class TaskResponse(ResponseBody):
    file: str
    name: str
    description: str
    task: dict[str, Any]
    runs: list[str]
    """Names of the runs it creates."""


class TaskTemplateSummaryResponse(ResponseBody):
    """A sample task that ships with Paddock."""

    name: str
    description: str
    agent: str | None = None
    model: str | None = None
    """The model it uses when run as a task of your own."""
    image: str
    image_built: bool
    """Whether the image is ready; otherwise the first run builds it, which takes minutes."""
    scripted: bool
    """Whether it contains a script that stands in for the model."""
    needs_key: bool
    """Whether it needs a model, and so a provider's API key, to run as it is."""


class TaskTemplateListResponse(ResponseBody):
    items: list[TaskTemplateSummaryResponse]


class TaskTemplateResponse(TaskTemplateSummaryResponse):
    """A complete sample task."""

    task: dict[str, Any]
    """The task with its input files as texts."""


class ValidateTaskRequest(RequestBody):
    task: dict[str, Any]


class TaskIssueResponse(ResponseBody):
    code: IssueCode
    level: IssueLevel
    field: str
    message: str
    params: dict[str, str]


class TaskValidationResponse(ResponseBody):
    valid: bool
    """Whether a run of it is accepted."""
    ready: bool
    """Whether it can run now: it is valid and none of the issues is an error."""
    error: str | None = None
    """What is wrong and how to fix it."""
    issues: list[TaskIssueResponse]
    """Missing prerequisites, such as a model, and remarks, such as an image that is built first."""
    runs: list[str]
    """Names of the runs it would create."""
    models: list[str] = []
    """Models that its runs would use, each once; empty for a script."""
