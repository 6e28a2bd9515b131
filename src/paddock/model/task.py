"""Task files: goal, agent, sandbox, end conditions, deliverables and checks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from paddock.config.network_policy import NetworkRules
from paddock.config.units import Bytes, Cpus, Seconds
from paddock.model.mcp import TaskMcpServer
from paddock.model.sandbox import FrozenModel, SandboxLimits
from paddock.model.task_fields import (
    WORKSPACE,
    Identifier,
    ImageName,
    ModelName,
    NonBlankText,
    PrintableText,
    RegularExpression,
    SandboxPath,
    StrictBoolean,
    StrictInteger,
    StrictNumber,
    VariableName,
    VariableValue,
    require_workspace_path,
    validate_command,
    wrap_in_list,
)

__all__ = [
    "MAX_MATRIX_RUNS",
    "WORKSPACE",
    "Deliverable",
    "EndConditions",
    "FieldPath",
    "Identifier",
    "RegularExpression",
    "RetrySettings",
    "SandboxPath",
    "Task",
    "TaskCheck",
    "TaskConflicts",
    "TaskInput",
    "TaskMatrix",
    "TaskModel",
    "TaskResources",
    "TaskSection",
    "VariableName",
    "VariableValue",
]  # fmt: skip

MAX_MATRIX_RUNS = 256
"""Maximum runs of one matrix."""

FieldPath = tuple[str | int, ...]


class TaskConflicts(ValueError):
    """Contradictory fields of a task, each with the path of the field to change."""

    def __init__(self, problems: Sequence[tuple[FieldPath, str]]) -> None:
        super().__init__("; ".join(f"{'.'.join(map(str, path))}: {problem}" for path, problem in problems))
        self.problems = tuple(problems)


class TaskSection(FrozenModel):
    """Base of task file sections. Field docstrings are the published descriptions."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class TaskModel(TaskSection):
    """The model of the agent, and its budget."""

    model: ModelName | None = Field(default=None, examples=["fast"])
    """A model name of the server. Default: the model that the agent's preset suggests, else the server's default
    model. `script` uses only the script below."""
    script: PrintableText | None = Field(default=None, max_length=4 * 2**20, examples=["hello.script.yaml"])
    """A script that plays the model on servers without that model. In a task file: the path of a script file, relative
    to the task file."""
    requests: StrictInteger | None = Field(default=None, ge=1, le=10**15, examples=[50])
    """Maximum requests to the model."""
    tokens: StrictInteger | None = Field(default=None, ge=1, le=10**15, examples=[200_000])
    """Maximum tokens of prompts and answers."""
    cost: StrictNumber | None = Field(default=None, gt=0, examples=[0.5])
    """Maximum cost in US dollars."""


class TaskInput(TaskSection):
    """A file or directory for the sandbox: its path alone, or a mapping."""

    # In task files only; runs have packed inputs.

    source: PrintableText | None = Field(default=None, min_length=1, examples=["data/sales.csv"])
    """A file or directory, relative to the task file."""
    git: PrintableText | None = Field(default=None, min_length=1, examples=["project.bundle"])
    """A git repository or bundle, relative to the task file. Its committed files are cloned into the target."""
    ref: PrintableText | None = Field(default=None, min_length=1, max_length=255, examples=["main"])
    """Branch, tag or commit of the git repository. Default: HEAD."""
    content: PrintableText | None = Field(default=None, max_length=2**20, examples=["Prices are in euros.\n"])
    """Inline text."""
    target: Annotated[SandboxPath, AfterValidator(require_workspace_path)] | None = Field(
        default=None, examples=["sales.csv"]
    )
    """Target path below `/workspace`. Default: the file's own name. `.` is the workspace itself."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"source": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_origin(self) -> TaskInput:
        if sum(each is not None for each in (self.source, self.git, self.content)) != 1:
            raise ValueError("needs one of 'source', 'git' and 'content'")
        if self.content is not None and self.target in (None, WORKSPACE):
            raise ValueError("'content' needs a 'target', such as notes.txt")
        if self.ref is not None and self.git is None:
            raise ValueError("'ref' goes with 'git'")
        if self.ref is not None and (self.ref.startswith("-") or re.search(r"[\s~^:?*\[\\]|\.\.", self.ref)):
            raise ValueError(f"{self.ref!r} is no branch, tag or commit")
        return self


class TaskResources(TaskSection):
    """Resource limits of the sandbox. Default: the server's limits."""

    cpu: Cpus | None = Field(default=None, gt=0, le=10_000, examples=[2])
    """CPUs, fractions allowed."""
    memory: Bytes | None = Field(default=None, ge=16 * 2**20, le=2**50, examples=["2Gi"])
    """Memory, counting what the sandbox keeps in tmpfs and page cache."""
    disk: Bytes | None = Field(default=None, ge=2**20, le=2**50, examples=["10Gi"])
    """Bytes that the sandbox may write."""
    processes: StrictInteger | None = Field(default=None, ge=4, le=2**22, examples=[512])
    """Processes and threads."""

    def limits(self) -> SandboxLimits:
        return SandboxLimits(cpu=self.cpu, memory=self.memory, disk=self.disk, pids=self.processes)


