"""Convert models to rows and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel
from sqlalchemy import RowMapping, Table

M = TypeVar("M", bound=BaseModel)


def model_to_row(model: BaseModel) -> dict[str, Any]:
    """Return a model's fields as column values."""
    return {name: column_value(value) for name, value in model}


def column_value(value: Any) -> Any:
    """Return a field as a column value; nested values become JSON."""
    match value:
        case BaseModel():
            return value.model_dump(mode="json", exclude_none=True)
        case frozenset():
            return sorted(value)
        case tuple():
            return list(value)
        case Mapping():
            return dict(value)
    return value


def row_to_model(kind: type[M], row: RowMapping | Mapping[str, Any]) -> M:
    """Return a row as a model."""
    return kind.model_validate(dict(row))


def fields_to_columns(table: Table, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields as column values. Raises `TypeError` for an unknown column."""
    unknown = fields.keys() - table.columns.keys()
    if unknown:
        raise TypeError(f"{table.name} has no {', '.join(sorted(unknown))}")
    return {name: column_value(value) for name, value in fields.items()}
