"""`paddock config show` beside a running server."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.cli.framework.context import CliContext
from paddock.cli.main import run


@pytest.mark.parametrize(
    ("section", "running", "noted"),
    [("llm", True, True), ("llm.models", True, True), ("llm", False, False), ("server", True, False)],
)
def test_note_names_the_environment_of_a_running_server(
    section: str,
    running: bool,
    noted: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PADDOCK_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(CliContext, "has_server", running)
    assert run(["config", "show", section]) == 0
    assert ("a running server has its own" in capsys.readouterr().err) is noted
