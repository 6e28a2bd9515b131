"""What a task is: work for an agent, where it is done, when it is over and what must come of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from paddock.config.units import Bytes, Cpus, Seconds
from paddock.model.sandbox import Frozen, Limits
from paddock.model.words import (
    WORKSPACE,
    Address,
    BoxPath,
    Flag,
    ImageName,
    ModelName,
    Name,
    Number,
    Pattern,
    Text,
    Value,
    Variable,
    Whole,
    Words,
    command,
    in_the_workspace,
    one_or_more,
    words,
)

__all__ = [
    "MOST_RUNS", "WORKSPACE", "BoxPath", "Check", "Conflicts", "Deliverable", "End", "Input", "Location",
    "Matrix", "McpKind", "McpServer", "Name", "Part", "Pattern", "Resources", "Retries", "Task", "TaskModel",
    "Value", "Variable",
]  # fmt: skip

MOST_RUNS = 256
"""Runs that one matrix may stand for."""

Location = tuple[str | int, ...]


class Conflicts(ValueError):
    """Parts of a task that do not go together, each with the way to the one that should change."""

    def __init__(self, problems: Sequence[tuple[Location, str]]) -> None:
        super().__init__("; ".join(f"{'.'.join(map(str, way))}: {problem}" for way, problem in problems))
        self.problems = tuple(problems)


class Part(Frozen):
    """Something that a task file says. What is written under a field is its description everywhere."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class TaskModel(Part):
    """Which model the agent asks, and how much of it."""

    model: ModelName | None = Field(default=None, examples=["fast"])
    """A name that the server's `llm.models` has. Left out, it is what the agent's preset suggests, or else the
    server's default model. `script` asks no model, only the script below."""
    script: Text | None = Field(default=None, max_length=4 * 2**20, examples=["hello.script.yaml"])
    """A scenario that answers in the model's place on a server that has no such model. In a task file: the path of a
    scenario file, relative to the task file."""
    requests: Whole | None = Field(default=None, ge=1, le=10**15, examples=[50])
    """Requests to the model, in all."""
    tokens: Whole | None = Field(default=None, ge=1, le=10**15, examples=[200_000])
    """Tokens of prompts and answers, in all."""
    cost: Number | None = Field(default=None, gt=0, examples=[0.5])
    """US dollars, in all."""


class McpKind(StrEnum):
    """Where an MCP server is."""

    REMOTE = "remote"
    """Shared servers of the network that this server is in."""
    LOCAL = "local"
    """A program in the sandbox itself."""
    INTERNET = "internet"


