"""Results of tool calls: text, images, structured data or an error."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

MAX_TEXT = 100_000
"""Characters of text in one result, all of which a model reads."""


class ToolError(Exception):
    """A tool call failed; the message says why and what to do instead."""


class ToolCallResult:
    """Result of one call. `files` are the paths it has written, `screenshot_id` names its screenshot."""

    __slots__ = ("error", "files", "images", "screenshot_id", "structured", "text")

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
        self.screenshot_id = shot
        self.error = error

    def mcp_document(self) -> dict[str, Any]:
        """Return the result as an MCP `CallToolResult`."""
        content: list[dict[str, Any]] = []
        if self.text or not self.images:
            content.append({"type": "text", "text": replace_surrogates(self.text)})
        for data, mime in self.images:
            content.append({"type": "image", "data": encode_base64(data), "mimeType": mime})
        document: dict[str, Any] = {"content": content, "isError": self.error}
        if self.structured is not None:
            document["structuredContent"] = self.structured
        metadata: dict[str, Any] = {}
        if self.files:
            metadata["files"] = self.files
        if self.screenshot_id:
            metadata["shot"] = self.screenshot_id
        if metadata:
            document["_meta"] = {"paddock": metadata}
        return document


def failed_tool_result(message: str) -> ToolCallResult:
    return ToolCallResult(message, error=True)


def encode_base64(data: bytes) -> str:
    from binascii import b2a_base64

    return b2a_base64(data, newline=False).decode("ascii")


def replace_surrogates(text: str) -> str:
    """Replace surrogates, such as bytes of a file name that is not UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def quote_title(text: str) -> str:
    """Quote a title or a name on one line; unprintable characters become spaces, backslashes stay."""
    return "'" + "".join(character if character.isprintable() else " " for character in text) + "'"


def omit_middle_of_text(text: str, limit: int = MAX_TEXT) -> str:
    """Shorten a long text to its beginning and end, with a note on the omitted part."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    cut = len(text) - head - tail
    return f"{text[:head]}\n[… {cut} characters left out …]\n{text[-tail:]}"
