"""Settings of agent CLIs that do not use the variables of a model endpoint alone.

Gemini CLI and Qwen Code choose how to authenticate by their settings files. Each has a variable that names another file
or directory, so a user's own settings stay as they are.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

GEMINI_HOME = "GEMINI_CLI_HOME"
"""Names the directory that contains `.gemini`. Gemini CLI accepts system settings only from files of root."""
QWEN_SETTINGS = "QWEN_CODE_SYSTEM_SETTINGS_PATH"
"""Names the settings file that takes precedence over all others."""
_QWEN_DEFAULT_SETTINGS = "/etc/qwen-code/settings.json"
_SETTINGS_FILE = "settings.json"
_STRING_OR_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)


def write_agent_cli_settings(directory: Path, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Write settings that use an API key from the environment, and return the variables that name them.

    Other settings of the user and the system are kept.
    """
    gemini = directory / "gemini"
    home = Path(environment.get(GEMINI_HOME) or environment.get("HOME") or "/")
    _copy_with_auth_type(home / ".gemini", gemini / ".gemini", "gemini-api-key")
    qwen = directory / "qwen-settings.json"
    present = Path(environment.get(QWEN_SETTINGS) or _QWEN_DEFAULT_SETTINGS)
    qwen.write_text(_with_auth_type(_read_settings(present), "openai"))
    return {GEMINI_HOME: str(gemini), QWEN_SETTINGS: str(qwen)}


def _copy_with_auth_type(source: Path, target: Path, auth_type: str) -> None:
    """Create a directory with links to everything in another but its settings, which are copied."""
    target.mkdir(parents=True)
    for each in source.iterdir() if source.is_dir() else ():
        if each.name != _SETTINGS_FILE:
            (target / each.name).symlink_to(each.absolute())
    (target / _SETTINGS_FILE).write_text(_with_auth_type(_read_settings(source / _SETTINGS_FILE), auth_type))


def _read_settings(file: Path) -> dict[str, Any]:
    """Return the settings in a file, which may have comments; empty if it is missing or invalid."""
    try:
        text = _STRING_OR_COMMENT.sub(lambda found: found[1] or " ", file.read_text())
        document = json.loads(text)
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _with_auth_type(settings: dict[str, Any], auth_type: str) -> str:
    _section(_section(settings, "security"), "auth")["selectedType"] = auth_type
    return json.dumps(settings, indent=2)


def _section(settings: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a section of the settings, created if missing."""
    if not isinstance(settings.get(name), dict):
        settings[name] = {}
    section: dict[str, Any] = settings[name]
    return section
