"""The metadata object of all tables, and types of columns that they share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Dialect, Integer, MetaData, String
from sqlalchemy.types import TypeDecorator


class UtcTimestamp(TypeDecorator[datetime]):
    """A moment in UTC as ISO text of fixed width, so that text order is time order on every database."""

    impl = String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a moment needs a time zone")
        return value.astimezone(UTC).isoformat(timespec="microseconds")

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        return None if value is None else datetime.fromisoformat(value)


metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    }
)

json_type = JSON(none_as_null=True)
row_number = BigInteger().with_variant(Integer, "sqlite")
"""Number that the database gives to each new row."""
