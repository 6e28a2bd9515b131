"""One-line summaries of calls for approvers.

A summary is derived from the tool and its arguments alone, deterministically; the agent's own description is kept
separate. It never replaces the arguments: it counts the commands it omits, and marks calls that may run more.
"""

from __future__ import annotations

import posixpath
import re
import shlex
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from paddock.agents.approvals.call_effects import (
    CallFindings,
    analyze_python_code,
    analyze_shell_command,
    command_summary_rank,
    has_inline_script,
    interpreter_language,
    resolve_named_path,
    shell_program_name,
)
from paddock.agents.approvals.shell_script import ShellCommand, parse_shell_script
from paddock.model.sessions import Approval, CallEffect, CallSummary
from paddock.model.task_fields import WORKSPACE

MAX_NAMED = 4
"""Paths, hosts or programs that are named; further ones are counted."""
_MAX_LENGTH = 120
_MAX_AGENT_WORDS = 300
_DESCRIPTIONS = ("description", "explanation", "justification", "purpose", "reason")
_PATHS = ("path", "file_path", "filePath", "abs_path", "filename", "notebook_path", "destination", "to_path", "source")
_COMMON = (
    "read_file|write_file|list_directory|create_directory|move_file|delete_file|run_shell_command|run_ipython_cell"
)
_SHELL = re.compile(r"(^|_)(run|exec|execute)(_|$)|shell|bash|^command$", re.IGNORECASE)


def add_call_summary(approval: Approval) -> Approval:
    """Add the summary to an approval of a call."""
    if approval.type != "call" or approval.summary is not None:
        return approval
    summary = summarize_call(approval.name, approval.kind, approval.arguments, agent_words=approval.question)
    return approval.model_copy(update={"summary": summary})


def summarize_call(name: str, kind: str | None, arguments: Mapping[str, Any], *, agent_words: str = "") -> CallSummary:
    """Summarize a call; `agent_words` is the agent's own description."""
    tool = _tool_without_kind(name, kind)
    findings = CallFindings()
    params: dict[str, str | int] = {"tool": one_line_visible_text(tool), "kind": one_line_visible_text(kind or "")}
    describe = _DESCRIBERS.get(tool) or (_describe_command if _SHELL.search(tool) else _describe_other)
    code = describe(arguments, findings, params)
    agent_description = next(
        (str(arguments[each]) for each in _DESCRIPTIONS if isinstance(arguments.get(each), str)), agent_words
    )
    order: tuple[CallEffect, ...] = ("deletes", "network", "runs", "writes", "reads", "unknown")
    summary = CallSummary(
        code=code,
        params=params,
        effects=tuple(effect for effect in order if effect in findings.effects),
        writes=tuple(map(one_line_visible_text, findings.writes))[:MAX_NAMED],
        deletes=tuple(map(one_line_visible_text, findings.deletes))[:MAX_NAMED],
        hosts=tuple(map(one_line_visible_text, findings.hosts))[:MAX_NAMED],
        unnamed=sum(max(0, len(each) - MAX_NAMED) for each in (findings.writes, findings.deletes, findings.hosts)),
        opaque=findings.opaque,
        agent_words=one_line_visible_text(agent_description, _MAX_AGENT_WORDS) or None,
    )
    return summary.model_copy(update={"text": _english_sentence(summary)})


def one_line_visible_text(text: str, max_length: int = _MAX_LENGTH) -> str:
    """Return a text on one line, bounded, with invisible characters shown as escapes."""
    shown = "".join(map(_visible_character, " ".join(text[: 2 * max_length].split(" "))))
    return shown if len(shown) <= max_length and len(text) <= 2 * max_length else shown[: max_length - 1] + "…"


def _visible_character(character: str) -> str:
    if character == "\n":
        return " ⏎ "
    is_invisible = unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")
    return f"⟨U+{ord(character):04X}⟩" if is_invisible else character


def _tool_without_kind(name: str, kind: str | None) -> str:
    tool = name.removeprefix(f"{kind}_") if kind else name
    keep_kind = kind in ("browser", "mobile") and not re.fullmatch(_COMMON, tool)
    return name if keep_kind else tool


ToolDescriber = Callable[[Mapping[str, Any], CallFindings, dict[str, str | int]], str]


