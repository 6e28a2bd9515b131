"""What is printed cannot steer the terminal it is printed on."""

from __future__ import annotations

import json

import pytest

from paddock.cli.failure import CliError, report, warn
from paddock.cli.output import Output

EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m\x7f"


def controls(text: str) -> list[str]:
    return [letter for letter in text if letter != "\n" and not letter.isprintable()]


def test_errors_and_warnings_that_quote_a_box(capsys: pytest.CaptureFixture[str]) -> None:
    warn(EVIL)
    report(CliError(EVIL, hint=EVIL), as_json=False)
    report(CliError(EVIL, hint=EVIL), as_json=True)
    assert controls(capsys.readouterr().err) == []


def test_text_that_comes_from_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(as_json=False)
    out.write(EVIL)
    assert controls(capsys.readouterr().out) == []
    out.write("if x:\r\n\treturn 你好")
    assert capsys.readouterr().out == "if x:\n    return 你好"


def test_lines_keep_tabs_and_end_as_ours_do(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(as_json=False)
    out.line("Item\tPrice\r\nTea\t3\r")
    assert capsys.readouterr().out == "Item\tPrice\nTea\t3\n"
    out.line("safe\rforged \x1b[2J")
    assert capsys.readouterr().out == "safe\ufffdforged \ufffd[2J\n"
    report(CliError("one\r\n\ttwo"), as_json=False)
    assert capsys.readouterr().err == "error: one\n\ttwo\n"


def test_json_that_quotes_a_box(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).event({"name": EVIL})
    shown = capsys.readouterr().out
    assert controls(shown) == []
    assert json.loads(shown) == {"name": EVIL}