class McpServer(Part):
    """Tools that the agent is given over MCP: the address of a server alone, or more about one."""

    name: Name = Field(examples=["calculator"])
    """What the agent's tools are called after."""
    kind: McpKind | None = Field(default=None, examples=["remote"])
    """`local` for a command, `remote` for an address, unless said otherwise."""
    url: Address | None = Field(default=None, examples=["https://tools.example.org/mcp"])
    """Address of a server that speaks streamable HTTP. One in a private network, or on Paddock's own machine, has to be
    in the setting `mcp.allow`."""
    headers: Mapping[Text, Value] = Field(default={}, examples=[{"X-Team": "research"}])
    """Headers of every request to it."""
    command: Annotated[tuple[Text, ...], BeforeValidator(words)] = Field(
        default=(), examples=[["python3", "/workspace/server.py"]]
    )
    """A program in the sandbox that speaks MCP on its standard input and output."""
    env: Mapping[Variable, Value] = Field(default={}, examples=[{"LEVEL": "debug"}])
    """Variables of the command."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        # `https://host/mcp` alone is named after the host.
        if isinstance(value, str) and value.startswith(("http://", "https://")):
            host = re.sub(r"[^a-z0-9]+", "-", value.split("/")[2].split("@")[-1].split(":")[0].lower()).strip("-")
            return {"name": host, "url": value}
        return value

    @model_validator(mode="after")
    def _one_way(self) -> McpServer:
        if bool(self.url) == bool(self.command):
            raise ValueError("needs either 'url' or 'command', and not both")
        if self.command and self.kind not in (None, McpKind.LOCAL):
            raise ValueError("a server with a 'command' is in the sandbox; its kind is local")
        if self.url and self.kind is McpKind.LOCAL:
            raise ValueError("a local server needs a 'command', which runs in the sandbox")
        if self.headers and not self.url:
            raise ValueError("'headers' go with 'url'")
        if self.env and not self.command:
            raise ValueError("'env' goes with 'command'")
        return self

    @property
    def sort(self) -> McpKind:
        return self.kind or (McpKind.LOCAL if self.command else McpKind.REMOTE)


class Input(Part):
    """Something put into the sandbox before the agent starts: a path alone, or more about it."""

    # In a task file only; a run has them packed already.

    source: Text | None = Field(default=None, min_length=1, examples=["data/sales.csv"])
    """A file or directory, relative to the task file."""
    git: Text | None = Field(default=None, min_length=1, examples=["project.bundle"])
    """A git repository or bundle, relative to the task file. What is committed there is cloned into the target."""
    ref: Text | None = Field(default=None, min_length=1, max_length=255, examples=["main"])
    """Branch, tag or commit of the git repository; its HEAD if it is left out."""
    content: Text | None = Field(default=None, max_length=2**20, examples=["Prices are in euros.\n"])
    """The text itself."""
    target: Annotated[BoxPath, AfterValidator(in_the_workspace)] | None = Field(default=None, examples=["sales.csv"])
    """Where it goes, below `/workspace`; by its own name if it is left out. `.` is the workspace itself."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"source": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_origin(self) -> Input:
        if sum(each is not None for each in (self.source, self.git, self.content)) != 1:
            raise ValueError("needs one of 'source', 'git' and 'content'")
        if self.content is not None and self.target in (None, WORKSPACE):
            raise ValueError("'content' needs a 'target', such as notes.txt")
        if self.ref is not None and self.git is None:
            raise ValueError("'ref' goes with 'git'")
        if self.ref is not None and (self.ref.startswith("-") or re.search(r"[\s~^:?*\[\\]|\.\.", self.ref)):
            raise ValueError(f"{self.ref!r} is no branch, tag or commit")
        return self


class Resources(Part):
    """What the sandbox may use; what is left out is as the server has it."""

    cpu: Cpus | None = Field(default=None, gt=0, le=10_000, examples=[2])
    """CPUs, fractions allowed."""
    memory: Bytes | None = Field(default=None, ge=16 * 2**20, le=2**50, examples=["2Gi"])
    """Memory, counting what the sandbox keeps in tmpfs and page cache."""
    disk: Bytes | None = Field(default=None, ge=2**20, le=2**50, examples=["10Gi"])
    """What the sandbox may write."""
    processes: Whole | None = Field(default=None, ge=4, le=2**22, examples=[512])
    """Processes and threads."""

    def limits(self) -> Limits:
        return Limits(cpu=self.cpu, memory=self.memory, disk=self.disk, pids=self.processes)


class End(Part):
    """When the work is over. Whatever comes first ends it; the first five count as success."""

    exit: Flag = Field(default=True, examples=[False])
    """When the entrypoint exits. `false` for one that serves on until something else ends the run."""
    file: BoxPath | None = Field(default=None, examples=["done.txt"])
    """When this file is there."""
    output: Pattern | None = Field(default=None, examples=["^All tests passed"])
    """When this regular expression is found in what the entrypoint writes."""
    says: Pattern | None = Field(default=None, examples=["TASK COMPLETE"])
    """When this regular expression is found in what the agent says."""
    verified: Flag = Field(default=False, examples=[True])
    """When all of `verify` pass; tried after each of the agent's turns."""
    turns: Whole | None = Field(default=None, ge=1, examples=[30])
    """Most turns of the agent."""
    timeout: Seconds = Field(default=1800, gt=0, le=7 * 86400, examples=["30m"])
    """Longest time from the entrypoint's start."""
    silence: Seconds | None = Field(default=600, gt=0, examples=["5m"])
    """Longest time without any output and without any request to a model; `null` waits until the timeout."""


