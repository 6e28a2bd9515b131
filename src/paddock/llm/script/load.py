"""Reading scenario files, with complaints that name the file, the line and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from paddock.config.yamls import advice, place, read_tree, unknown
from paddock.errors import ConfigError
from paddock.llm.script.scenario import Scenario, action_names, known_fields

LARGEST = 4 * 2**20
_MOST_COMPLAINTS = 10


def load_scenario(path: Path, setting: str = "") -> Scenario:
    """Read a scenario file. Raises `ConfigError` naming file, line and field, or the setting that names a file."""
    try:
        if path.stat().st_size > LARGEST:
            raise ConfigError(f"{path}: a scenario may have {LARGEST >> 20} MiB; this file is larger")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror or str(error) if isinstance(error, OSError) else "it is not UTF-8 text"
        if isinstance(error, FileNotFoundError):
            reason = "there is no such file"
        raise ConfigError(f"{setting and f'{setting}: '}{path} cannot be read: {reason}") from error
    return parse_scenario(text, path)


def parse_scenario(text: str, path: Path) -> Scenario:
    """Check the text of a scenario; `path` is what complaints call it."""
    tree, data = read_tree(text, path)
    if isinstance(data, list):
        data = {"turns": data}
    if not isinstance(data, dict):
        raise ConfigError(f"{path}:1: a scenario is a mapping with turns, such as 'turns: [{{say: Hello}}]'")
    try:
        scenario = Scenario.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False)
        complaints = list(dict.fromkeys(_complaint(path, tree, detail) for detail in details[:_MOST_COMPLAINTS]))
        raise ConfigError("\n".join(complaints)) from error
    if scenario.name:
        return scenario
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).lstrip("._-")[:63] or "script"
    return scenario.model_copy(update={"name": name})


def _complaint(path: Path, tree: yaml.Node | None, detail: Mapping[str, Any]) -> str:
    location = tuple(detail["loc"])
    line, written = place(tree, location)
    field = ".".join(str(part) for part in written)
    return f"{path}:{line}: {field or 'the scenario'}: {_advice(detail, location)}"


def _advice(detail: Mapping[str, Any], location: tuple[Any, ...]) -> str:
    if detail["type"] == "extra_forbidden":
        known = known_fields(location[:-1])
        return unknown(location[-1], known, "action" if known == action_names() else "field")
    return advice(detail)
