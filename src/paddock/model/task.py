"""What a task is: work for an agent, where it is done, when it is over and what must come of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from paddock.config.units import Bytes, Cpus, Seconds
from paddock.model.sandbox import Frozen, Limits

WORKSPACE = "/workspace"
"""Where agents work; relative paths of a task are below it."""


def _regular(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return value


def _in_the_box(value: str) -> str:
    path = PurePosixPath(value)
    if not value.strip() or "\0" in value or "\n" in value or ".." in path.parts:
        raise ValueError("must be a path in the sandbox without '..', such as report.md, which is /workspace/report.md")
    return str(PurePosixPath(WORKSPACE) / path)


def _one_or_more(value: object) -> object:
    return [value] if isinstance(value, (str, dict)) else value


Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
Pattern = Annotated[str, AfterValidator(_regular), Field(min_length=1, max_length=2000)]
BoxPath = Annotated[str, AfterValidator(_in_the_box)]
"""A path in the box; what is not absolute is below the workspace."""
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Value = Annotated[str, Field(pattern=r"^[^\x00]*$", max_length=128 * 1024)]


class Kind(StrEnum):
    """Sorts of sandboxes."""

    CODE = "code"


class TaskModel(Frozen):
    """Which model the agent asks, and how much of it."""

    model: str | None = Field(default=None, pattern=r"^[^\s,]{1,200}$")
    """A name that the server's `llm.models` has; what the agent's preset suggests if it is left out."""
    script: str | None = Field(default=None, max_length=4 * 2**20)
    """A scenario that answers in the model's place on a server that has no such model. In a task file: the path of a
    scenario file, relative to the task file."""
    requests: int | None = Field(default=None, ge=1)
    """Requests to the model, in all."""
    tokens: int | None = Field(default=None, ge=1)
    """Tokens of prompts and answers, in all."""
    cost: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """US dollars, in all."""


class McpKind(StrEnum):
    REMOTE = "remote"
    """Shared servers of the network that this server is in."""
    LOCAL = "local"
    """A program in the sandbox itself."""
    INTERNET = "internet"


class McpServer(Frozen):
    """Tools that the agent is given over MCP."""

    name: Name
    kind: McpKind | None = None
    """`local` for a command, `remote` for an address, unless said otherwise."""
    url: str | None = Field(default=None, pattern=r"^https?://[^\s]+$")
    """Where a server listens that speaks streamable HTTP."""
    headers: Mapping[str, Value] = {}
    command: Annotated[tuple[str, ...], BeforeValidator(_one_or_more)] = ()
    """A program in the sandbox that speaks MCP on its standard input and output."""
    env: Mapping[Variable, Value] = {}

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
        return self

    @property
    def sort(self) -> McpKind:
        return self.kind or (McpKind.LOCAL if self.command else McpKind.REMOTE)


class Input(Frozen):
    """Something put into the sandbox before the agent starts. In a task file only; a run has them packed already."""

    source: str | None = None
    """A file or directory, relative to the task file."""
    git: str | None = None
    """A git repository or bundle, relative to the task file, cloned into the target."""
    ref: str | None = None
    """What of the git repository; its HEAD if not given."""
    content: str | None = None
    """The text itself."""
    target: BoxPath | None = None
    """Where it goes; below the workspace by its own name if not given."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"source": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_origin(self) -> Input:
        if sum(each is not None for each in (self.source, self.git, self.content)) != 1:
            raise ValueError("needs one of 'source', 'git' and 'content'")
        if self.content is not None and self.target is None:
            raise ValueError("'content' needs a 'target', such as notes.txt")
        if self.ref is not None and self.git is None:
            raise ValueError("'ref' goes with 'git'")
        return self


class Resources(Frozen):
    """What the sandbox may use; what is left out is as the server has it."""

    cpu: Cpus | None = Field(default=None, gt=0)
    memory: Bytes | None = Field(default=None, ge=16 * 2**20)
    disk: Bytes | None = Field(default=None, ge=2**20)
    processes: int | None = Field(default=None, ge=4)

    def limits(self) -> Limits:
        return Limits(cpu=self.cpu, memory=self.memory, disk=self.disk, pids=self.processes)


class End(Frozen):
    """When the work is over. Whatever comes first ends it; the first four count as success."""

    exit: bool = True
    """When the entrypoint exits. `false` for one that serves on until something else ends the run."""
    file: BoxPath | None = None
    """When this file is there."""
    output: Pattern | None = None
    """When this regular expression is found in what the entrypoint writes."""
    says: Pattern | None = None
    """When this regular expression is found in what the agent says."""
    verified: bool = False
    """When all of `verify` pass; tried after each of the agent's turns."""
    turns: int | None = Field(default=None, ge=1)
    """Most turns of the agent."""
    timeout: Seconds = Field(default=1800, gt=0, le=7 * 86400)
    """Longest time from the entrypoint's start."""
    silence: Seconds | None = Field(default=600, gt=0)
    """Longest time without any output and without any request to a model."""


