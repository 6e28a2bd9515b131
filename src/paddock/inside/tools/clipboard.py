"""Tools for the clipboard."""

from __future__ import annotations

from .registry import Tool
from .results import Result, readable, shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .context import Context


def tools(context: Context) -> list[Tool]:
    return [
        Tool(
            "get_clipboard",
            "Return the text on the clipboard, or the picture.",
            {},
            [],
            get_clipboard,
            read_only=True,
        ),
        Tool(
            "set_clipboard",
            "Put text on the clipboard.",
            {"text": {"type": "string", "maxLength": 4_000_000}},
            ["text"],
            set_clipboard,
        ),
    ]


def get_clipboard(context: Context) -> Result:
    text = context.clipboard.text()
    if text is not None:
        return Result(shorten(readable(text)), structured={"text": shorten(readable(text)), "length": len(text)})
    contents = context.clipboard.contents()
    picture = contents.get("image/png")
    if picture is not None:
        return Result("a picture is on the clipboard", images=[(picture, "image/png")], structured={"text": None})
    kinds = ", ".join(sorted(contents))
    note = f"there is no text on the clipboard, but: {kinds}" if kinds else "the clipboard is empty"
    return Result(note, structured={"text": None, "length": 0})


def set_clipboard(context: Context, text: str) -> Result:
    context.clipboard.own_text(text)
    return Result(f"put {len(text)} characters on the clipboard", structured={"length": len(text)})
