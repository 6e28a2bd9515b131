"""Results of tools, as the agent and people see them."""

from __future__ import annotations

import json
import re

from paddock.agents.session_files import SessionFiles
from paddock.errors import PaddockError
from paddock.model.screens import ToolResult, ToolResultImage, ToolResultText
from paddock.model.sessions import CallResult, FileContent, MessageContent, TextContent

_NOTE = re.compile(r"^([^\S\n]*)\[note\]", re.IGNORECASE | re.MULTILINE)
MAX_IMAGES = 20
"""Images of one result that are stored."""
FETCH_TOOL = "session_file_to_sandbox"
"""The tool that writes a session file to a sandbox."""


class ToolResultFormatter:
    """Formats tool results; stores images and long texts as session files."""

    def __init__(self, files: SessionFiles, max_characters: int) -> None:
        self._files = files
        self._max_characters = max_characters

    async def format_result(self, session_id: str, name: str, result: ToolResult, *notes: str | None) -> CallResult:
        """Format a result of the tool `name`; notes come before the tool's own content."""
        texts = [part.text for part in result.content if isinstance(part, ToolResultText)]
        images = [part for part in result.content if isinstance(part, ToolResultImage)]
        if not result.content and result.structured is not None:
            texts = [json.dumps(result.structured, ensure_ascii=False)]
        content = list(await self.format_text(session_id, name, _neutralize_notes("\n".join(texts))))
        for image in images[:MAX_IMAGES]:
            content.append(await self._store_image(session_id, name, image))
        if len(images) > MAX_IMAGES:
            content.append(TextContent(text=f"[{len(images) - MAX_IMAGES} more pictures are left out]"))
        note_parts = [TextContent(text=f"[note] {note}") for note in notes if note]
        return CallResult(content=(*note_parts, *content), failed=result.failed)

    async def format_text(self, session_id: str, name: str, text: str) -> tuple[MessageContent, ...]:
        """Return a text; if it is too long, cut it and add the whole text as a file."""
        if len(text) <= self._max_characters:
            return (TextContent(text=text),) if text else ()
        try:
            stored = await self._files.store_file(
                session_id, text.encode(errors="replace"), name=f"{name}.txt", mime="text/plain"
            )
        except PaddockError as error:
            return (
                TextContent(
                    text=cut_text_middle(text, self._max_characters, f"it could not be stored: {error.message}")
                ),
            )
        hint = f"all of it is kept as the file {stored.file}, which {FETCH_TOOL} writes to a sandbox"
        return TextContent(text=cut_text_middle(text, self._max_characters, hint)), stored

    async def _store_image(self, session_id: str, name: str, image: ToolResultImage) -> MessageContent:
        extension = image.mime.removeprefix("image/").split("+")[0]
        try:
            return await self._files.store_file(session_id, image.data, name=f"{name}.{extension}", mime=image.mime)
        except PaddockError as error:
            return TextContent(text=f"[an image could not be stored: {error.message}]")


def _neutralize_notes(text: str) -> str:
    """Rewrite `[note]` marks in tool output, so that it cannot imitate notes of the server."""
    return _NOTE.sub(r"\1[the tool wrote: note]", text)


def cut_text_middle(text: str, max_characters: int, hint: str) -> str:
    """Keep the beginning and the end of a text, at most `max_characters` characters in all."""
    mark = f"\n[… {len(text)} characters in all, of which those here are left out; {hint} …]\n"
    space = max(0, max_characters - len(mark))
    tail = space // 3
    head = space - tail
    return text[:head] + mark + (text[-tail:] if tail else "")


def text_tool_result(text: str, *files: FileContent) -> CallResult:
    return CallResult(content=(TextContent(text=text), *files))


def failed_tool_result(text: str, *notes: str | None) -> CallResult:
    """Return a failed result with a reason."""
    note_parts = [TextContent(text=f"[note] {note}") for note in notes if note]
    return CallResult(content=(*note_parts, TextContent(text=text)), failed=True)
