"""Look up settings in the configuration schema by key."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from paddock.config.schema import Config
from paddock.config.units import UnitMarker

SettingKey = tuple[str, ...]


def unwrap_annotation(annotation: Any) -> Any:
    """Strip `Annotated` and `| None` from a type annotation."""
    if get_origin(annotation) is Annotated:
        return unwrap_annotation(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        others = [argument for argument in get_args(annotation) if argument is not type(None)]
        return unwrap_annotation(others[0]) if len(others) == 1 else annotation
    return annotation


def section_type(annotation: Any) -> type[BaseModel] | None:
    """Return the model class of an annotation, or `None` if it is not a section."""
    kind = unwrap_annotation(annotation)
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def annotation_of_setting(key: SettingKey, root: type[BaseModel] = Config) -> Any:
    """Return the annotation of the value at a key, or `None` if the schema has no such key."""
    annotation: Any = root
    for part in key:
        kind = unwrap_annotation(annotation)
        if model := section_type(kind):
            field = model.model_fields.get(part)
            annotation = field.annotation if field else None
        elif get_origin(kind) in (Mapping, dict):
            annotation = get_args(kind)[1]
        elif get_origin(kind) is tuple:
            annotation = get_args(kind)[0]
        else:
            return None
    return annotation


def iterate_settings(model: type[BaseModel] = Config, above: SettingKey = ()) -> Iterator[tuple[SettingKey, FieldInfo]]:
    """Iterate over all keys that hold a value instead of a section."""
    for name, field in model.model_fields.items():
        if inner := section_type(field.annotation):
            yield from iterate_settings(inner, (*above, name))
        else:
            yield (*above, name), field


def unit_of_field(field: FieldInfo) -> str | None:
    """Return the unit of a field, or `None`."""
    marks = list(field.metadata)
    for argument in get_args(field.annotation):
        marks += get_args(argument)
    return next((mark.name for mark in marks if isinstance(mark, UnitMarker)), None)
