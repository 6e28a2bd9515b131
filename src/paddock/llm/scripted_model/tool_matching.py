"""Match script actions to the tools that a client offers, and build their arguments.

Every client names its tools and arguments differently, so tools are chosen by name among those whose schema has the
right arguments. A client's own tools are preferred to tools with a prefix, such as those of MCP servers.
"""

from __future__ import annotations

import base64
import fnmatch
import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from paddock.errors import InvalidInput
from paddock.llm.formats.neutral import ToolDefinition
from paddock.llm.scripted_model.sample_arguments import fill_required_arguments, schema_properties, schema_types

_SHELL_NAMES = (
    "bash", "shell", "run_shell_command", "exec_command", "shell_command", "local_shell", "execute_command",
    "execute_bash", "run_bash", "run_commands", "bash_tool", "run_command", "run_terminal_cmd", "run_in_terminal",
    "terminal", "execute", "shell_exec", "run_shell", "command", "exec", "run", "cmd", "sh", "console",
)  # fmt: skip
_COMMAND_FIELDS = ("command", "cmd", "commands", "script", "command_line", "shell_command", "bash_command")
_WRITER_NAMES = (
    "write", "write_file", "create_file", "file_write", "write_to_file", "save_file", "write_text_file", "put_file",
    "create", "fs_write", "write_files", "edit_file", "upload_file", "save",
)  # fmt: skip
_READER_NAMES = (
    "read", "read_file", "view", "view_file", "file_read", "read_text_file", "open_file", "get_file", "fs_read", "cat",
)  # fmt: skip
_PATH_FIELDS = ("file_path", "path", "absolute_path", "filename", "file_name", "file", "target_file", "target", "name")
_CONTENT_FIELDS = ("content", "contents", "file_text", "file_content", "text", "data", "body")
_EDITOR_NAMES = ("str_replace_based_edit_tool", "str_replace_editor", "file_editor", "text_editor", "edit_tool")
_REPLACER_NAMES = ("editor",)
"""Editors that create a file when they get a new text and no old text."""
_MULTI_READER_NAMES = ("read_files",)
"""Tools that read a list of files."""
_PATCHER_NAMES = ("apply_patch",)
_PREFIX_ENDS = ("_", ".", "/", ":", "-")
"""Characters between a prefix and the name of a tool."""
_PATCH_FIELDS = ("input", "patch", "diff")
_MAX_COMMAND_BYTES = 100_000
"""Linux limits a program argument to 128 KiB."""


class NoMatchingTool(InvalidInput):
    """The client offers no tool that can perform the script's action."""


@dataclass(frozen=True, slots=True)
class MatchedToolCall:
    tool: str
    arguments: dict[str, Any]


def match_shell_tool(tools: list[ToolDefinition], command: str, description: str) -> MatchedToolCall:
    """Build a call that runs a shell command."""
    use = _find_shell_call(tools, command, description)
    if use is None:
        raise _no_matching_tool(tools, "runs shell commands")
    return use


def match_write_tool(tools: list[ToolDefinition], path: str, content: str, directory: str = "") -> MatchedToolCall:
    """Build a call that writes a file; file tools get an absolute path."""
    full_path = posixpath.join(directory, path) if directory else path
    for tool in _tools_named(tools, _WRITER_NAMES):
        path_field, content_field = (
            _find_field(tool, _PATH_FIELDS, "string"),
            _find_field(tool, _CONTENT_FIELDS, "string"),
        )
        if path_field and content_field:
            return _complete_call(tool, {path_field: full_path, content_field: content})
    for tool in _tools_named(tools, _EDITOR_NAMES):
        if _find_field(tool, ("command",), "string") and _find_field(tool, ("file_text",), "string"):
            return _complete_call(tool, {"command": "create", "path": full_path, "file_text": content})
    for tool in _tools_named(tools, _REPLACER_NAMES):
        required = tool.parameters.get("required", []) if tool.parameters else []
        if (
            _find_field(tool, ("path",), "string")
            and _find_field(tool, ("new_text",), "string")
            and "old_text" not in required
        ):
            return _complete_call(tool, {"path": full_path, "new_text": content})
    for tool in _tools_named(tools, _PATCHER_NAMES):
        field = _find_field(tool, _PATCH_FIELDS, "string")
        # A patch consists of whole lines.
        if field and content.endswith("\n") and "\r" not in content and not set("\r\n") & set(path):
            return _complete_call(tool, {field: _file_patch(path, content)})
    use = _find_shell_call(tools, file_writing_command(path, content), f"Write {path}")
    if use is None:
        raise _no_matching_tool(tools, "writes files or runs shell commands")
    return use


