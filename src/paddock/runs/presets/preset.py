"""Schema of presets: how to start an agent, its files, and how to parse its output."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from paddock.config.units import Bytes
from paddock.model.sandbox import FrozenModel
from paddock.model.task import Identifier, VariableName, VariableValue
from paddock.runs.presets.output_rules import AgentErrorRule, AgentOutputFormat, AgentTurnRule

PLACEHOLDERS = ("goal", "goal_file", "home", "llm_url", "mcp_file", "model", "task", "workspace")
"""Placeholders allowed everywhere; `mcp_words` only in commands, `mcp_servers` only in trees."""
SERVER_PLACEHOLDERS = ("args", "command", "env", "name", "url", "words")
"""Placeholders allowed in `mcp`."""
PLACEHOLDER_PATTERN = re.compile(r"(?<![$\\{])\{([a-z][a-z_]*)\}(?!\})")
"""`${name}` belongs to the shell."""


def _known(value: Any, known: tuple[str, ...]) -> Any:
    for text in _texts(value):
        for name in PLACEHOLDER_PATTERN.findall(text):
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {{{near[0]}}}?" if near else f"known: {', '.join(known)}"
                raise ValueError(f"unknown placeholder {{{name}}}; {hint}")
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


def _valid_file_path(value: str) -> str:
    path = PurePosixPath(value.replace("{home}", "/home").replace("{workspace}", "/workspace"))
    if not path.is_absolute() or ".." in path.parts or "\0" in value or "\n" in value or len(path.parts) < 3:
        raise ValueError("must be the path of a file below {home} or {workspace} without '..'")
    return value


Tree = Annotated[Any, AfterValidator(_fillable)]
"""Any JSON value. A text that consists of one placeholder becomes the placeholder's value of any type."""
CommandText = Annotated[str, AfterValidator(_fillable_command)]
ServerTree = Annotated[Any, AfterValidator(_for_a_server)]
ServerWord = Annotated[str, AfterValidator(_for_a_server)]


class PresetFile(FrozenModel):
    """A file that is written into the sandbox before the agent starts."""

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


class McpConfigFormat(FrozenModel):
    """Configuration format of MCP servers. Without a form for a kind of server, the agent cannot use that kind."""

    remote: ServerTree = None
    """Entry of a server with a URL. `{mcp_servers}` maps all server names to their entries."""
    local: ServerTree = None
    """Entry of a server that is a program in the sandbox."""
    remote_words: tuple[ServerWord, ...] = ()
    """Command-line words for each server with a URL; `{mcp_words}` expands to all of them."""
    local_words: tuple[ServerWord, ...] = ()


class AgentPreset(FrozenModel):
    """How to start one agent and parse its output. A file is enough to add an agent."""

    name: Identifier
    description: str = ""
    image: str | None = None
    """Default image of the sandbox."""
    model: str | None = Field(default=None, pattern=r"^[^\s,]{1,200}$")
    """Suggested model."""
    command: Annotated[CommandText, AfterValidator(_unquoted)] | tuple[CommandText, ...] | None = Field(
        default=None, min_length=1
    )
    """Command in the workspace: shell text with quoted placeholders, or a list of words without a shell. None
    if the task has its own entrypoint."""
    max_goal: Bytes | None = Field(default=None, ge=1)
    """Maximum length of the goal."""
    env: Mapping[VariableName, Annotated[VariableValue, AfterValidator(_fillable_text)]] = {}
    files: Mapping[Annotated[str, AfterValidator(_valid_file_path)], PresetFile] = {}
    mcp: McpConfigFormat = McpConfigFormat()
    output: AgentOutputFormat = AgentOutputFormat()
    turn: AgentTurnRule | None = None
    errors: tuple[AgentErrorRule, ...] = ()

    def uses_placeholder(self, placeholder: str) -> bool:
        """Return whether the preset uses a placeholder."""
        files = [[file.json_, file.toml, file.text] for file in self.files.values()]
        texts = _texts([self.command, dict(self.env), files])
        return any(placeholder in PLACEHOLDER_PATTERN.findall(text) for text in texts)