class Deliverable(Part):
    """What comes back: a path alone, or more about it."""

    path: BoxPath = Field(examples=["report/**/*.md"])
    """A path or a pattern with `*`, `?`, `[…]` and `**`; a directory stands for all that is in it."""
    required: Flag = Field(default=True, examples=[False])
    """Whether the run has failed without it."""
    max_size: Bytes = Field(default=2 * 2**30, ge=0, examples=["100Mi"])
    """Most bytes that come back for it."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value


class Check(Part):
    """A command whose result scores the run: shell text alone, or more about it. It runs in the sandbox after the
    agent."""

    run: Words = Field(min_length=1, max_length=100_000, examples=["python3 -m pytest -q"])
    """Shell text; exit code 0 passes."""
    name: Text | None = Field(default=None, min_length=1, max_length=100, examples=["tests pass"])
    """What results call it; its first line if it is left out."""
    timeout: Seconds = Field(default=120, gt=0, le=86400, examples=["2m"])
    """Longest time it may take."""
    weight: Number = Field(default=1, gt=0, le=1_000_000, examples=[3])
    """Its part in the score, against those of the others."""
    required: Flag = Field(default=True, examples=[False])
    """Whether the run has failed without it."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"run": value} if isinstance(value, str) else value

    @property
    def title(self) -> str:
        return self.name or (self.run.strip().splitlines() or [""])[0][:100]


