"""A request as a scenario sees it: what was asked, what tools answered, and how many answers were given already."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

from paddock.llm.neutral import Message, Part, Refusal, Request, Role, Text, ToolCall, ToolResult

_TAG = re.compile(r"\s*<([A-Za-z][\w-]{0,60})[\s>]")
# Written so that no text can make them slow.
_DIRECTORY = (
    re.compile(r"<cwd>([^<\n]*)</cwd>"),
    re.compile(r"(?i)working (?:in the )?directory(?: is)?:?[ \t]*[`'\"]?(/[^\s`'\"<>]*)"),
    re.compile(r"(?i)(?:workspace|working) director(?:y|ies)[:*]*[ \t]*\r?\n[ \t]*-[ \t]*(/[^\n]*)"),
)
_ACKNOWLEDGED = "Got it. Thanks for the context!"
"""What qwen-code, and gemini-cli before it, puts into the model's mouth before the conversation begins."""
_NOTE = "[note] "
"""How notes of Paddock's server to an agent begin."""
LOOKED_AT = 200_000
"""How many characters of a text are searched."""


@dataclass(slots=True)
class Moment:
    """What is known when an answer is due."""

    prompt: str = ""
    """What the user asked last, without what the client wrapped around it."""
    last: str = ""
    """The last message, whoever it is from."""
    tool_output: str = ""
    """What tools have just answered; empty when nothing was called."""
    tool_name: str = ""
    new_prompt: bool = False
    """Whether this answer is the first since the user asked something."""


@dataclass(slots=True)
class Conversation:
    request: Request
    moments: list[Moment] = field(default_factory=list)
    """One for each answer already given, and the last for the one that is due."""
    system: str = ""
    directory: str = ""
    """Where the client works, if it says so."""
    digest: str = ""
    """The same for the same conversation, so also for a request that is sent again."""

    @property
    def now(self) -> Moment:
        return self.moments[-1]


def read_conversation(request: Request) -> Conversation:
    """Look through a request once."""
    found = Conversation(request)
    found.system = "\n".join(_text(message) for message in request.messages if message.role is Role.SYSTEM)
    names: dict[str, str] = {}
    hashed = hashlib.blake2b(digest_size=12)
    moment, answering = Moment(), False
    called = False
    for message in request.messages:
        if message.role is Role.SYSTEM:
            continue
        hashed.update(f"{message.role}\0{_gist(message)}\0".encode(errors="replace"))
        if message.role is Role.ASSISTANT:
            if is_acknowledgement(message):
                continue
            names.update({part.id: part.name for part in message.parts if isinstance(part, ToolCall)})
            if not answering:
                called = False
                found.moments.append(moment)
                moment = Moment(prompt=moment.prompt)
            called = called or any(isinstance(part, ToolCall) for part in message.parts)
            answering = True
            moment.last = _text(message) or moment.last
        else:
            answering = False
            _hear(message, moment, names, after_call=called)
    found.moments.append(moment)
    found.directory = working_directory(request)
    found.digest = hashed.hexdigest()
    return found


def _hear(message: Message, moment: Moment, names: dict[str, str], *, after_call: bool) -> None:
    """Take in what came from the user's side."""
    outputs: list[str] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            outputs.append("\n".join(piece.text for piece in part.content if isinstance(piece, Text)))
            moment.tool_name = part.name or names.get(part.call_id, "")
    if outputs:
        moment.tool_output = "\n".join([moment.tool_output, *outputs] if moment.tool_output else outputs)
    texts = [part.text for part in message.parts if isinstance(part, Text) and part.text.strip()]
    plain = [text for text in texts if not is_wrapped(text) and not text.startswith(_NOTE)]
    # What stands beside tools' results is the client's, not the user's.
    if plain and not (outputs and after_call):
        moment.prompt = "\n".join(plain).strip()
        moment.new_prompt = True
    moment.last = "\n".join(outputs) or "\n".join(plain or texts) or moment.last


def is_wrapped(text: str) -> bool:
    """Whether all of it stands in one element, as clients mark what they add to the user's words."""
    tag = _TAG.match(text)
    return tag is not None and text.rstrip().endswith(f"</{tag.group(1)}>")


def is_acknowledgement(message: Message) -> bool:
    """Whether a message of the assistant is none of its answers."""
    return len(message.parts) == 1 and _text(message).strip() == _ACKNOWLEDGED


def _text(message: Message) -> str:
    return "\n".join(part.text for part in message.parts if isinstance(part, Text | Refusal))


def _gist(message: Message) -> str:
    return "\0".join(_part_gist(part) for part in message.parts)


def _part_gist(part: Part) -> str:
    match part:
        case Text() | Refusal():
            return part.text
        case ToolCall():
            return f"{part.name} {part.arguments}"
        case ToolResult():
            return "\0".join(piece.text for piece in part.content if isinstance(piece, Text))
    return ""


def working_directory(request: Request) -> str:
    """Where the client works, if it says so before the first answer."""
    for message in request.messages:
        if message.role is Role.ASSISTANT and not is_acknowledgement(message):
            break
        for part in message.parts:
            if isinstance(part, Text):
                for pattern in _DIRECTORY:
                    found = pattern.search(part.text, 0, LOOKED_AT)
                    if found is not None and found.group(1).strip().startswith("/"):
                        return found.group(1).strip().rstrip("/") or "/"
    return ""
