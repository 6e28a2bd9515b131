"""Which of the tools that a client offers does what a scenario says, and with which arguments.

Every client names its tools and their arguments differently, so tools are chosen by name among those whose schema has
the right arguments; a client's own tools are preferred to those it has from elsewhere under a prefix.
"""

from __future__ import annotations

import base64
import fnmatch
import posixpath
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from paddock.errors import InvalidInput
from paddock.llm.neutral import Tool
from paddock.llm.script.schema import fill, properties_of, types_of

_SHELLS = (
    "bash", "shell", "run_shell_command", "exec_command", "shell_command", "local_shell", "execute_command",
    "execute_bash", "run_bash", "run_commands", "bash_tool", "run_command", "run_terminal_cmd", "run_in_terminal",
    "terminal", "execute", "shell_exec", "run_shell", "command", "exec", "run", "cmd", "sh", "console",
)  # fmt: skip
_COMMANDS = ("command", "cmd", "commands", "script", "command_line", "shell_command", "bash_command")
_WRITERS = (
    "write", "write_file", "create_file", "file_write", "write_to_file", "save_file", "write_text_file", "put_file",
    "create", "fs_write", "write_files", "edit_file", "upload_file", "save",
)  # fmt: skip
_READERS = (
    "read", "read_file", "view", "view_file", "file_read", "read_text_file", "open_file", "get_file", "fs_read", "cat",
)  # fmt: skip
_PATHS = ("file_path", "path", "absolute_path", "filename", "file_name", "file", "target_file", "target", "name")
_CONTENTS = ("content", "contents", "file_text", "file_content", "text", "data", "body")
_EDITORS = ("str_replace_based_edit_tool", "str_replace_editor", "file_editor", "text_editor", "edit_tool")
_REPLACERS = ("editor",)
"""Editors that create a file from its new text when they are given no old text."""
_MANY_READERS = ("read_files",)
"""Tools that read a list of files."""
_PATCHERS = ("apply_patch",)
_PATCHES = ("input", "patch", "diff")
_LONGEST_COMMAND = 100_000
"""Linux takes no argument of a program longer than 128 KiB."""


