"""When two requests ask for the same, although a date, a directory or an id in them is another.

Counted as the same, whatever they are: the model, streaming or not, limits and temperature, effort, the user and other
metadata, cache marks, ids of calls, thoughts and their seals, the descriptions, schemas and order of tools, and the
format. The working directory counts as the same wherever it stands. In what clients and tools say by themselves (system
prompts, texts in one element such as `<environment_context>`, tools' results) dates, times, durations, temporary
directories, process ids and random ids do too. What the user and the model said, and what was called, must be the same.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from paddock.llm.neutral import (
    Media,
    Message,
    Part,
    Refusal,
    Request,
    Role,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from paddock.llm.script.conversation import is_acknowledgement, is_wrapped, working_directory

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}"
_VOLATILE = re.compile(
    "|".join(
        (
            r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:?\d{2})?)?",
            rf"\b(?:\d{{1,2}} )?{_MONTH}\.? (?:\d{{1,2}},? )?\d{{4}}\b",
            r"\b\d{1,2}/\d{1,2}/\d{4}\b",
            r"\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b,?",
            r"\b\d{1,2}:\d{2}(?::\d{2})?(?: ?[AP]M)?\b",
            r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",
            r"(?:/var/folders/[^\s/]{1,64}/[^\s/]{1,64}/T|(?:/private)?(?:/var)?/tmp)/[^\s\"'`<>:,;)\]}]{1,4096}",
            r"\b\d{1,12}(?:\.\d{1,12})? ?(?:ms|s|secs?|seconds?|milliseconds?)\b",
            r"\b(?:[Pp][Ii][Dd]|PGID|[Cc]hunk ID|[Pp]rocess ID)[: ]{1,3}[0-9a-f]{1,16}\b",
            r"\b1[5-9]\d{8}(?:\d{3})?\b",
            r"\b(?=[a-f]{0,12}\d)[0-9a-f]{12,128}\b",
        )
    )
)
_SUSPECT = re.compile(r"[0-9]|day\b|/tmp/|/T/")
"""Finds quickly what most lines have none of."""
_RUNS = re.compile(r"\{\}(?:[ ,]{1,2}\{\})+")
_PRIVATE = "x-anthropic-billing-header:"
"""Begins a note of claude-code to its maker, which is another in every request."""
_REMEMBERED = 50_000


@dataclass(frozen=True, slots=True)
class Likeness:
    """What a request asks for, as digests."""

    key: bytes
    """The same for requests that ask for the same."""
    prefixes: tuple[bytes, ...]
    """One for each turn, of the conversation up to it; without the system prompt."""
    opening: bytes
    """Of what was said before the first answer."""
    answers: int
    """How many answers the conversation has already."""
    has_tools: bool


@dataclass(frozen=True, slots=True)
class Said:
    """Something in a conversation."""

    kind: str
    text: str
    volatile: bool
    """Whether a client or tool says it by itself, so that dates and the like do not count."""


@dataclass(slots=True)
class Turn:
    role: Role
    message: int
    """Where it begins in the request's messages."""
    said: list[Said]
    acknowledges: bool = False


class Likener:
    """Compares requests. Remembers what long texts amount to, since every request of a conversation has them again."""

    def __init__(self) -> None:
        self._known: dict[bytes, bytes] = {}

    def of(self, request: Request) -> Likeness:
        directory = working_directory(request)
        system, turns = read_turns(request)
        chain = hashlib.blake2b(digest_size=16)
        prefixes: list[bytes] = []
        opening = b""
        answers = 0
        for turn in turns:
            if turn.role is Role.ASSISTANT and not turn.acknowledges:
                opening = opening or chain.digest()
                answers += 1
            chain.update(turn.role.encode())
            for said in turn.said:
                chain.update(self._digest(said, directory))
            prefixes.append(chain.digest())
        key = chain.copy()
        key.update(b"system")
        for said in system:
            key.update(self._digest(said, directory))
        key.update(settings(request).encode(errors="replace"))
        return Likeness(key.digest(), tuple(prefixes), opening or chain.digest(), answers, bool(request.tools))

    def _digest(self, said: Said, directory: str) -> bytes:
        raw = f"{said.kind}\0{said.volatile}\0{directory}\0{said.text}".encode(errors="replace")
        asked = hashlib.blake2b(raw, digest_size=16).digest()
        known = self._known.get(asked)
        if known is None:
            plain = f"{said.kind}\0{plain_text(said, directory)}"
            known = hashlib.blake2b(plain.encode(errors="replace"), digest_size=16).digest()
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[asked] = known
        return known


def read_turns(request: Request) -> tuple[list[Said], list[Turn]]:
    """The system prompt, and the turns of user and assistant, those of one side after each other taken as one."""
    system: list[Said] = []
    turns: list[Turn] = []
    has_acknowledgement = any(is_acknowledgement(message) for message in request.messages)
    for index, message in enumerate(request.messages):
        acknowledges = message.role is Role.ASSISTANT and is_acknowledgement(message)
        if acknowledges:
            has_acknowledgement = False
        if message.role is Role.SYSTEM:
            system += [
                Said("text", part.text, True)
                for part in message.parts
                if isinstance(part, Text) and part.text.strip() and not part.text.startswith(_PRIVATE)
            ]
            continue
        said = list(_said(message, set_up=has_acknowledgement))
        if turns and turns[-1].role is message.role and turns[-1].acknowledges == acknowledges:
            turns[-1].said += said
        else:
            turns.append(Turn(message.role, index, said, acknowledges))
    return system, turns


