"""Find, merge and validate the configuration: flags override environment, file and defaults."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import BaseModel, SecretBytes, SecretStr, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from paddock.config.provider_discovery import add_missing_providers, discover_providers, unused_key_variables
from paddock.config.schema import Config
from paddock.config.schema_lookup import (
    SettingKey,
    annotation_of_setting,
    iterate_settings,
    section_type,
    unit_of_field,
    unwrap_annotation,
)
from paddock.config.sources import (
    ENVIRONMENT_PREFIX,
    SettingsLayer,
    read_environment_layer,
    read_file_layer,
    read_flag_layer,
)
from paddock.config.units import format_duration, format_size
from paddock.config.yaml_files import explain_validation_error
from paddock.errors import ConfigError

MASKED_VALUE = "********"


@dataclass(frozen=True)
class LoadedConfig:
    """A valid configuration with the origin of each value."""

    config: Config
    origins: Mapping[str, str]
    """Dotted key to `default`, `paddock.yaml:12`, `environment PADDOCK_SERVER__PORT` or `flag --port`."""
    hidden: frozenset[str]
    """Dotted keys whose values must be masked."""
    file: Path | None
    """The configuration file, if there was one."""
    unset: Mapping[str, str] = field(default_factory=dict)
    """Messages about unset `${NAME}` references, by dotted key; the values are the text of the file."""
    problems: tuple[str, ...] = ()
    """Problems of skipped settings, which have their defaults."""


class SettingLine(NamedTuple):
    """One setting as shown by `paddock config`."""

    key: str
    value: str
    origin: str


def load_config(
    *,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    only: Iterable[str] | None = None,
    need_variables: bool = True,
    skip_invalid: bool = False,
) -> LoadedConfig:
    """Load all sources and validate the result.

    `flags` maps dotted keys to values, `None` for flags not given; the key `config` is the path of the file. With
    `only`, just these dotted keys and their nested keys are read and all others keep their defaults, so that a command
    does not fail because of an unset secret that it does not use. Without `need_variables`, unset `${NAME}` references
    are not errors: they are listed in `unset`, and the setting keeps the text of the file, or its default if the text
    is not valid. With `skip_invalid`, invalid settings keep their defaults and are listed in `problems`.
    Raises `ConfigError` with all problems and their locations, one per line.
    """
    wanted = None if only is None else frozenset(tuple(dotted.split(".")) for dotted in only)
    given = dict(flags or {})
    environ = os.environ if environ is None else environ
    cwd = cwd or Path.cwd()
    file: Path | None = None
    missing_file: list[str] = []
    try:
        file = _find_file(given.pop("config", None), environ, cwd)
    except ConfigError as error:
        if not skip_invalid:
            raise
        missing_file = [error.message]
    layers = [read_environment_layer(environ, cwd, wanted), read_flag_layer(given, cwd)]
    if file:
        shown = file.name if file.parent == cwd else str(file)
        layers.insert(0, read_file_layer(file, shown, environ, wanted))
    merged = _merge_layers(layers, cwd)
    found: Mapping[str, str] = {}
    if wanted is None or any(key[0] == "llm" for key in wanted):
        offered, found = _offer_providers(merged, environ, cwd)
        merged = _merge_layers([offered, *layers], cwd)
    unset = {".".join(key): message for key, message in merged.unset.items()}
    if need_variables:
        merged.problems += unset.values()
    config = _validate(merged, skip_invalid)
    config.llm._found = found
    if config.llm.environment and config.llm.providers and not found:
        used_keys = {each.key.get_secret_value() for each in config.llm.providers.values() if each.key is not None}
        config.llm._ignored = unused_key_variables(environ, used_keys)
    keys = [key for key, _ in _iterate_values(config)]
    return LoadedConfig(
        config=config,
        origins={".".join(key): _origin_of(key, merged) or "default" for key in keys},
        hidden=frozenset(".".join(key) for key in keys if _is_hidden(key, merged)),
        file=file,
        unset=unset,
        problems=(*missing_file, *merged.problems),
    )


def list_settings(loaded: LoadedConfig) -> list[SettingLine]:
    """Return all settings with their values and origins; secrets are masked."""
    units = {key: unit_of_field(field) for key, field in iterate_settings()}
    lines = []
    for key, value in _iterate_values(loaded.config):
        dotted = ".".join(key)
        masked = dotted in loaded.hidden or isinstance(value, (SecretStr, SecretBytes))
        text = MASKED_VALUE if masked else format_value(value, units.get(key))
        if dotted in loaded.unset:
            text = f"unresolved: {loaded.unset[dotted].partition(': ')[2].partition(': ')[2]}"
        lines.append(SettingLine(dotted, text, loaded.origins[dotted]))
    return lines


def format_value(value: Any, unit: str | None = None) -> str:
    """Return a value as it could be written in the file."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() if unit == "size":
            return format_size(value)
        case int() | float() if unit == "duration":
            return format_duration(value)
        case float():
            return f"{value:g}"
        case BaseModel():
            fields = type(value).model_fields.items()
            pairs = ((name, getattr(value, name), unit_of_field(field)) for name, field in fields)
            shown = (f"{name}: {format_value(inner, kind)}" for name, inner, kind in pairs if inner is not None)
            return "{" + ", ".join(shown) + "}"
        case Mapping():
            return "{" + ", ".join(f"{name}: {format_value(inner)}" for name, inner in value.items()) + "}"
        case tuple() if unit is None:
            return "[" + ", ".join(_format_item(item) for item in value) + "]"
    return str(value)


