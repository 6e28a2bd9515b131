"""Checked access to the fields of a JSON document."""

from __future__ import annotations

from .errors import invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    T = TypeVar("T")


def optional(document: dict[str, Any], name: str, kind: type[T]) -> T | None:
    """Return a field that is absent, null or of `kind`."""
    value = document.get(name)
    if value is None:
        return None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise invalid(f"{name!r} must be a {kind.__name__}, not {type(value).__name__}")
    return value


def required(document: dict[str, Any], name: str, kind: type[T]) -> T:
    value = optional(document, name, kind)
    if value is None:
        raise invalid(f"{name!r} is required")
    return value


def variables(document: dict[str, Any], name: str) -> dict[str, str]:
    """Return a field that maps environment variables to their values."""
    found = optional(document, name, dict) or {}
    for key, value in found.items():
        if not isinstance(value, str) or "\0" in value or "\0" in key or "=" in key or not key:
            raise invalid(f"{name!r} must map variable names to strings; {key!r} does not")
    return found
