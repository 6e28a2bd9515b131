"""Reads YAML that people write, and complains of it by file and line."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from paddock.config.units import format_duration, format_size
from paddock.errors import ConfigError

QUICK: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Reads ten times as fast, says less of what is wrong, and must not be given what is nested very deeply."""
_DEEPEST = 50
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}
_KINDS = {
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
def complaining(path: Path) -> Iterator[None]:
    """Whatever is wrong with YAML that is read within, as a `ConfigError`; `path` is what it calls the file."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}:{line}: not valid YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise ConfigError(f"{path}:1: not valid YAML: {error}") from error
    except RecursionError:
        raise ConfigError(f"{path}:1: not valid YAML: it is nested too deeply") from None


def read_text(path: Path, largest: int) -> str:
    """The text of a file that people write. Raises `ConfigError` that says why it cannot be read."""
    try:
        # What is no ordinary file may never end, or wait for a writer.
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path}: {'is a directory' if path.is_dir() else 'is no ordinary file'}; name a file")
        with path.open("rb") as file:
            data = file.read(largest + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{path}: cannot be read: {reason}") from error
    if len(data) > largest:
        shown = f"{largest >> 20} MiB" if largest >= 2**20 else f"{largest >> 10} KiB"
        raise ConfigError(f"{path}: is larger than {shown}, the most that is read")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: is not UTF-8 text; save it as UTF-8") from None


def read_tree(text: str, path: Path) -> tuple[yaml.Node | None, Any]:
    """What a text says, and the tree that knows the lines of it.

    Raises `ConfigError` for what is no YAML, for names that are written twice, and for what makes a small file a lot of
    work. `path` is what complaints call the text.
    """
    with complaining(path):
        try:
            return _read_tree(text, path, QUICK)
        except (yaml.YAMLError, ValueError, TypeError):
            return _read_tree(text, path, yaml.SafeLoader)


def _read_tree(text: str, path: Path, kind: type[yaml.SafeLoader]) -> tuple[yaml.Node | None, Any]:
    _refuse_tricks(text, path, kind)
    loader = kind(text)
    try:
        tree = loader.get_single_node()
        refuse_duplicates(tree, path)
        _make_keys_text(tree)
        return tree, None if tree is None else loader.construct_document(tree)
    finally:
        loader.dispose()


def _refuse_tricks(text: str, path: Path, kind: type[yaml.SafeLoader]) -> None:
    """Refuse what makes a small file a lot of work: aliases of aliases, and thousands of brackets."""
    depth = 0
    for event in yaml.parse(text, Loader=kind):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent):
            raise ConfigError(f"{path}:{line}: aliases such as *{event.anchor} cannot be used here; write it out")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _DEEPEST:
            raise ConfigError(f"{path}:{line}: not valid YAML: it is nested too deeply")


def refuse_duplicates(node: yaml.Node | None, path: Path) -> None:
    """Raise `ConfigError` for a name that is given twice, of which YAML itself would silently take the last."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise ConfigError(f"{path}:{key.start_mark.line + 1}: '{key.value}' is written twice; keep one")
                seen.add(key.value)
            refuse_duplicates(value, path)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            refuse_duplicates(value, path)


def _make_keys_text(node: yaml.Node | None) -> None:
    """Names are text, also those that YAML takes for something else: `on` for true, `2024` for a number."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                key.tag = "tag:yaml.org,2002:str"
            _make_keys_text(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _make_keys_text(value)


def place(node: yaml.Node | None, location: Sequence[Any]) -> tuple[int, list[Any]]:
    """The line of a place in the file, and the way there as far as it is written: short forms leave steps out."""
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


def advice(detail: Mapping[str, Any], unit: str | None = None) -> str:
    """What to do about one of pydantic's complaints; `unit` is that of the field, if it has one."""
    kind, given, context = str(detail["type"]), detail["input"], detail.get("ctx", {})
    if kind == "missing":
        return "is missing; add it"
    if kind == "value_error":
        return str(context["error"])
    if kind == "string_unicode":
        return "has characters that are no text; take them out"
    if kind in _KINDS:
        quote = "; put it in quotes" if kind == "string_type" and _is_plain(given) else ""
        return f"must be {_KINDS[kind]}, not {_shown(given)}{quote}"
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        write = {"duration": format_duration, "size": format_size}.get(unit or "", _shown)
        told = _shown(given) if isinstance(given, str) else write(given)
        return f"must be {words} {write(context[name])}, not {told}"
    if kind == "string_too_short" or (kind == "too_short" and context.get("actual_length") == 0):
        return "must not be empty"
    if kind in ("string_too_long", "too_long"):
        unit = "characters" if isinstance(given, str) else "entries"
        return f"may have {context['max_length']:,} {unit}, not {len(given):,}"
    if kind in ("literal_error", "enum"):
        near = nearest(given, [choice.strip("'") for choice in context["expected"].replace(" or ", ", ").split(", ")])
        return f"must be {context['expected']}, not {_shown(given)}{f'; did you mean {near!r}?' if near else ''}"
    message = str(detail["msg"])
    return f"{message[0].lower()}{message[1:]}, not {_shown(given)}"


def unknown(name: object, known: Collection[str], sort: str = "field") -> str:
    """What to say of a name that is none of those there are."""
    near = nearest(name, known)
    hint = f"did you mean {near!r}?" if near else f"known: {', '.join(known)}"
    return f"no such {sort}; {hint}"


def nearest(name: object, known: Iterable[str]) -> str | None:
    """The name somebody may have meant."""
    return next(iter(difflib.get_close_matches(str(name), list(known), n=1)), None)


def _is_plain(value: object) -> bool:
    return isinstance(value, (int, float)) or type(value).__name__ in ("date", "datetime")


def _shown(value: object) -> str:
    """A value as it was written, and only the beginning of a long one."""
    words = {"True": "true", "False": "false", "None": "nothing"}
    shown = repr(int(value) if isinstance(value, float) and value.is_integer() else value)
    text = words.get(shown, shown)
    return text if len(text) <= 80 else f"{text[:77]}..."
