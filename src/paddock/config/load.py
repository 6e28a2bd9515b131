"""Finds, merges and validates the configuration: flags over environment over file over defaults."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, SecretBytes, SecretStr, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from paddock.config.environment import add_missing_providers, read_providers
from paddock.config.schema import Config
from paddock.config.sources import PREFIX, Layer, read_environment, read_file, read_flags
from paddock.config.units import format_duration, format_size
from paddock.config.walk import Key, annotation_at, bare, leaves, section, unit_of
from paddock.config.yamls import advice
from paddock.errors import ConfigError

MASK = "********"


@dataclass(frozen=True)
class Loaded:
    """A valid configuration, and where each of its values came from."""

    config: Config
    origins: Mapping[str, str]
    """Dotted key to `default`, `paddock.yaml:12`, `environment PADDOCK_SERVER__PORT` or `flag --port`."""
    hidden: frozenset[str]
    """Dotted keys whose values must not be shown."""
    file: Path | None
    """The file that was read, if there was one."""
    unset: Mapping[str, str] = field(default_factory=dict)
    """Dotted keys whose `${NAME}` is not set here, each with a message; their values are the text of the file."""


class Line(NamedTuple):
    """One setting as `paddock config` shows it."""

    key: str
    value: str
    origin: str


def load(
    *,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    only: Iterable[str] | None = None,
    need_variables: bool = True,
) -> Loaded:
    """Read all sources and validate the whole.

    `flags` maps dotted keys to values, `None` for flags not given; `config` names the file to read. With `only`, these
    dotted keys and what is below them are read, and everything else is as if nobody had set it: who needs no more
    should not fail for want of a secret that is another's. Without `need_variables`, a `${NAME}` that is not set is no
    problem: it is listed in `unset`, its setting keeps the text of the file, or its default where the text cannot be
    a value.
    Raises `ConfigError` with every problem, one a line, each saying where it stands.
    """
    wanted = None if only is None else frozenset(tuple(dotted.split(".")) for dotted in only)
    given = dict(flags or {})
    environ = os.environ if environ is None else environ
    cwd = cwd or Path.cwd()
    file = _find(given.pop("config", None), environ, cwd)
    layers = [read_environment(environ, cwd, wanted), read_flags(given, cwd)]
    if file:
        shown = file.name if file.parent == cwd else str(file)
        layers.insert(0, read_file(file, shown, environ, wanted))
    merged = _merged(layers, cwd)
    found: Mapping[str, str] = {}
    if wanted is None or any(key[0] == "llm" for key in wanted):
        offered, found = _offered(merged, environ, cwd)
        merged = _merged([offered, *layers], cwd)
    unset = {".".join(key): message for key, message in merged.unset.items()}
    if need_variables:
        merged.problems += unset.values()
    config = _validated(merged)
    config.llm._found = found
    keys = [key for key, _ in _values(config)]
    return Loaded(
        config=config,
        origins={".".join(key): _origin(key, merged) or "default" for key in keys},
        hidden=frozenset(".".join(key) for key in keys if _is_hidden(key, merged)),
        file=file,
        unset=unset,
    )


def describe(loaded: Loaded) -> list[Line]:
    """Every setting with its value, secrets masked, and its origin."""
    units = {key: unit_of(field) for key, field in leaves()}
    lines = []
    for key, value in _values(loaded.config):
        dotted = ".".join(key)
        masked = dotted in loaded.hidden or isinstance(value, (SecretStr, SecretBytes))
        text = MASK if masked else show(value, units.get(key))
        if dotted in loaded.unset:
            text = f"unresolved: {loaded.unset[dotted].partition(': ')[2].partition(': ')[2]}"
        lines.append(Line(dotted, text, loaded.origins[dotted]))
    return lines


def show(value: Any, unit: str | None = None) -> str:
    """A value as it could be written in the file."""
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
            pairs = ((name, getattr(value, name), unit_of(field)) for name, field in fields)
            shown = (f"{name}: {show(inner, kind)}" for name, inner, kind in pairs if inner is not None)
            return "{" + ", ".join(shown) + "}"
        case Mapping():
            return "{" + ", ".join(f"{name}: {show(inner)}" for name, inner in value.items()) + "}"
        case tuple() if unit is None:
            return "[" + ", ".join(show(item) for item in value) + "]"
    return str(value)


def _find(flag: str | Path | None, environ: Mapping[str, str], cwd: Path) -> Path | None:
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


def _offered(named: Layer, environ: Mapping[str, str], base: Path) -> tuple[Layer, Mapping[str, str]]:
    """Providers that the environment has keys for, if none are named and nobody has said not to look."""
    llm = named.tree.get("llm", {})
    if not isinstance(llm, dict) or llm.get("providers"):
        return Layer(base), {}
    try:
        look = TypeAdapter(bool).validate_python(llm.get("environment", True))
    except ValidationError:
        look = False  # Which is complained about with all the rest.
    if not look:
        return Layer(base), {}
    offered, found = read_providers(environ, base)
    models = llm.get("models")
    if found and models:
        del offered.tree["llm"]["models"]  # Whoever names models means these and no others.
    if isinstance(models, dict):
        add_missing_providers(offered, models, named.origins)
    return offered, found


def _validated(merged: Layer) -> Config:
    """The configuration of a tree; unset values that do not fit their settings are taken out of it.

    Raises `ConfigError` with every problem.
    """
    try:
        config = Config.model_validate(merged.tree)
    except ValidationError as error:
        unfit = [key for key in merged.unset if any(key[: len(_key(each))] == _key(each) for each in error.errors())]
        for key in unfit:
            del merged.unset[key]
            _take_out(merged.tree, key)
        if unfit:
            return _validated(merged)
        explained = [_explain(problem, merged) for problem in error.errors()]
        raise _error(merged.problems + explained) from None
    if merged.problems:
        raise _error(merged.problems)
    return config


def _take_out(tree: Any, key: Key) -> None:
    """Remove a setting from a tree; an item of a list goes with its list."""
    for part in key[:-1]:
        if not isinstance(tree.get(part), dict):
            tree.pop(part, None)
            return
        tree = tree[part]
    tree.pop(key[-1], None)


def _merged(layers: Iterable[Layer], base: Path) -> Layer:
    merged = Layer(base)
    for layer in layers:
        merged.problems += layer.problems
        _merge(merged, merged.tree, layer, layer.tree, ())
    return merged


def _merge(into: Layer, target: dict[str, Any], layer: Layer, tree: Mapping[str, Any], above: Key) -> None:
    for name, value in tree.items():
        key = (*above, name)
        if isinstance(value, dict) and isinstance(target.get(name), dict):
            into.origins |= {key: layer.origins[key]} if key in layer.origins else {}
            _merge(into, target[name], layer, value, key)
            continue
        for known in (into.origins, into.hidden, into.unset):
            for old in [old for old in known if old[: len(key)] == key]:
                del known[old]
        into.origins |= {new: origin for new, origin in layer.origins.items() if new[: len(key)] == key}
        into.hidden |= {new: text for new, text in layer.hidden.items() if new[: len(key)] == key}
        into.unset |= {new: message for new, message in layer.unset.items() if new[: len(key)] == key}
        target[name] = _with_paths_resolved(value, key, layer.base)


def _with_paths_resolved(value: Any, key: Key, base: Path) -> Any:
    if isinstance(value, dict):
        return {name: _with_paths_resolved(inner, (*key, name), base) for name, inner in value.items()}
    if isinstance(value, list):
        return [_with_paths_resolved(inner, (*key, str(i)), base) for i, inner in enumerate(value)]
    if isinstance(value, (str, Path)) and str(value) and bare(annotation_at(key)) is Path:
        try:
            return Path(os.path.normpath(base / Path(value).expanduser()))
        except RuntimeError:  # `~nobody` names no user; leave it for a human to see
            return value
    return value


def _values(model: BaseModel, above: Key = ()) -> Iterator[tuple[Key, Any]]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _values(value, (*above, name))
        elif isinstance(value, Mapping) and value:
            for inner, item in value.items():
                key = (*above, name, inner)
                if isinstance(item, BaseModel):
                    yield from ((k, v) for k, v in _values(item, key) if k[-1] in item.model_fields_set)
                else:
                    yield key, item
        else:
            yield (*above, name), value


def _origin(key: Key, merged: Layer) -> str | None:
    """Where `key` was set: itself, or as part of a list or map given as one value."""
    if key in merged.origins:
        return merged.origins[key]
    parent = annotation_at(key[:-1])
    return None if len(key) <= 1 or section(parent) else _origin(key[:-1], merged)


def _is_hidden(key: Key, merged: Layer) -> bool:
    return any(hidden[: len(key)] == key for hidden in merged.hidden)


def _key(problem: ErrorDetails) -> Key:
    return tuple(str(part) for part in problem["loc"])


def _explain(problem: ErrorDetails, merged: Layer) -> str:
    key = _key(problem)
    dotted = ".".join(key)
    origin = _nearest_origin(key, merged)
    if problem["type"] == "extra_forbidden":
        return f"{origin}: there is no setting {dotted}{_suggestion(key, origin)}"
    secrets = [text for hidden, text in merged.hidden.items() if text and hidden[: len(key)] == key]
    units = {known: unit_of(field) for known, field in leaves()}
    message = advice({**problem, "input": MASK} if secrets else problem, units.get(key))
    for text in secrets:
        message = message.replace(text, MASK).replace(repr(text)[1:-1], MASK)
    return f"{origin}: {dotted}: {message}"


def _nearest_origin(key: Key, merged: Layer) -> str:
    for length in range(len(key), 0, -1):
        if key[:length] in merged.origins:
            return merged.origins[key[:length]]
        below = [origin for known, origin in merged.origins.items() if known[:length] == key[:length]]
        if below:
            return ", ".join(dict.fromkeys(below))
    return "settings"


def _suggestion(key: Key, origin: str) -> str:
    if origin.startswith("environment "):
        names = {PREFIX + "__".join(known).upper() for known, _ in leaves()}
        close = difflib.get_close_matches(origin.removeprefix("environment "), names, 1)
    else:
        model = section(annotation_at(key[:-1]))
        here = difflib.get_close_matches(key[-1], model.model_fields if model else (), 1)
        elsewhere = [".".join(known) for known, _ in leaves() if known[-1] == key[-1]]
        close = [".".join((*key[:-1], name)) for name in here] or elsewhere[:1]
    return f"; did you mean {close[0]}?" if close else ""


def _error(problems: list[str]) -> ConfigError:
    return ConfigError("The configuration is not valid.\n" + "\n".join(f"  {problem}" for problem in problems))
