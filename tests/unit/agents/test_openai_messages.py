"""Session messages in OpenAI's format."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from paddock.agents.engines.base import FILE_SCHEME
from paddock.agents.model.openai_messages import NO_RESULT, to_openai_messages
from paddock.model.sessions import FileContent, SessionMessage, TextContent, ToolCall

SHA = "a" * 64
LOOK = ToolCall(id="call_1", name="code_look", arguments={"path": "/tmp/ä"})
TOUCH = ToolCall(id="call_2", name="code_touch", malformed="{")


def message(role: Any, text: str = "", *files: FileContent, **fields: Any) -> SessionMessage:
    content = ((TextContent(text=text),) if text else ()) + files
    return SessionMessage(
        id=f"{role}-{text}", session="s", turn=1, role=role, content=content, at=datetime.now(UTC), **fields
    )


def image() -> FileContent:
    return FileContent(type="image", file=SHA, mime="image/png")


def test_conversation_is_prompt_and_messages() -> None:
    history = [message("user", "Hi."), message("assistant", "Hello.", thought="Hm."), message("user", "Bye.")]
    assert to_openai_messages("Be kind.", history) == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Bye."},
    ]
    assert to_openai_messages("", []) == []


def test_results_directly_follow_their_calls() -> None:
    history = [
        message("assistant", calls=(LOOK, TOUCH)),
        message("user", "Hurry!"),
        message("tool", "touched", call_id="call_2"),
        message("tool", "seen", call_id="call_1"),
    ]
    assistant_message, first, second, hurry = to_openai_messages("", history)
    assert assistant_message["content"] is None
    assert [call["id"] for call in assistant_message["tool_calls"]] == ["call_1", "call_2"]
    assert [call["function"]["arguments"] for call in assistant_message["tool_calls"]] == ['{"path": "/tmp/ä"}', "{}"]
    assert (first["tool_call_id"], first["content"]) == ("call_1", "seen")
    assert (second["tool_call_id"], second["content"]) == ("call_2", "touched")
    assert hurry == {"role": "user", "content": "Hurry!"}


def test_call_without_result_gets_placeholder() -> None:
    assistant_message, result = to_openai_messages("", [message("assistant", "I look.", calls=(LOOK,))])
    assert assistant_message["content"] == "I look."
    assert (result["role"], result["tool_call_id"], result["content"]) == ("tool", "call_1", NO_RESULT)


def test_notes_files_and_cut_messages_are_described() -> None:
    paper = FileContent(file=SHA, name="a.pdf", mime="application/pdf", size=7)
    note, with_file, cut = to_openai_messages(
        "",
        [
            message("note", "Ann had the mouse.", image()),
            message("user", "Read this.", paper),
            message("assistant", "I was", cut="cancelled"),
            message("assistant", cut="cancelled"),
        ],
    )
    image_part = {"type": "image_url", "image_url": {"url": FILE_SCHEME + SHA}}
    assert note == {"role": "user", "content": [{"type": "text", "text": "[note] Ann had the mouse."}, image_part]}
    assert with_file["content"] == "Read this.\n[file a.pdf: application/pdf, 7 bytes]"
    assert cut == {"role": "assistant", "content": "I was\n[cut off: cancelled]"}


def test_messages_and_results_of_helpers_are_left_out() -> None:
    history = [
        message("assistant", "I search.", calls=(LOOK,), by="researcher"),
        message("tool", "found", call_id="call_1"),
        message("assistant", "Here it is."),
    ]
    assert to_openai_messages("", history) == [{"role": "assistant", "content": "Here it is."}]
