"""Read one source of settings (file, environment or flags) into a layer with the origin of each value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from paddock.config.schema_lookup import SettingKey, annotation_of_setting, unwrap_annotation

ENVIRONMENT_PREFIX = "PADDOCK_"
NON_SETTING_VARIABLES = frozenset({"PADDOCK_CONFIG", "PADDOCK_API_KEY", "PADDOCK_URL"})
"""Variables that are not settings: the configuration file, and options of the command line client."""

_OPTION_NAMES = {"log.level": "log-level", "log.format": "log-format", "sandboxes.default_image": "image"}
"""Options whose names are not the last part of their settings' names."""

WantedKeys = frozenset[SettingKey] | None
"""Keys to read, including nested keys; `None` reads all."""

_REFERENCE = re.compile(r"\$\$\{|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\})?")


@dataclass
class SettingsLayer:
    """The settings of one source."""

    base: Path
    """Base directory of relative paths in this source."""
    tree: dict[str, Any] = field(default_factory=dict)
    origins: dict[SettingKey, str] = field(default_factory=dict)
    hidden: dict[SettingKey, str] = field(default_factory=dict)
    """Values from `${NAME}` references, which must be masked in output."""
    problems: list[str] = field(default_factory=list)
    unset: dict[SettingKey, str] = field(default_factory=dict)
    """Messages about values that refer to an unset variable, by key."""


def read_environment_layer(environ: Mapping[str, str], base: Path, wanted: WantedKeys = None) -> SettingsLayer:
    """Read settings from `PADDOCK_SECTION__KEY` variables."""
    layer = SettingsLayer(base)
    for name in sorted(environ):
        if name.startswith(ENVIRONMENT_PREFIX) and name not in NON_SETTING_VARIABLES:
            key = tuple(name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__"))
            if not _is_wanted(key, wanted):
                continue
            _set_value(layer, key, _parse_text(environ[name], key), f"environment {name}")
    return layer


def read_flag_layer(flags: Mapping[str, Any], base: Path) -> SettingsLayer:
    """Read settings from flags by dotted key; `None` means that the flag was not given."""
    layer = SettingsLayer(base)
    for dotted, value in flags.items():
        if value is not None:
            key = tuple(dotted.split("."))
            given = _parse_text(value, key) if isinstance(value, str) else _to_plain_value(value)
            option = _OPTION_NAMES.get(dotted) or key[-1].replace("_", "-")
            _set_value(layer, key, given, f"flag --{option}")
    return layer


def read_file_layer(path: Path, shown: str, environ: Mapping[str, str], wanted: WantedKeys = None) -> SettingsLayer:
    """Read settings from a YAML file, replacing `${NAME}` from the environment."""
    layer = SettingsLayer(path.parent)
    try:
        loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
        node = loader.get_single_node()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        layer.problems.append(f"{shown}: cannot be read: {reason}")
        return layer
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        layer.problems.append(f"{shown}:{mark.line + 1 if mark else 1}: not valid YAML: {error.problem}")
        return layer
    except yaml.YAMLError as error:
        layer.problems.append(f"{shown}: not valid YAML: {error}")
        return layer
    if node is None:
        return layer
    if not isinstance(node, yaml.MappingNode):
        layer.problems.append(f"{shown}:{node.start_mark.line + 1}: expected settings such as `server:`")
        return layer
    layer.tree = _FileReader(layer, loader, shown, environ, wanted).value(node, (), ())
    return layer


class _FileReader:
    def __init__(
        self, layer: SettingsLayer, loader: yaml.SafeLoader, shown: str, environ: Mapping[str, str], wanted: WantedKeys
    ) -> None:
        self.layer = layer
        self.loader = loader
        self.shown = shown
        self.environ = environ
        self.wanted = wanted

    def value(self, node: yaml.Node, key: SettingKey, above: tuple[yaml.Node, ...]) -> Any:
        where = self.layer.origins.setdefault(key, f"{self.shown}:{node.start_mark.line + 1}")
        if node in above:
            self.layer.problems.append(f"{where}: {'.'.join(key)} contains itself")
            return None
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, key, (*above, node))
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*key, str(i)), (*above, node)) for i, item in enumerate(node.value)]
        try:
            value = self.loader.construct_object(node)
        except (yaml.YAMLError, ValueError):
            self.layer.problems.append(f"{where}: {'.'.join(key)}: {node.value!r} is not a value Paddock can read")
            return None
        return self.replaced(value, key, where) if isinstance(value, str) and "${" in value else value

    def mapping(self, node: yaml.MappingNode, key: SettingKey, above: tuple[yaml.Node, ...]) -> dict[str, Any]:
        seen: set[str] = set()
        for name, _ in node.value:
            if name.value in seen and _is_wanted((*key, str(name.value)), self.wanted):
                line = name.start_mark.line + 1
                self.layer.problems.append(f"{self.shown}:{line}: {'.'.join((*key, name.value))} is set twice")
            seen.add(name.value)
        self.loader.flatten_mapping(node)
        tree = {}
        for name, item in node.value:
            inner = (*key, str(name.value))
            if not _is_wanted(inner, self.wanted):
                continue
            self.layer.origins[inner] = f"{self.shown}:{name.start_mark.line + 1}"
            tree[inner[-1]] = self.value(item, inner, above)
        return tree

    def replaced(self, text: str, key: SettingKey, where: str) -> str:
        missing: list[str] = []

        def one(match: re.Match[str]) -> str:
            name, default = match[1], match[2]
            if match[0] == "$${":
                return "${"
            if name is None:
                self.layer.problems.append(f"{where}: {'.'.join(key)}: write ${{NAME}}, or $${{ for a plain ${{")
                return ""
            found = self.environ.get(name, "")
            if not found and default is None and name not in self.environ:
                missing.append(f"{where}: {'.'.join(key)}: the environment has no {name}")
                return match[0]
            return found or (default or ":-")[2:]

        value = _REFERENCE.sub(one, text)
        if missing:
            self.layer.unset[key] = "; ".join(missing)
            return text
        if any(match[1] for match in _REFERENCE.finditer(text)):
            self.layer.hidden[key] = value
        return value


def _is_wanted(key: SettingKey, wanted: WantedKeys) -> bool:
    """Return whether a key equals, contains or is contained in a wanted key."""
    return wanted is None or any(key[: len(each)] == each[: len(key)] for each in wanted)


def _set_value(layer: SettingsLayer, key: SettingKey, value: Any, origin: str) -> None:
    branch = layer.tree
    for depth, part in enumerate(key[:-1], 1):
        branch = branch.setdefault(part, {})
        if not isinstance(branch, dict):
            layer.problems.append(f"{origin}: {'.'.join(key[:depth])} is already set as a whole")
            return
    branch[key[-1]] = value
    layer.origins[key] = origin


def _parse_text(text: str, key: SettingKey) -> Any:
    """Parse a value given as text: YAML for `null`, `[a, b]` and `{a: b}`, `a,b` for lists."""
    if text == "null" or text[:1] in ("[", "{"):
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError:
            return text
    if getattr(unwrap_annotation(annotation_of_setting(key)), "__origin__", None) is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _to_plain_value(value: Any) -> Any:
    return list(value) if isinstance(value, (tuple, set, frozenset)) else value
