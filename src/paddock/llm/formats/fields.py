"""Typed access to the fields of JSON from outside, with errors that say where the wrong one stands."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import msgspec

from paddock.errors import InvalidInput
from paddock.llm.formats.base import BrokenStream

_encode = msgspec.json.Encoder().encode

Wrong = Callable[[str], Exception]

_MOST_TOKENS = 2**40
"""More than this nobody has; a provider that says so is not believed."""


class Fields:
    """A JSON object at a path such as `messages[3].content[0]`.

    A getter raises when the field is missing or null, and its `_or` twin returns `None` then. A field of the wrong
    type always raises. The error is `InvalidInput` unless another is given.
    """

    __slots__ = ("_wrong", "path", "value")

    def __init__(self, value: Any, path: str = "", wrong: Wrong = InvalidInput) -> None:
        self._wrong = wrong
        self.path = path
        if not isinstance(value, dict):
            raise self.error("should be an object")
        self.value: dict[str, Any] = value

    def __contains__(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.value.get(name) is not None

    def get(self, name: str) -> Any:
        return self.value.get(name)

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def error(self, problem: str, name: str | None = None) -> Exception:
        """An error about this object, or about one of its fields."""
        where = self.path if name is None else self.at(name)
        return self._wrong(f"{where or 'the body'} {problem}")

    def need(self, name: str) -> Any:
        value = self.value.get(name)
        if value is None:
            raise self.error("is missing", name)
        return value

    def text(self, name: str) -> str:
        value = self.need(name)
        if not isinstance(value, str):
            raise self.error("should be a string", name)
        return value

    def text_or(self, name: str) -> str | None:
        return self.text(name) if name in self else None

    def integer(self, name: str) -> int:
        value = self.need(name)
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error("should be a whole number", name)
        return value

    def integer_or(self, name: str) -> int | None:
        return self.integer(name) if name in self else None

    def number(self, name: str) -> float:
        value = self.need(name)
        if not isinstance(value, int | float) or isinstance(value, bool) or value in (inf, -inf) or value != value:
            raise self.error("should be a number", name)
        return value

    def number_or(self, name: str) -> float | None:
        return self.number(name) if name in self else None

    def flag(self, name: str) -> bool:
        value = self.need(name)
        if not isinstance(value, bool):
            raise self.error("should be true or false", name)
        return value

    def flag_or(self, name: str) -> bool | None:
        return self.flag(name) if name in self else None

    def mapping(self, name: str) -> dict[str, Any]:
        """The field as a plain dict."""
        value = self.need(name)
        if not isinstance(value, dict):
            raise self.error("should be an object", name)
        return value

    def mapping_or(self, name: str) -> dict[str, Any] | None:
        return self.mapping(name) if name in self else None

    def object(self, name: str) -> Fields:
        return Fields(self.need(name), self.at(name), self._wrong)

    def object_or(self, name: str) -> Fields | None:
        return self.object(name) if name in self else None

    def items(self, name: str) -> list[Any]:
        """The field as a list of whatever; missing is empty."""
        value = self.value.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.error("should be a list", name)
        return value

    def objects(self, name: str) -> Iterator[Fields]:
        """The field's objects, each with its path; missing is empty."""
        for index, item in enumerate(self.items(name)):
            yield Fields(item, f"{self.at(name)}[{index}]", self._wrong)

    def texts(self, name: str) -> list[str]:
        """The field's strings; missing is empty."""
        values = self.items(name)
        for index, value in enumerate(values):
            if not isinstance(value, str):
                raise self.error("should be a string", f"{name}[{index}]")
        return values

    def count(self, name: str) -> int:
        """A number of tokens, which is never worth failing for: anything but a believable whole number is 0."""
        value = self.value.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST_TOKENS else 0


def request_fields(body: bytes) -> Fields:
    """A request's body. Raises `InvalidInput` unless it is a JSON object."""
    return Fields(_parse(body, InvalidInput))


def answer_fields(body: bytes | str) -> Fields:
    """An answer's body, or one event's data. Raises `BrokenStream` unless it is a JSON object."""
    return Fields(_parse(body, BrokenStream), "", BrokenStream)


def _parse(body: bytes | str, wrong: Wrong) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise wrong(f"the body is not JSON: {error}") from error


def to_bytes(value: Any) -> bytes:
    """JSON as it is sent."""
    try:
        return _encode(value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        # A lone surrogate is valid in JSON but not in UTF-8; a model that emits one must not break the answer.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
