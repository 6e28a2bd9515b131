"""Tools that read and set the clipboard."""

from __future__ import annotations

from ..tool_registry import CallableTool
from ..tool_result import ToolCallResult, omit_middle_of_text, replace_surrogates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..tool_context import ToolContext


def clipboard_tools(context: ToolContext) -> list[CallableTool]:
    return [
        CallableTool(
            "get_clipboard",
            "Return the text on the clipboard, or the picture.",
            {},
            [],
            get_clipboard,
            read_only=True,
        ),
        CallableTool(
            "set_clipboard",
            "Put text on the clipboard.",
            {"text": {"type": "string", "maxLength": 4_000_000}},
            ["text"],
            set_clipboard,
        ),
    ]


def get_clipboard(context: ToolContext) -> ToolCallResult:
    text = context.clipboard.text()
    if text is not None:
        return ToolCallResult(
            omit_middle_of_text(replace_surrogates(text)),
            structured={"text": omit_middle_of_text(replace_surrogates(text)), "length": len(text)},
        )
    contents = context.clipboard.contents()
    picture = contents.get("image/png")
    if picture is not None:
        return ToolCallResult(
            "a picture is on the clipboard", images=[(picture, "image/png")], structured={"text": None}
        )
    kinds = ", ".join(sorted(contents))
    note = f"the clipboard has no text, but: {kinds}" if kinds else "the clipboard is empty"
    return ToolCallResult(note, structured={"text": None, "length": 0})


def set_clipboard(context: ToolContext, text: str) -> ToolCallResult:
    context.clipboard.own_text(text)
    return ToolCallResult(f"put {len(text)} characters on the clipboard", structured={"length": len(text)})
