"""Load and validate script files; errors name the file, the line and the fix."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from paddock.config.yaml_files import explain_validation_error, locate_field, parse_yaml, unknown_name_message
from paddock.errors import ConfigError
from paddock.llm.scripted_model.script_schema import ModelScript, known_script_fields, script_action_names

MAX_SCRIPT_BYTES = 4 * 2**20
_MAX_PROBLEMS = 10


def load_script(path: Path, setting: str = "") -> ModelScript:
    """Load a script file. Raises `ConfigError` naming file, line and field, or the setting."""
    try:
        if path.stat().st_size > MAX_SCRIPT_BYTES:
            raise ConfigError(f"{path}: a script may have at most {MAX_SCRIPT_BYTES >> 20} MiB; this file is larger")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror or str(error) if isinstance(error, OSError) else "it is not UTF-8 text"
        if isinstance(error, FileNotFoundError):
            reason = "there is no such file"
        raise ConfigError(f"{setting and f'{setting}: '}{path} cannot be read: {reason}") from error
    return parse_script(text, path)


def parse_script(text: str, path: Path) -> ModelScript:
    """Parse and validate the text of a script; `path` is used in error messages."""
    tree, data = parse_yaml(text, path)
    if isinstance(data, list):
        data = {"turns": data}
    if not isinstance(data, dict):
        raise ConfigError(f"{path}:1: a script is a mapping with turns, such as 'turns: [{{say: Hello}}]'")
    try:
        script = ModelScript.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False)
        problems = list(dict.fromkeys(_describe_problem(path, tree, detail) for detail in details[:_MAX_PROBLEMS]))
        raise ConfigError("\n".join(problems)) from error
    if script.name:
        return script
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).lstrip("._-")[:63] or "script"
    return script.model_copy(update={"name": name})


def _describe_problem(path: Path, tree: yaml.Node | None, detail: Mapping[str, Any]) -> str:
    location = tuple(detail["loc"])
    line, written = locate_field(tree, location)
    field = ".".join(str(part) for part in written)
    return f"{path}:{line}: {field or 'the script'}: {_explain(detail, location)}"


def _explain(detail: Mapping[str, Any], location: tuple[Any, ...]) -> str:
    if detail["type"] == "extra_forbidden":
        known = known_script_fields(location[:-1])
        return unknown_name_message(location[-1], known, "action" if known == script_action_names() else "field")
    return explain_validation_error(detail)
