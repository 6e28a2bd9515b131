"""Finds what the schema says about a dotted key."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from paddock.config.schema import Config
from paddock.config.units import Unit

Key = tuple[str, ...]


def bare(annotation: Any) -> Any:
    """The type behind `Annotated` and `| None`."""
    if get_origin(annotation) is Annotated:
        return bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        others = [argument for argument in get_args(annotation) if argument is not type(None)]
        return bare(others[0]) if len(others) == 1 else annotation
    return annotation


def section(annotation: Any) -> type[BaseModel] | None:
    """The model class behind an annotation, if it is one."""
    kind = bare(annotation)
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def annotation_at(key: Key, root: type[BaseModel] = Config) -> Any:
    """The type of the value at `key`, or `None` where the schema knows no such key."""
    annotation: Any = root
    for part in key:
        kind = bare(annotation)
        if model := section(kind):
            field = model.model_fields.get(part)
            annotation = field.annotation if field else None
        elif get_origin(kind) in (Mapping, dict):
            annotation = get_args(kind)[1]
        elif get_origin(kind) is tuple:
            annotation = get_args(kind)[0]
        else:
            return None
    return annotation


def leaves(model: type[BaseModel] = Config, above: Key = ()) -> Iterator[tuple[Key, FieldInfo]]:
    """Every key that holds a value and not a section."""
    for name, field in model.model_fields.items():
        if inner := section(field.annotation):
            yield from leaves(inner, (*above, name))
        else:
            yield (*above, name), field


def unit_of(field: FieldInfo) -> str | None:
    """The unit a field is written in, if it has one."""
    marks = list(field.metadata)
    for argument in get_args(field.annotation):
        marks += get_args(argument)
    return next((mark.name for mark in marks if isinstance(mark, Unit)), None)
