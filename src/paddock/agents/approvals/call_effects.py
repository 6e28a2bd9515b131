"""Effects of commands and Python scripts, as far as their text shows; a program may change more."""

from __future__ import annotations

import ast
import posixpath
import re
from dataclasses import dataclass, field

from paddock.agents.approvals.shell_script import ShellCommand
from paddock.model.sessions import CallEffect

_URL = re.compile(r"\b(?:https?|wss?|ftp|ssh|git)://(?:[^\s/@'\"]*@)?(\[[0-9a-fA-F:]+\]|[\w.-]+)")

_READERS = frozenset(
    "[ [[ basename break cat cd cmp continue cut date declare df diff dirname du echo env exit export false file free "
    "grep egrep fgrep head id jq local ls lscpu md5sum nl nproc od printenv printf ps pwd read readlink readonly "
    "realpath return seq set sha1sum sha256sum shift sleep stat strings tac tail test tr true type uname unset uptime "
    "wait wc whereis which whoami :".split()
)
"""Programs that change nothing, unless their output is redirected to a file."""
_WRITERS = frozenset(
    "chgrp chmod chown cp dd gzip gunzip install ln mkdir mkfifo mktemp mv patch sed split tar tee touch truncate "
    "unzip zip".split()
)
_DELETERS = frozenset("rm rmdir shred unlink mkfs wipefs".split())
_NETWORKED = frozenset(
    "apk apt apt-get cargo curl dig dnf ftp gem go host nc ncat netcat npm npx nslookup pip pip3 pipx ping pnpm scp "
    "sftp ssh telnet uv uvx wget yarn yum".split()
)
_GIT_REMOTE = frozenset("clone fetch pull push ls-remote submodule".split())
_PYTHON = re.compile(r"^(python|pypy)[\d.]*$")
_INTERPRETERS = {"node": "JavaScript", "ruby": "Ruby", "perl": "Perl", "php": "PHP", "Rscript": "R"}
_ALL_WORDS_ARE_TARGETS = frozenset({"touch", "mkdir", "tee", "rm", "rmdir", "unlink", "shred", "truncate"})
"""Programs that change all paths among their arguments."""
_LAST_WORD_IS_TARGET = frozenset({"cp", "mv", "ln", "install"})
"""Programs that change the path in their last argument."""
_NETWORK_MODULES = frozenset(
    "aiohttp ftplib http httpx paramiko requests smtplib socket urllib urllib3 websockets".split()
)
_PYTHON_WRITES = frozenset(
    "savefig save to_csv to_json to_excel to_parquet write_text write_bytes touch mkdir makedirs".split()
)
_PYTHON_DELETES = frozenset("remove unlink rmtree rmdir removedirs".split())


@dataclass
class CallFindings:
    """Effects found in a call, with paths and hosts in order, each once."""

    effects: set[CallEffect] = field(default_factory=set)
    writes: dict[str, None] = field(default_factory=dict)
    deletes: dict[str, None] = field(default_factory=dict)
    hosts: dict[str, None] = field(default_factory=dict)
    opaque: bool = False

    def add_writes(self, *paths: str) -> None:
        self.effects.add("writes")
        self.writes.update(dict.fromkeys(path for path in paths if path))

    def add_deletes(self, *paths: str) -> None:
        self.effects.add("deletes")
        self.deletes.update(dict.fromkeys(path for path in paths if path))

    def add_hosts(self, text: str) -> None:
        hosts = _URL.findall(text)
        if hosts:
            self.effects.add("network")
            self.hosts.update(dict.fromkeys(hosts))


def analyze_shell_command(command: ShellCommand, directory: str | None, findings: CallFindings) -> None:
    """Add the effects of one command."""
    program = shell_program_name(command)
    words = [word for word in command.words[1:] if not word.startswith("-")]
    options = {word for word in command.words[1:] if word.startswith("-")}
    paths = [resolve_named_path(directory, word) for word in words]
    written_paths = [each for each in command.writes if each not in ("/dev/null", "/dev/stdout", "/dev/stderr")]
    if written_paths:
        findings.add_writes(*(resolve_named_path(directory, each) for each in written_paths))
    if program not in _READERS and program not in _WRITERS and not has_inline_script(command):
        findings.add_hosts(" ".join(command.words))
    if program in _DELETERS:
        findings.add_deletes(*paths)
    elif program in _WRITERS:
        if program == "sed" and not any(option.startswith(("-i", "--in-place")) for option in options):
            findings.effects.add("reads" if not re.search(r"\bw\s", " ".join(words)) else "writes")
        elif program in _ALL_WORDS_ARE_TARGETS:
            findings.add_writes(*paths)
        else:
            findings.add_writes(*(paths[-1:] if program in _LAST_WORD_IS_TARGET else ()))
    elif _PYTHON.fullmatch(program) and has_inline_script(command):
        findings.effects.add("runs")
        analyze_python_code(_inline_script(command), directory, findings)
    elif program == "git" and words[:1] == ["clean"]:
        findings.add_deletes(*(_below(directory, word) for word in words[1:] or ["."]))
    elif program == "find" and "-delete" in options:
        findings.add_deletes(*(_below(directory, word) for word in _find_directories(command)))
    elif _only_reads(program, words, options):
        findings.effects.add("reads")
    else:
        findings.effects.add("runs")
    if program in _NETWORKED or (program == "git" and words[:1] and words[0] in _GIT_REMOTE):
        findings.effects.add("network")


