"""Say in one plain line what a call would do and what it touches, before a person decides about it.

The line is derived from the tool and its arguments alone, always in the same way. What the agent says about the call
itself is kept apart. The line never replaces the arguments: it says how many commands it leaves out, and where it
cannot tell what runs.
"""

from __future__ import annotations

import posixpath
import re
import shlex
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from paddock.agents.call_effects import (
    Findings,
    carries_script,
    joined,
    language_of,
    note_command,
    note_python,
    program_of,
    weight,
)
from paddock.agents.shell_script import Command, parse_script
from paddock.model.sessions import Approval, CallEffect, CallSummary
from paddock.model.words import WORKSPACE

MOST_NAMED = 4
"""Paths, hosts or programs that are named; the rest is counted."""
_LONGEST = 120
_LONGEST_WORDS = 300
_DESCRIPTIONS = ("description", "explanation", "justification", "purpose", "reason")
_PATHS = ("path", "file_path", "filePath", "abs_path", "filename", "notebook_path", "destination", "to_path", "source")
_COMMON = (
    "read_file|write_file|list_directory|create_directory|move_file|delete_file|run_shell_command|run_ipython_cell"
)
_SHELL = re.compile(r"(^|_)(run|exec|execute)(_|$)|shell|bash|^command$", re.IGNORECASE)


def summarized(approval: Approval) -> Approval:
    """The approval with its summary, if it is about a call."""
    if approval.type != "call" or approval.summary is not None:
        return approval
    summary = summarize(approval.name, approval.kind, approval.arguments, said=approval.question)
    return approval.model_copy(update={"summary": summary})


def summarize(name: str, kind: str | None, arguments: Mapping[str, Any], *, said: str = "") -> CallSummary:
    """Summarize a call; `said` is what the agent itself says of it."""
    tool = _tool(name, kind)
    findings = Findings()
    params: dict[str, str | int] = {"tool": clean(tool), "kind": clean(kind or "")}
    describe = _TOOLS.get(tool) or (_command if _SHELL.search(tool) else _other)
    code = describe(arguments, findings, params)
    words = next((str(arguments[each]) for each in _DESCRIPTIONS if isinstance(arguments.get(each), str)), said)
    order: tuple[CallEffect, ...] = ("deletes", "network", "runs", "writes", "reads", "unknown")
    summary = CallSummary(
        code=code,
        params=params,
        effects=tuple(effect for effect in order if effect in findings.effects),
        writes=tuple(map(clean, findings.writes))[:MOST_NAMED],
        deletes=tuple(map(clean, findings.deletes))[:MOST_NAMED],
        hosts=tuple(map(clean, findings.hosts))[:MOST_NAMED],
        unnamed=sum(max(0, len(each) - MOST_NAMED) for each in (findings.writes, findings.deletes, findings.hosts)),
        opaque=findings.opaque,
        agent_words=clean(words, _LONGEST_WORDS) or None,
    )
    return summary.model_copy(update={"text": _english(summary)})


def clean(text: str, longest: int = _LONGEST) -> str:
    """A text on one line, bounded, in which every character can be seen."""
    shown = "".join(map(_visible, " ".join(text[: 2 * longest].split(" "))))
    return shown if len(shown) <= longest and len(text) <= 2 * longest else shown[: longest - 1] + "…"


def _visible(letter: str) -> str:
    if letter == "\n":
        return " ⏎ "
    hidden = unicodedata.category(letter) in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")
    return f"⟨U+{ord(letter):04X}⟩" if hidden else letter


def _tool(name: str, kind: str | None) -> str:
    rest = name.removeprefix(f"{kind}_") if kind else name
    own = kind in ("browser", "mobile") and not re.fullmatch(_COMMON, rest)
    return name if own else rest


Describe = Callable[[Mapping[str, Any], Findings, dict[str, str | int]], str]


def _command(arguments: Mapping[str, Any], findings: Findings, params: dict[str, str | int]) -> str:
    given = arguments.get("command", arguments.get("cmd", arguments.get("script")))
    if isinstance(given, list | tuple) and all(isinstance(each, str) for each in given):
        given = shlex.join(given)
    if not isinstance(given, str):
        return _other(arguments, findings, params)
    script = parse_script(given)
    findings.opaque = script.opaque
    if not script.commands:
        findings.effects.add("unknown")
        return "use_tool"
    directory = arguments.get("cwd") or arguments.get("workdir") or WORKSPACE
    current: str | None = posixpath.join(WORKSPACE, directory) if isinstance(directory, str) else None
    main: list[Command] = []
    directories: dict[int, str | None] = {}
    for command in script.commands:
        if command.program == "cd" and len(command.words) <= 2:
            current = joined(current, command.words[1]) if len(command.words) == 2 else None
            continue
        note_command(command, current, findings)
        main.append(command)
        directories[id(command)] = current
    if findings.opaque:
        findings.effects.add("runs")
    findings.effects = findings.effects or {"reads"}
    if len(findings.effects) > 1:
        findings.effects.discard("reads")
    first = max(main, key=weight, default=Command(("cd",)))
    params["more"] = max(0, len(main) - 1)
    others = [program_of(each) for each in main if each is not first]
    names = [clean(each, 40) for each in dict.fromkeys(others)]
    params["others"] = ", ".join(names[:MOST_NAMED] + ["…"] * (len(names) > MOST_NAMED))
    language = language_of(first)
    params["program"] = clean(language or program_of(first))
    if language and carries_script(first):
        return "run_script"
    file = next((word for word in first.words[1:] if not word.startswith("-")), "")
    if language and file and "-m" not in first.words:
        params["path"] = clean(joined(directories[id(first)], file))
        return "run_file"
    return "run_program"


