"""Failures of a documentation page: exit codes and time-outs of its commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.page_reader import ROOT
from tests.docs.page_runner import PageFailed, PageRunner
from tests.docs.terminal_input import TIMEOUT_EXIT_CODE


def run_page_text(directory: Path, text: str) -> None:
    page = directory / "page.md"
    page.write_text(text)
    runner = PageRunner(page, directory)
    try:
        runner.run()
    finally:
        runner.close()


@pytest.mark.parametrize(
    ("comment", "code"),
    [("", 3), ("<!-- type: ^D -->\n", 3), ("<!-- type: ^D -->\n<!-- exit: 1 -->\n", 3), ("<!-- exit: 3 -->\n", 0)],
    ids=["plain", "typed", "another-code", "success"],
)
@pytest.mark.parametrize("fence", ["```sh\n", "```console\n$ "], ids=["sh", "console"])
def test_unexpected_exit_code_fails(tmp_path: Path, fence: str, comment: str, code: int) -> None:
    with pytest.raises(PageFailed, match=f"page.md:\\d+: .*\nit ended with {code}"):
        run_page_text(tmp_path, f"{comment}{fence}(exit {code})\n```\n")


@pytest.mark.parametrize("typed", ["", "<!-- type: ^D -->\n"], ids=["plain", "typed"])
def test_named_exit_code_passes(tmp_path: Path, typed: str) -> None:
    run_page_text(tmp_path, f"{typed}<!-- exit: 3 -->\n```sh\n(exit 3)\n```\n\n```sh\ntrue\n```\n")


def test_command_that_does_not_end_fails() -> None:
    code = "from tests.docs import terminal_input as t; t.COMMAND_TIMEOUT = 0.5; exit(t.main('sleep 60', []))"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=50, check=False
    )
    assert result.returncode == TIMEOUT_EXIT_CODE and "still running after 0.5 seconds" in result.stdout
