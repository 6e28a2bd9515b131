"""Render a preset and a task into a launch plan: command, variables and files."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paddock.errors import InvalidInput
from paddock.model.mcp import McpServer
from paddock.model.task import WORKSPACE, FieldPath, Task
from paddock.runs.presets.preset import PLACEHOLDER_PATTERN, AgentPreset, PresetFile

SCRIPT_PRESET = "script"
"""Preset of tasks without an agent: only provides the goal."""
MAX_ARGUMENT_BYTES = 128 * 1024 - 1
"""Linux's limit of one command-line argument or variable."""


class UnsupportedTaskError(InvalidInput):
    """An agent cannot be given what the task has."""

    def __init__(self, field_path: FieldPath, message: str) -> None:
        self.field_path = field_path
        """Path of the task's field; an MCP server by name; empty for the whole task."""
        self.detail = message
        super().__init__(f"{'.'.join(map(str, field_path))}: {message}" if field_path else message)


@dataclass(frozen=True)
class SandboxServiceAddresses:
    """Addresses and paths inside the sandbox."""

    llm: str = "http://127.0.0.1:8421"
    """URL of the model proxy without a path."""
    mcp: str = "http://127.0.0.1:8422"
    """URL below which each MCP server with a URL has a path."""
    home: str = "/home/agent"


@dataclass(frozen=True)
class LaunchPlan:
    """Command to start in the workspace, and files to write before."""

    command: str | tuple[str, ...]
    """Shell text, or a list of words without a shell."""
    env: dict[str, str] = field(default_factory=dict)
    """Variables of preset and task; the task's take precedence. Without the task's secrets."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Files by absolute path, readable by the sandbox user."""


def requested_model_name(preset: AgentPreset, task: Task) -> str | None:
    """Return the model that a task or its preset names; it may not exist."""
    return task.llm.model or (preset.model if task.agent else None)


def check_agent_supports_task(preset: AgentPreset, task: Task) -> None:
    """Raise `UnsupportedTaskError` for what the agent does not support, as far as known without a sandbox."""
    model = requested_model_name(preset, task) or (None if task.llm.script is None else "script")
    render_launch_plan(preset, task, model=model)


def render_launch_plan(
    preset: AgentPreset,
    task: Task,
    *,
    model: str | None = None,
    endpoints: SandboxServiceAddresses = SandboxServiceAddresses(),  # noqa: B008
) -> LaunchPlan:
    """Place a task's goal, model and MCP servers where its agent expects them.

    Raises `UnsupportedTaskError` for what this agent does not support.
    """
    if task.entrypoint is None and preset.command is None:
        raise UnsupportedTaskError(
            ("entrypoint",), f"the agent '{preset.name}' starts nothing by itself; say what is to be started"
        )
    if model is None and preset.uses_placeholder("model"):
        raise UnsupportedTaskError(("llm", "model"), f"the agent '{preset.name}' needs the name of a model")
    length = len(task.goal.encode())
    if preset.max_goal is not None and length > preset.max_goal:
        raise UnsupportedTaskError(
            ("goal",),
            f"the agent '{preset.name}' takes goals of up to {preset.max_goal} bytes, and this one has {length}; "
            "put most of it into a file among the inputs, and name that file in the goal",
        )
    filling = _PlaceholderValues(preset, task, model, endpoints)
    command = task.entrypoint if task.entrypoint is not None else filling.command()
    env = {**filling.variables(), **task.env}
    _check_argument_sizes(preset, command, env)
    return LaunchPlan(command, env, filling.files())


class _PlaceholderValues:
    """Values of a preset's placeholders for one task."""

    def __init__(self, preset: AgentPreset, task: Task, model: str | None, endpoints: SandboxServiceAddresses) -> None:
        self._preset = preset
        self._home = endpoints.home
        self._goal = task.goal
        servers: dict[str, Any] = {}
        self._mcp_words: list[str] = []
        for server in task.mcp:
            values = _server_values(server, endpoints)
            by_address = not server.command or _starts_through_gateway(preset, task)
            tree = preset.mcp.remote if by_address else preset.mcp.local
            words = preset.mcp.remote_words if by_address else preset.mcp.local_words
            if tree is None and not words:
                sort = "servers that are programs in the sandbox" if server.command else "servers with an address"
                raise UnsupportedTaskError(("mcp", server.name), f"the agent '{preset.name}' has no way to use {sort}")
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
        """Return variables of the preset and the standard ones of any entrypoint."""
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


def _starts_through_gateway(preset: AgentPreset, task: Task) -> bool:
    """Return whether the gateway starts a task's programs, so that their calls are recorded, and not the agent.

    Secrets of a task are variables of its agent alone, and of the programs that the agent starts.
    """
    return not task.secrets and (preset.mcp.remote is not None or bool(preset.mcp.remote_words))


def _server_values(server: McpServer, endpoints: SandboxServiceAddresses) -> dict[str, Any]:
    words = list(server.command)
    return {
        "name": server.name,
        # The real URL and headers stay outside the sandbox.
        "url": f"{endpoints.mcp}/{server.name}",
        "command": words[0] if words else "",
        "args": words[1:],
        "words": words,
        "env": dict(server.env),
    }


def _fill_text(text: str, values: Mapping[str, Any]) -> str:
    # Inserted values are not expanded again, so goals may contain braces.
    def put(found: re.Match[str]) -> str:
        value = values.get(found[1])
        return value if isinstance(value, str) else found[0]

    return PLACEHOLDER_PATTERN.sub(put, text)


def _fill_tree(tree: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(tree, str):
        alone = PLACEHOLDER_PATTERN.fullmatch(tree)
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
    """Format a value as inline TOML."""
    if isinstance(value, Mapping):
        entries = (f"{_toml(str(name))} = {_toml(each)}" for name, each in value.items() if each is not None)
        return f"{{{', '.join(entries)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(each) for each in value)}]"
    # JSON strings are TOML strings, except for DEL, which JSON does not escape.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def _check_argument_sizes(preset: AgentPreset, command: str | tuple[str, ...], env: Mapping[str, str]) -> None:
    """Reject arguments that Linux cannot start, with a helpful message."""
    arguments = [("a word of its command", word) for word in ((command,) if isinstance(command, str) else command)]
    arguments += [(f"the variable {name}", f"{name}={value}") for name, value in env.items()]
    for what, word in arguments:
        if "\0" in word:
            raise UnsupportedTaskError(
                (), f"the agent '{preset.name}' cannot be started: {what} contains a NUL character; remove it"
            )
        if (length := len(word.encode())) > MAX_ARGUMENT_BYTES:
            raise UnsupportedTaskError(
                (),
                f"the agent '{preset.name}' cannot be started: {what} would have {length} bytes, and Linux takes "
                f"{MAX_ARGUMENT_BYTES}; make the goal shorter, or let the preset use {{goal_file}} and not {{goal}}",
            )
