"""Carry thought signatures of one provider through the wire formats of others.

A provider accepts only its own signatures. In the format of another family a signature is written as
`paddock:MAKER:SIGNATURE`, so that it survives in the client's history and is recognized when it comes back.
"""

from __future__ import annotations

from paddock.llm.formats.neutral import (
    MessagePart,
    ModelMessage,
    ModelRequest,
    ModelThinking,
    ModelToolCall,
    ProviderSignature,
)
from paddock.llm.formats.translation_notes import add_translation_note

ANTHROPIC_FAMILY = "anthropic"
CHAT_FAMILY = "openai-chat"
GEMINI_FAMILY = "gemini"
OPENAI_FAMILY = "openai"

_PREFIX = "paddock:"
_REDACTED_SUFFIX = ".redacted"


def is_foreign_signature(signature: str, family: str) -> bool:
    """Return whether a provider of this family would reject the signature; accept unmarked ones."""
    return isinstance(signature, ProviderSignature) and signature.maker != family


def format_thought_signature(signature: str, family: str, *, redacted: bool = False) -> str:
    """Return a signature as it is written in a format of this family."""
    maker = signature.maker if isinstance(signature, ProviderSignature) else family
    if maker == family and not redacted:
        return str(signature)
    return f"{_PREFIX}{maker}{_REDACTED_SUFFIX if redacted else ''}:{signature}"


def parse_signed_thought(text: str, signature: str | None, family: str) -> ModelThinking:
    """Create a thought from its text and the signature received in a format of this family."""
    if not signature:
        return ModelThinking(text)
    maker, value, redacted = _split_marker(signature, family)
    if redacted:
        return ModelThinking(redacted=ProviderSignature(value, maker))
    return ModelThinking(text, ProviderSignature(value, maker))


def parse_call_thought_signature(signature: str | None, family: str) -> ProviderSignature | None:
    """Parse the signature of a call received in a format of this family."""
    if not signature:
        return None
    maker, value, _ = _split_marker(signature, family)
    return ProviderSignature(value, maker)


def _split_marker(signature: str, family: str) -> tuple[str, str, bool]:
    if signature.startswith(_PREFIX):
        maker, colon, value = signature.removeprefix(_PREFIX).partition(":")
        if colon and maker and value:
            return maker.removesuffix(_REDACTED_SUFFIX), value, maker.endswith(_REDACTED_SUFFIX)
    return family, signature, False


def drop_foreign_signatures(request: ModelRequest, family: str, *, calls: str | None = None) -> list[ModelMessage]:
    """Return the messages without signatures that a provider of this family would reject, and add a note.

    `calls` is the family of call signatures where it differs from that of thoughts.
    """
    messages: list[ModelMessage] = []
    dropped = False
    for message in request.messages:
        parts: list[MessagePart] = []
        for part in message.parts:
            accepted = _drop_if_foreign(part, family if not isinstance(part, ModelToolCall) else calls or family)
            dropped = dropped or accepted is not part
            if accepted is not None:
                parts.append(accepted)
        messages.append(ModelMessage(message.role, parts))
    if dropped:
        add_translation_note(
            request.notes, "thought signatures of another provider were left out: only that provider accepts them"
        )
    return messages


def _drop_if_foreign(part: MessagePart, family: str) -> MessagePart | None:
    if isinstance(part, ModelThinking):
        if part.redacted is not None and is_foreign_signature(part.redacted, family):
            return None
        if part.signature is not None and is_foreign_signature(part.signature, family):
            return ModelThinking(part.text) if part.text else None
    elif (
        isinstance(part, ModelToolCall) and part.signature is not None and is_foreign_signature(part.signature, family)
    ):
        return ModelToolCall(part.id, part.name, part.arguments, cached=part.cached)
    return part
