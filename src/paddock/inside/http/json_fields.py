"""Validated access to fields of JSON documents."""

from __future__ import annotations

import time

from ..errors import invalid_body_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    T = TypeVar("T")


def optional_json_field(document: dict[str, Any], name: str, kind: type[T]) -> T | None:
    """Return a field of type `kind`, or None if it is absent or null."""
    value = document.get(name)
    if value is None:
        return None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise invalid_body_error(f"{name!r} must be a {kind.__name__}, not {type(value).__name__}")
    return value


def required_json_field(document: dict[str, Any], name: str, kind: type[T]) -> T:
    value = optional_json_field(document, name, kind)
    if value is None:
        raise invalid_body_error(f"{name!r} is required")
    return value


def environment_variables_field(document: dict[str, Any], name: str) -> dict[str, str]:
    """Return a field that maps names of environment variables to values."""
    found = optional_json_field(document, name, dict) or {}
    for key, value in found.items():
        if not isinstance(value, str) or "\0" in value or "\0" in key or "=" in key or not key:
            raise invalid_body_error(f"{name!r} must map variable names to strings; {key!r} does not")
    return found


def format_rfc3339(moment: float) -> str:
    """Format a Unix time as UTC with microseconds."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))
    return f"{whole}.{int(moment % 1 * 1_000_000):06d}Z"
