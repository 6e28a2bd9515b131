"""Parse hand-written YAML files; errors name the file and line."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from paddock.config.units import format_duration, format_size
from paddock.errors import ConfigError

FAST_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The C loader: ten times as fast, but with less precise errors and no protection against deep nesting."""
_MAX_DEPTH = 50
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}
_TYPE_NAMES = {
    "string_type": "text",
    "string_sub_type": "text",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
}


@contextmanager
def yaml_errors_as_config_errors(path: Path) -> Iterator[None]:
    """Convert YAML errors inside the block to `ConfigError`; `path` is used in messages."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}:{line}: not valid YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise ConfigError(f"{path}:1: not valid YAML: {error}") from error
    except RecursionError:
        raise ConfigError(f"{path}:1: not valid YAML: it is nested too deeply") from None


def read_text_file(path: Path, largest: int) -> str:
    """Read a text file of limited size. Raises `ConfigError` with the reason if it cannot be read."""
    try:
        # Devices and pipes may never end, or block until a writer opens them.
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path}: {'is a directory' if path.is_dir() else 'is not a regular file'}; name a file")
        with path.open("rb") as file:
            data = file.read(largest + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{path}: cannot be read: {reason}") from error
    if len(data) > largest:
        shown = f"{largest >> 20} MiB" if largest >= 2**20 else f"{largest >> 10} KiB"
        raise ConfigError(f"{path}: is larger than {shown}, the maximum size")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: is not UTF-8 text; save it as UTF-8") from None


def parse_yaml(text: str, path: Path) -> tuple[yaml.Node | None, Any]:
    """Parse YAML text; return the node tree, which has line numbers, and the plain value.

    Raises `ConfigError` for invalid YAML, duplicate keys, and constructs that make a small file expensive to process.
    `path` is used in messages.
    """
    with yaml_errors_as_config_errors(path):
        try:
            return _parse_with_loader(text, path, FAST_LOADER)
        except (yaml.YAMLError, ValueError, TypeError):
            return _parse_with_loader(text, path, yaml.SafeLoader)


def _parse_with_loader(text: str, path: Path, kind: type[yaml.SafeLoader]) -> tuple[yaml.Node | None, Any]:
    _refuse_expensive_yaml(text, path, kind)
    loader = kind(text)
    try:
        tree = loader.get_single_node()
        refuse_duplicate_keys(tree, path)
        _tag_keys_as_strings(tree)
        return tree, None if tree is None else loader.construct_document(tree)
    finally:
        loader.dispose()


def _refuse_expensive_yaml(text: str, path: Path, kind: type[yaml.SafeLoader]) -> None:
    """Reject aliases and deep nesting, which make a small file expensive to process."""
    depth = 0
    for event in yaml.parse(text, Loader=kind):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent):
            raise ConfigError(f"{path}:{line}: aliases such as *{event.anchor} cannot be used here; write it out")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _MAX_DEPTH:
            raise ConfigError(f"{path}:{line}: not valid YAML: it is nested too deeply")


def refuse_duplicate_keys(node: yaml.Node | None, path: Path) -> None:
    """Raise `ConfigError` for duplicate keys, of which YAML itself would silently use the last."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise ConfigError(f"{path}:{key.start_mark.line + 1}: '{key.value}' is written twice; keep one")
                seen.add(key.value)
            refuse_duplicate_keys(value, path)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            refuse_duplicate_keys(value, path)


def _tag_keys_as_strings(node: yaml.Node | None) -> None:
    """Tag all keys as strings; YAML parses some as other types, such as `on` and `2024`."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                key.tag = "tag:yaml.org,2002:str"
            _tag_keys_as_strings(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _tag_keys_as_strings(value)


def locate_field(node: yaml.Node | None, location: Sequence[Any]) -> tuple[int, list[Any]]:
    """Return the line of a pydantic error location, and the part of the location that is in the file."""
    line = node.start_mark.line + 1 if node else 1
    written: list[Any] = []
    for position, part in enumerate(location):
        if isinstance(node, yaml.MappingNode):
            entry = next(((key, value) for key, value in node.value if key.value == str(part)), None)
            if entry is None:
                if position == len(location) - 1 and part != "[key]":
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


def explain_validation_error(detail: Mapping[str, Any], unit: str | None = None) -> str:
    """Return advice for one pydantic error; `unit` is the unit of the field, if it has one."""
    kind, given, context = str(detail["type"]), detail["input"], detail.get("ctx", {})
    if kind == "missing":
        return "is missing; add it"
    if kind == "value_error":
        return str(context["error"])
    if kind == "string_unicode":
        return "contains invalid characters; remove them"
    if kind in _TYPE_NAMES:
        quote = "; put it in quotes" if kind == "string_type" and _is_unquoted_scalar(given) else ""
        return f"must be {_TYPE_NAMES[kind]}, not {_shorten(given)}{quote}"
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        write = {"duration": format_duration, "size": format_size}.get(unit or "", _shorten)
        given_text = _shorten(given) if isinstance(given, str) else write(given)
        return f"must be {words} {write(context[name])}, not {given_text}"
    if kind == "string_too_short" or (kind == "too_short" and context.get("actual_length") == 0):
        return "must not be empty"
    if kind in ("string_too_long", "too_long"):
        unit = "characters" if isinstance(given, str) else "entries"
        return f"may have {context['max_length']:,} {unit}, not {len(given):,}"
    if kind in ("literal_error", "enum"):
        near = closest_name(
            given, [choice.strip("'") for choice in context["expected"].replace(" or ", ", ").split(", ")]
        )
        return f"must be {context['expected']}, not {_shorten(given)}{f'; did you mean {near!r}?' if near else ''}"
    message = str(detail["msg"])
    return f"{message[0].lower()}{message[1:]}, not {_shorten(given)}"


def unknown_name_message(name: object, known: Collection[str], sort: str = "field") -> str:
    """Return the message for an unknown name, with a suggestion."""
    near = closest_name(name, known)
    hint = f"did you mean {near!r}?" if near else f"known: {', '.join(known)}"
    return f"no such {sort}; {hint}"


def closest_name(name: object, known: Iterable[str]) -> str | None:
    """Return the known name most similar to a name, or `None`."""
    return next(iter(difflib.get_close_matches(str(name), list(known), n=1)), None)


def _is_unquoted_scalar(value: object) -> bool:
    return isinstance(value, (int, float)) or type(value).__name__ in ("date", "datetime")


def _shorten(value: object) -> str:
    """Return a value as it was written, shortened to 80 characters."""
    words = {"True": "true", "False": "false", "None": "nothing"}
    shown = repr(int(value) if isinstance(value, float) and value.is_integer() else value)
    text = words.get(shown, shown)
    return text if len(text) <= 80 else f"{text[:77]}..."
