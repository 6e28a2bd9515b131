"""Reading scenario files, with complaints that name the file, the line and what to write instead."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from paddock.config.yamls import advice, complaining, refuse_duplicates
from paddock.errors import ConfigError
from paddock.llm.script.scenario import Scenario, action_names, known_fields

LARGEST = 4 * 2**20
_MOST_COMPLAINTS = 10
_DEEPEST = 50


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
    with complaining(path):
        _refuse_tricks(text, path)
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        refuse_duplicates(tree, path)
        data = yaml.safe_load(text)
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


def _refuse_tricks(text: str, path: Path) -> None:
    """Refuse what makes a small file a lot of work: aliases of aliases, and thousands of brackets."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent):
            raise ConfigError(f"{path}:{line}: aliases such as *{event.anchor} cannot be used here; write it out")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _DEEPEST:
            raise ConfigError(f"{path}:{line}: not valid YAML for a scenario: it is nested too deeply")


def _complaint(path: Path, tree: yaml.Node | None, detail: Mapping[str, Any]) -> str:
    location = tuple(detail["loc"])
    line, written = _place(tree, location)
    field = ".".join(str(part) for part in written)
    return f"{path}:{line}: {field or 'the scenario'}: {_advice(detail, location)}"


def _advice(detail: Mapping[str, Any], location: tuple[Any, ...]) -> str:
    if detail["type"] == "extra_forbidden":
        known = known_fields(location[:-1])
        near = difflib.get_close_matches(str(location[-1]), known, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}"
        return f"no such {'action' if known == action_names() else 'field'}; {hint}"
    return advice(detail)


def _place(node: yaml.Node | None, location: Sequence[Any]) -> tuple[int, list[Any]]:
    """The line of a place in the file, and the way there as far as it is written: short forms leave steps out."""
    line = node.start_mark.line + 1 if node else 1
    written: list[Any] = []
    for position, part in enumerate(location):
        if isinstance(node, yaml.MappingNode):
            entry = next(((key, value) for key, value in node.value if key.value == str(part)), None)
            if entry is None:
                if position == len(location) - 1:
                    written.append(part)
                continue
            line, node = entry[0].start_mark.line + 1, entry[1]
            written.append(part)
        elif isinstance(node, yaml.SequenceNode):
            if not isinstance(part, int) or part >= len(node.value):
                continue
            node = node.value[part]
            line = node.start_mark.line + 1
            written.append(part)
        else:
            break
    return line, written