class Deliverable(Frozen):
    """What comes back."""

    path: BoxPath
    """A path or a pattern with `*`, `?`, `[…]` and `**`; a directory stands for all that is in it."""
    required: bool = True
    """Whether the run has failed without it."""
    max_size: Bytes = Field(default=2 * 2**30, ge=0)
    """Most bytes that come back for it."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value


class Check(Frozen):
    """A command whose result scores the run. It runs in the sandbox after the agent."""

    run: str = Field(min_length=1)
    """Shell text; exit code 0 passes."""
    name: str | None = Field(default=None, min_length=1, max_length=100)
    timeout: Seconds = Field(default=120, gt=0, le=86400)
    weight: float = Field(default=1, gt=0, allow_inf_nan=False)
    required: bool = True
    """Whether the run has failed without it."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"run": value} if isinstance(value, str) else value

    @property
    def title(self) -> str:
        return self.name or self.run.strip().splitlines()[0][:100]


class Retries(Frozen):
    """What is tried again, in a new sandbox."""

    times: int = Field(default=0, ge=0, le=20)
    backoff: Seconds = Field(default=5, ge=0, le=3600)
    """Seconds before the first retry; twice as long before each other one."""
    on: Annotated[tuple[Literal["failed", "timed_out", "lost", "over_budget"], ...], BeforeValidator(_one_or_more)] = (
        "failed",
        "lost",
    )

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"times": value} if isinstance(value, int) and not isinstance(value, bool) else value


class Matrix(Frozen):
    """The same task by several agents and models; each pair is a run of its own."""

    agents: Annotated[tuple[Name, ...], BeforeValidator(_one_or_more)] = ()
    models: Annotated[tuple[str, ...], BeforeValidator(_one_or_more)] = ()


class Task(Frozen):
    """Work for an agent in a sandbox of its own."""

    name: Name
    """What runs of it are called."""
    description: str = ""
    image: str | None = None
    """Image of the sandbox; what `kind` or the agent's preset says if it is left out."""
    kind: Kind | None = None
    goal: str = Field(min_length=1, max_length=2**20)
    """What the agent is to do. In a task file also `{file: PATH}`, relative to the task file."""
    agent: Name | None = None
    """A preset: claude-code, codex, opencode, gemini-cli, qwen-code, qwen-agent, script, or a file of yours."""
    llm: TaskModel = TaskModel()
    """The model's name alone, or more about it."""
    mcp: tuple[McpServer, ...] = ()
    entrypoint: str | tuple[str, ...] | None = None
    """What is started: shell text, or words that no shell sees; the preset's command if it is left out."""
    inputs: Annotated[tuple[Input, ...], BeforeValidator(_one_or_more)] = ()
    env: Mapping[Variable, Value] = {}
    secrets: Annotated[tuple[Variable, ...], BeforeValidator(_one_or_more)] = ()
    """Names of the server's `runs.secrets`; each is a variable of the entrypoint, and is never stored."""
    resources: Resources = Resources()
    network: Literal["none"] = "none"
    """The sandbox reaches the server's models and the MCP servers named here, and nothing else."""
    end: End = End()
    deliverables: Annotated[tuple[Deliverable, ...], BeforeValidator(_one_or_more)] = ()
    verify: Annotated[tuple[Check, ...], BeforeValidator(_one_or_more)] = ()
    retries: Retries = Retries()
    concurrency: int | None = Field(default=None, ge=1)
    """Most runs of this name at a time."""
    priority: int = Field(default=0, ge=-100, le=100)
    """Runs of higher priority leave the queue first."""
    matrix: Matrix | None = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("llm"), str):
            return {**value, "llm": {"model": value["llm"]}}
        return value

    @model_validator(mode="after")
    def _whole(self) -> Task:
        if self.image is not None and self.kind is not None:
            raise ValueError("'image' and 'kind' say the same twice; keep one")
        if self.agent is None and self.entrypoint is None:
            raise ValueError("needs an 'agent' or an 'entrypoint', or nothing would be started")
        if self.end.verified and not self.verify:
            raise ValueError("'end.verified' needs 'verify'")
        if self.end.says is not None and self.agent is None:
            raise ValueError("'end.says' needs an 'agent', whose output is understood; use 'end.output'")
        if not self.end.exit and not (self.end.file or self.end.output or self.end.says or self.end.verified):
            raise ValueError("with 'end.exit: false' something else must end it: file, output, says or verified")
        names = [server.name for server in self.mcp]
        if len(set(names)) != len(names):
            raise ValueError("two of 'mcp' have the same name")
        return self
