"""What comes of a tool call: text, pictures, data, or why it failed."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

MAX_TEXT = 100_000
"""Characters of text in one result; a model reads all of them."""


class ToolError(Exception):
    """A call that could not do what it was asked; the message says what to do instead."""


class Result:
    """The outcome of one call. `files` are paths that the call has written, `shot` a picture's name."""

    __slots__ = ("error", "files", "images", "shot", "structured", "text")

    def __init__(
        self,
        text: str = "",
        *,
        images: Iterable[tuple[bytes, str]] = (),
        structured: Mapping[str, Any] | None = None,
        files: Iterable[str] = (),
        shot: str = "",
        error: bool = False,
    ) -> None:
        self.text = text
        self.images = list(images)
        self.structured = structured
        self.files = list(files)
        self.shot = shot
        self.error = error

    def document(self) -> dict[str, Any]:
        """Return MCP's CallToolResult."""
        content: list[dict[str, Any]] = []
        if self.text or not self.images:
            content.append({"type": "text", "text": readable(self.text)})
        for data, mime in self.images:
            content.append({"type": "image", "data": base64(data), "mimeType": mime})
        document: dict[str, Any] = {"content": content, "isError": self.error}
        if self.structured is not None:
            document["structuredContent"] = self.structured
        about: dict[str, Any] = {}
        if self.files:
            about["files"] = self.files
        if self.shot:
            about["shot"] = self.shot
        if about:
            document["_meta"] = {"paddock": about}
        return document


def failure(message: str) -> Result:
    return Result(message, error=True)


def base64(data: bytes) -> str:
    from binascii import b2a_base64

    return b2a_base64(data, newline=False).decode("ascii")


def readable(text: str) -> str:
    """Replace what JSON and UTF-8 cannot carry, such as bytes of a file name that is not text."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def quoted(text: str) -> str:
    """Put a title or a name in quotes; backslashes stay as they are, and what is no letter makes no lines."""
    return "'" + "".join(letter if letter.isprintable() else " " for letter in text) + "'"


def shorten(text: str, limit: int = MAX_TEXT) -> str:
    """Keep the beginning and the end of a text that is too long, and say what was left out."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    cut = len(text) - head - tail
    return f"{text[:head]}\n[… {cut} characters left out …]\n{text[-tail:]}"
