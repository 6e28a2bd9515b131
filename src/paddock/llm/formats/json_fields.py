"""Typed access to the fields of untrusted JSON; errors name the path of the invalid field."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import msgspec

from paddock.errors import InvalidInput
from paddock.llm.formats.base import BrokenModelStream

_encode = msgspec.json.Encoder().encode

ErrorFactory = Callable[[str], Exception]

_MAX_TOKENS = 2**40
"""Upper bound of token counts; larger values are ignored."""


class JsonFields:
    """A JSON object at a path such as `messages[3].content[0]`.

    Getters raise if the field is missing or null; their `optional_` variants return `None` instead. A field of the
    wrong type always raises. The error is `InvalidInput` unless another factory is given.
    """

    __slots__ = ("_make_error", "path", "value")

    def __init__(self, value: Any, path: str = "", wrong: ErrorFactory = InvalidInput) -> None:
        self._make_error = wrong
        self.path = path
        if not isinstance(value, dict):
            raise self.error("should be an object")
        self.value: dict[str, Any] = value

    def __contains__(self, name: str) -> bool:
        """Return whether the field exists and is not null."""
        return self.value.get(name) is not None

    def get(self, name: str) -> Any:
        return self.value.get(name)

    def path_of(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def error(self, problem: str, name: str | None = None) -> Exception:
        """Create the error for a problem with this object or one of its fields."""
        field_path = self.path if name is None else self.path_of(name)
        return self._make_error(f"{field_path or 'the body'} {problem}")

    def required(self, name: str) -> Any:
        value = self.value.get(name)
        if value is None:
            raise self.error("is missing", name)
        return value

    def text(self, name: str) -> str:
        value = self.required(name)
        if not isinstance(value, str):
            raise self.error("should be a string", name)
        return value

    def optional_text(self, name: str) -> str | None:
        return self.text(name) if name in self else None

    def integer(self, name: str) -> int:
        value = self.required(name)
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error("should be a whole number", name)
        return value

    def optional_integer(self, name: str) -> int | None:
        return self.integer(name) if name in self else None

    def number(self, name: str) -> float:
        value = self.required(name)
        if not isinstance(value, int | float) or isinstance(value, bool) or value in (inf, -inf) or value != value:
            raise self.error("should be a number", name)
        return value

    def optional_number(self, name: str) -> float | None:
        return self.number(name) if name in self else None

    def boolean(self, name: str) -> bool:
        value = self.required(name)
        if not isinstance(value, bool):
            raise self.error("should be true or false", name)
        return value

    def optional_boolean(self, name: str) -> bool | None:
        return self.boolean(name) if name in self else None

    def mapping(self, name: str) -> dict[str, Any]:
        """Return the field as a dict."""
        value = self.required(name)
        if not isinstance(value, dict):
            raise self.error("should be an object", name)
        return value

    def optional_mapping(self, name: str) -> dict[str, Any] | None:
        return self.mapping(name) if name in self else None

    def object(self, name: str) -> JsonFields:
        return JsonFields(self.required(name), self.path_of(name), self._make_error)

    def optional_object(self, name: str) -> JsonFields | None:
        return self.object(name) if name in self else None

    def items(self, name: str) -> list[Any]:
        """Return the field as a list of unchecked items; empty if missing."""
        value = self.value.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.error("should be a list", name)
        return value

    def objects(self, name: str) -> Iterator[JsonFields]:
        """Iterate over a list of objects, each with its path; empty if missing."""
        for index, item in enumerate(self.items(name)):
            yield JsonFields(item, f"{self.path_of(name)}[{index}]", self._make_error)

    def texts(self, name: str) -> list[str]:
        """Return a list of strings; empty if missing."""
        values = self.items(name)
        for index, value in enumerate(values):
            if not isinstance(value, str):
                raise self.error("should be a string", f"{name}[{index}]")
        return values

    def token_count(self, name: str) -> int:
        """Return a token count; 0 for anything but a plausible positive integer. Never raises."""
        value = self.value.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MAX_TOKENS else 0


def parse_request_body(body: bytes) -> JsonFields:
    """Parse a request body. Raises `InvalidInput` unless it is a JSON object."""
    return JsonFields(_parse_json(body, InvalidInput))


def parse_answer_body(body: bytes | str) -> JsonFields:
    """Parse an answer body or the data of one event. Raises `BrokenModelStream` unless it is a JSON object."""
    return JsonFields(_parse_json(body, BrokenModelStream), "", BrokenModelStream)


def _parse_json(body: bytes | str, wrong: ErrorFactory) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise wrong(f"the body is not JSON: {error}") from error


def encode_json(value: Any) -> bytes:
    """Encode a value as JSON bytes."""
    try:
        return _encode(value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        # A lone surrogate is valid in JSON but not in UTF-8; a model that emits one must not break the answer.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
