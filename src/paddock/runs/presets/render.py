"""Makes of a preset and a task what is started in the box: a command, variables and files."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paddock.errors import InvalidInput
from paddock.model.task import WORKSPACE, Location, McpServer, Task
from paddock.runs.presets.preset import PLACEHOLDER, Preset, PresetFile

PLAIN = "script"
"""The preset of tasks that name no agent: it only says where the goal is."""
LONGEST_WORD = 128 * 1024 - 1
"""Bytes that Linux takes as one word of a command line or one variable."""


class Unfit(InvalidInput):
    """An agent cannot be given what the task has."""

    def __init__(self, way: Location, message: str) -> None:
        self.way = way
        """The field of the task, an MCP server by its name; empty for the task as a whole."""
        self.said = message
        super().__init__(f"{'.'.join(map(str, way))}: {message}" if way else message)


@dataclass(frozen=True)
class Endpoints:
    """Where things are in the box."""

    llm: str = "http://127.0.0.1:8421"
    """The LLM proxy, without a path."""
    mcp: str = "http://127.0.0.1:8422"
    """What has a path for each of the task's MCP servers that has an address."""
    home: str = "/home/agent"


@dataclass(frozen=True)
class Rendered:
    """What is started, in the workspace, and what is put into the box before."""

    command: str | tuple[str, ...]
    """Shell text, or words that no shell sees."""
    env: dict[str, str] = field(default_factory=dict)
    """Of the preset and of the task, which goes first; without the task's secrets."""
    files: dict[str, bytes] = field(default_factory=dict)
    """By absolute path; only the box's user needs to read them."""


def wanted_model(preset: Preset, task: Task) -> str | None:
    """The model that a task is to be done with, whether there is one of that name or not."""
    return task.llm.model or (preset.model if task.agent else None)


def check_fit(preset: Preset, task: Task) -> None:
    """Raise `Unfit` for what an agent cannot be given, as far as that is known before there is a sandbox."""
    model = wanted_model(preset, task) or (None if task.llm.script is None else "script")
    render(preset, task, model=model)


def render(
    preset: Preset,
    task: Task,
    *,
    model: str | None = None,
    endpoints: Endpoints = Endpoints(),  # noqa: B008
) -> Rendered:
    """Put a task's goal, model and MCP servers where its agent looks for them.

    Raises `Unfit` for what this agent cannot be given.
    """
    if task.entrypoint is None and preset.command is None:
        raise Unfit(("entrypoint",), f"the agent '{preset.name}' starts nothing by itself; say what is to be started")
    if model is None and preset.uses("model"):
        raise Unfit(("llm", "model"), f"the agent '{preset.name}' needs the name of a model")
    length = len(task.goal.encode())
    if preset.max_goal is not None and length > preset.max_goal:
        raise Unfit(
            ("goal",),
            f"the agent '{preset.name}' takes goals of up to {preset.max_goal} bytes, and this one has {length}; "
            "put most of it into a file among the inputs, and name that file in the goal",
        )
    filling = _Filling(preset, task, model, endpoints)
    command = task.entrypoint if task.entrypoint is not None else filling.command()
    env = {**filling.variables(), **task.env}
    _check_words(preset, command, env)
    return Rendered(command, env, filling.files())