def match_read_tool(tools: list[ToolDefinition], path: str, directory: str = "") -> MatchedToolCall:
    """Build a call that reads a file."""
    full_path = posixpath.join(directory, path) if directory else path
    for tool in _tools_named(tools, _READER_NAMES):
        field = _find_field(tool, _PATH_FIELDS, "string")
        if field:
            return _complete_call(tool, {field: full_path})
    for tool in _tools_named(tools, _EDITOR_NAMES):
        if _find_field(tool, ("command",), "string") and _find_field(tool, ("path",), "string"):
            return _complete_call(tool, {"command": "view", "path": full_path})
    for tool in _tools_named(tools, _MULTI_READER_NAMES):
        if _find_field(tool, ("files",), "array"):
            return _complete_call(tool, {"files": [{"path": full_path}]})
    use = _find_shell_call(tools, f"cat -- {shlex.quote(path)}", f"Read {path}")
    if use is None:
        raise _no_matching_tool(tools, "reads files or runs shell commands")
    return use


def match_named_tool(tools: list[ToolDefinition], pattern: str, arguments: dict[str, Any]) -> MatchedToolCall:
    """Build a call of a tool by its name or a pattern."""
    tool = find_offered_tool(tools, pattern)
    if tool is None:
        raise _no_matching_tool(tools, f"is called {pattern!r}")
    return _complete_call(tool, arguments)


def find_offered_tool(tools: list[ToolDefinition], pattern: str) -> ToolDefinition | None:
    """Find a tool by exact name, else by the pattern, else by its name after a prefix."""
    name = find_offered_tool_name([tool.name for tool in tools], pattern)
    return None if name is None else next(tool for tool in tools if tool.name == name)


def find_offered_tool_name(names: Sequence[str], pattern: str) -> str | None:
    """Return the name of a tool as `find_offered_tool` finds it."""
    if pattern in names:
        return pattern
    by_pattern = next((name for name in names if fnmatch.fnmatchcase(name, pattern)), None)
    return by_pattern or next(
        (name for name in names if name.endswith(pattern) and name.removesuffix(pattern)[-1:] in _PREFIX_ENDS), None
    )


def file_writing_command(path: str, content: str) -> str:
    """Return a shell command that writes a file with any content."""
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
    if len(command.encode(errors="replace")) > _MAX_COMMAND_BYTES:
        raise InvalidInput(f"the script's file {path} is too large for a shell command, and no other tool writes files")
    return command


def _find_shell_call(tools: list[ToolDefinition], command: str, description: str) -> MatchedToolCall | None:
    for tool in _tools_named(tools, _SHELL_NAMES):
        for field in _COMMAND_FIELDS:
            name = _find_field(tool, (field,), "string", "array")
            if name is None:
                continue
            kinds = schema_types(schema_properties(tool.parameters)[name], tool.parameters)
            as_list = "array" in kinds and "string" not in kinds
            # A field named `commands` takes a list of shell commands; other lists take the words of one command.
            listed = [command] if field == "commands" else ["sh", "-c", command]
            arguments: dict[str, Any] = {name: listed if as_list else command}
            if "description" in schema_properties(tool.parameters):
                arguments["description"] = description
            return _complete_call(tool, arguments)
    return None


def _tools_named(tools: list[ToolDefinition], names: tuple[str, ...]) -> Iterator[ToolDefinition]:
    """Iterate over tools with one of these names: full names before names with a prefix."""
    plain = [(tool, _normalize_name(tool.name)) for tool in tools]
    for name in names:
        yield from (tool for tool, known in plain if known == name)
    for name in names:
        yield from (tool for tool, known in plain if known.endswith(f"_{name}"))


def _normalize_name(name: str) -> str:
    """Convert `RunCommand`, `run-command` and `run.command` to `run_command`."""
    return re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())


def _find_field(tool: ToolDefinition, names: tuple[str, ...], *kinds: str) -> str | None:
    """Return the tool's own name of a field that has one of these names and types."""
    properties = schema_properties(tool.parameters)
    for name in names:
        for own, schema in properties.items():
            allowed = schema_types(schema, tool.parameters)
            if _normalize_name(own) == name and (not allowed or allowed & set(kinds)):
                return own
    return None


def _complete_call(tool: ToolDefinition, arguments: dict[str, Any]) -> MatchedToolCall:
    return MatchedToolCall(tool.name, fill_required_arguments(arguments, tool.parameters))


def _file_patch(path: str, content: str) -> str:
    lines = "".join(f"+{line}\n" for line in content.removesuffix("\n").split("\n"))
    return f"*** Begin Patch\n*** Add File: {path}\n{lines}*** End Patch\n"


def _no_matching_tool(tools: list[ToolDefinition], wanted: str) -> NoMatchingTool:
    names = ", ".join(tool.name[:80] for tool in tools[:60]) or "no tools"
    more = f" and {len(tools) - 60} more" if len(tools) > 60 else ""
    return NoMatchingTool(f"the script needs a tool that {wanted}; the client offers: {names}{more}")
