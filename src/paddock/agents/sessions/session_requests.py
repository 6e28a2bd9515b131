"""Requests to create, change and message sessions."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Literal

from pydantic import Field

from paddock.config.network_policy import NetworkRules
from paddock.config.units import format_size
from paddock.errors import InvalidInput
from paddock.model.owners import Visibility
from paddock.model.sandbox import FrozenModel
from paddock.model.sessions import LARGEST_MESSAGE, Policy

MAX_FILES = 20
MAX_TITLE_LENGTH = 80
_BASE64_SLICE = 2**20
"""Characters that are decoded at once; a multiple of four."""


class CreateSessionRequest(FrozenModel):
    """A new session; omitted fields take the configured defaults."""

    agent: str | None = None
    model: str | None = None
    kinds: tuple[str, ...] | None = Field(default=None, max_length=20)
    network: NetworkRules | None = None
    mcp: tuple[str, ...] | None = Field(default=None, max_length=100)
    policy: Policy | None = None
    instructions: str | None = Field(default=None, max_length=100_000)
    title: str | None = Field(default=None, max_length=200)
    budget: int | None = Field(default=None, ge=1)
    visibility: Visibility | None = None


class UpdateSessionRequest(FrozenModel):
    """Changes of a session; omitted fields stay.

    A budget of `null` removes the limit, a network of `null` restores that of each kind.
    """

    model: str | None = None
    kinds: tuple[str, ...] | None = Field(default=None, max_length=20)
    network: NetworkRules | None = None
    mcp: tuple[str, ...] | None = Field(default=None, max_length=100)
    policy: Policy | None = None
    instructions: str | None = Field(default=None, max_length=100_000)
    title: str | None = Field(default=None, max_length=200)
    budget: int | None = Field(default=None, ge=1)
    visibility: Visibility | None = None


class MessageTextPart(FrozenModel):
    type: Literal["text"] = "text"
    text: str


class MessageDataPart(FrozenModel):
    """An image or another file, in Base64; the type is detected from the bytes."""

    type: Literal["file", "image"] = "file"
    name: str = Field(default="", max_length=255)
    mime: str | None = Field(default=None, max_length=200)
    data: str


class MessageRequest(FrozenModel):
    """A message: a text, or several parts."""

    text: str | None = None
    content: tuple[Annotated[MessageTextPart | MessageDataPart, Field(discriminator="type")], ...] = ()


def parse_message_parts(request: MessageRequest, max_file_size: int) -> list[str | tuple[MessageDataPart, bytes]]:
    """Return the parts of a message with decoded files. Raises `InvalidInput`."""
    parts: list[str | tuple[MessageDataPart, bytes]] = [] if request.text is None else [request.text]
    files = sum(isinstance(part, MessageDataPart) for part in request.content)
    if files > MAX_FILES:
        raise InvalidInput(f"a message may have {MAX_FILES} files; this one has {files}")
    for part in request.content:
        parts.append(part.text if isinstance(part, MessageTextPart) else (part, _decode_part(part, max_file_size)))
    texts = [part for part in parts if isinstance(part, str)]
    characters = sum(map(len, texts))
    if characters > LARGEST_MESSAGE:
        raise InvalidInput(f"a message may have {LARGEST_MESSAGE} characters; send longer texts as a file")
    if not files and not any(text.strip() for text in texts):
        raise InvalidInput("the message is empty; write something")
    return [part for part in parts if part]


def derive_title(text: str) -> str:
    """Derive a session title from its first message."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    line = " ".join("".join(character if character.isprintable() else " " for character in line).split())
    return line if len(line) <= MAX_TITLE_LENGTH else line[: MAX_TITLE_LENGTH - 1].rstrip() + "…"


def _decode_base64(text: str) -> bytes:
    """Decode a text in slices, between which other threads run. Raises `ValueError`."""
    slices = [text[start : start + _BASE64_SLICE] for start in range(0, len(text), _BASE64_SLICE)]
    if any(each.endswith("=") for each in slices[:-1]):
        raise ValueError("the padding is not at the end")
    return b"".join([base64.b64decode(each, validate=True) for each in slices])


def _decode_part(part: MessageDataPart, max_file_size: int) -> bytes:
    name = part.name or "a file"
    if len(part.data) > max_file_size // 3 * 4 + 8:
        raise InvalidInput(f"{name} is too large; a file may have {format_size(max_file_size)}")
    try:
        data = _decode_base64(part.data)
    except (binascii.Error, ValueError):
        raise InvalidInput(f"{name} is not Base64") from None
    if len(data) > max_file_size:
        raise InvalidInput(f"{name} is too large; a file may have {format_size(max_file_size)}")
    return data
