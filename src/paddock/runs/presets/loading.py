"""Finds presets: files of ours, and those that users have put beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from paddock.config.yamls import advice, nearest, place, read_text, read_tree, unknown
from paddock.errors import ConfigError, NotFound
from paddock.runs.presets.preset import McpShape, Preset, PresetFile
from paddock.runs.presets.rules import ErrorRule, Output, Probe, Rule, TurnRule

OURS = Path(__file__).parent
LARGEST = 2**20
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_FARTHEST = 8
"""Presets that may stand on each other."""
_PRECISE = ("value_error", "extra_forbidden", "literal_error", "enum", "missing")
"""Complaints that say more than that a value is not of some sort."""


@dataclass(frozen=True)
class _Read:
    """A preset that was read, which takes longer than a run should wait, and how its files were then."""

    preset: Preset
    names: tuple[str, ...]
    stamps: tuple[tuple[int, int, int] | None, ...]


class Presets:
    """The presets there are. Directories that come first hide presets of the same name in later ones and in ours.

    `whose` they are is told of names that are not among them: a server has not the same as those who ask it.
    """

    def __init__(self, directories: Sequence[Path] = (), *, whose: str = "") -> None:
        self._directories = (*directories, OURS)
        self._whose = whose
        self._read: dict[str, _Read] = {}

    def names(self) -> list[str]:
        """All names, in order."""
        found = {path.stem for directory in self._directories for path in directory.glob("*.yaml")}
        return sorted(name for name in found if _NAME.fullmatch(name))

    def get(self, name: str) -> Preset:
        """Read a preset. Raises `NotFound`, which lists all, and `ConfigError` naming file, line and field."""
        path = self._find(name, self._directories)
        if path is None:
            raise NotFound(self.lack(name))
        earlier = self._read.get(name)
        if earlier is not None and earlier.stamps == self._stamps(earlier.names):
            return earlier.preset
        names: list[str] = []
        tree, data = self._whole(path, (), names)
        stamps = self._stamps(names)
        try:
            preset = Preset.model_validate({**data, "name": name})
        except ValidationError as error:
            raise ConfigError("\n".join(_complaints(path, tree, error))) from error
        self._read[name] = _Read(preset, tuple(names), stamps)
        return preset

    def lack(self, name: str) -> str:
        """What to say of a name that no preset has."""
        known = self.names()
        near = nearest(name, known)
        hint = f"did you mean {near}? There are: " if near else "there are: "
        what = f"{self._whose} knows no preset" if self._whose else "there is no preset"
        told = f"{what} '{name[:80]}'; {hint}{', '.join(known)}"
        if not self._whose:
            return told
        *own, _ = map(str, self._directories)
        looked = f"looked in {', '.join(own)} and" if own else "runs.presets names no directories; looked only"
        return f"{told} ({looked} among those that Paddock brings)"

    def _stamps(self, names: Sequence[str]) -> tuple[tuple[int, int, int] | None, ...]:
        """What changes when one of these presets does, or another takes its place."""
        return tuple(_stamp(directory / f"{name}.yaml") for name in names for directory in self._directories)

    def _find(self, name: str, directories: Sequence[Path]) -> Path | None:
        if not _NAME.fullmatch(name):
            return None
        return next((path for each in directories if (path := each / f"{name}.yaml").is_file()), None)

    def _whole(self, path: Path, above: tuple[Path, ...], names: list[str]) -> tuple[yaml.Node | None, dict[str, Any]]:
        """What a file says, with what it leaves out taken from the preset that it extends; `names` gets all of them."""
        names.append(path.stem)
        tree, data = _read(path)
        extends = data.pop("extends", None)
        if extends is None:
            return tree, data
        where = f"{path}:{place(tree, ['extends'])[0]}: extends"
        if not isinstance(extends, str):
            raise ConfigError(f"{where}: must be the name of a preset")
        # A file that extends its own name means the one that it hides.
        start = self._directories.index(path.parent) + 1 if extends == path.stem else 0
        base = self._find(extends, self._directories[start:])
        if base is None:
            raise ConfigError(f"{where}: there is no preset '{extends[:80]}'")
        if base in (path, *above) or len(above) >= _FARTHEST:
            raise ConfigError(f"{where}: '{extends}' comes back to this preset; a preset cannot stand on itself")
        _, found = self._whole(base, (path, *above), names)
        return tree, {**found, **data}


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> tuple[yaml.Node | None, dict[str, Any]]:
    tree, data = read_tree(read_text(path, LARGEST), path)
    if not isinstance(data, dict):
        raise ConfigError(f"{path}:1: a preset is a mapping with a command, such as 'command: my-agent <{{goal_file}}'")
    if data.setdefault("name", path.stem) != path.stem:
        raise ConfigError(f"{path}:{place(tree, ['name'])[0]}: name: must be '{path.stem}', as the file is called")
    return tree, data


def _complaints(path: Path, tree: yaml.Node | None, error: ValidationError) -> list[str]:
    """One complaint for each place that is wrong: where several sorts of values are allowed, the most precise one."""
    found: dict[tuple[Any, ...], tuple[bool, str]] = {}
    for detail in error.errors(include_url=False):
        line, written = place(tree, [part for part in detail["loc"] if not _is_a_sort(part)])
        precise = detail["type"] in _PRECISE
        said = f"{path}:{line}: {'.'.join(map(str, written)) or 'the preset'}: {_advice(detail)}"
        # What is said of a mapping as a whole is less precise than what is said of a field in it.
        within = tuple(written[:-1]) if detail["type"] == "extra_forbidden" else tuple(written)
        if within not in found or (precise and not found[within][0]):
            found[within] = (precise, said)
    return [said for _, said in found.values()]


def _is_a_sort(part: Any) -> bool:
    """Whether a step names one of several sorts of values that are allowed, not a field."""
    return isinstance(part, str) and (part in ("str", "bool", "int", "float") or "[" in part)


def _advice(detail: Mapping[str, Any]) -> str:
    if detail["type"] == "extra_forbidden":
        return unknown(detail["loc"][-1], _fields(detail["loc"][:-1]))
    return advice(detail)


def _fields(location: Sequence[Any]) -> list[str]:
    """The fields that there are at a place."""
    words = [part for part in location if isinstance(part, str)]
    models: dict[str, type[Any]] = {"files": PresetFile, "mcp": McpShape, "output": Output}
    models |= {"turn": TurnRule, "errors": ErrorRule}
    model: type[Any] = models.get(words[0], Preset) if words else Preset
    if "rules" in words:
        model = Rule
    if words and words[-1].endswith("Probe]"):
        model = Probe
    names = [field.alias or name for name, field in model.model_fields.items()]
    return sorted([*names, "extends"] if model is Preset else names)
