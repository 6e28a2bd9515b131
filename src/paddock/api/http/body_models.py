"""Base classes and field types of all request and response bodies."""

from __future__ import annotations

import difflib
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

MAX_FIELDS = 100


class RequestBody(BaseModel):
    """A JSON body sent by a client. Unknown fields are refused, so that no setting is ignored silently."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, alias_generator=to_camel)

    @model_validator(mode="before")
    @classmethod
    def _reject_nul(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and len(data) > MAX_FIELDS and cls.model_config.get("extra") == "forbid":
            # One error for each of a million unknown fields would take seconds to build.
            raise ValueError(f"there are more than {MAX_FIELDS} fields")
        if _has_nul(data):
            raise ValueError("text cannot contain NUL characters")
        return data


class ResponseBody(BaseModel):
    """A JSON body answered by the server."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)


def suggest_field_name(name: str) -> str | None:
    """Return the request field that a misspelt name most resembles."""
    known = {
        field.alias or field_name
        for kind in _all_subclasses(RequestBody)
        for field_name, field in kind.model_fields.items()
    }
    return next(iter(difflib.get_close_matches(name, sorted(known), 1)), None)


def _all_subclasses(kind: type[BaseModel]) -> Sequence[type[BaseModel]]:
    return [inner for child in kind.__subclasses__() for inner in (child, *_all_subclasses(child))]


def _has_nul(data: Any) -> bool:
    """Search without recursion: nesting depth must not depend on Python's recursion limit."""
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


def _require_text(value: Any) -> Any:
    if not isinstance(value, (str, datetime)):
        raise ValueError("must be a time such as 2026-01-31T12:00:00Z")
    return value


def _to_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("lies outside the calendar") from None


UtcDateTime = Annotated[
    AwareDatetime,
    Field(strict=False),
    BeforeValidator(_require_text),
    AfterValidator(_to_utc),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""A point in time with its zone, as in RFC 3339; converted to UTC."""
