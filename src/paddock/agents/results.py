"""What tools answer, made into what the agent and people are shown."""

from __future__ import annotations

import json
import re

from paddock.agents.files import Files
from paddock.errors import PaddockError
from paddock.model.screens import ImagePart, TextPart, ToolResult
from paddock.model.sessions import CallResult, Content, FileContent, TextContent

_NOTE = re.compile(r"^([^\S\n]*)\[note\]", re.IGNORECASE | re.MULTILINE)
MOST_PICTURES = 20
"""Pictures of one result that are kept."""
FETCH = "session_file_to_sandbox"
"""The tool by which an agent gets at what a session keeps."""


class Results:
    """Keeps what is large as files of the session, and shows the rest."""

    def __init__(self, files: Files, size: int) -> None:
        self._files = files
        self._size = size

    async def shown(self, session_id: str, name: str, result: ToolResult, *notes: str | None) -> CallResult:
        """A result as it is shown. `name` is the tool's; notes come before what the tool says."""
        texts = [part.text for part in result.content if isinstance(part, TextPart)]
        pictures = [part for part in result.content if isinstance(part, ImagePart)]
        if not result.content and result.structured is not None:
            texts = [json.dumps(result.structured, ensure_ascii=False)]
        content = list(await self.text(session_id, name, _no_notes("\n".join(texts))))
        for picture in pictures[:MOST_PICTURES]:
            content.append(await self._picture(session_id, name, picture))
        if len(pictures) > MOST_PICTURES:
            content.append(TextContent(text=f"[{len(pictures) - MOST_PICTURES} more pictures are left out]"))
        said = [TextContent(text=f"[note] {note}") for note in notes if note]
        return CallResult(content=(*said, *content), failed=result.failed)

    async def text(self, session_id: str, name: str, text: str) -> tuple[Content, ...]:
        """A text, cut if it is too long, and then with the whole of it as a file."""
        if len(text) <= self._size:
            return (TextContent(text=text),) if text else ()
        try:
            kept = await self._files.put(
                session_id, text.encode(errors="replace"), name=f"{name}.txt", mime="text/plain"
            )
        except PaddockError as error:
            return (TextContent(text=cut(text, self._size, f"it could not be kept: {error.message}")),)
        how = f"all of it is kept as the file {kept.file}, which {FETCH} writes to a sandbox"
        return TextContent(text=cut(text, self._size, how)), kept

    async def _picture(self, session_id: str, name: str, picture: ImagePart) -> Content:
        form = picture.mime.removeprefix("image/").split("+")[0]
        try:
            return await self._files.put(session_id, picture.data, name=f"{name}.{form}", mime=picture.mime)
        except PaddockError as error:
            return TextContent(text=f"[a picture could not be kept: {error.message}]")


def _no_notes(text: str) -> str:
    """A tool's text in which nothing passes for a note of the server."""
    return _NOTE.sub(r"\1[the tool wrote: note]", text)


def cut(text: str, size: int, where: str) -> str:
    """The beginning and the end of a text, and how much is left out between them; no longer than `size`."""
    mark = f"\n[… {len(text)} characters in all, of which those here are left out; {where} …]\n"
    room = max(0, size - len(mark))
    tail = room // 3
    head = room - tail
    return text[:head] + mark + (text[-tail:] if tail else "")


def said(text: str, *files: FileContent) -> CallResult:
    return CallResult(content=(TextContent(text=text), *files))


def failure(text: str, *notes: str | None) -> CallResult:
    """A call that came to nothing, and why."""
    told = [TextContent(text=f"[note] {note}") for note in notes if note]
    return CallResult(content=(*told, TextContent(text=text)), failed=True)
