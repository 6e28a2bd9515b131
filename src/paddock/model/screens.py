"""What sandboxes with screens are, show and do, and who holds their mouse and keyboard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import AwareDatetime, Field

from paddock.model.sandbox import KIND_EXTENSION, KIND_VARIABLE, Frozen, Limits

__all__ = [
    "KIND_EXTENSION",
    "KIND_VARIABLE",
    "Frame",
    "Holder",
    "ImagePart",
    "Kind",
    "Shot",
    "TextPart",
    "Tool",
    "ToolResult",
]


class Kind(Frozen):
    """A sort of computer that agents may ask for."""

    name: str = Field(pattern=r"^[a-z][a-z0-9]{0,30}$")
    title: str
    """What it is, in honest words, such as `Windows (Wine)`."""
    image: str
    description: str = ""
    """What it is good for; agents read this."""
    screen: bool = False
    """Whether it has a display that can be watched and touched."""
    limits: Limits = Limits()


class Holder(Frozen):
    """The person who has a sandbox's mouse and keyboard; while nobody has, they are the agent's."""

    viewer: str
    """The id their connections show."""
    name: str
    since: AwareDatetime


class Tool(Frozen):
    """Something a box can do, as it tells of it."""

    name: str
    description: str = ""
    input_schema: Mapping[str, Any] = {}
    input: bool = False
    """Whether it moves the mouse or presses keys, and so waits while a person holds them."""
    changes_screen: bool = False
    read_only: bool = False


class TextPart(Frozen):
    type: Literal["text"] = "text"
    text: str


class ImagePart(Frozen):
    type: Literal["image"] = "image"
    data: bytes
    mime: str


class ToolResult(Frozen):
    """What came of a call. A tool that failed is a result too, with `failed` set."""

    content: tuple[TextPart | ImagePart, ...] = ()
    structured: Mapping[str, Any] | None = None
    failed: bool = False
    files: tuple[str, ...] = ()
    """Paths in the box that the call has written."""


class Shot(Frozen):
    """One picture of a screen, and the mark by which an unchanged one is known."""

    data: bytes
    mime: str
    etag: str
    width: int
    height: int


class Frame(Frozen):
    """A picture of a screen that has changed."""

    sequence: int
    width: int
    height: int
    at: float
    """Seconds since 1970, by the box's clock."""
    data: bytes
    """JPEG."""