def _below(base: str | None, directory: str) -> str:
    """Return the pattern of what is in a directory; the command may select only a part of it."""
    return posixpath.join(resolve_named_path(base, directory), "**")


def _find_directories(command: ShellCommand) -> list[str]:
    """Return the directories in which `find` searches."""
    words = list(command.words[1:])
    while words and re.match(r"-[HLPDO]", words[0]):
        words = words[2:] if words[0] == "-D" else words[1:]
    expression_start = next((index for index, word in enumerate(words) if word.startswith(("-", "(", "!"))), len(words))
    return words[:expression_start] or ["."]


def _only_reads(program: str, words: list[str], options: set[str]) -> bool:
    if program == "git":
        return words[:1] != [] and words[0] in ("status", "log", "diff", "show", "blame")
    if program == "find":
        return not any(option.startswith(("-exec", "-ok", "-fprint", "-fls")) for option in options)
    if program == "sort":
        return not any(option.startswith(("-o", "--output", "--compress")) for option in options)
    if program == "date":
        return not any(option.startswith(("-s", "--set")) for option in options)
    return program in _READERS


def analyze_python_code(code: str, directory: str | None, findings: CallFindings) -> None:
    """Add the files that Python code writes or deletes by name; it may touch more."""
    lines = ["" if line.startswith(("!", "%")) else line for line in code.splitlines()]
    try:
        tree = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
            if any(name.partition(".")[0] in _NETWORK_MODULES for name in names):
                findings.effects.add("network")
                findings.add_hosts(code)
        elif isinstance(node, ast.Call):
            _analyze_python_call(node, directory, findings)


def _analyze_python_call(node: ast.Call, directory: str | None, findings: CallFindings) -> None:
    function_name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    first_argument = _constant_text(node.args[0]) if node.args else ""
    if function_name in ("open", "fdopen"):
        mode = _constant_text(node.args[1]) if len(node.args) > 1 else ""
        mode = next((_constant_text(each.value) for each in node.keywords if each.arg == "mode"), mode)
        if set(mode) & set("wax+"):
            findings.add_writes(resolve_named_path(directory, first_argument) if first_argument else "")
        return
    receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
    if (
        isinstance(receiver, ast.Call)
        and getattr(receiver.func, "id", getattr(receiver.func, "attr", "")) == "Path"
        and receiver.args
    ):
        first_argument = _constant_text(receiver.args[0])
    if function_name in _PYTHON_WRITES and isinstance(node.func, ast.Attribute) and first_argument:
        findings.add_writes(resolve_named_path(directory, first_argument))
    elif function_name in _PYTHON_DELETES and isinstance(node.func, ast.Attribute) and first_argument:
        findings.add_deletes(resolve_named_path(directory, first_argument))


def _constant_text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def resolve_named_path(directory: str | None, path: str) -> str:
    """Resolve a path against the working directory; paths that the shell expands stay unchanged."""
    if not path or path.startswith(("/", "~", "$")) or directory is None:
        return path
    return posixpath.normpath(posixpath.join(directory, path))


def shell_program_name(command: ShellCommand) -> str:
    """Return the program's name, or its path if it is not in a standard directory."""
    program = command.program
    directory, _, name = program.rpartition("/")
    return name if directory in ("", "/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin") else program


def command_summary_rank(command: ShellCommand) -> int:
    """Rank a command, to choose the one that the summary names first."""
    program = shell_program_name(command)
    if program in _READERS:
        return 1 if command.writes else 0
    return 2 if program in _WRITERS else 3


def interpreter_language(command: ShellCommand) -> str | None:
    program = shell_program_name(command)
    return "Python" if _PYTHON.fullmatch(program) else _INTERPRETERS.get(program)


def has_inline_script(command: ShellCommand) -> bool:
    """Return whether the script is part of the command, not a file."""
    return bool(command.document) or any(word in ("-c", "-e") for word in command.words[1:3])


def _inline_script(command: ShellCommand) -> str:
    if "-c" in command.words[:-1]:
        return command.words[command.words.index("-c") + 1]
    return command.document
