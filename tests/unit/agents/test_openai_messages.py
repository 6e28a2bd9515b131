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


def said(role: Any, text: str = "", *more: FileContent, **fields: Any) -> SessionMessage:
    content = ((TextContent(text=text),) if text else ()) + more
    return SessionMessage(
        id=f"{role}-{text}", session="s", turn=1, role=role, content=content, at=datetime.now(UTC), **fields
    )


def picture() -> FileContent:
    return FileContent(type="image", file=SHA, mime="image/png")


def test_a_conversation_is_a_prompt_and_what_was_said() -> None:
    history = [said("user", "Hi."), said("assistant", "Hello.", thought="Hm."), said("user", "Bye.")]
    assert to_openai_messages("Be kind.", history) == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Bye."},
    ]
    assert to_openai_messages("", []) == []


def test_results_follow_their_calls_whatever_was_written_meanwhile() -> None:
    history = [
        said("assistant", calls=(LOOK, TOUCH)),
        said("user", "Hurry!"),
        said("tool", "touched", call_id="call_2"),
        said("tool", "seen", call_id="call_1"),
    ]
    answer, first, second, hurry = to_openai_messages("", history)
    assert answer["content"] is None
    assert [call["id"] for call in answer["tool_calls"]] == ["call_1", "call_2"]
    assert [call["function"]["arguments"] for call in answer["tool_calls"]] == ['{"path": "/tmp/ä"}', "{}"]
    assert (first["tool_call_id"], first["content"]) == ("call_1", "seen")
    assert (second["tool_call_id"], second["content"]) == ("call_2", "touched")
    assert hurry == {"role": "user", "content": "Hurry!"}


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    answer, result = to_openai_messages("", [said("assistant", "I look.", calls=(LOOK,))])
    assert answer["content"] == "I look."
    assert (result["role"], result["tool_call_id"], result["content"]) == ("tool", "call_1", NO_RESULT)


def test_notes_and_files_and_cuts_are_told() -> None:
    paper = FileContent(file=SHA, name="a.pdf", mime="application/pdf", size=7)
    note, attached, cut = to_openai_messages(
        "",
        [
            said("note", "Ann had the mouse.", picture()),
            said("user", "Read this.", paper),
            said("assistant", "I was", cut="cancelled"),
            said("assistant", cut="cancelled"),
        ],
    )
    shown = {"type": "image_url", "image_url": {"url": FILE_SCHEME + SHA}}
    assert note == {"role": "user", "content": [{"type": "text", "text": "[note] Ann had the mouse."}, shown]}
    assert attached["content"] == "Read this.\n[file a.pdf: application/pdf, 7 bytes]"
    assert cut == {"role": "assistant", "content": "I was\n[cut off: cancelled]"}


def test_what_helpers_said_is_left_out_with_its_results() -> None:
    history = [
        said("assistant", "I search.", calls=(LOOK,), by="researcher"),
        said("tool", "found", call_id="call_1"),
        said("assistant", "Here it is."),
    ]
    assert to_openai_messages("", history) == [{"role": "assistant", "content": "Here it is."}]
