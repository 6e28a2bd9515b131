"""Find out what a command or a Python script names that it changes. A program may change more than it names."""

from __future__ import annotations

import ast
import posixpath
import re
from dataclasses import dataclass, field

from paddock.agents.shell_script import Command
from paddock.model.sessions import CallEffect

_URL = re.compile(r"\b(?:https?|wss?|ftp|ssh|git)://(?:[^\s/@'\"]*@)?(\[[0-9a-fA-F:]+\]|[\w.-]+)")

_READERS = frozenset(
    "[ [[ basename break cat cd cmp continue cut date declare df diff dirname du echo env exit export false file free "
    "grep egrep fgrep head id jq local ls lscpu md5sum nl nproc od printenv printf ps pwd read readlink readonly "
    "realpath return seq set sha1sum sha256sum shift sleep stat strings tac tail test tr true type uname unset uptime "
    "wait wc whereis which whoami :".split()
)
"""Programs that change nothing, whatever their arguments are, if nothing is redirected to a file."""
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
_TARGETS = frozenset({"touch", "mkdir", "tee", "rm", "rmdir", "unlink", "shred", "truncate"})
"""Programs whose words, options apart, are all paths that they change."""
_LAST = frozenset({"cp", "mv", "ln", "install"})
"""Programs that change the path that comes last."""
_NETWORK_MODULES = frozenset(
    "aiohttp ftplib http httpx paramiko requests smtplib socket urllib urllib3 websockets".split()
)
_PYTHON_WRITES = frozenset(
    "savefig save to_csv to_json to_excel to_parquet write_text write_bytes touch mkdir makedirs".split()
)
_PYTHON_DELETES = frozenset("remove unlink rmtree rmdir removedirs".split())


@dataclass
class Findings:
    """What a call was found to do. Order counts; each thing is named once."""

    effects: set[CallEffect] = field(default_factory=set)
    writes: dict[str, None] = field(default_factory=dict)
    deletes: dict[str, None] = field(default_factory=dict)
    hosts: dict[str, None] = field(default_factory=dict)
    opaque: bool = False

    def write(self, *paths: str) -> None:
        self.effects.add("writes")
        self.writes.update(dict.fromkeys(path for path in paths if path))

    def delete(self, *paths: str) -> None:
        self.effects.add("deletes")
        self.deletes.update(dict.fromkeys(path for path in paths if path))

    def contact(self, text: str) -> None:
        hosts = _URL.findall(text)
        if hosts:
            self.effects.add("network")
            self.hosts.update(dict.fromkeys(hosts))


def note_command(command: Command, current: str | None, findings: Findings) -> None:
    """Note what one command does."""
    program = program_of(command)
    words = [word for word in command.words[1:] if not word.startswith("-")]
    options = {word for word in command.words[1:] if word.startswith("-")}
    paths = [joined(current, word) for word in words]
    kept = [each for each in command.writes if each not in ("/dev/null", "/dev/stdout", "/dev/stderr")]
    if kept:
        findings.write(*(joined(current, each) for each in kept))
    if program not in _READERS and program not in _WRITERS and not carries_script(command):
        findings.contact(" ".join(command.words))
    if program in _DELETERS:
        findings.delete(*paths)
    elif program in _WRITERS:
        if program == "sed" and not any(option.startswith(("-i", "--in-place")) for option in options):
            findings.effects.add("reads" if not re.search(r"\bw\s", " ".join(words)) else "writes")
        elif program in _TARGETS:
            findings.write(*paths)
        else:
            findings.write(*(paths[-1:] if program in _LAST else ()))
    elif _PYTHON.fullmatch(program) and carries_script(command):
        findings.effects.add("runs")
        note_python(_script_of(command), current, findings)
    elif (program == "git" and words[:1] == ["clean"]) or (program == "find" and "-delete" in options):
        findings.delete()
    elif _only_reads(program, words, options):
        findings.effects.add("reads")
    else:
        findings.effects.add("runs")
    if program in _NETWORKED or (program == "git" and words[:1] and words[0] in _GIT_REMOTE):
        findings.effects.add("network")


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


def note_python(code: str, current: str | None, findings: Findings) -> None:
    """Note which files Python code names that it writes or deletes. It may touch more than it names."""
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
                findings.contact(code)
        elif isinstance(node, ast.Call):
            _note_python_call(node, current, findings)


def _note_python_call(node: ast.Call, current: str | None, findings: Findings) -> None:
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    first = _text_of(node.args[0]) if node.args else ""
    if called in ("open", "fdopen"):
        mode = _text_of(node.args[1]) if len(node.args) > 1 else ""
        mode = next((_text_of(each.value) for each in node.keywords if each.arg == "mode"), mode)
        if set(mode) & set("wax+"):
            findings.write(joined(current, first) if first else "")
        return
    of = node.func.value if isinstance(node.func, ast.Attribute) else None
    if isinstance(of, ast.Call) and getattr(of.func, "id", getattr(of.func, "attr", "")) == "Path" and of.args:
        first = _text_of(of.args[0])
    if called in _PYTHON_WRITES and isinstance(node.func, ast.Attribute) and first:
        findings.write(joined(current, first))
    elif called in _PYTHON_DELETES and isinstance(node.func, ast.Attribute) and first:
        findings.delete(joined(current, first))


def _text_of(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def joined(current: str | None, path: str) -> str:
    """A path below the directory in which a command runs; unchanged where the shell has yet to work it out."""
    if not path or path.startswith(("/", "~", "$")) or current is None:
        return path
    return posixpath.normpath(posixpath.join(current, path))


def program_of(command: Command) -> str:
    """The program's name; of one that is in no usual place, its path."""
    program = command.program
    directory, _, name = program.rpartition("/")
    return name if directory in ("", "/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin") else program


def weight(command: Command) -> int:
    """How much a command matters among others, for the one that is named first."""
    program = program_of(command)
    if program in _READERS:
        return 1 if command.writes else 0
    return 2 if program in _WRITERS else 3


def language_of(command: Command) -> str | None:
    program = program_of(command)
    return "Python" if _PYTHON.fullmatch(program) else _INTERPRETERS.get(program)


def carries_script(command: Command) -> bool:
    """Whether the program's script is in the command itself, and not a file."""
    return bool(command.document) or any(word in ("-c", "-e") for word in command.words[1:3])


def _script_of(command: Command) -> str:
    if "-c" in command.words[:-1]:
        return command.words[command.words.index("-c") + 1]
    return command.document
