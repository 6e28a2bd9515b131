"""What people ask of sessions."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Literal

from pydantic import Field

from paddock.config.units import format_size
from paddock.errors import InvalidInput
from paddock.model.owners import Visibility
from paddock.model.sandbox import Frozen
from paddock.model.sessions import LARGEST_MESSAGE, Policy

MOST_FILES = 20
LONGEST_TITLE = 80


class NewSession(Frozen):
    """What a session shall be; the configuration says what is left out."""

    agent: str | None = None
    model: str | None = None
    kinds: tuple[str, ...] | None = Field(default=None, max_length=20)
    policy: Policy | None = None
    instructions: str | None = Field(default=None, max_length=100_000)
    title: str | None = Field(default=None, max_length=200)
    budget: int | None = Field(default=None, ge=1)
    visibility: Visibility | None = None


class SessionPatch(Frozen):
    """What shall be different about a session; what is left out stays, and a budget of `null` takes it away."""

    model: str | None = None
    kinds: tuple[str, ...] | None = Field(default=None, max_length=20)
    policy: Policy | None = None
    instructions: str | None = Field(default=None, max_length=100_000)
    title: str | None = Field(default=None, max_length=200)
    budget: int | None = Field(default=None, ge=1)
    visibility: Visibility | None = None


class TextPart(Frozen):
    type: Literal["text"] = "text"
    text: str


class DataPart(Frozen):
    """A picture or another file, in Base64. Which of both it is, its bytes tell."""

    type: Literal["file", "image"] = "file"
    name: str = Field(default="", max_length=255)
    mime: str | None = Field(default=None, max_length=200)
    data: str


class Written(Frozen):
    """What a person writes: a text, or several parts."""

    text: str | None = None
    content: tuple[Annotated[TextPart | DataPart, Field(discriminator="type")], ...] = ()


def parts_of(written: Written, largest: int) -> list[str | tuple[DataPart, bytes]]:
    """The parts of a message, with the bytes of files. Raises `InvalidInput`."""
    parts: list[str | tuple[DataPart, bytes]] = [] if written.text is None else [written.text]
    files = sum(isinstance(part, DataPart) for part in written.content)
    if files > MOST_FILES:
        raise InvalidInput(f"a message may have {MOST_FILES} files; this one has {files}")
    for part in written.content:
        parts.append(part.text if isinstance(part, TextPart) else (part, _decoded(part, largest)))
    texts = [part for part in parts if isinstance(part, str)]
    letters = sum(map(len, texts))
    if letters > LARGEST_MESSAGE:
        raise InvalidInput(f"a message may have {LARGEST_MESSAGE} letters; send longer texts as a file")
    if not files and not any(text.strip() for text in texts):
        raise InvalidInput("the message is empty; write something")
    return [part for part in parts if part]


def title_of(text: str) -> str:
    """A title for a session that begins with this."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in line).split())
    return line if len(line) <= LONGEST_TITLE else line[: LONGEST_TITLE - 1].rstrip() + "…"


def _decoded(part: DataPart, largest: int) -> bytes:
    about = part.name or "a file"
    if len(part.data) > largest // 3 * 4 + 8:
        raise InvalidInput(f"{about} is too large; a file may have {format_size(largest)}")
    try:
        data = base64.b64decode(part.data, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput(f"{about} is not Base64") from None
    if len(data) > largest:
        raise InvalidInput(f"{about} is too large; a file may have {format_size(largest)}")
    return data
