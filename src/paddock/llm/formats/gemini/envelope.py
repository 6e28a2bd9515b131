"""Other providers' sealed thoughts in Gemini's format.

Its clients keep a `thoughtSignature` only on calls and texts, take it for base64, and drop the thoughts themselves. So
sealed thoughts of another provider travel whole in the signature of the part that follows them.
"""

from __future__ import annotations

import base64
import binascii
import json

from paddock.llm.formats.fields import to_bytes
from paddock.llm.formats.seals import GEMINI, foreign
from paddock.llm.neutral import Part, Signature, Thinking

_MARK = b"paddock:thoughts:"
_START = base64.b64encode(_MARK)[:20].decode()


def needs_envelope(part: Part) -> bool:
    """Whether this is a thought with a seal that Gemini did not make."""
    if not isinstance(part, Thinking):
        return False
    seal = part.redacted if part.redacted is not None else part.signature
    return seal is not None and (part.redacted is not None or foreign(seal, GEMINI))


def enveloped(thoughts: list[Thinking]) -> str:
    """These thoughts as one signature."""
    said = [[_maker(each), each.text, each.signature, each.redacted] for each in thoughts]
    return base64.urlsafe_b64encode(_MARK + to_bytes(said)).decode()


def _maker(thought: Thinking) -> str:
    seal = thought.redacted if thought.redacted is not None else thought.signature
    return seal.maker if isinstance(seal, Signature) else GEMINI


def opened(signature: str | None) -> list[Thinking] | None:
    """The thoughts in a signature; `None` when it is one of Gemini's own."""
    if signature is None or not signature.startswith(_START):
        return None
    try:
        data = base64.urlsafe_b64decode(signature.replace("+", "-").replace("/", "_"))
        said = json.loads(data.removeprefix(_MARK))
    except (binascii.Error, ValueError, RecursionError):
        return None
    thoughts: list[Thinking] = []
    for each in said if isinstance(said, list) else ():
        match each:
            case [str(maker), str(), None, str(redacted)]:
                thoughts.append(Thinking(redacted=Signature(redacted, maker)))
            case [str(maker), str(text), str(seal), None]:
                thoughts.append(Thinking(text, Signature(seal, maker)))
    return thoughts