class EndConditions(TaskSection):
    """End conditions. The first one met ends the work; the first five mean success."""

    exit: StrictBoolean = Field(default=True, examples=[False])
    """The entrypoint exits. Set `false` for servers, which another condition ends."""
    file: SandboxPath | None = Field(default=None, examples=["done.txt"])
    """This file exists."""
    output: RegularExpression | None = Field(default=None, examples=["^All tests passed"])
    """The entrypoint's output matches this regular expression."""
    says: RegularExpression | None = Field(default=None, examples=["TASK COMPLETE"])
    """The agent's words match this regular expression."""
    verified: StrictBoolean = Field(default=False, examples=[True])
    """All checks of `verify` pass; tested after each turn of the agent."""
    turns: StrictInteger | None = Field(default=None, ge=1, examples=[30])
    """Maximum turns of the agent."""
    timeout: Seconds = Field(default=1800, gt=0, le=7 * 86400, examples=["30m"])
    """Maximum time since the entrypoint's start."""
    silence: Seconds | None = Field(default=600, gt=0, examples=["5m"])
    """Maximum time without output and model requests; `null` disables it."""


class Deliverable(TaskSection):
    """An output file: its path alone, or a mapping."""

    path: SandboxPath = Field(examples=["report/**/*.md"])
    """A path or a pattern with `*`, `?`, `[…]` and `**`; a directory means all files in it."""
    required: StrictBoolean = Field(default=True, examples=[False])
    """Whether the run fails without it."""
    max_size: Bytes = Field(default=2 * 2**30, ge=0, examples=["100Mi"])
    """Maximum bytes."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value


class TaskCheck(TaskSection):
    """A command that scores the run: shell text alone, or a mapping. It runs in the sandbox after the agent."""

    run: NonBlankText = Field(min_length=1, max_length=100_000, examples=["python3 -m pytest -q"])
    """Shell text; exit code 0 passes."""
    name: PrintableText | None = Field(default=None, min_length=1, max_length=100, examples=["tests pass"])
    """Name in results. Default: the first line of the command."""
    timeout: Seconds = Field(default=120, gt=0, le=86400, examples=["2m"])
    """Time limit."""
    weight: StrictNumber = Field(default=1, gt=0, le=1_000_000, examples=[3])
    """Weight in the score."""
    required: StrictBoolean = Field(default=True, examples=[False])
    """Whether the run fails without it."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"run": value} if isinstance(value, str) else value

    @property
    def title(self) -> str:
        return self.name or (self.run.strip().splitlines() or [""])[0][:100]