class _Filling:
    """What is put for the placeholders of one preset, for one task."""

    def __init__(self, preset: Preset, task: Task, model: str | None, endpoints: Endpoints) -> None:
        self._preset = preset
        self._home = endpoints.home
        self._goal = task.goal
        servers: dict[str, Any] = {}
        self._mcp_words: list[str] = []
        for server in task.mcp:
            values = _server_values(server, endpoints)
            remote = server.url is not None
            tree = preset.mcp.remote if remote else preset.mcp.local
            words = preset.mcp.remote_words if remote else preset.mcp.local_words
            if tree is None and not words:
                sort = "servers with an address" if remote else "servers that are programs in the sandbox"
                raise Unfit(("mcp", server.name), f"the agent '{preset.name}' has no way to use {sort}")
            if tree is not None:
                servers[server.name] = _fill_tree(tree, values)
            self._mcp_words.extend(str(_fill_text(word, values)) for word in words)
        self._values: dict[str, Any] = {
            "goal": task.goal,
            "goal_file": f"{endpoints.home}/.paddock/goal.md",
            "home": endpoints.home,
            "llm_url": endpoints.llm,
            "mcp_file": f"{endpoints.home}/.paddock/mcp.json",
            "mcp_servers": servers,
            "model": model or "",
            "task": task.name,
            "workspace": WORKSPACE,
        }

    def command(self) -> str | tuple[str, ...]:
        command = self._preset.command
        assert command is not None
        if isinstance(command, str):
            quoted = {name: shlex.quote(value) for name, value in self._values.items() if isinstance(value, str)}
            return _fill_text(command, {**quoted, "mcp_words": shlex.join(self._mcp_words)})
        words: list[str] = []
        for word in command:
            words.extend(self._mcp_words if word == "{mcp_words}" else [_fill_text(word, self._values)])
        return tuple(words)

    def variables(self) -> dict[str, str]:
        """The preset's own, and those by which any entrypoint finds what it was given."""
        found = {
            "PADDOCK_TASK": self._values["task"],
            "PADDOCK_GOAL_FILE": self._values["goal_file"],
            "PADDOCK_MCP_FILE": self._values["mcp_file"],
        }
        if self._values["model"]:
            found["PADDOCK_MODEL"] = self._values["model"]
        return found | {name: _fill_text(value, self._values) for name, value in self._preset.env.items()}

    def files(self) -> dict[str, bytes]:
        shared = {"mcpServers": self._values["mcp_servers"]}
        found = {
            self._values["goal_file"]: self._goal.encode(),
            self._values["mcp_file"]: _as_json(shared).encode(),
        }
        for path, file in self._preset.files.items():
            found[_fill_text(path, self._values)] = self._content(file).encode()
        return found

    def _content(self, file: PresetFile) -> str:
        if file.raw is not None:
            return file.raw
        if file.text is not None:
            return _fill_text(file.text, self._values)
        if file.toml is not None:
            return _as_toml(_fill_tree(file.toml, self._values))
        return _as_json(_fill_tree(file.json_, self._values))


def _server_values(server: McpServer, endpoints: Endpoints) -> dict[str, Any]:
    words = list(server.command)
    return {
        "name": server.name,
        # Its real address and its headers stay outside.
        "url": f"{endpoints.mcp}/{server.name}",
        "command": words[0] if words else "",
        "args": words[1:],
        "words": words,
        "env": dict(server.env),
    }


def _fill_text(text: str, values: Mapping[str, Any]) -> str:
    # What is put in is never looked at for further placeholders, so goals may have braces.
    def put(found: re.Match[str]) -> str:
        value = values.get(found[1])
        return value if isinstance(value, str) else found[0]

    return PLACEHOLDER.sub(put, text)


def _fill_tree(tree: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(tree, str):
        alone = PLACEHOLDER.fullmatch(tree)
        return values[alone[1]] if alone and alone[1] in values else _fill_text(tree, values)
    if isinstance(tree, Mapping):
        return {_fill_text(str(name), values): _fill_tree(each, values) for name, each in tree.items()}
    if isinstance(tree, list | tuple):
        return [_fill_tree(each, values) for each in tree]
    return tree


def _as_json(tree: Any) -> str:
    return json.dumps(tree, ensure_ascii=False, indent=1) + "\n"


def _as_toml(tree: Mapping[str, Any]) -> str:
    return "".join(f"{_toml(str(name))} = {_toml(value)}\n" for name, value in tree.items() if value is not None)


def _toml(value: Any) -> str:
    """A value as TOML writes it within a line."""
    if isinstance(value, Mapping):
        entries = (f"{_toml(str(name))} = {_toml(each)}" for name, each in value.items() if each is not None)
        return f"{{{', '.join(entries)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(each) for each in value)}]"
    # The texts of JSON are texts of TOML, but for one letter that JSON leaves as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def _check_words(preset: Preset, command: str | tuple[str, ...], env: Mapping[str, str]) -> None:
    """Refuse what Linux would not start, with words that help more than its own."""
    said = [("a word of its command", word) for word in ((command,) if isinstance(command, str) else command)]
    said += [(f"the variable {name}", f"{name}={value}") for name, value in env.items()]
    for what, word in said:
        if "\0" in word:
            raise Unfit((), f"the agent '{preset.name}' cannot be started: {what} has a NUL character; take it out")
        if (length := len(word.encode())) > LONGEST_WORD:
            raise Unfit(
                (),
                f"the agent '{preset.name}' cannot be started: {what} would have {length} bytes, and Linux takes "
                f"{LONGEST_WORD}; make the goal shorter, or let the preset use {{goal_file}} and not {{goal}}",
            )