def _python(arguments: Mapping[str, Any], findings: Findings, params: dict[str, str | int]) -> str:
    code = arguments.get("code")
    findings.effects.add("runs")
    params["program"] = "Python"
    params["more"] = 0
    if isinstance(code, str):
        # Lines that begin so are commands of IPython's own, or of the shell.
        findings.opaque = any(line.lstrip().startswith(("!", "%")) for line in code.splitlines())
        note_python(code, WORKSPACE, findings)
    return "run_script"


def _write(code: str) -> Describe:
    def describe(arguments: Mapping[str, Any], findings: Findings, params: dict[str, str | int]) -> str:
        findings.effects.add("writes")
        params["path"] = clean(_path(arguments))
        if not params["path"]:
            return "use_tool"
        if code == "write_file" and arguments.get("append") is True:
            return "append_file"
        return code

    return describe


def _read(arguments: Mapping[str, Any], findings: Findings, params: dict[str, str | int]) -> str:
    params["path"] = clean(_path(arguments))
    findings.effects.add("reads")
    return "read" if params["path"] else "look"


def _look(arguments: Mapping[str, Any], findings: Findings, params: dict[str, str | int]) -> str:
    findings.effects.add("reads")
    return "look"


def _move(arguments: Mapping[str, Any], findings: Findings, params: dict[str, str | int]) -> str:
    source = arguments.get("source", arguments.get("from_path", ""))
    to = arguments.get("destination", arguments.get("to_path", ""))
    params["path"], params["to"] = clean(joined(WORKSPACE, str(source))), clean(joined(WORKSPACE, str(to)))
    findings.effects.add("writes")
    if arguments.get("overwrite") is True:
        findings.effects.add("deletes")
    return "move_file" if source and to else "use_tool"


def _delete(arguments: Mapping[str, Any], findings: Findings, params: dict[str, str | int]) -> str:
    params["path"] = clean(_path(arguments))
    findings.effects.add("deletes")
    if not params["path"]:
        return "use_tool"
    return "delete_all" if arguments.get("recursive") is True else "delete_file"


def _transfer(arguments: Mapping[str, Any], findings: Findings, params: dict[str, str | int]) -> str:
    params["to"] = clean(str(arguments.get("to_kind", "")))
    params["path"] = clean(str(arguments.get("to_path", "")))
    findings.effects.add("writes")
    return "copy_to_sandbox"


def _start(arguments: Mapping[str, Any], findings: Findings, params: dict[str, str | int]) -> str:
    given = arguments.get("app", arguments.get("name", ""))
    params["program"] = clean(str(given))
    findings.effects.add("runs")
    return "start_app"


def _visit(arguments: Mapping[str, Any], findings: Findings, params: dict[str, str | int]) -> str:
    params["url"] = clean(str(arguments.get("url", "")))
    findings.contact(str(arguments.get("url", "")))
    findings.effects.add("network")
    return "open_page"


def _input(arguments: Mapping[str, Any], findings: Findings, params: dict[str, str | int]) -> str:
    findings.effects.add("unknown")
    return "use_screen"


def _other(arguments: Mapping[str, Any], findings: Findings, params: dict[str, str | int]) -> str:
    findings.effects.add("unknown")
    findings.contact(" ".join(str(each) for each in arguments.values()))
    path = _path(arguments)
    if path:
        params["path"] = clean(path)
        return "use_tool_on"
    return "use_tool"


_TOOLS: Mapping[str, Describe] = {
    "run_shell_command": _command,
    "execute": _command,
    "run_ipython_cell": _python,
    "write_file": _write("write_file"),
    "edit": _write("edit_file"),
    "create_directory": _write("create_directory"),
    "move_file": _move,
    "move": _move,
    "delete_file": _delete,
    "delete": _delete,
    "read_file": _read,
    "read": _read,
    "list_directory": _read,
    "search": _look,
    "think": _look,
    "screenshot": _look,
    "fetch": _visit,
    "browser_navigate": _visit,
    "start_app": _start,
    "move_between_sandboxes": _transfer,
    "screenshot_to_sandbox": _transfer,
    "session_file_to_sandbox": _transfer,
    **dict.fromkeys(("click_mouse", "move_mouse", "drag_mouse", "scroll", "press_keys", "input_text"), _input),
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
    "use_screen": "Use mouse or keyboard ({tool})",
    "use_tool": "Use the tool {tool}",
    "use_tool_on": "Use the tool {tool} on {path}",
}


def _english(summary: CallSummary) -> str:
    params = summary.params
    line = _SENTENCES[summary.code].format_map(params)
    if params.get("kind"):
        line += f" in sandbox {params['kind']}"
    more = params.get("more")
    if isinstance(more, int) and more:
        line += f", and {more} more command{'s' if more > 1 else ''}: {params['others']}"
    parts = [line]
    for verb, things in (("Writes", summary.writes), ("Deletes", summary.deletes), ("Contacts", summary.hosts)):
        if things:
            parts.append(f"{verb} {', '.join(things)}")
    if summary.unnamed:
        parts.append(f"Touches {summary.unnamed} more")
    if summary.opaque:
        parts.append("It may run more than is named here")
    return ". ".join(parts) + "."


def _path(arguments: Mapping[str, Any]) -> str:
    found = next((arguments[each] for each in _PATHS if isinstance(arguments.get(each), str)), "")
    return joined(WORKSPACE, str(found)) if found else ""
