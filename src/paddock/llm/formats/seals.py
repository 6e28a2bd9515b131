"""Signatures on their way through formats of other families.

A provider takes back only the seals it made. In the format of another family a seal is written as
`paddock:MAKER:SEAL`, so that it survives in the client's history and is known for what it is when it comes back.
"""

from __future__ import annotations

from paddock.llm.formats.notes import note
from paddock.llm.neutral import Message, Part, Request, Signature, Thinking, ToolCall

ANTHROPIC = "anthropic"
CHAT = "openai-chat"
GEMINI = "gemini"
OPENAI = "openai"

_PREFIX = "paddock:"
_REDACTED = ".redacted"


def foreign(seal: str, family: str) -> bool:
    """Whether a provider of this family would refuse the seal. One that nobody marked is given the benefit."""
    return isinstance(seal, Signature) and seal.maker != family


def written(seal: str, family: str, *, redacted: bool = False) -> str:
    """A seal as it stands in a format of this family."""
    maker = seal.maker if isinstance(seal, Signature) else family
    if maker == family and not redacted:
        return str(seal)
    return f"{_PREFIX}{maker}{_REDACTED if redacted else ''}:{seal}"


def thought(text: str, seal: str | None, family: str) -> Thinking:
    """A thought with the seal that came with it in a format of this family."""
    if not seal:
        return Thinking(text)
    maker, value, redacted = _opened(seal, family)
    if redacted:
        return Thinking(redacted=Signature(value, maker))
    return Thinking(text, Signature(value, maker))


def signature(seal: str | None, family: str) -> Signature | None:
    """The seal that came with a call in a format of this family."""
    if not seal:
        return None
    maker, value, _ = _opened(seal, family)
    return Signature(value, maker)


def _opened(seal: str, family: str) -> tuple[str, str, bool]:
    if seal.startswith(_PREFIX):
        maker, colon, value = seal.removeprefix(_PREFIX).partition(":")
        if colon and maker and value:
            return maker.removesuffix(_REDACTED), value, maker.endswith(_REDACTED)
    return family, seal, False


def own_messages(request: Request, family: str, *, calls: str | None = None) -> list[Message]:
    """The conversation without the seals that a provider of this family would refuse, which is noted.

    Calls may be sealed by another family than thoughts.
    """
    messages: list[Message] = []
    dropped = False
    for message in request.messages:
        parts: list[Part] = []
        for part in message.parts:
            kept = _own(part, family if not isinstance(part, ToolCall) else calls or family)
            dropped = dropped or kept is not part
            if kept is not None:
                parts.append(kept)
        messages.append(Message(message.role, parts))
    if dropped:
        note(request.notes, "seals of another provider's thoughts were left out: only their maker can read them")
    return messages


def _own(part: Part, family: str) -> Part | None:
    if isinstance(part, Thinking):
        if part.redacted is not None and foreign(part.redacted, family):
            return None
        if part.signature is not None and foreign(part.signature, family):
            return Thinking(part.text) if part.text else None
    elif isinstance(part, ToolCall) and part.signature is not None and foreign(part.signature, family):
        return ToolCall(part.id, part.name, part.arguments, cached=part.cached)
    return part