def _format_item(item: Any) -> str:
    """Return an item of a list, quoted if YAML would read it as something else."""
    text = format_value(item)
    if not isinstance(item, str):
        return text
    try:
        is_plain = yaml.safe_load(f"[{text}]") == [text]
    except yaml.YAMLError:
        is_plain = False
    return text if is_plain else json.dumps(text, ensure_ascii=False)


def _find_file(flag: str | Path | None, environ: Mapping[str, str], cwd: Path) -> Path | None:
    for source, named in (("flag --config", flag), ("environment PADDOCK_CONFIG", environ.get("PADDOCK_CONFIG"))):
        if named:
            path = cwd / Path(named).expanduser()
            if not path.is_file():
                raise ConfigError(f"{source}: there is no file {path}")
            return path
    for path in (cwd / "paddock.yaml", Path.home() / ".config/paddock/paddock.yaml"):
        if path.is_file():
            return path
    return None


def _offer_providers(
    named: SettingsLayer, environ: Mapping[str, str], base: Path
) -> tuple[SettingsLayer, Mapping[str, str]]:
    """Discover providers from the environment unless some are configured or it is disabled."""
    llm = named.tree.get("llm", {})
    if not isinstance(llm, dict) or llm.get("providers"):
        return SettingsLayer(base), {}
    try:
        look = TypeAdapter(bool).validate_python(llm.get("environment", True))
    except ValidationError:
        look = False  # Validation reports this with the other problems.
    if not look:
        return SettingsLayer(base), {}
    offered, found = discover_providers(environ, base)
    models = llm.get("models")
    if found and models:
        del offered.tree["llm"]["models"]  # Configured models replace the discovered ones.
    if isinstance(models, dict):
        add_missing_providers(offered, models, named.origins)
    return offered, found


def _validate(merged: SettingsLayer, skip_invalid: bool = False) -> Config:
    """Validate merged settings; unset `${NAME}` values that are not valid are removed.

    With `skip_invalid`, other invalid settings are removed too, and added to the problems.
    Raises `ConfigError` with all problems.
    """
    try:
        config = Config.model_validate(merged.tree)
    except ValidationError as error:
        unfit = [
            key
            for key in merged.unset
            if any(key[: len(_problem_key(each))] == _problem_key(each) for each in error.errors())
        ]
        for key in unfit:
            del merged.unset[key]
            _remove_setting(merged.tree, key)
        if unfit:
            return _validate(merged, skip_invalid)
        explained = [_explain_error(problem, merged) for problem in error.errors()]
        if not skip_invalid or not merged.tree:
            raise _config_error(merged.problems + explained) from None
        merged.problems += explained
        for key in {_nearest_setting(merged.tree, _problem_key(problem)) for problem in error.errors()}:
            if key:
                _remove_setting(merged.tree, key)
            else:
                merged.tree.clear()
        return _validate(merged, skip_invalid)
    if merged.problems and not skip_invalid:
        raise _config_error(merged.problems)
    return config


def _remove_setting(tree: Any, key: SettingKey) -> None:
    """Remove a setting from a tree; for an item of a list, remove the whole list."""
    for part in key[:-1]:
        if not isinstance(tree.get(part), dict):
            tree.pop(part, None)
            return
        tree = tree[part]
    tree.pop(key[-1], None)


def _nearest_setting(tree: Any, key: SettingKey) -> SettingKey:
    """Return the longest beginning of a key that is in a tree."""
    for length, part in enumerate(key):
        if not isinstance(tree, dict) or part not in tree:
            return key[:length]
        tree = tree[part]
    return key


def _merge_layers(layers: Iterable[SettingsLayer], base: Path) -> SettingsLayer:
    merged = SettingsLayer(base)
    for layer in layers:
        merged.problems += layer.problems
        _merge_tree(merged, merged.tree, layer, layer.tree, ())
    return merged


