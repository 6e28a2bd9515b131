"""Writes the reference page of all settings: `python -m paddock.config.reference > docs/reference/configuration.md`."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from paddock.config.load import show
from paddock.config.schema import Config
from paddock.config.walk import bare, section, unit_of

_INTRODUCTION = """\
<!-- Written by `python -m paddock.config.reference`; edit the settings in src/paddock/config instead. -->
# Configuration

Paddock reads one `paddock.yaml`, then `PADDOCK_*` variables, then flags; later ones win. The file is the one named by
`--config`, else by `PADDOCK_CONFIG`, else `./paddock.yaml`, else `~/.config/paddock/paddock.yaml`.
`paddock config show` shows every value in use and where it came from.

- Variables name the key in capitals with two underscores between levels: `PADDOCK_SERVER__PORT=8420`. Lists are
  written `a,b` or `[a, b]`, maps `{a: b}`, nothing `null`.
- `${NAME}` in the file takes a value from the environment, `${NAME:-other}` with something to fall back on; `$${`
  stands for a plain `${`. Values taken this way are masked in output.
- Sizes: `512Mi`, `2Gi`, `10G` or bytes. Durations: `30s`, `10m`, `1h`, `1d` or seconds. CPUs: `0.5` or `500m`.
- Relative paths start from the file's directory, or from the working directory in variables and flags.
"""

_TYPES = {str: "text", int: "number", float: "number", bool: "true or false", Path: "path", SecretStr: "secret text"}


def reference() -> str:
    """The page, as Markdown."""
    about = descriptions(Config)
    top = [(name, field) for name, field in Config.model_fields.items() if not _inner(field)]
    parts = [
        _INTRODUCTION,
        _table([_row(name, f, f.get_default(call_default_factory=True), about.get(name)) for name, f in top]),
    ]
    for name, field in Config.model_fields.items():
        if model := _inner(field):
            default = field.default if isinstance(field.default, model) else None
            parts += _chapter(name, model, default, "##")
        elif model := _of_many(field):
            parts += _chapter(f"{name}.NAME", model, None, "##")
    return "\n".join(parts)


def _chapter(title: str, model: type[BaseModel], default: BaseModel | None, level: str) -> Iterator[str]:
    """A section: its settings, then those of its lists and maps of sections, and of sections that are a subject."""
    below: list[tuple[str, type[BaseModel], BaseModel | None]] = []
    rows = list(_rows(model, "", default, title, below))
    yield f"{level} {title}\n\n{_purpose(model)}\n"
    yield _table(rows)
    for inner_title, inner, value in below:
        yield from _chapter(inner_title, inner, value, "###")


def _rows(
    model: type[BaseModel],
    above: str,
    default: BaseModel | None,
    title: str,
    below: list[tuple[str, type[BaseModel], BaseModel | None]],
) -> Iterator[str]:
    about = descriptions(model)
    for name, field in model.model_fields.items():
        description = about.get(name)
        value = getattr(default, name) if default is not None else field.default
        of_many = _of_many(field)
        if inner := section(field.annotation):
            if description:
                yield f"| `{above}{name}` | | | {_sentence(description)} |"
                yield from _rows(inner, f"{above}{name}.", value, title, below)
            else:  # It is a subject of its own, and says itself what it is for.
                below.append((f"{title}.{above}{name}", inner, value))
        else:
            yield _row(above + name, field, value, description)
            # What a map of its own kind holds has just been told.
            if of_many and not issubclass(model, of_many):
                item = "" if get_origin(bare(field.annotation)) is tuple else ".NAME"
                below.append((f"{title}.{above}{name}{item}", of_many, None))


def _row(name: str, field: FieldInfo, default: Any, description: str | None) -> str:
    extra = field.json_schema_extra
    shown = extra.get("shown") if isinstance(extra, dict) else None
    written = "required" if field.is_required() else f"`{shown or show(default, unit_of(field))}`"
    return f"| `{name}` | {_type(field)} | {written} | {_sentence(description)} |"


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
    return _TYPES[kind]


def _inner(field: FieldInfo) -> type[BaseModel] | None:
    kind = bare(field.annotation)
    return section(get_args(kind)[0] if get_origin(kind) is tuple else kind)


def _of_many(field: FieldInfo) -> type[BaseModel] | None:
    """What a list or map is of, where that is a section."""
    kind = bare(field.annotation)
    place = {tuple: 0, Mapping: 1}.get(get_origin(kind))
    return None if place is None else section(get_args(kind)[place])


def _table(rows: Sequence[str]) -> str:
    return "| key | value | default | what it does |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


def _purpose(model: type[BaseModel]) -> str:
    """The first paragraph of what a section says of itself."""
    return " ".join((model.__doc__ or "").strip().partition("\n\n")[0].split())


@cache
def descriptions(model: type[BaseModel]) -> Mapping[str, str]:
    """Read the docstrings below fields from the source. Pydantic would do it whenever a command starts."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if each is BaseModel or not issubclass(each, BaseModel):
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(definition, ast.ClassDef)
        for above, below in pairwise(definition.body):
            if isinstance(above, ast.AnnAssign) and isinstance(above.target, ast.Name):
                found.pop(above.target.id, None)
                if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                    found[above.target.id] = inspect.cleandoc(str(below.value.value))
    return found


def _sentence(text: str | None) -> str:
    """A description on one line, as cells of tables are."""
    return " ".join((text or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
