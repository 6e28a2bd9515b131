"""Decode compressed bodies, in which secret values could not be found."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

_OUTPUT = 256 * 1024
"""Most bytes produced at a time, however well they are compressed."""
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32


class UnknownEncoding(Exception):
    """A body has an encoding that is not decoded."""


class InvalidBody(OSError):
    """A compressed body is damaged."""


class BodyDecoder(Protocol):
    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield decoded pieces of bounded size. Raises `InvalidBody`."""
        ...

    def finish(self) -> None:
        """Raise `InvalidBody` if the end is missing."""
        ...


class IdentityDecoder:
    def feed(self, data: bytes) -> Iterator[bytes]:
        yield data

    def finish(self) -> None:
        """Do nothing: every end is complete."""


class ZlibDecoder:
    """Decodes gzip, also of several members, and zlib."""

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._is_empty = True

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            while data:
                if self._decoder.eof:
                    self._decoder = zlib.decompressobj(_GZIP_OR_ZLIB)
                self._is_empty = False
                if piece := self._decoder.decompress(data, _OUTPUT):
                    yield piece
                data = self._decoder.unused_data if self._decoder.eof else self._decoder.unconsumed_tail
        except zlib.error as error:
            raise InvalidBody(f"the compressed answer is damaged: {error}") from None

    def finish(self) -> None:
        if not (self._decoder.eof or self._is_empty):
            raise InvalidBody("the compressed answer is incomplete")


def make_decoder(encodings: list[bytes]) -> BodyDecoder:
    """Return the decoder for values of `Content-Encoding`. Raises `UnknownEncoding`."""
    words = [word.strip().lower() for value in encodings for word in value.split(b",")]
    words = [word for word in words if word not in (b"", b"identity")]
    if not words:
        return IdentityDecoder()
    if len(words) == 1 and words[0] in (b"gzip", b"x-gzip", b"deflate"):
        return ZlibDecoder()
    raise UnknownEncoding(b", ".join(words).decode("ascii", "replace"))