def _merge_tree(
    into: SettingsLayer, target: dict[str, Any], layer: SettingsLayer, tree: Mapping[str, Any], above: SettingKey
) -> None:
    for name, value in tree.items():
        key = (*above, name)
        if isinstance(value, dict) and isinstance(target.get(name), dict):
            into.origins |= {key: layer.origins[key]} if key in layer.origins else {}
            _merge_tree(into, target[name], layer, value, key)
            continue
        for known in (into.origins, into.hidden, into.unset):
            for old in [old for old in known if old[: len(key)] == key]:
                del known[old]
        into.origins |= {new: origin for new, origin in layer.origins.items() if new[: len(key)] == key}
        into.hidden |= {new: text for new, text in layer.hidden.items() if new[: len(key)] == key}
        into.unset |= {new: message for new, message in layer.unset.items() if new[: len(key)] == key}
        target[name] = _resolve_paths(value, key, layer.base)


def _resolve_paths(value: Any, key: SettingKey, base: Path) -> Any:
    if isinstance(value, dict):
        return {name: _resolve_paths(inner, (*key, name), base) for name, inner in value.items()}
    if isinstance(value, list):
        return [_resolve_paths(inner, (*key, str(i)), base) for i, inner in enumerate(value)]
    if isinstance(value, (str, Path)) and str(value) and unwrap_annotation(annotation_of_setting(key)) is Path:
        try:
            return Path(os.path.normpath(base / Path(value).expanduser()))
        except RuntimeError:  # `~name` of an unknown user; keep it so that the error is visible
            return value
    return value


def _iterate_values(model: BaseModel, above: SettingKey = ()) -> Iterator[tuple[SettingKey, Any]]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _iterate_values(value, (*above, name))
        elif isinstance(value, Mapping) and value:
            for inner, item in value.items():
                key = (*above, name, inner)
                if isinstance(item, BaseModel):
                    yield from ((k, v) for k, v in _iterate_values(item, key) if k[-1] in item.model_fields_set)
                else:
                    yield key, item
        else:
            yield (*above, name), value


def _origin_of(key: SettingKey, merged: SettingsLayer) -> str | None:
    """Return where a key was set, itself or as part of a list or map."""
    if key in merged.origins:
        return merged.origins[key]
    parent = annotation_of_setting(key[:-1])
    return None if len(key) <= 1 or section_type(parent) else _origin_of(key[:-1], merged)


def _is_hidden(key: SettingKey, merged: SettingsLayer) -> bool:
    return any(hidden[: len(key)] == key for hidden in merged.hidden)


def _problem_key(problem: ErrorDetails) -> SettingKey:
    return tuple(str(part) for part in problem["loc"])


def _explain_error(problem: ErrorDetails, merged: SettingsLayer) -> str:
    key = _problem_key(problem)
    dotted = ".".join(key)
    origin = _nearest_origin(key, merged)
    if problem["type"] == "extra_forbidden":
        return f"{origin}: there is no setting {dotted}{_suggestion(key, origin)}"
    secrets = [text for hidden, text in merged.hidden.items() if text and hidden[: len(key)] == key]
    units = {known: unit_of_field(field) for known, field in iterate_settings()}
    message = explain_validation_error({**problem, "input": MASKED_VALUE} if secrets else problem, units.get(key))
    for text in secrets:
        message = message.replace(text, MASKED_VALUE).replace(repr(text)[1:-1], MASKED_VALUE)
    return f"{origin}: {dotted}: {message}"


def _nearest_origin(key: SettingKey, merged: SettingsLayer) -> str:
    for length in range(len(key), 0, -1):
        if key[:length] in merged.origins:
            return merged.origins[key[:length]]
        below = [origin for known, origin in merged.origins.items() if known[:length] == key[:length]]
        if below:
            return ", ".join(dict.fromkeys(below))
    return "settings"


def _suggestion(key: SettingKey, origin: str) -> str:
    if origin.startswith("environment "):
        names = {ENVIRONMENT_PREFIX + "__".join(known).upper() for known, _ in iterate_settings()}
        close = difflib.get_close_matches(origin.removeprefix("environment "), names, 1)
    else:
        model = section_type(annotation_of_setting(key[:-1]))
        here = difflib.get_close_matches(key[-1], model.model_fields if model else (), 1)
        elsewhere = [".".join(known) for known, _ in iterate_settings() if known[-1] == key[-1]]
        close = [".".join((*key[:-1], name)) for name in here] or elsewhere[:1]
    return f"; did you mean {close[0]}?" if close else ""


def _config_error(problems: list[str]) -> ConfigError:
    return ConfigError("The configuration is not valid.\n" + "\n".join(f"  {problem}" for problem in problems))
