"""Split a shell script into its commands, for people who decide about it. It is never run from here.

The parser knows the common part of the shell's grammar. Where a script goes beyond it, the result is marked as opaque,
so that nobody takes the list of commands for complete.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_OPERATORS = ("&&", "||", ";;", "|&", ";", "&", "|", "\n", "(", ")")
_REDIRECTION = re.compile(r"(?:\d{0,3}|&|\{\w+\})(?:<<<|<<-|<<|<>|<&|<|>>|>\||>&|>)")
_WRITES = (">", ">>", ">|", "<>", ">&")
_KEYWORDS = frozenset({"if", "then", "elif", "else", "fi", "while", "until", "do", "done", "{", "}", "!", "time"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=")
_WRAPPERS = frozenset(
    {"sudo", "env", "command", "exec", "nice", "nohup", "timeout", "stdbuf", "setsid", "builtin", "doas"}
)
_OPAQUE = frozenset(
    {"eval", "source", ".", "xargs", "parallel", "trap", "alias", "function", "case", "select", "coproc"}
)
_STEERING = re.compile(r"(PATH|IFS|ENV|BASH_\w+|LD_\w+|PYTHON\w+|PERL\w+|NODE_OPTIONS|GIT_\w+)\+?=")
"""Variables that decide what a program really is, or what it runs besides."""
_UNKNOWN = re.compile(r"[$`*?{~]|\[.")
_INLINE = re.compile(r"-[a-z]*c")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "busybox", "ash"})
MOST_CHARACTERS = 100_000
_DEEPEST = 5


@dataclass(frozen=True)
class Command:
    """A program and its words, with the files it is redirected to and what it reads from the script itself."""

    words: tuple[str, ...]
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    document: str = ""

    @property
    def program(self) -> str:
        return self.words[0] if self.words else ""


@dataclass
class Script:
    """The commands of a script in their order; `opaque` if it may run more than these."""

    commands: list[Command] = field(default_factory=list)
    opaque: bool = False


def parse_script(text: str) -> Script:
    """Split a script into its commands."""
    script = Script(opaque=len(text) > MOST_CHARACTERS)
    _Parser(text[:MOST_CHARACTERS].replace("\r\n", "\n").replace("\\\n", ""), script, 0).parse()
    return script


class _Parser:
    def __init__(self, text: str, script: Script, depth: int) -> None:
        self._text = text
        self._script = script
        self._depth = depth
        self._at = 0
        self._documents: list[tuple[str, bool, bool, int]] = []
        """Here-documents that begin at the next line: end, stripped of tabs, taken literally, number of the command."""

    def parse(self) -> None:
        while self._at < len(self._text):
            self._command()

    def _command(self) -> None:
        words: list[str] = []
        writes: list[str] = []
        reads: list[str] = []
        documents: list[tuple[str, bool, bool]] = []
        inline = ""
        while self._at < len(self._text):
            self._skip_blanks()
            if self._at >= len(self._text) or self._operator():
                break
            if match := _REDIRECTION.match(self._text, self._at):
                self._at = match.end()
                operator = match[0].lstrip("0123456789&")
                self._skip_blanks()
                quoted = self._text.startswith(("'", '"', "\\"), self._at)
                target = self._word()
                if operator in ("<<", "<<-"):
                    documents.append((target, operator == "<<-", quoted))
                elif operator == "<<<":
                    inline = target
                elif operator.endswith("&") and (target.isdigit() or target == "-"):
                    continue
                elif operator in _WRITES or "{" in operator:
                    writes.append(target)
                else:
                    reads.append(target)
            else:
                begin = self._at
                word = self._word()
                if self._at > begin:
                    words.append(word)
                else:
                    self._at += 1
                    self._script.opaque = True
        number = self._add(words, writes, reads, inline)
        self._documents += [(*each, number) for each in documents]
        if self._at < len(self._text):
            if self._text[self._at] == "\n":
                self._at += 1
                self._read_documents()
            else:
                self._at += len(self._operator())

    def _add(self, words: list[str], writes: list[str], reads: list[str], document: str) -> int:
        """Add a command without what only surrounds it. Returns its number, or -1 if there is none."""
        while words and words[0] in _KEYWORDS:
            words = words[1:]
        if words and words[0] == "for":
            words = []
        steered = any(_STEERING.match(word) for word in words)
        while words and _ASSIGNMENT.match(words[0]):
            words = words[1:]
        while words and words[0] in _WRAPPERS and (inner := _unwrapped(words)):
            if inner[0].startswith("-"):
                steered = True  # Which of its options take a word of their own is not known here.
                break
            words = inner
        if len(words) > 2 and _base(words[0]) in _SHELLS and _INLINE.fullmatch(words[1]):
            self._nested(words[2])
            words = []
        self._script.opaque |= steered
        if not words and not writes:
            return -1
        command = Command(tuple(words), tuple(writes), tuple(reads), document)
        program = _base(command.program)
        runs_text = program in _SHELLS or program in _OPAQUE or _UNKNOWN.search(command.program) is not None
        defines = len(words) == 1 and self._text.startswith("(", self._at)
        deeper = any(word in ("-exec", "-execdir", "-ok", "-okdir") for word in words)
        self._script.opaque |= runs_text or defines or deeper
        self._script.commands.append(command)
        return len(self._script.commands) - 1

    def _read_documents(self) -> None:
        """Read the bodies of here-documents that were announced on the line before."""
        documents, self._documents = self._documents, []
        for end, strip, literal, number in documents:
            lines: list[str] = []
            closed = False
            while self._at < len(self._text):
                stop = self._text.find("\n", self._at)
                stop = len(self._text) if stop < 0 else stop
                line = self._text[self._at : stop]
                self._at = min(stop + 1, len(self._text))
                line = line.lstrip("\t") if strip else line
                if line == end:
                    closed = True
                    break
                lines.append(line)
            body = "\n".join(lines)
            self._script.opaque |= not closed
            if number >= 0:
                known = self._script.commands[number]
                self._script.commands[number] = Command(known.words, known.writes, known.reads, body)
            if not literal:
                self._script.opaque |= "`" in body
                for inner in _substitutions(body):
                    self._nested(inner)

    def _skip_blanks(self) -> None:
        while self._at < len(self._text) and self._text[self._at] in " \t\r\f\v":
            self._at += 1
        if self._at < len(self._text) and self._text[self._at] == "#":
            stop = self._text.find("\n", self._at)
            self._at = len(self._text) if stop < 0 else stop

    def _operator(self) -> str:
        if self._text.startswith(("&>", "<(", ">("), self._at):
            return ""
        return next((each for each in _OPERATORS if self._text.startswith(each, self._at)), "")

    def _word(self) -> str:
        """Read one word without its quotes; commands within it are parsed as well."""
        found: list[str] = []
        text = self._text
        while self._at < len(text):
            letter = text[self._at]
            if letter in " \t\n\r\f\v;&|)" or (letter in "<>" and found) or (letter == "(" and not found):
                break
            if letter in "<>" and not text.startswith("(", self._at + 1):
                break
            if letter == "'":
                found.append(self._until("'"))
            elif letter == '"':
                found.append(self._double_quoted())
            elif letter == "\\":
                found.append(text[self._at + 1 : self._at + 2])
                self._at += 2
            elif letter == "`" or text.startswith(("$(", "<(", ">("), self._at):
                found.append(self._substitution())
            elif letter == "(":
                break
            else:
                found.append(letter)
                self._at += 1
        return "".join(found)

    def _until(self, end: str) -> str:
        stop = self._text.find(end, self._at + 1)
        if stop < 0:
            self._script.opaque = True
            stop = len(self._text)
        inner = self._text[self._at + 1 : stop]
        self._at = min(stop + 1, len(self._text))
        return inner

    def _double_quoted(self) -> str:
        found: list[str] = []
        self._at += 1
        while self._at < len(self._text) and self._text[self._at] != '"':
            if self._text[self._at] == "\\":
                found.append(self._text[self._at + 1 : self._at + 2])
                self._at += 2
            elif self._text[self._at] == "`" or self._text.startswith("$(", self._at):
                found.append(self._substitution())
            else:
                found.append(self._text[self._at])
                self._at += 1
        self._script.opaque |= self._at >= len(self._text)
        self._at += 1
        return "".join(found)

    def _substitution(self) -> str:
        """Parse the commands of a substitution, and return its text."""
        begin = self._at
        if self._text[self._at] == "`":
            inner = self._until("`")
        else:
            arithmetic = self._text.startswith("$((", self._at)
            stop = _closing(self._text, self._at + 1)
            self._script.opaque |= stop < 0
            inner = self._text[self._at + 2 : stop if stop >= 0 else len(self._text)]
            self._at = stop + 1 if stop >= 0 else len(self._text)
            if arithmetic and inner.endswith(")"):
                return self._text[begin : self._at]
        self._nested(inner)
        return self._text[begin : self._at]

    def _nested(self, text: str) -> None:
        if self._depth >= _DEEPEST:
            self._script.opaque = True
        else:
            _Parser(text, self._script, self._depth + 1).parse()


def _unwrapped(words: list[str]) -> list[str]:
    """The command behind `sudo`, `env` and the like; with the wrapper's options where it has some."""
    wrapper, rest = words[0], words[1:]
    while rest and _ASSIGNMENT.match(rest[0]):
        rest = rest[1:]
    if wrapper == "timeout" and rest and rest[0][:1].isdigit():
        rest = rest[1:]
    return rest


def _base(program: str) -> str:
    return program.rpartition("/")[2]


def _closing(text: str, begin: int) -> int:
    """Where the parenthesis that opens at `begin` is closed, or -1; parentheses in quotes do not count."""
    depth, quote, at = 0, "", begin
    while at < len(text):
        letter = text[at]
        if letter == "\\" and quote != "'":
            at += 1
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
            if not depth:
                return at
        at += 1
    return -1


def _substitutions(text: str) -> Iterator[str]:
    at = 0
    while (at := text.find("$(", at)) >= 0:
        stop = _closing(text, at + 1)
        yield text[at + 2 : stop if stop >= 0 else len(text)]
        at = stop + 1 if stop >= 0 else len(text)
