"""Writes the reference page of all settings: `python -m paddock.config.reference > docs/reference/configuration.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from paddock.config.load import show
from paddock.config.schema import Config
from paddock.config.walk import bare, section, unit_of

_INTRODUCTION = """\
<!-- Written by `python -m paddock.config.reference`; edit src/paddock/config/schema.py instead. -->
# Configuration

Paddock reads one `paddock.yaml`, then `PADDOCK_*` variables, then flags; later ones win. The file is the one named by
`--config`, else by `PADDOCK_CONFIG`, else `./paddock.yaml`, else `~/.config/paddock/paddock.yaml`.
`paddock config` shows every value in use and where it came from.

- Variables name the key in capitals with two underscores between levels: `PADDOCK_SERVER__PORT=8420`. Lists are
  written `a,b` or `[a, b]`, maps `{a: b}`, nothing `null`.
- `${NAME}` in the file takes a value from the environment, `${NAME:-other}` with something to fall back on; `$${`
  stands for a plain `${`. Values taken this way are masked in output.
- Sizes: `512Mi`, `2Gi`, `10G` or bytes. Durations: `30s`, `10m`, `1h`, `1d` or seconds. CPUs: `0.5` or `500m`.
- Relative paths start from the file's directory, or from the working directory in variables and flags.
"""


def reference() -> str:
    """The page, as Markdown."""
    top = [(name, field) for name, field in Config.model_fields.items() if not _inner(field)]
    parts = [
        _INTRODUCTION,
        _table(_row(name, field, field.get_default(call_default_factory=True)) for name, field in top),
    ]
    for name, field in Config.model_fields.items():
        if model := _inner(field):
            parts.append(f"## {name}\n\n{_first_line(model)}\n")
            parts.append(_table(_rows(model, "", field.default if isinstance(field.default, model) else None)))
    return "\n".join(parts)


def _rows(model: type[BaseModel], above: str, default: BaseModel | None) -> Iterator[str]:
    for name, field in model.model_fields.items():
        value = getattr(default, name) if default is not None else field.default
        kind = bare(field.annotation)
        if inner := section(field.annotation):
            yield f"| `{above}{name}` | | | {field.description} |"
            yield from _rows(inner, f"{above}{name}.", value)
        elif get_origin(kind) is Mapping and (inner := section(get_args(kind)[1])):
            yield _row(above + name, field, value)
            yield from (
                f"| `{above}{name}.NAME.{key}` | {_type(of)} | | {of.description} |"
                for key, of in inner.model_fields.items()
            )
        else:
            yield _row(above + name, field, value)


def _row(name: str, field: FieldInfo, default: Any) -> str:
    extra = field.json_schema_extra
    shown = extra.get("shown") if isinstance(extra, dict) else None
    written = "required" if field.is_required() else f"`{shown or show(default, unit_of(field))}`"
    return f"| `{name}` | {_type(field)} | {written} | {field.description} |"


def _type(field: FieldInfo) -> str:
    kind = bare(field.annotation)
    if unit := unit_of(field):
        return unit
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    if get_origin(kind) is tuple:
        return "list"
    if get_origin(kind) is Mapping:
        return "map"
    return {str: "text", int: "number", bool: "true or false", Path: "path"}.get(kind, str(kind))


def _inner(field: FieldInfo) -> type[BaseModel] | None:
    kind = bare(field.annotation)
    return section(get_args(kind)[0] if get_origin(kind) is tuple else kind)


def _table(rows: Iterator[str]) -> str:
    return "| key | value | default | what it does |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


def _first_line(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().splitlines()[0]


if __name__ == "__main__":
    sys.stdout.write(reference())
