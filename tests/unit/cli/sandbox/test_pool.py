"""`paddock pool` without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paddock.cli.main import run


@pytest.fixture(autouse=True)
def empty_data_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PADDOCK_URL", "PADDOCK_API_KEY", "PADDOCK_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PADDOCK_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def test_an_empty_list_is_a_sentence_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run(["pool", "list"]) == 0
    assert capsys.readouterr().out == "No pools. Create one: paddock pool create NAME --kind linux --size 2\n"


def test_empty_list_is_empty_in_a_pipe_and_an_empty_json_array(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pool", "list"]) == 0
    assert capsys.readouterr().out == ""
    assert run(["pool", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
