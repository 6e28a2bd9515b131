"""Streaming validation of tar archives: rejects unsafe members without unpacking.

Supports plain headers and the long names of GNU and POSIX tar. All sizes are limited,
because archives are untrusted.
"""

from __future__ import annotations

import posixpath

from paddock.errors import InvalidInput

BLOCK_SIZE = 512
MAX_MEMBERS = 200_000
MAX_EXTENSION_BYTES = 64 * 1024
"""Maximum bytes of an extension header."""
MAX_PATH_CHARACTERS = 4096
_REGULAR_FILE_TYPES = b"0\0" + b"7"
_HARD_LINK, _SYMBOLIC_LINK, _DIRECTORY = b"1", b"2", b"5"
_GNU_LONG_NAME_FIELDS = {b"L": "path", b"K": "linkpath"}
_PAX, _PAX_GLOBAL = b"x", b"g"
_REFUSED_TYPES = {
    b"3": "a device",
    b"4": "a device",
    b"6": "a named pipe",
    b"S": "a sparse file",
    b"M": "a part of a file",
}
_ZERO_BLOCK = bytes(BLOCK_SIZE)


class TarValidator:
    """Incremental tar validator. `feed` and `close` raise `InvalidInput`."""

    def __init__(self) -> None:
        self.members = 0
        self.size = 0
        """Total bytes of all files."""
        self._rest = bytearray()
        self._skip = 0
        self._extension_type: bytes | None = None
        """Type of the extension header that is being read."""
        self._left = 0
        self._extended_fields: dict[str, str] = {}
        self._ended = False

    def feed(self, data: bytes) -> None:
        view, position = memoryview(data), 0
        while position < len(data):
            if self._skip:
                count = min(self._skip, len(data) - position)
                self._skip -= count
                position += count
                continue
            wanted = BLOCK_SIZE if self._extension_type is None else _padded(self._left)
            count = min(wanted - len(self._rest), len(data) - position)
            self._rest += view[position : position + count]
            position += count
            if len(self._rest) == wanted:
                block, self._rest = bytes(self._rest), bytearray()
                self._process_block(block)

    def close(self) -> None:
        if self._skip or self._rest or self._extension_type is not None:
            raise InvalidInput("the archive is truncated; send it again")
        if not self.members and not self._ended:
            raise InvalidInput("the archive is empty")

    def _process_block(self, block: bytes) -> None:
        if self._extension_type is not None:
            kind, self._extension_type = self._extension_type, None
            self._process_extension(kind, block[: self._left])
        elif self._ended or block == _ZERO_BLOCK:
            # Ignore padding after the end, as tar does.
            self._ended = True
        else:
            self._process_header(block)

    def _process_header(self, block: bytes) -> None:
        if not self.members and not self._extended_fields and block[:2] == b"\x1f\x8b":
            raise InvalidInput("the archive is compressed; send a plain tar")
        if _parse_number(block[148:156]) != sum(block[:148]) + 8 * 32 + sum(block[156:]):
            raise InvalidInput("not a tar archive, or a damaged one; send a plain tar")
        kind = block[156:157]
        size = _parse_number(block[124:136])
        if kind in _GNU_LONG_NAME_FIELDS or kind in (_PAX, _PAX_GLOBAL):
            if not 0 < size <= MAX_EXTENSION_BYTES:
                raise InvalidInput("the archive has a name that is too long")
            self._extension_type, self._left = kind, size
            return
        self._check_member(kind, block, size)

    def _process_extension(self, kind: bytes, content: bytes) -> None:
        if kind in _GNU_LONG_NAME_FIELDS:
            self._extended_fields[_GNU_LONG_NAME_FIELDS[kind]] = _header_text(content)
            return
        fields = _parse_pax_records(content)
        if kind == _PAX_GLOBAL:
            if fields.keys() & {"path", "linkpath", "size"}:
                raise InvalidInput(
                    "the archive has a global header with a name or a size; pack it without global headers"
                )
            return
        if any(name.startswith("GNU.sparse") for name in fields):
            raise InvalidInput("the archive has a sparse file; pack it without --sparse")
        self._extended_fields |= fields

    def _check_member(self, kind: bytes, block: bytes, size: int) -> None:
        extended, self._extended_fields = self._extended_fields, {}
        name = extended.get("path") or _header_path(block)
        link = extended.get("linkpath") or _header_text(block[157:257])
        if "size" in extended:
            if not extended["size"].isascii() or not extended["size"].isdigit() or len(extended["size"]) > 18:
                raise InvalidInput("the archive has an invalid size")
            size = int(extended["size"])
        shown = ascii(name[:200])
        self.members += 1
        if self.members > MAX_MEMBERS:
            raise InvalidInput(f"the archive has more than {MAX_MEMBERS} files")
        if len(name) > MAX_PATH_CHARACTERS or "\0" in name or not _stays_inside(name):
            raise InvalidInput(f"the archive's member {shown} leaves the directory it is unpacked in")
        if kind in _REGULAR_FILE_TYPES:
            self.size += size
            self._skip = _padded(size)
        elif kind == _SYMBOLIC_LINK:
            if not link or not _stays_inside(posixpath.join(posixpath.dirname(name), link)) or link.startswith("/"):
                raise InvalidInput(f"the archive's link {shown} leaves the directory it is unpacked in")
        elif kind == _HARD_LINK:
            if not link or not _stays_inside(link):
                raise InvalidInput(f"the archive's link {shown} leaves the directory it is unpacked in")
        elif kind != _DIRECTORY:
            what = _REFUSED_TYPES.get(kind, "of an unknown kind")
            raise InvalidInput(
                f"the archive's member {shown} is {what}; only files, directories and links are accepted"
            )


def _padded(size: int) -> int:
    return -(-size // BLOCK_SIZE) * BLOCK_SIZE


def _parse_number(field: bytes) -> int:
    if field[:1] == b"\x80":  # Large numbers are base-256.
        value = int.from_bytes(field[1:], "big")
    else:
        digits = field.strip(b" \0")
        if digits.translate(None, b"01234567"):
            raise InvalidInput("not a tar archive, or a damaged one; send a plain tar")
        value = int(digits or b"0", 8)
    if value >= 2**60:
        raise InvalidInput("the archive has a file of an impossible size")
    return value


def _header_path(block: bytes) -> str:
    name = _header_text(block[:100])
    if block[257:263] == b"ustar\0" and (prefix := _header_text(block[345:500])):
        return f"{prefix}/{name}"
    return name


def _header_text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode(errors="surrogateescape")


def _parse_pax_records(content: bytes) -> dict[str, str]:
    """Parse records `LENGTH NAME=VALUE\n`."""
    fields: dict[str, str] = {}
    position = 0
    while position < len(content):
        space = content.find(b" ", position, position + 8)
        digits = content[position:space]
        if (
            space < 0
            or not digits.isdigit()
            or int(digits) < len(digits) + 4
            or content[position + int(digits) - 1 :][:1] != b"\n"
        ):
            raise InvalidInput("the archive has an invalid header")
        end = position + int(digits)
        name, equals, value = content[space + 1 : end - 1].partition(b"=")
        if not equals:
            raise InvalidInput("the archive has an invalid header")
        fields[name.decode(errors="replace")] = value.decode(errors="surrogateescape")
        position = end
    return fields


def _stays_inside(path: str) -> bool:
    if path.startswith("/"):
        return False
    normal = posixpath.normpath(path)
    return normal != ".." and not normal.startswith("../")
