"""Read a request as a scripted conversation: prompts, tool results, and the answers given so far."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

from paddock.llm.formats.neutral import (
    MessagePart,
    MessageRole,
    ModelMessage,
    ModelRefusal,
    ModelRequest,
    ModelText,
    ModelToolCall,
    ModelToolResult,
)

_ELEMENT_START = re.compile(r"\s*<([A-Za-z][\w-]{0,60})[\s>]")
# Linear-time patterns: prompts are untrusted.
_DIRECTORY_PATTERNS = (
    re.compile(r"<cwd>([^<\n]*)</cwd>"),
    re.compile(r"(?i)working (?:in the )?directory(?: is)?:?[ \t]*[`'\"]?(/[^\s`'\"<>]*)"),
    re.compile(r"(?i)(?:workspace|working) director(?:y|ies)[:*]*[ \t]*\r?\n[ \t]*-[ \t]*(/[^\n]*)"),
)
_CANNED_ACKNOWLEDGEMENT = "Got it. Thanks for the context!"
"""A fixed assistant message that qwen-code and gemini-cli insert at the start of a conversation."""
_SERVER_NOTE_PREFIX = "[note] "
"""Prefix of notes from Paddock's server to an agent."""
MAX_SEARCHED_CHARACTERS = 200_000
"""Number of characters of a text that patterns are matched against."""


@dataclass(slots=True)
class ScriptAnswerContext:
    """The context in which one answer is given."""

    prompt: str = ""
    """The last user prompt, without markup added by the client."""
    last: str = ""
    """The last message, of any role."""
    tool_output: str = ""
    """Results of the tools just called; empty if none were called."""
    tool_name: str = ""
    new_prompt: bool = False
    """Whether this is the first answer to the prompt."""


@dataclass(slots=True)
class ScriptedConversation:
    request: ModelRequest
    contexts: list[ScriptAnswerContext] = field(default_factory=list)
    """One per answer already given, then one for the answer that is due."""
    system: str = ""
    directory: str = ""
    """Working directory of the client, if it is known."""
    digest: str = ""
    """Hash of the conversation; a repeated request has the same."""

    @property
    def current(self) -> ScriptAnswerContext:
        return self.contexts[-1]


def parse_conversation(request: ModelRequest) -> ScriptedConversation:
    """Parse the messages of a request in one pass."""
    found = ScriptedConversation(request)
    found.system = "\n".join(
        _message_text(message) for message in request.messages if message.role is MessageRole.SYSTEM
    )
    names: dict[str, str] = {}
    hashed = hashlib.blake2b(digest_size=12)
    context, answering = ScriptAnswerContext(), False
    called = False
    for message in request.messages:
        if message.role is MessageRole.SYSTEM:
            continue
        hashed.update(f"{message.role}\0{_message_fingerprint(message)}\0".encode(errors="replace"))
        if message.role is MessageRole.ASSISTANT:
            if is_canned_acknowledgement(message):
                continue
            names.update({part.id: part.name for part in message.parts if isinstance(part, ModelToolCall)})
            if not answering:
                called = False
                found.contexts.append(context)
                context = ScriptAnswerContext(prompt=context.prompt)
            called = called or any(isinstance(part, ModelToolCall) for part in message.parts)
            answering = True
            context.last = _message_text(message) or context.last
        else:
            answering = False
            _read_user_message(message, context, names, after_call=called)
    found.contexts.append(context)
    found.directory = find_working_directory(request)
    found.digest = hashed.hexdigest()
    return found


def _read_user_message(
    message: ModelMessage, context: ScriptAnswerContext, names: dict[str, str], *, after_call: bool
) -> None:
    """Update the context with a message of the user or of tools."""
    outputs: list[str] = []
    for part in message.parts:
        if isinstance(part, ModelToolResult):
            outputs.append("\n".join(piece.text for piece in part.content if isinstance(piece, ModelText)))
            context.tool_name = part.name or names.get(part.call_id, "")
    if outputs:
        context.tool_output = "\n".join([context.tool_output, *outputs] if context.tool_output else outputs)
    texts = [part.text for part in message.parts if isinstance(part, ModelText) and part.text.strip()]
    plain = [text for text in texts if not is_client_markup(text) and not text.startswith(_SERVER_NOTE_PREFIX)]
    # Text beside tool results was added by the client, not by the user.
    if plain and not (outputs and after_call):
        context.prompt = "\n".join(plain).strip()
        context.new_prompt = True
    context.last = "\n".join(outputs) or "\n".join(plain or texts) or context.last


def is_client_markup(text: str) -> bool:
    """Return whether a text is one XML-like element, as clients mark text that they add to prompts."""
    tag = _ELEMENT_START.match(text)
    return tag is not None and text.rstrip().endswith(f"</{tag.group(1)}>")


def is_canned_acknowledgement(message: ModelMessage) -> bool:
    """Return whether an assistant message was inserted by the client instead of the model."""
    return len(message.parts) == 1 and _message_text(message).strip() == _CANNED_ACKNOWLEDGEMENT


def _message_text(message: ModelMessage) -> str:
    return "\n".join(part.text for part in message.parts if isinstance(part, ModelText | ModelRefusal))


def _message_fingerprint(message: ModelMessage) -> str:
    return "\0".join(_part_fingerprint(part) for part in message.parts)


def _part_fingerprint(part: MessagePart) -> str:
    match part:
        case ModelText() | ModelRefusal():
            return part.text
        case ModelToolCall():
            return f"{part.name} {part.arguments}"
        case ModelToolResult():
            return "\0".join(piece.text for piece in part.content if isinstance(piece, ModelText))
    return ""


def find_working_directory(request: ModelRequest) -> str:
    """Return the client's working directory as named before the first answer, or an empty string."""
    for message in request.messages:
        if message.role is MessageRole.ASSISTANT and not is_canned_acknowledgement(message):
            break
        for part in message.parts:
            if isinstance(part, ModelText):
                for pattern in _DIRECTORY_PATTERNS:
                    found = pattern.search(part.text, 0, MAX_SEARCHED_CHARACTERS)
                    if found is not None and found.group(1).strip().startswith("/"):
                        return found.group(1).strip().rstrip("/") or "/"
    return ""