def _describe_command(arguments: Mapping[str, Any], findings: CallFindings, params: dict[str, str | int]) -> str:
    command_argument = arguments.get("command", arguments.get("cmd", arguments.get("script")))
    if isinstance(command_argument, list | tuple) and all(isinstance(each, str) for each in command_argument):
        command_argument = shlex.join(command_argument)
    if not isinstance(command_argument, str):
        return _describe_other(arguments, findings, params)
    script = parse_shell_script(command_argument)
    findings.opaque = script.opaque
    if not script.commands:
        findings.effects.add("unknown")
        return "use_tool"
    directory = arguments.get("cwd") or arguments.get("workdir") or WORKSPACE
    current_directory: str | None = posixpath.join(WORKSPACE, directory) if isinstance(directory, str) else None
    main_commands: list[ShellCommand] = []
    directories: dict[int, str | None] = {}
    for command in script.commands:
        if command.program == "cd" and len(command.words) <= 2:
            current_directory = (
                resolve_named_path(current_directory, command.words[1]) if len(command.words) == 2 else None
            )
            continue
        analyze_shell_command(command, current_directory, findings)
        main_commands.append(command)
        directories[id(command)] = current_directory
    if findings.opaque:
        findings.effects.add("runs")
    findings.effects = findings.effects or {"reads"}
    if len(findings.effects) > 1:
        findings.effects.discard("reads")
    first = max(main_commands, key=command_summary_rank, default=ShellCommand(("cd",)))
    params["more"] = max(0, len(main_commands) - 1)
    others = [shell_program_name(each) for each in main_commands if each is not first]
    names = [one_line_visible_text(each, 40) for each in dict.fromkeys(others)]
    params["others"] = ", ".join(names[:MAX_NAMED] + ["…"] * (len(names) > MAX_NAMED))
    language = interpreter_language(first)
    params["program"] = one_line_visible_text(language or shell_program_name(first))
    if language and has_inline_script(first):
        return "run_script"
    file = next((word for word in first.words[1:] if not word.startswith("-")), "")
    if language and file and "-m" not in first.words:
        params["path"] = one_line_visible_text(resolve_named_path(directories[id(first)], file))
        return "run_file"
    return "run_program"


def _describe_python(arguments: Mapping[str, Any], findings: CallFindings, params: dict[str, str | int]) -> str:
    code = arguments.get("code")
    findings.effects.add("runs")
    params["program"] = "Python"
    params["more"] = 0
    if isinstance(code, str):
        # Such lines are IPython magics or shell commands.
        findings.opaque = any(line.lstrip().startswith(("!", "%")) for line in code.splitlines())
        analyze_python_code(code, WORKSPACE, findings)
    return "run_script"


def _describe_write(code: str) -> ToolDescriber:
    def describe(arguments: Mapping[str, Any], findings: CallFindings, params: dict[str, str | int]) -> str:
        findings.effects.add("writes")
        params["path"] = one_line_visible_text(_path_argument(arguments))
        if not params["path"]:
            return "use_tool"
        if code == "write_file" and arguments.get("append") is True:
            return "append_file"
        return code

    return describe


def _describe_read(arguments: Mapping[str, Any], findings: CallFindings, params: dict[str, str | int]) -> str:
    params["path"] = one_line_visible_text(_path_argument(arguments))
    findings.effects.add("reads")
    return "read" if params["path"] else "look"


def _describe_look(arguments: Mapping[str, Any], findings: CallFindings, params: dict[str, str | int]) -> str:
    findings.effects.add("reads")
    return "look"


def _describe_move(arguments: Mapping[str, Any], findings: CallFindings, params: dict[str, str | int]) -> str:
    source = arguments.get("source", arguments.get("from_path", ""))
    target = arguments.get("destination", arguments.get("to_path", ""))
    params["path"], params["to"] = (
        one_line_visible_text(resolve_named_path(WORKSPACE, str(source))),
        one_line_visible_text(resolve_named_path(WORKSPACE, str(target))),
    )
    findings.effects.add("writes")
    if arguments.get("overwrite") is True:
        findings.effects.add("deletes")
    return "move_file" if source and target else "use_tool"


def _describe_delete(arguments: Mapping[str, Any], findings: CallFindings, params: dict[str, str | int]) -> str:
    params["path"] = one_line_visible_text(_path_argument(arguments))
    findings.effects.add("deletes")
    if not params["path"]:
        return "use_tool"
    return "delete_all" if arguments.get("recursive") is True else "delete_file"


def _describe_transfer(arguments: Mapping[str, Any], findings: CallFindings, params: dict[str, str | int]) -> str:
    params["to"] = one_line_visible_text(str(arguments.get("to_kind", "")))
    params["path"] = one_line_visible_text(str(arguments.get("to_path", "")))
    findings.effects.add("writes")
    return "copy_to_sandbox"


