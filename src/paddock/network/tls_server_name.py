"""Read the server name (SNI) from the first bytes of a TLS connection, without decrypting anything."""

from __future__ import annotations

from dataclasses import dataclass

HANDSHAKE_RECORD = 0x16
TLS_MAJOR_VERSION = 3
CLIENT_HELLO = 1
MAX_HELLO = 64 * 1024
MAX_RECORD = 16 * 1024
_RECORD_TYPES = range(0x14, 0x18)
_SERVER_NAME_EXTENSION = 0
_HOST_NAME_TYPE = 0
ACCESS_DENIED_ALERT = bytes((0x15, 3, 3, 0, 2, 2, 49))
"""A fatal TLS alert that clients report as "access denied"."""


@dataclass(frozen=True)
class ClientHelloStart:
    """Result of parsing the first bytes of a client."""

    complete: bool
    """Whether more bytes would change nothing."""
    is_tls: bool = False
    server_name: str | None = None
    """Server name in lower case, `None` if the client sends none, "" if the handshake is malformed."""


_MALFORMED = ClientHelloStart(complete=True, is_tls=True, server_name="")


def read_client_hello(data: bytes) -> ClientHelloStart:
    """Parse the start of a connection; incomplete data asks for more bytes.

    Whatever looks like a TLS record but does not begin with a well-formed ClientHello is malformed, because servers may
    be more tolerant than this parser.
    """
    if data and (data[0] not in _RECORD_TYPES or (len(data) > 1 and data[1] != TLS_MAJOR_VERSION)):
        return ClientHelloStart(complete=True)
    hello = bytearray()
    position = 0
    while position < len(data):
        header = data[position : position + 5]
        if header[0] != HANDSHAKE_RECORD or (len(header) > 1 and header[1] != TLS_MAJOR_VERSION):
            return _MALFORMED
        if len(header) < 5:
            break
        length = int.from_bytes(header[3:5], "big")
        if not 0 < length <= MAX_RECORD:
            return _MALFORMED
        hello += data[position + 5 : position + 5 + length]
        position += 5 + length
        if hello and hello[0] != CLIENT_HELLO:
            return _MALFORMED
        if len(hello) >= 4:
            size = 4 + int.from_bytes(hello[1:4], "big")
            if size > MAX_HELLO:
                return _MALFORMED
            if len(hello) >= size:
                return ClientHelloStart(complete=True, is_tls=True, server_name=_server_name(bytes(hello[4:size])))
    return ClientHelloStart(complete=False, is_tls=bool(data))


class _TruncatedHello(Exception):
    """A length in the hello points past its end."""


class _HelloReader:
    """Reads fields with length prefixes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def at_end(self) -> bool:
        return self._position >= len(self._data)

    def take(self, count: int) -> bytes:
        part = self._data[self._position : self._position + count]
        if len(part) < count:
            raise _TruncatedHello
        self._position += count
        return part

    def take_prefixed(self, length_bytes: int) -> bytes:
        return self.take(int.from_bytes(self.take(length_bytes), "big"))


def _server_name(body: bytes) -> str | None:
    """Return the host name of the server name extension, `None` without one, and "" for a malformed hello."""
    reader = _HelloReader(body)
    try:
        reader.take(2 + 32)  # Version and random.
        reader.take_prefixed(1)  # Session id.
        reader.take_prefixed(2)  # Cipher suites.
        reader.take_prefixed(1)  # Compression methods.
        if reader.at_end:
            return None
        extensions = _HelloReader(reader.take_prefixed(2))
        while not extensions.at_end:
            kind = int.from_bytes(extensions.take(2), "big")
            content = extensions.take_prefixed(2)
            if kind == _SERVER_NAME_EXTENSION:
                names = _HelloReader(_HelloReader(content).take_prefixed(2))
                if names.take(1)[0] == _HOST_NAME_TYPE:
                    return names.take_prefixed(2).decode("ascii", "replace").lower().removesuffix(".")
                return None
    except _TruncatedHello:
        return ""
    return None