class NoSuchTool(InvalidInput):
    """None of the tools that the client offers does what the script says."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    tool: str
    arguments: dict[str, Any]


def shell(tools: list[Tool], command: str, description: str) -> ToolUse:
    """A shell command."""
    use = _shell(tools, command, description)
    if use is None:
        raise _nothing(tools, "runs shell commands")
    return use


def write_file(tools: list[Tool], path: str, content: str, directory: str = "") -> ToolUse:
    """A file's content; a relative path is under the client's working directory, since file tools want whole paths."""
    whole = posixpath.join(directory, path) if directory else path
    for tool in _named(tools, _WRITERS):
        path_field, content_field = _field(tool, _PATHS, "string"), _field(tool, _CONTENTS, "string")
        if path_field and content_field:
            return _use(tool, {path_field: whole, content_field: content})
    for tool in _named(tools, _EDITORS):
        if _field(tool, ("command",), "string") and _field(tool, ("file_text",), "string"):
            return _use(tool, {"command": "create", "path": whole, "file_text": content})
    for tool in _named(tools, _REPLACERS):
        required = tool.parameters.get("required", []) if tool.parameters else []
        if _field(tool, ("path",), "string") and _field(tool, ("new_text",), "string") and "old_text" not in required:
            return _use(tool, {"path": whole, "new_text": content})
    for tool in _named(tools, _PATCHERS):
        field = _field(tool, _PATCHES, "string")
        # A patch is made of whole lines.
        if field and content.endswith("\n") and "\r" not in content and not set("\r\n") & set(path):
            return _use(tool, {field: _patch(path, content)})
    use = _shell(tools, write_command(path, content), f"Write {path}")
    if use is None:
        raise _nothing(tools, "writes files or runs shell commands")
    return use


def read_file(tools: list[Tool], path: str, directory: str = "") -> ToolUse:
    """A look into a file."""
    whole = posixpath.join(directory, path) if directory else path
    for tool in _named(tools, _READERS):
        field = _field(tool, _PATHS, "string")
        if field:
            return _use(tool, {field: whole})
    for tool in _named(tools, _EDITORS):
        if _field(tool, ("command",), "string") and _field(tool, ("path",), "string"):
            return _use(tool, {"command": "view", "path": whole})
    for tool in _named(tools, _MANY_READERS):
        if _field(tool, ("files",), "array"):
            return _use(tool, {"files": [{"path": whole}]})
    use = _shell(tools, f"cat -- {shlex.quote(path)}", f"Read {path}")
    if use is None:
        raise _nothing(tools, "reads files or runs shell commands")
    return use


def call(tools: list[Tool], pattern: str, arguments: dict[str, Any]) -> ToolUse:
    """A tool by its name or a pattern."""
    tool = find(tools, pattern)
    if tool is None:
        raise _nothing(tools, f"is called {pattern!r}")
    return _use(tool, arguments)


def find(tools: list[Tool], pattern: str) -> Tool | None:
    """The tool of this name, else the first that the pattern fits, else the first of this name under a prefix."""
    prefixed = re.compile(rf"[_./:-]{re.escape(pattern)}$")
    return (
        next((tool for tool in tools if tool.name == pattern), None)
        or next((tool for tool in tools if fnmatch.fnmatchcase(tool.name, pattern)), None)
        or next((tool for tool in tools if prefixed.search(tool.name)), None)
    )


def write_command(path: str, content: str) -> str:
    """A shell command that writes a file, whatever is in it."""
    target = shlex.quote(path)
    parent = posixpath.dirname(path)
    before = f"mkdir -p -- {shlex.quote(parent)} && " if parent.strip("/") else ""
    lines = content.split("\n")
    if content.endswith("\n") and all(line.replace("\t", "").isprintable() for line in lines):
        mark = "END"
        while mark in lines:
            mark += "_"
        command = f"{before}cat > {target} <<'{mark}'\n{content}{mark}"
    else:
        data = base64.b64encode(content.encode(errors="replace")).decode()
        command = f"{before}printf %s {data} | base64 -d > {target}" if data else f"{before}: > {target}"
    if len(command.encode(errors="replace")) > _LONGEST_COMMAND:
        raise InvalidInput(f"the script's file {path} is too large for a shell command, and no other tool writes files")
    return command


def _shell(tools: list[Tool], command: str, description: str) -> ToolUse | None:
    for tool in _named(tools, _SHELLS):
        for field in _COMMANDS:
            name = _field(tool, (field,), "string", "array")
            if name is None:
                continue
            kinds = types_of(properties_of(tool.parameters)[name], tool.parameters)
            as_list = "array" in kinds and "string" not in kinds
            # A list of commands has one shell command in each place, a list named as one command its words.
            listed = [command] if field == "commands" else ["sh", "-c", command]
            arguments: dict[str, Any] = {name: listed if as_list else command}
            if "description" in properties_of(tool.parameters):
                arguments["description"] = description
            return _use(tool, arguments)
    return None


def _named(tools: list[Tool], names: tuple[str, ...]) -> Iterator[Tool]:
    """The tools that have one of these names, the likelier ones first: whole names before names under a prefix."""
    plain = [(tool, _plain(tool.name)) for tool in tools]
    for name in names:
        yield from (tool for tool, known in plain if known == name)
    for name in names:
        yield from (tool for tool, known in plain if known.endswith(f"_{name}"))


def _plain(name: str) -> str:
    """`RunCommand`, `run-command` and `run.command` as `run_command`."""
    return re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())


def _field(tool: Tool, names: tuple[str, ...], *kinds: str) -> str | None:
    """The tool's own name for a field that may have one of these types."""
    properties = properties_of(tool.parameters)
    for name in names:
        for own, schema in properties.items():
            allowed = types_of(schema, tool.parameters)
            if _plain(own) == name and (not allowed or allowed & set(kinds)):
                return own
    return None


def _use(tool: Tool, arguments: dict[str, Any]) -> ToolUse:
    return ToolUse(tool.name, fill(arguments, tool.parameters))


def _patch(path: str, content: str) -> str:
    lines = "".join(f"+{line}\n" for line in content.removesuffix("\n").split("\n"))
    return f"*** Begin Patch\n*** Add File: {path}\n{lines}*** End Patch\n"


def _nothing(tools: list[Tool], wanted: str) -> NoSuchTool:
    names = ", ".join(tool.name[:80] for tool in tools[:60]) or "no tools at all"
    more = f" and {len(tools) - 60} more" if len(tools) > 60 else ""
    return NoSuchTool(f"the script needs a tool that {wanted}; offered are: {names}{more}")