class RetrySettings(TaskSection):
    """Retries in a new sandbox: their number alone, or a mapping."""

    times: StrictInteger = Field(default=0, ge=0, le=20, examples=[2])
    """Maximum number of retries."""
    backoff: Seconds = Field(default=5, ge=0, le=3600, examples=["10s"])
    """Delay before the first retry; it doubles with each further one."""
    on: Annotated[tuple[Literal["failed", "timed_out", "lost", "over_budget"], ...], BeforeValidator(wrap_in_list)] = (
        Field(default=("failed", "lost"), examples=[["lost"]])
    )
    """Final states that are retried."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"times": value} if isinstance(value, int) and not isinstance(value, bool) else value


class TaskMatrix(TaskSection):
    """Runs of the same task by several agents and models, one run per pair."""

    agents: Annotated[tuple[Identifier, ...], BeforeValidator(wrap_in_list)] = Field(
        default=(), examples=[["claude-code", "codex"]]
    )
    """Presets, instead of `agent`."""
    models: Annotated[tuple[ModelName, ...], BeforeValidator(wrap_in_list)] = Field(
        default=(), examples=[["fast", "thorough"]]
    )
    """Models, instead of `llm.model`."""

    @model_validator(mode="after")
    def _some(self) -> TaskMatrix:
        runs = max(1, len(self.agents)) * max(1, len(self.models))
        if not self.agents and not self.models:
            raise ValueError("needs 'agents', 'models' or both")
        if runs > MAX_MATRIX_RUNS:
            raise ValueError(f"stands for {runs} runs; {MAX_MATRIX_RUNS} is the maximum")
        return self


class Task(TaskSection):
    """Work for an agent in a sandbox of its own."""

    name: Identifier = Field(examples=["hello"])
    """Name of the task and its runs."""
    description: PrintableText = Field(default="", max_length=2000, examples=["Writes a short report about the input."])
    """Description in task lists."""
    image: ImageName | None = Field(default=None, examples=["code"])
    """Image of the sandbox. Default: the image of `kind` or of the agent's preset."""
    kind: Identifier | None = Field(default=None, examples=["linux"])
    """Kind of sandbox, instead of `image`: code, linux, browser, windows, mobile, or a kind of the server."""
    user: Literal["root"] | None = Field(default=None, examples=["root"])
    """User of the programs: `root` of the sandbox, who can install packages and change owners. Default: the image's
    user."""
    goal: NonBlankText = Field(
        min_length=1, max_length=2**20, examples=["Read sales.csv and write report.md about it."]
    )
    """Goal of the agent. In a task file also `{file: PATH}`, relative to the task file."""
    agent: Identifier | None = Field(default=None, examples=["claude-code"])
    """A preset: claude-code, codex, opencode, gemini-cli, qwen-code, qwen-agent, script, or the path of your own."""
    llm: TaskModel = Field(default=TaskModel(), examples=["fast"])
    """The model: its name alone, or a mapping."""
    mcp: Annotated[tuple[TaskMcpServer, ...], BeforeValidator(wrap_in_list)] = Field(
        default=(), max_length=100, examples=[["https://tools.example.org/mcp"]]
    )
    """MCP servers of the agent."""
    entrypoint: Annotated[str | tuple[str, ...] | None, BeforeValidator(validate_command)] = Field(
        default=None, examples=["python3 work.py"]
    )
    """What is started: shell text, or words that no shell sees; the preset's command if it is left out."""
    inputs: Annotated[tuple[TaskInput, ...], BeforeValidator(wrap_in_list)] = Field(
        default=(), max_length=1000, examples=[["data/sales.csv"]]
    )
    """Input files of the sandbox."""
    env: Mapping[VariableName, VariableValue] = Field(default={}, examples=[{"LANG": "C.UTF-8"}])
    """Environment variables of the entrypoint."""
    secrets: Annotated[tuple[VariableName, ...], BeforeValidator(wrap_in_list)] = Field(
        default=(), examples=[["GITHUB_TOKEN"]]
    )
    """Names of the server's `runs.secrets`; each becomes a variable of the entrypoint and is never stored."""
    resources: TaskResources = Field(default=TaskResources(), examples=[{"cpu": 2, "memory": "2Gi"}])
    """Resource limits of the sandbox."""
    network: NetworkRules = Field(default=(), examples=["packages"])
    """Network policy: `none`, `open`, `web`, `packages`, `git`, a rule such as `allow *.example.com:443`, or a list of
    rules, of which the first match decides. Default: `none`, which leaves the server's models and the MCP servers named
    here."""
    end: EndConditions = Field(default=EndConditions(), examples=[{"timeout": "10m"}])
    """End conditions."""
    deliverables: Annotated[tuple[Deliverable, ...], BeforeValidator(wrap_in_list)] = Field(
        default=(), max_length=1000, examples=[["report.md"]]
    )
    """Output files to copy out of the sandbox."""
    verify: Annotated[tuple[TaskCheck, ...], BeforeValidator(wrap_in_list)] = Field(
        default=(), max_length=100, examples=[["test -s report.md"]]
    )
    """Checks that score the run."""
    retries: RetrySettings = Field(default=RetrySettings(), examples=[2])
    """Retries: their number alone, or a mapping."""
    concurrency: StrictInteger | None = Field(default=None, ge=1, le=1_000_000, examples=[4])
    """Maximum concurrent runs of this name."""
    priority: StrictInteger = Field(default=0, ge=-100, le=100, examples=[10])
    """Runs with higher priority start first."""
    matrix: TaskMatrix | None = Field(default=None, examples=[{"agents": ["claude-code", "codex"]}])
    """Runs of the task by several agents and models."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("llm"), str):
            return {**value, "llm": {"model": value["llm"]}}
        return value

    @model_validator(mode="after")
    def _check_consistency(self) -> Task:
        problems = [*self._contradictions(), *self._repetitions()]
        if problems:
            raise TaskConflicts(problems)
        return self

    def _contradictions(self) -> list[tuple[FieldPath, str]]:
        agents, models = (self.matrix.agents, self.matrix.models) if self.matrix else ((), ())
        has_agent = self.agent is not None or bool(agents)
        end = self.end
        rules: list[tuple[bool, FieldPath, str]] = [
            (self.image is not None and self.kind is not None, ("kind",), "says the same as 'image'; keep one"),
            (
                not has_agent and self.entrypoint is None,
                ("agent",),
                "is missing, and so is 'entrypoint', so nothing would be started; add one of them",
            ),
            (bool(agents) and self.agent is not None, ("agent",), "is in 'matrix.agents' already; keep one"),
            (bool(models) and self.llm.model is not None, ("llm",), "names a model, as 'matrix.models' does; keep one"),
            (end.verified and not self.verify, ("end", "verified"), "needs 'verify'"),
            (
                end.says is not None and not has_agent,
                ("end", "says"),
                "needs an 'agent', whose output is understood; use 'end.output'",
            ),
            (
                not (end.exit or end.file or end.output or end.says or end.verified),
                ("end", "exit"),
                "is false, so something else must end it: add file, output, says or verified",
            ),
        ]
        return [(path, problem) for broken, path, problem in rules if broken]

    def _repetitions(self) -> list[tuple[FieldPath, str]]:
        matrix = self.matrix or TaskMatrix.model_construct()
        lists: list[tuple[FieldPath, Sequence[str]]] = [
            (("mcp",), [server.name for server in self.mcp]),
            (("deliverables",), [each.path for each in self.deliverables]),
            (("secrets",), self.secrets),
            (("inputs",), [each.target or "" for each in self.inputs]),
            (("matrix", "agents"), matrix.agents),
            (("matrix", "models"), matrix.models),
        ]
        problems: list[tuple[FieldPath, str]] = []
        for path, names in lists:
            for i, name in enumerate(names):
                if name and name in names[:i]:
                    problems.append(((*path, i), f"is {name!r} again, as {path[-1]}.{names.index(name)} is; keep one"))
        for i, name in enumerate(self.secrets):
            if name in self.env:
                problems.append((("secrets", i), f"{name!r} is in 'env' too; keep one"))
        return problems
