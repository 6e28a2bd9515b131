"""Split a shell script into its commands, for summaries and approvals. Scripts are never run here.

The parser covers the common part of the shell grammar. Scripts beyond it are marked as opaque, which means that the
list of commands may be incomplete.
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
_BEHAVIOUR_VARIABLES = re.compile(r"(PATH|IFS|ENV|BASH_\w+|LD_\w+|PYTHON\w+|PERL\w+|NODE_OPTIONS|GIT_\w+)\+?=")
"""Variables that change which program runs, or what it loads."""
_UNKNOWN = re.compile(r"[$`*?{~]|\[.")
_INLINE = re.compile(r"-[a-z]*c")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "busybox", "ash"})
MAX_CHARACTERS = 100_000
_MAX_DEPTH = 5


@dataclass(frozen=True)
class ShellCommand:
    """A program with its arguments, redirections and here-document."""

    words: tuple[str, ...]
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    document: str = ""

    @property
    def program(self) -> str:
        return self.words[0] if self.words else ""


@dataclass
class ShellScript:
    """The commands of a script in their order; `opaque` if it may run more than these."""

    commands: list[ShellCommand] = field(default_factory=list)
    opaque: bool = False


def parse_shell_script(text: str) -> ShellScript:
    """Split a script into its commands."""
    script = ShellScript(opaque=len(text) > MAX_CHARACTERS)
    _Parser(text[:MAX_CHARACTERS].replace("\r\n", "\n").replace("\\\n", ""), script, 0).parse()
    return script


class _Parser:
    def __init__(self, text: str, script: ShellScript, depth: int) -> None:
        self._text = text
        self._script = script
        self._depth = depth
        self._position = 0
        self._documents: list[tuple[str, bool, bool, int]] = []
        """Pending here-documents: delimiter, strip tabs, literal, index of the command."""

    def parse(self) -> None:
        while self._position < len(self._text):
            self._parse_command()

    def _parse_command(self) -> None:
        words: list[str] = []
        writes: list[str] = []
        reads: list[str] = []
        documents: list[tuple[str, bool, bool]] = []
        inline = ""
        while self._position < len(self._text):
            self._skip_blanks()
            if self._position >= len(self._text) or self._peek_operator():
                break
            if match := _REDIRECTION.match(self._text, self._position):
                self._position = match.end()
                operator = match[0].lstrip("0123456789&")
                self._skip_blanks()
                quoted = self._text.startswith(("'", '"', "\\"), self._position)
                target = self._read_word()
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
                begin = self._position
                word = self._read_word()
                if self._position > begin:
                    words.append(word)
                else:
                    self._position += 1
                    self._script.opaque = True
        number = self._add_command(words, writes, reads, inline)
        self._documents += [(*each, number) for each in documents]
        if self._position < len(self._text):
            if self._text[self._position] == "\n":
                self._position += 1
                self._read_documents()
            else:
                self._position += len(self._peek_operator())

    def _add_command(self, words: list[str], writes: list[str], reads: list[str], document: str) -> int:
        """Add a command without keywords and wrappers; return its index, or -1 if nothing is left."""
        while words and words[0] in _KEYWORDS:
            words = words[1:]
        if words and words[0] == "for":
            words = []
        changes_behaviour = any(_BEHAVIOUR_VARIABLES.match(word) for word in words)
        while words and _ASSIGNMENT.match(words[0]):
            words = words[1:]
        while words and words[0] in _WRAPPERS and (inner := _unwrap_command(words)):
            if inner[0].startswith("-"):
                changes_behaviour = True  # It is not known which options take a value.
                break
            words = inner
        if len(words) > 2 and _base_name(words[0]) in _SHELLS and _INLINE.fullmatch(words[1]):
            self._parse_nested(words[2])
            words = []
        self._script.opaque |= changes_behaviour
        if not words and not writes:
            return -1
        command = ShellCommand(tuple(words), tuple(writes), tuple(reads), document)
        program = _base_name(command.program)
        runs_text = program in _SHELLS or program in _OPAQUE or _UNKNOWN.search(command.program) is not None
        defines_function = len(words) == 1 and self._text.startswith("(", self._position)
        runs_nested = any(word in ("-exec", "-execdir", "-ok", "-okdir") for word in words)
        self._script.opaque |= runs_text or defines_function or runs_nested
        self._script.commands.append(command)
        return len(self._script.commands) - 1

    def _read_documents(self) -> None:
        """Read the bodies of the here-documents started on the previous line."""
        documents, self._documents = self._documents, []
        for end, strip, literal, number in documents:
            lines: list[str] = []
            closed = False
            while self._position < len(self._text):
                line_end = self._text.find("\n", self._position)
                line_end = len(self._text) if line_end < 0 else line_end
                line = self._text[self._position : line_end]
                self._position = min(line_end + 1, len(self._text))
                line = line.lstrip("\t") if strip else line
                if line == end:
                    closed = True
                    break
                lines.append(line)
            body = "\n".join(lines)
            self._script.opaque |= not closed
            if number >= 0:
                command = self._script.commands[number]
                self._script.commands[number] = ShellCommand(command.words, command.writes, command.reads, body)
            if not literal:
                self._script.opaque |= "`" in body
                for inner in _substitutions(body):
                    self._parse_nested(inner)

    def _skip_blanks(self) -> None:
        while self._position < len(self._text) and self._text[self._position] in " \t\r\f\v":
            self._position += 1
        if self._position < len(self._text) and self._text[self._position] == "#":
            line_end = self._text.find("\n", self._position)
            self._position = len(self._text) if line_end < 0 else line_end

    def _peek_operator(self) -> str:
        if self._text.startswith(("&>", "<(", ">("), self._position):
            return ""
        return next((each for each in _OPERATORS if self._text.startswith(each, self._position)), "")

    def _read_word(self) -> str:
        """Read one word without its quotes; command substitutions in it are parsed too."""
        pieces: list[str] = []
        text = self._text
        while self._position < len(text):
            character = text[self._position]
            if character in " \t\n\r\f\v;&|)" or (character in "<>" and pieces) or (character == "(" and not pieces):
                break
            if character in "<>" and not text.startswith("(", self._position + 1):
                break
            if character == "'":
                pieces.append(self._read_until("'"))
            elif character == '"':
                pieces.append(self._read_double_quoted())
            elif character == "\\":
                pieces.append(text[self._position + 1 : self._position + 2])
                self._position += 2
            elif character == "`" or text.startswith(("$(", "<(", ">("), self._position):
                pieces.append(self._parse_substitution())
            elif character == "(":
                break
            else:
                pieces.append(character)
                self._position += 1
        return "".join(pieces)

    def _read_until(self, end: str) -> str:
        end_index = self._text.find(end, self._position + 1)
        if end_index < 0:
            self._script.opaque = True
            end_index = len(self._text)
        inner = self._text[self._position + 1 : end_index]
        self._position = min(end_index + 1, len(self._text))
        return inner

    def _read_double_quoted(self) -> str:
        pieces: list[str] = []
        self._position += 1
        while self._position < len(self._text) and self._text[self._position] != '"':
            if self._text[self._position] == "\\":
                pieces.append(self._text[self._position + 1 : self._position + 2])
                self._position += 2
            elif self._text[self._position] == "`" or self._text.startswith("$(", self._position):
                pieces.append(self._parse_substitution())
            else:
                pieces.append(self._text[self._position])
                self._position += 1
        self._script.opaque |= self._position >= len(self._text)
        self._position += 1
        return "".join(pieces)

    def _parse_substitution(self) -> str:
        """Parse the commands of a substitution, and return its text."""
        start = self._position
        if self._text[self._position] == "`":
            inner = self._read_until("`")
        else:
            arithmetic = self._text.startswith("$((", self._position)
            end_index = _find_closing(self._text, self._position + 1)
            self._script.opaque |= end_index < 0
            inner = self._text[self._position + 2 : end_index if end_index >= 0 else len(self._text)]
            self._position = end_index + 1 if end_index >= 0 else len(self._text)
            if arithmetic and inner.endswith(")"):
                return self._text[start : self._position]
        self._parse_nested(inner)
        return self._text[start : self._position]

    def _parse_nested(self, text: str) -> None:
        if self._depth >= _MAX_DEPTH:
            self._script.opaque = True
        else:
            _Parser(text, self._script, self._depth + 1).parse()


def _unwrap_command(words: list[str]) -> list[str]:
    """Return the command behind a wrapper such as `sudo` or `env`, including the wrapper's options."""
    wrapper, rest = words[0], words[1:]
    while rest and _ASSIGNMENT.match(rest[0]):
        rest = rest[1:]
    if wrapper == "timeout" and rest and rest[0][:1].isdigit():
        rest = rest[1:]
    return rest


def _base_name(program: str) -> str:
    return program.rpartition("/")[2]


def _find_closing(text: str, start: int) -> int:
    """Return the index that closes the parenthesis at `start`, or -1; quoted parentheses are ignored."""
    depth, quote, index = 0, "", start
    while index < len(text):
        character = text[index]
        if character == "\\" and quote != "'":
            index += 1
        elif quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
            if not depth:
                return index
        index += 1
    return -1


def _substitutions(text: str) -> Iterator[str]:
    index = 0
    while (index := text.find("$(", index)) >= 0:
        end_index = _find_closing(text, index + 1)
        yield text[index + 2 : end_index if end_index >= 0 else len(text)]
        index = end_index + 1 if end_index >= 0 else len(text)
