"""The parts that every message of the API is made of."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel

from paddock.model.owners import Visibility

MOST_FIELDS = 100


class Asked(BaseModel):
    """What a client sends. Unknown fields are refused: one that is overlooked would be a promise not kept."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, alias_generator=to_camel)

    @model_validator(mode="before")
    @classmethod
    def _no_nul(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and len(data) > MOST_FIELDS and cls.model_config.get("extra") == "forbid":
            # An error for each of a million unknown fields would take seconds to put together.
            raise ValueError(f"there are more than {MOST_FIELDS} fields")
        if _has_nul(data):
            raise ValueError("text cannot contain NUL characters")
        return data


Shared = Annotated[Visibility, Field(strict=False)]


class ShareBody(Asked):
    visibility: Shared
    """`private` for the owner alone, `tenant` for every key of the tenant."""


class Said(BaseModel):
    """What the server answers."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)


class Pagination(Said):
    page: int = Field(ge=1)
    page_size: int = Field(ge=1)
    total_items: int = Field(ge=0)
    total_pages: int = Field(ge=0)
    has_next_page: bool

    @classmethod
    def of(cls, page: int, page_size: int, total: int) -> Pagination:
        pages = math.ceil(total / page_size)
        return cls(page=page, page_size=page_size, total_items=total, total_pages=pages, has_next_page=page < pages)


def nearest_field(name: str) -> str | None:
    """The field of some request that a misspelt one was probably meant to be."""
    known = {field.alias or field_name for kind in _below(Asked) for field_name, field in kind.model_fields.items()}
    return next(iter(difflib.get_close_matches(name, sorted(known), 1)), None)


def _below(kind: type[BaseModel]) -> Sequence[type[BaseModel]]:
    return [inner for child in kind.__subclasses__() for inner in (child, *_below(child))]


def _has_nul(data: Any) -> bool:
    """Step by step: what is nested deeply must not be a matter of how deeply Python may call."""
    left = [data]
    while left:
        each = left.pop()
        if isinstance(each, str):
            if "\0" in each:
                return True
        elif isinstance(each, Mapping):
            left += [*each.keys(), *each.values()]
        elif isinstance(each, list):
            left += each
    return False


def _only_text(value: Any) -> Any:
    if not isinstance(value, (str, datetime)):
        raise ValueError("must be a time such as 2026-01-31T12:00:00Z")
    return value


def _to_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("lies outside the calendar") from None


Moment = Annotated[
    AwareDatetime,
    Field(strict=False),
    BeforeValidator(_only_text),
    AfterValidator(_to_utc),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""A time with its zone, as RFC 3339 writes it."""