class Retries(Part):
    """What is tried again, in a new sandbox: how often, or more about it."""

    times: Whole = Field(default=0, ge=0, le=20, examples=[2])
    """How often."""
    backoff: Seconds = Field(default=5, ge=0, le=3600, examples=["10s"])
    """Time before the first retry; twice as long before each other one."""
    on: Annotated[tuple[Literal["failed", "timed_out", "lost", "over_budget"], ...], BeforeValidator(one_or_more)] = (
        Field(default=("failed", "lost"), examples=[["lost"]])
    )
    """What became of a run that is tried again."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"times": value} if isinstance(value, int) and not isinstance(value, bool) else value


class Matrix(Part):
    """The same task by several agents and models; each pair is a run of its own."""

    agents: Annotated[tuple[Name, ...], BeforeValidator(one_or_more)] = Field(
        default=(), examples=[["claude-code", "codex"]]
    )
    """Presets, in the place of `agent`."""
    models: Annotated[tuple[ModelName, ...], BeforeValidator(one_or_more)] = Field(
        default=(), examples=[["fast", "thorough"]]
    )
    """Models, in the place of `llm.model`."""

    @model_validator(mode="after")
    def _some(self) -> Matrix:
        runs = max(1, len(self.agents)) * max(1, len(self.models))
        if not self.agents and not self.models:
            raise ValueError("needs 'agents', 'models' or both")
        if runs > MOST_RUNS:
            raise ValueError(f"stands for {runs} runs; {MOST_RUNS} is the most")
        return self


class Task(Part):
    """Work for an agent in a sandbox of its own."""

    name: Name = Field(examples=["hello"])
    """What runs of it are called."""
    description: Text = Field(default="", max_length=2000, examples=["Writes a short report about the input."])
    """What lists of tasks say about it."""
    image: ImageName | None = Field(default=None, examples=["code"])
    """Image of the sandbox; what `kind` or the agent's preset says if it is left out."""
    kind: Name | None = Field(default=None, examples=["linux"])
    """Sort of sandbox, in the place of `image`: code, linux, browser, windows, mobile, or one of the server's own."""
    goal: Words = Field(min_length=1, max_length=2**20, examples=["Read sales.csv and write report.md about it."])
    """What the agent is to do. In a task file also `{file: PATH}`, relative to the task file."""
    agent: Name | None = Field(default=None, examples=["claude-code"])
    """A preset: claude-code, codex, opencode, gemini-cli, qwen-code, qwen-agent, script, or a file of yours."""
    llm: TaskModel = Field(default=TaskModel(), examples=["fast"])
    """The model's name alone, or more about it."""
    mcp: Annotated[tuple[McpServer, ...], BeforeValidator(one_or_more)] = Field(
        default=(), max_length=100, examples=[["https://tools.example.org/mcp"]]
    )
    """MCP servers whose tools the agent has."""
    entrypoint: Annotated[str | tuple[str, ...] | None, BeforeValidator(command)] = Field(
        default=None, examples=["python3 work.py"]
    )
    """What is started: shell text, or words that no shell sees; the preset's command if it is left out."""
    inputs: Annotated[tuple[Input, ...], BeforeValidator(one_or_more)] = Field(
        default=(), max_length=1000, examples=[["data/sales.csv"]]
    )
    """What is put into the sandbox."""
    env: Mapping[Variable, Value] = Field(default={}, examples=[{"LANG": "C.UTF-8"}])
    """Variables of the entrypoint."""
    secrets: Annotated[tuple[Variable, ...], BeforeValidator(one_or_more)] = Field(
        default=(), examples=[["GITHUB_TOKEN"]]
    )
    """Names of the server's `runs.secrets`; each is a variable of the entrypoint, and is never stored."""
    resources: Resources = Field(default=Resources(), examples=[{"cpu": 2, "memory": "2Gi"}])
    """What the sandbox may use."""
    network: Literal["none"] = Field(default="none", examples=["none"])
    """The sandbox reaches the server's models and the MCP servers named here, and nothing else."""
    end: End = Field(default=End(), examples=[{"timeout": "10m"}])
    """When the work is over."""
    deliverables: Annotated[tuple[Deliverable, ...], BeforeValidator(one_or_more)] = Field(
        default=(), max_length=1000, examples=[["report.md"]]
    )
    """What comes back."""
    verify: Annotated[tuple[Check, ...], BeforeValidator(one_or_more)] = Field(
        default=(), max_length=100, examples=[["test -s report.md"]]
    )
    """Commands whose result scores the run."""
    retries: Retries = Field(default=Retries(), examples=[2])
    """How often it is tried again, or more about that."""
    concurrency: Whole | None = Field(default=None, ge=1, le=1_000_000, examples=[4])
    """Most runs of this name at a time."""
    priority: Whole = Field(default=0, ge=-100, le=100, examples=[10])
    """Runs of higher priority leave the queue first."""
    matrix: Matrix | None = Field(default=None, examples=[{"agents": ["claude-code", "codex"]}])
    """The same task by several agents and models."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("llm"), str):
            return {**value, "llm": {"model": value["llm"]}}
        return value

    @model_validator(mode="after")
    def _whole(self) -> Task:
        problems = [*self._contradictions(), *self._repetitions()]
        if problems:
            raise Conflicts(problems)
        return self

    def _contradictions(self) -> list[tuple[Location, str]]:
        agents, models = (self.matrix.agents, self.matrix.models) if self.matrix else ((), ())
        has_agent = self.agent is not None or bool(agents)
        end = self.end
        rules: list[tuple[bool, Location, str]] = [
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
        return [(way, problem) for broken, way, problem in rules if broken]

    def _repetitions(self) -> list[tuple[Location, str]]:
        matrix = self.matrix or Matrix.model_construct()
        lists: list[tuple[Location, Sequence[str]]] = [
            (("mcp",), [server.name for server in self.mcp]),
            (("deliverables",), [each.path for each in self.deliverables]),
            (("secrets",), self.secrets),
            (("inputs",), [each.target or "" for each in self.inputs]),
            (("matrix", "agents"), matrix.agents),
            (("matrix", "models"), matrix.models),
        ]
        problems: list[tuple[Location, str]] = []
        for way, names in lists:
            for i, name in enumerate(names):
                if name and name in names[:i]:
                    problems.append(((*way, i), f"is {name!r} again, as {way[-1]}.{names.index(name)} is; keep one"))
        for i, name in enumerate(self.secrets):
            if name in self.env:
                problems.append((("secrets", i), f"{name!r} is in 'env' too; keep one"))
        return problems
