"""Pack signed thoughts of other providers into Gemini's thought signatures.

Gemini clients keep a `thoughtSignature` only on calls and texts, require it to be base64, and drop thoughts. So signed
thoughts of another provider are packed whole into the signature of the part that follows them.
"""

from __future__ import annotations

import base64
import binascii
import json

from paddock.llm.formats.json_fields import encode_json
from paddock.llm.formats.neutral import MessagePart, ModelThinking, ProviderSignature
from paddock.llm.formats.thought_signatures import GEMINI_FAMILY, is_foreign_signature

_MAGIC = b"paddock:thoughts:"
_ENCODED_MAGIC = base64.b64encode(_MAGIC)[:20].decode()


def has_foreign_signature(part: MessagePart) -> bool:
    """Return whether a part is a thought with a signature of another provider."""
    if not isinstance(part, ModelThinking):
        return False
    signature = part.redacted if part.redacted is not None else part.signature
    return signature is not None and (part.redacted is not None or is_foreign_signature(signature, GEMINI_FAMILY))


def pack_thoughts_in_signature(thoughts: list[ModelThinking]) -> str:
    """Encode thoughts as one signature."""
    packed = [[_signature_maker(each), each.text, each.signature, each.redacted] for each in thoughts]
    return base64.urlsafe_b64encode(_MAGIC + encode_json(packed)).decode()


def _signature_maker(thought: ModelThinking) -> str:
    signature = thought.redacted if thought.redacted is not None else thought.signature
    return signature.maker if isinstance(signature, ProviderSignature) else GEMINI_FAMILY


def unpack_thoughts_from_signature(signature: str | None) -> list[ModelThinking] | None:
    """Decode the thoughts in a signature; `None` for signatures of Gemini."""
    if signature is None or not signature.startswith(_ENCODED_MAGIC):
        return None
    try:
        data = base64.urlsafe_b64decode(signature.replace("+", "-").replace("/", "_"))
        packed = json.loads(data.removeprefix(_MAGIC))
    except (binascii.Error, ValueError, RecursionError):
        return None
    thoughts: list[ModelThinking] = []
    for each in packed if isinstance(packed, list) else ():
        match each:
            case [str(maker), str(), None, str(redacted)]:
                thoughts.append(ModelThinking(redacted=ProviderSignature(redacted, maker)))
            case [str(maker), str(text), str(original), None]:
                thoughts.append(ModelThinking(text, ProviderSignature(original, maker)))
    return thoughts
