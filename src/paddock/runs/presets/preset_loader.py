"""Find and load presets: built-in files and the user's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from paddock.config.yaml_files import (
    closest_name,
    explain_validation_error,
    locate_field,
    parse_yaml,
    read_text_file,
    unknown_name_message,
)
from paddock.errors import ConfigError, NotFound
from paddock.runs.presets.output_rules import (
    AgentErrorRule,
    AgentOutputFormat,
    AgentOutputRule,
    AgentTurnRule,
    OutputValueCondition,
)
from paddock.runs.presets.preset import AgentPreset, McpConfigFormat, PresetFile

BUILT_IN_DIRECTORY = Path(__file__).parent
MAX_PRESET_BYTES = 2**20
_NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_MAX_EXTENDS_DEPTH = 8
"""Maximum depth of `extends`."""
_PRECISE_ERROR_TYPES = ("value_error", "extra_forbidden", "literal_error", "enum", "missing")
"""Error types that are more precise than a type mismatch."""


@dataclass(frozen=True)
class _CachedPreset:
    """Cached preset and the state of its files."""

    preset: AgentPreset
    names: tuple[str, ...]
    stamps: tuple[tuple[int, int, int] | None, ...]


class PresetLibrary:
    """Available presets. Earlier directories override later ones and the built-in presets.

    `owner` appears in errors about unknown names: a server may have other presets than its clients.
    """

    def __init__(self, directories: Sequence[Path] = (), *, owner: str = "") -> None:
        self._directories = (*directories, BUILT_IN_DIRECTORY)
        self._owner = owner
        self._read: dict[str, _CachedPreset] = {}

    def names(self) -> list[str]:
        """All names, in order."""
        found = {path.stem for directory in self._directories for path in directory.glob("*.yaml")}
        return sorted(name for name in found if _NAME_PATTERN.fullmatch(name))

    def get(self, name: str) -> AgentPreset:
        """Read a preset. Raises `NotFound`, which lists all, and `ConfigError` naming file, line and field."""
        path = self._find(name, self._directories)
        if path is None:
            raise NotFound(self.unknown_name_message(name))
        earlier = self._read.get(name)
        if earlier is not None and earlier.stamps == self._stamps(earlier.names):
            return earlier.preset
        names: list[str] = []
        tree, data = self._merge_with_base(path, (), names)
        stamps = self._stamps(names)
        try:
            preset = AgentPreset.model_validate({**data, "name": name})
        except ValidationError as error:
            raise ConfigError("\n".join(_validation_messages(path, tree, error))) from error
        self._read[name] = _CachedPreset(preset, tuple(names), stamps)
        return preset

    def unknown_name_message(self, name: str) -> str:
        """Return the error message for an unknown name."""
        known = self.names()
        near = closest_name(name, known)
        hint = f"did you mean {near}? There are: " if near else "there are: "
        what = f"{self._owner} knows no preset" if self._owner else "there is no preset"
        message = f"{what} '{name[:80]}'; {hint}{', '.join(known)}"
        if not self._owner:
            return message
        *own, _ = map(str, self._directories)
        looked = f"looked in {', '.join(own)} and" if own else "runs.presets names no directories; looked only"
        return f"{message} ({looked} among those that Paddock brings)"

    def _stamps(self, names: Sequence[str]) -> tuple[tuple[int, int, int] | None, ...]:
        """Return a fingerprint that changes when one of these presets changes or is overridden."""
        return tuple(_stamp(directory / f"{name}.yaml") for name in names for directory in self._directories)

    def _find(self, name: str, directories: Sequence[Path]) -> Path | None:
        if not _NAME_PATTERN.fullmatch(name):
            return None
        return next((path for each in directories if (path := each / f"{name}.yaml").is_file()), None)

    def _merge_with_base(
        self, path: Path, above: tuple[Path, ...], names: list[str]
    ) -> tuple[yaml.Node | None, dict[str, Any]]:
        """Read a preset merged with the presets it extends; append their names to `names`."""
        names.append(path.stem)
        tree, data = _read(path)
        extends = data.pop("extends", None)
        if extends is None:
            return tree, data
        where = f"{path}:{locate_field(tree, ['extends'])[0]}: extends"
        if not isinstance(extends, str):
            raise ConfigError(f"{where}: must be the name of a preset")
        # A preset that extends its own name extends the overridden one.
        start = self._directories.index(path.parent) + 1 if extends == path.stem else 0
        base = self._find(extends, self._directories[start:])
        if base is None:
            raise ConfigError(f"{where}: no preset '{extends[:80]}'")
        if base in (path, *above) or len(above) >= _MAX_EXTENDS_DEPTH:
            raise ConfigError(f"{where}: '{extends}' extends this preset in a cycle; remove one 'extends'")
        _, found = self._merge_with_base(base, (path, *above), names)
        return tree, {**found, **data}


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> tuple[yaml.Node | None, dict[str, Any]]:
    tree, data = parse_yaml(read_text_file(path, MAX_PRESET_BYTES), path)
    if not isinstance(data, dict):
        raise ConfigError(f"{path}:1: a preset is a mapping with a command, such as 'command: my-agent <{{goal_file}}'")
    if data.setdefault("name", path.stem) != path.stem:
        raise ConfigError(
            f"{path}:{locate_field(tree, ['name'])[0]}: name: must be '{path.stem}', as the file is called"
        )
    return tree, data


def _validation_messages(path: Path, tree: yaml.Node | None, error: ValidationError) -> list[str]:
    """Return one message per invalid field: the most precise one of a union."""
    found: dict[tuple[Any, ...], tuple[bool, str]] = {}
    for detail in error.errors(include_url=False):
        line, written = locate_field(tree, [part for part in detail["loc"] if not _is_type_name(part)])
        precise = detail["type"] in _PRECISE_ERROR_TYPES
        text = f"{path}:{line}: {'.'.join(map(str, written)) or 'the preset'}: {_advise(detail)}"
        # A message about a field is more precise than one about its mapping.
        within = tuple(written[:-1]) if detail["type"] == "extra_forbidden" else tuple(written)
        if within not in found or (precise and not found[within][0]):
            found[within] = (precise, text)
    return [text for _, text in found.values()]


def _is_type_name(part: Any) -> bool:
    """Return whether a step of an error location names a union member, not a field."""
    return isinstance(part, str) and (part in ("str", "bool", "int", "float") or "[" in part)


def _advise(detail: Mapping[str, Any]) -> str:
    if detail["type"] == "extra_forbidden":
        return unknown_name_message(detail["loc"][-1], _fields(detail["loc"][:-1]))
    return explain_validation_error(detail)


def _fields(location: Sequence[Any]) -> list[str]:
    """Return the field names at a location."""
    words = [part for part in location if isinstance(part, str)]
    models: dict[str, type[Any]] = {"files": PresetFile, "mcp": McpConfigFormat, "output": AgentOutputFormat}
    models |= {"turn": AgentTurnRule, "errors": AgentErrorRule}
    model: type[Any] = models.get(words[0], AgentPreset) if words else AgentPreset
    if "rules" in words:
        model = AgentOutputRule
    if words and words[-1].endswith("OutputValueCondition]"):
        model = OutputValueCondition
    names = [field.alias or name for name, field in model.model_fields.items()]
    return sorted([*names, "extends"] if model is AgentPreset else names)
