"""`paddock llm list` without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paddock.cli.main import run

CONFIG = """\
llm:
  providers:
    mine: {kind: openai, base_url: "http://127.0.0.1:9/v1", key: "${MINE_KEY}"}
    spare: {kind: openai, base_url: "http://127.0.0.1:9/v1"}
  models:
    fast: {provider: mine, model: small-1, fallbacks: [big-2]}
    big-*: mine
"""


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PADDOCK_URL", "PADDOCK_API_KEY", "PADDOCK_CONFIG", "MINE_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PADDOCK_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paddock.yaml").write_text(CONFIG)


def test_configured_models_are_listed_without_a_server(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["llm", "list"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows == [
        ["MODEL", "PROVIDER", "KIND", "PROVIDER'S", "MODEL", "FALLBACKS"],
        ["fast", "mine", "openai", "small-1", "big-2"],
        ["big-*", "mine", "openai", "big-*"],
    ]
    assert run(["llm", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [provider["name"] for provider in listed["providers"]] == ["mine", "spare"]
    assert [model["name"] for model in listed["models"]] == ["fast"]
    assert [pattern["name"] for pattern in listed["patterns"]] == ["big-*"]
    assert "MINE_KEY" not in json.dumps(listed)
    assert not (tmp_path / "data").exists()


def test_terminal_note_says_that_no_server_is_running(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run(["llm", "list"]) == 0
    shown = capsys.readouterr().out
    assert "No server is running" in shown and "Start the server to ask the providers" in shown
    assert "Providers without configured models: spare." in shown


def test_unreachable_named_server_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["llm", "list", "--server", "http://127.0.0.1:1"]) == 1
    assert "no Paddock server at http://127.0.0.1:1" in capsys.readouterr().err