def _said(message: Message, *, set_up: bool) -> Iterator[Said]:
    for part in message.parts:
        match part:
            case Text() | Refusal() if part.text.strip():
                by_client = message.role is Role.USER and (set_up or is_wrapped(part.text))
                yield Said("text", part.text.strip(), by_client)
            case ToolCall():
                yield Said("call", f"{part.name} {_canonical(part.arguments)}", False)
            case ToolResult():
                text = "\n".join(piece.text for piece in part.content if isinstance(piece, Text))
                yield Said("result", text.strip(), True)
                yield from (_media(piece) for piece in part.content if isinstance(piece, Media))
            case Media():
                yield _media(part)


def _media(part: Part) -> Said:
    assert isinstance(part, Media)
    return Said(part.kind, part.url or hashlib.sha256((part.data or "").encode(errors="replace")).hexdigest(), False)


def _canonical(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments or "{}"), sort_keys=True, ensure_ascii=False)
    except (ValueError, RecursionError):
        return arguments


def settings(request: Request) -> str:
    """What else counts: which tools there are and must be used, and the shape that the answer must have."""
    choice = request.tool_choice if request.tool_choice is not ToolChoice.AUTO else None
    return json.dumps(
        [
            sorted(tool.name for tool in request.tools),
            choice,
            request.tool_name,
            request.json_schema if request.json_schema is not None else request.json_mode,
        ],
        sort_keys=True,
        default=str,
    )


def plain_text(said: Said, directory: str) -> str:
    """The text without what differs from run to run."""
    text = said.text
    if len(directory) > 1:
        # Some name a folder of their own after it.
        slug = re.sub(r"[^A-Za-z0-9]", "-", directory)
        text = moved(text, directory, "{directory}").replace(slug, "{directory}")
    return "\n".join(_steady(line) for line in text.split("\n")) if said.volatile else text


def _steady(line: str) -> str:
    if not _SUSPECT.search(line):
        return line
    # A day and a time are one moment, however they are written.
    return _RUNS.sub("{}", _VOLATILE.sub("{}", line))


def moved(text: str, directory: str, other: str) -> str:
    """The text with one directory in place of another; not where that is the beginning of another name."""
    return re.sub(rf"{re.escape(directory)}(?!\w|[-.]\w)", lambda _: other, text) if directory in text else text


def difference(asked: Request, recorded: Request) -> str:
    """Where a request first differs from a recorded one, for people."""
    here, there = working_directory(asked), working_directory(recorded)
    (system, turns), (old_system, old_turns) = read_turns(asked), read_turns(recorded)
    for number, turn in enumerate(turns):
        if number >= len(old_turns):
            return f"message {turn.message} ({turn.role}) has no counterpart: the recorded request ends before it"
        old = old_turns[number]
        if turn.role is not old.role:
            return f"message {turn.message} is the {turn.role}'s, in the recording the {old.role}'s"
        found = _first(turn.said, old.said, here, there)
        if found:
            return f"message {turn.message} ({turn.role}) differs: {found}"
    if len(old_turns) > len(turns):
        left = len(old_turns) - len(turns)
        return f"the recorded request goes on where this one ends, with {left} more turn{'s' if left > 1 else ''}"
    found = _first(system, old_system, here, there)
    if found:
        return f"the system prompt differs: {found}"
    names, old_names = ({tool.name for tool in request.tools} for request in (asked, recorded))
    if names != old_names:
        more, less = ", ".join(sorted(names - old_names)[:8]), ", ".join(sorted(old_names - names)[:8])
        return f"the tools differ: {f'new {more}' if more else ''}{'; ' if more and less else ''}" + (
            f"missing {less}" if less else ""
        )
    return "the choice of tool or the shape of the answer differs"


def _first(here: list[Said], there: list[Said], directory: str, old_directory: str) -> str:
    """The first difference between what was said on two sides; empty when there is none."""
    for index in range(max(len(here), len(there))):
        if index >= len(here):
            return f"the recording also has {_excerpt(plain_text(there[index], old_directory), 0)}"
        if index >= len(there):
            return f"the recording has no {_excerpt(plain_text(here[index], directory), 0)}"
        new, old = plain_text(here[index], directory), plain_text(there[index], old_directory)
        if (here[index].kind, new) != (there[index].kind, old):
            place = next((at for at, pair in enumerate(zip(new, old, strict=False)) if pair[0] != pair[1]), None)
            place = min(len(new), len(old)) if place is None else place
            return f"{_excerpt(new, place)}, recorded {_excerpt(old, place)}"
    return ""


def _excerpt(text: str, place: int) -> str:
    start = max(0, place - 20)
    shown = text[start : place + 40]
    return repr(("…" if start else "") + shown + ("…" if place + 40 < len(text) else ""))
