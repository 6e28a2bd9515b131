"""Reads YAML that people write, and complains of it by file and line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from paddock.errors import ConfigError


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


def advice(detail: Mapping[str, Any]) -> str:
    """What to do about one of pydantic's complaints."""
    if detail["type"] == "missing":
        return "is missing; add it"
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    message = str(detail["msg"])
    return f"{message[0].lower()}{message[1:]}, not {detail['input']!r:.80}"
