"""Settings of agent CLIs for a model endpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paddock.cli.llm.agent_cli_settings import GEMINI_HOME, QWEN_SETTINGS, write_agent_cli_settings

USERS_OWN = '{"ui": {"theme": "a // b"}, /* mine */ "security": {"auth": {"selectedType": "oauth-personal"}} // end\n}'


@pytest.fixture
def made(tmp_path: Path) -> Path:
    directory = tmp_path / "made"
    directory.mkdir()
    return directory


def settings_of(variables: dict[str, str]) -> dict[str, dict[str, Any]]:
    gemini, qwen = Path(variables[GEMINI_HOME]) / ".gemini/settings.json", Path(variables[QWEN_SETTINGS])
    return {"gemini": json.loads(gemini.read_text()), "qwen": json.loads(qwen.read_text())}


def test_each_cli_uses_the_key_in_its_environment(made: Path, tmp_path: Path) -> None:
    assert settings_of(write_agent_cli_settings(made, {"HOME": str(tmp_path)})) == {
        "gemini": {"security": {"auth": {"selectedType": "gemini-api-key"}}},
        "qwen": {"security": {"auth": {"selectedType": "openai"}}},
    }


def test_other_settings_and_files_are_kept(made: Path, tmp_path: Path) -> None:
    own = tmp_path / ".gemini"
    own.mkdir()
    (own / "settings.json").write_text(USERS_OWN)
    (own / "GEMINI.md").write_text("Be brief.")
    (tmp_path / "qwen.json").write_text(USERS_OWN)
    environment = {"HOME": str(tmp_path), QWEN_SETTINGS: str(tmp_path / "qwen.json")}
    variables = write_agent_cli_settings(made, environment)
    for name, settings in settings_of(variables).items():
        assert settings["ui"] == {"theme": "a // b"}
        assert settings["security"]["auth"]["selectedType"] == ("gemini-api-key" if name == "gemini" else "openai")
    assert (Path(variables[GEMINI_HOME]) / ".gemini/GEMINI.md").read_text() == "Be brief."
    assert (own / "settings.json").read_text() == USERS_OWN


def test_another_home_of_gemini_is_respected(made: Path, tmp_path: Path) -> None:
    (tmp_path / "other/.gemini").mkdir(parents=True)
    (tmp_path / "other/.gemini/settings.json").write_text('{"ui": {"theme": "other"}}')
    variables = write_agent_cli_settings(made, {"HOME": str(tmp_path), GEMINI_HOME: str(tmp_path / "other")})
    assert settings_of(variables)["gemini"]["ui"] == {"theme": "other"}


def test_invalid_settings_are_replaced(made: Path, tmp_path: Path) -> None:
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini/settings.json").write_text("[")
    assert settings_of(write_agent_cli_settings(made, {"HOME": str(tmp_path)}))["gemini"]["security"]
