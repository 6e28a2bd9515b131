"""What a preset says: how an agent is started, what it is given, and how its output is read."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from paddock.config.units import Bytes
from paddock.model.sandbox import Frozen
from paddock.model.task import Name, Value, Variable
from paddock.runs.presets.rules import ErrorRule, Output, TurnRule

PLACEHOLDERS = ("goal", "goal_file", "home", "llm_url", "mcp_file", "model", "task", "workspace")
"""What may be in braces everywhere; `mcp_words` only in commands, `mcp_servers` only in trees."""
SERVER_PLACEHOLDERS = ("args", "command", "env", "name", "url", "words")
"""What may be in braces in `mcp`."""
PLACEHOLDER = re.compile(r"(?<![$\\{])\{([a-z][a-z_]*)\}(?!\})")
"""`${name}` is the shell's own."""


def _known(value: Any, known: tuple[str, ...]) -> Any:
    for text in _texts(value):
        for name in PLACEHOLDER.findall(text):
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {{{near[0]}}}?" if near else f"known: {', '.join(known)}"
                raise ValueError(f"there is nothing to put for {{{name}}}; {hint}")
    return value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _texts(name)
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _fillable(value: Any) -> Any:
    return _known(value, (*PLACEHOLDERS, "mcp_servers"))


def _fillable_command(value: str) -> str:
    return str(_known(value, (*PLACEHOLDERS, "mcp_words")))


def _fillable_text(value: str) -> str:
    return str(_known(value, PLACEHOLDERS))


def _for_a_server(value: Any) -> Any:
    return _known(value, SERVER_PLACEHOLDERS)


def _unquoted(value: str) -> str:
    if re.search(r"[\"']\{[a-z_]+\}|(?<![$\\{])\{[a-z_]+\}[\"']", value):
        raise ValueError("placeholders are quoted already in shell text; take the quotes around them away")
    return value


def _place(value: str) -> str:
    path = PurePosixPath(value.replace("{home}", "/home").replace("{workspace}", "/workspace"))
    if not path.is_absolute() or ".." in path.parts or "\0" in value or "\n" in value or len(path.parts) < 3:
        raise ValueError("must be the path of a file below {home} or {workspace} without '..'")
    return value


Tree = Annotated[Any, AfterValidator(_fillable)]
"""Anything that JSON can say. A text that is one placeholder alone becomes what is put there, whatever that is."""
CommandText = Annotated[str, AfterValidator(_fillable_command)]
ServerTree = Annotated[Any, AfterValidator(_for_a_server)]
ServerWord = Annotated[str, AfterValidator(_for_a_server)]


class PresetFile(Frozen):
    """A file that is written into the box before the agent starts."""

    json_: Tree = Field(default=None, alias="json")
    """A tree, written as JSON."""
    toml: Tree = None
    """A mapping, written as TOML."""
    text: str | None = None
    """Text in which placeholders are filled; other braces stay."""
    raw: str | None = None
    """Text as it is."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"text": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one(self) -> PresetFile:
        if len(self.model_fields_set) != 1:
            raise ValueError("needs one of 'text', 'json', 'toml' and 'raw'")
        if self.toml is not None and not isinstance(self.toml, Mapping):
            raise ValueError("'toml' must be a mapping")
        return self


class McpShape(Frozen):
    """How an agent is told of MCP servers. Without either form of a sort, the agent cannot use servers of it."""

    remote: ServerTree = None
    """What is said of a server with an address. `{mcp_servers}` is the mapping of all servers' names to this."""
    local: ServerTree = None
    """What is said of a server that is a program in the box."""
    remote_words: tuple[ServerWord, ...] = ()
    """Words of the command line for each server with an address; all are put for `{mcp_words}`."""
    local_words: tuple[ServerWord, ...] = ()


class Preset(Frozen):
    """How one agent is started and understood. Data only, so that a file is enough to add one."""

    name: Name
    description: str = ""
    image: str | None = None
    """Image of the sandbox, for tasks that name none."""
    model: str | None = Field(default=None, pattern=r"^[^\s,]{1,200}$")
    """Name of the model, for tasks that name none."""
    command: Annotated[CommandText, AfterValidator(_unquoted)] | tuple[CommandText, ...] | None = Field(
        default=None, min_length=1
    )
    """What is started in the workspace: shell text, in which placeholders are quoted, or words that no shell sees. None
    where the task says it."""
    max_goal: Bytes | None = Field(default=None, ge=1)
    """Longest goal that the agent takes."""
    env: Mapping[Variable, Annotated[Value, AfterValidator(_fillable_text)]] = {}
    files: Mapping[Annotated[str, AfterValidator(_place)], PresetFile] = {}
    mcp: McpShape = McpShape()
    output: Output = Output()
    turn: TurnRule | None = None
    errors: tuple[ErrorRule, ...] = ()

    def uses(self, placeholder: str) -> bool:
        """Whether something is put for this placeholder anywhere."""
        files = [[file.json_, file.toml, file.text] for file in self.files.values()]
        said = _texts([self.command, dict(self.env), files])
        return any(placeholder in PLACEHOLDER.findall(text) for text in said)