def _describe_start(arguments: Mapping[str, Any], findings: CallFindings, params: dict[str, str | int]) -> str:
    app = arguments.get("app", arguments.get("name", ""))
    params["program"] = one_line_visible_text(str(app))
    findings.effects.add("runs")
    return "start_app"


def _describe_visit(arguments: Mapping[str, Any], findings: CallFindings, params: dict[str, str | int]) -> str:
    params["url"] = one_line_visible_text(str(arguments.get("url", "")))
    findings.add_hosts(str(arguments.get("url", "")))
    findings.effects.add("network")
    return "open_page"


def _describe_network_access(arguments: Mapping[str, Any], findings: CallFindings, params: dict[str, str | int]) -> str:
    findings.effects.add("network")
    params["host"] = one_line_visible_text(f"{arguments.get('host', '')}:{arguments.get('port', 443)}")
    params["kind"] = one_line_visible_text(str(arguments.get("kind", "")))
    return "allow_network"


def _describe_input(arguments: Mapping[str, Any], findings: CallFindings, params: dict[str, str | int]) -> str:
    findings.effects.add("unknown")
    return "use_screen"


def _describe_other(arguments: Mapping[str, Any], findings: CallFindings, params: dict[str, str | int]) -> str:
    findings.effects.add("unknown")
    findings.add_hosts(" ".join(str(each) for each in arguments.values()))
    path = _path_argument(arguments)
    if path:
        params["path"] = one_line_visible_text(path)
        return "use_tool_on"
    return "use_tool"


_DESCRIBERS: Mapping[str, ToolDescriber] = {
    "run_shell_command": _describe_command,
    "execute": _describe_command,
    "run_ipython_cell": _describe_python,
    "write_file": _describe_write("write_file"),
    "edit": _describe_write("edit_file"),
    "create_directory": _describe_write("create_directory"),
    "move_file": _describe_move,
    "move": _describe_move,
    "delete_file": _describe_delete,
    "delete": _describe_delete,
    "read_file": _describe_read,
    "read": _describe_read,
    "list_directory": _describe_read,
    "search": _describe_look,
    "think": _describe_look,
    "screenshot": _describe_look,
    "fetch": _describe_visit,
    "browser_navigate": _describe_visit,
    "start_app": _describe_start,
    "request_network_access": _describe_network_access,
    "move_between_sandboxes": _describe_transfer,
    "screenshot_to_sandbox": _describe_transfer,
    "session_file_to_sandbox": _describe_transfer,
    **dict.fromkeys(("click_mouse", "move_mouse", "drag_mouse", "scroll", "press_keys", "input_text"), _describe_input),
}

_SENTENCES = {
    "run_script": "Run a {program} script",
    "run_file": "Run the {program} script {path}",
    "run_program": "Run {program}",
    "write_file": "Write the file {path}",
    "append_file": "Add to the file {path}",
    "edit_file": "Change the file {path}",
    "create_directory": "Create the directory {path}",
    "move_file": "Move {path} to {to}",
    "delete_file": "Delete {path}",
    "delete_all": "Delete {path} and everything in it",
    "read": "Read {path}",
    "look": "Look around with {tool}",
    "copy_to_sandbox": "Copy to {path} in sandbox {to}",
    "start_app": "Start the program {program}",
    "open_page": "Open the page {url}",
    "allow_network": "Allow connections to {host}",
    "use_screen": "Use mouse or keyboard ({tool})",
    "use_tool": "Use the tool {tool}",
    "use_tool_on": "Use the tool {tool} on {path}",
}


def _english_sentence(summary: CallSummary) -> str:
    params = summary.params
    line = _SENTENCES[summary.code].format_map(params)
    if params.get("kind"):
        line += f" in sandbox {params['kind']}"
    more = params.get("more")
    if isinstance(more, int) and more:
        line += f", and {more} more command{'s' if more > 1 else ''}: {params['others']}"
    parts = [line]
    for verb, names in (("Writes", summary.writes), ("Deletes", summary.deletes), ("Contacts", summary.hosts)):
        if names:
            parts.append(f"{verb} {', '.join(names)}")
    if summary.unnamed:
        parts.append(f"Touches {summary.unnamed} more")
    if summary.opaque:
        parts.append("It may run more than is named here")
    return ". ".join(parts) + "."


def _path_argument(arguments: Mapping[str, Any]) -> str:
    path = next((arguments[each] for each in _PATHS if isinstance(arguments.get(each), str)), "")
    return resolve_named_path(WORKSPACE, str(path)) if path else ""
