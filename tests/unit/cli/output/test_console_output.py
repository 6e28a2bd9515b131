"""Printed text cannot control the terminal."""

from __future__ import annotations

import json

import pytest

from paddock.cli.output.command_output import CommandOutput
from paddock.cli.output.errors import CliError, print_warning, report_error

EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m\x7f"


def controls(text: str) -> list[str]:
    return [character for character in text if character != "\n" and not character.isprintable()]


def test_errors_and_warnings_have_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_warning(EVIL)
    report_error(CliError(EVIL, hint=EVIL), as_json=False)
    report_error(CliError(EVIL, hint=EVIL), as_json=True)
    assert controls(capsys.readouterr().err) == []


def test_model_text_has_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    out = CommandOutput(as_json=False)
    out.print_text(EVIL)
    assert controls(capsys.readouterr().out) == []
    out.print_text("if x:\r\n\treturn 你好")
    assert capsys.readouterr().out == "if x:\n    return 你好"


def test_lines_keep_tabs_and_get_unix_line_ends(capsys: pytest.CaptureFixture[str]) -> None:
    out = CommandOutput(as_json=False)
    out.print_line("Item\tPrice\r\nTea\t3\r")
    assert capsys.readouterr().out == "Item\tPrice\nTea\t3\n"
    out.print_line("safe\rforged \x1b[2J")
    assert capsys.readouterr().out == "safe\ufffdforged \ufffd[2J\n"
    report_error(CliError("one\r\n\ttwo"), as_json=False)
    assert capsys.readouterr().err == "error: one\n\ttwo\n"


def test_json_output_escapes_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    CommandOutput(as_json=True).print_json_line({"name": EVIL})
    shown = capsys.readouterr().out
    assert controls(shown) == []
    assert json.loads(shown) == {"name": EVIL}
