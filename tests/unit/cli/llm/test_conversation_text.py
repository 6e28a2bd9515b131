"""Conversations are printed without control characters, and long texts are cut unless `--full`."""

from __future__ import annotations

import json

import pytest

from paddock.cli.llm.conversation_text import ConversationPrinter

EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m\x7f"


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def test_a_conversation_reads_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    call = {
        "type": "toolCall",
        "id": "c1",
        "name": "write",
        "arguments": json.dumps({"path": "a", "content": "x\ny\n"}),
    }
    result = {"type": "toolResult", "callId": "c1", "content": [text("done\there")], "isError": True}
    printer = ConversationPrinter(full=True)
    printer.print_messages(
        [
            {"role": "system", "parts": [text("Be kind.")]},
            {
                "role": "user",
                "parts": [text("你好"), {"type": "media", "kind": "image", "mediaType": "image/png", "data": "AAAA"}],
            },
            {"role": "assistant", "parts": [{"type": "thinking", "text": "Hm."}, call]},
            {"role": "user", "parts": [result]},
        ]
    )
    printer.print_answer({"parts": [text("Written."), {"type": "refusal", "text": "No more."}], "finish": "stop"})
    printer.print_cut_note()
    assert capsys.readouterr().out == (
        "\nsystem\n  Be kind.\n"
        "\nuser\n  你好\n  [image/png 3 B]\n"
        '\nassistant\n  thinks: Hm.\n  → write {"path": "a"}\n  content:\n    x\n    y\n'
        "\ntool  write failed\n  done    here\n"
        "\nanswer  ends with stop\n  Written.\n  refused: No more.\n"
    )


def test_control_characters_in_conversations_are_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    parts = [
        text(EVIL),
        {"type": "thinking", "text": EVIL},
        {"type": "toolCall", "id": EVIL, "name": EVIL, "arguments": EVIL},
        {"type": "media", "kind": EVIL, "url": EVIL},
    ]
    printer = ConversationPrinter(full=True)
    printer.print_messages([{"role": EVIL, "parts": parts}])
    printer.print_messages(
        [{"role": "user", "parts": [{"type": "toolResult", "callId": EVIL, "content": [text(EVIL)]}]}]
    )
    printer.print_answer({"parts": parts, "finish": EVIL})
    assert [
        character for character in capsys.readouterr().out if character != "\n" and not character.isprintable()
    ] == []


def test_long_texts_are_cut_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    message = {"role": "user", "parts": [text("\n".join(f"line {number}" for number in range(100)))]}
    printer = ConversationPrinter(full=False)
    printer.print_messages([message])
    printer.print_cut_note()
    shown = capsys.readouterr().out
    assert "line 15\n" in shown and "line 16\n" not in shown
    assert "more characters" in shown and "1 long text is cut; use --full to print everything" in shown
    ConversationPrinter(full=True).print_messages([message])
    assert "line 99" in capsys.readouterr().out


def test_invalid_json_arguments_are_shown_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    call = {"type": "toolCall", "id": "c", "name": "run", "arguments": '{"broken'}
    ConversationPrinter(full=True).print_messages([{"role": "assistant", "parts": [call]}])
    assert '→ run {"broken' in capsys.readouterr().out
