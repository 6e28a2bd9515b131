"""Streaming validation of tar archives: rejects unsafe members without unpacking.

Supports plain headers and the long names of GNU and POSIX tar. All sizes are limited,
because archives are untrusted.
"""

from __future__ import annotations

import posixpath

from paddock.errors import InvalidInput

BLOCK = 512
MOST_MEMBERS = 200_000
MAX_NAMES = 64 * 1024
"""Maximum bytes of an extension header."""
MAX_PATH = 4096
_FILES = b"0\0" + b"7"
_HARD_LINK, _SYMBOLIC_LINK, _DIRECTORY = b"1", b"2", b"5"
_MORE = {b"L": "path", b"K": "linkpath"}
_PAX, _PAX_FOR_ALL = b"x", b"g"
_KINDS = {b"3": "a device", b"4": "a device", b"6": "a named pipe", b"S": "a sparse file", b"M": "a part of a file"}
_ZEROS = bytes(BLOCK)


class TarValidator:
    """Incremental tar validator. `feed` and `close` raise `InvalidInput`."""

    def __init__(self) -> None:
        self.members = 0
        self.size = 0
        """Total bytes of all files."""
        self._rest = bytearray()
        self._skip = 0
        self._names: bytes | None = None
        """Type of the extension header that is being read."""
        self._left = 0
        self._said: dict[str, str] = {}
        self._ended = False

    def feed(self, data: bytes) -> None:
        view, position = memoryview(data), 0
        while position < len(data):
            if self._skip:
                count = min(self._skip, len(data) - position)
                self._skip -= count
                position += count
                continue
            wanted = BLOCK if self._names is None else _padded(self._left)
            count = min(wanted - len(self._rest), len(data) - position)
            self._rest += view[position : position + count]
            position += count
            if len(self._rest) == wanted:
                block, self._rest = bytes(self._rest), bytearray()
                self._process_block(block)

    def close(self) -> None:
        if self._skip or self._rest or self._names is not None:
            raise InvalidInput("the archive is truncated; send it again")
        if not self.members and not self._ended:
            raise InvalidInput("the archive is empty")

    def _process_block(self, block: bytes) -> None:
        if self._names is not None:
            kind, self._names = self._names, None
            self._process_extension(kind, block[: self._left])
        elif self._ended or block == _ZEROS:
            # Ignore padding after the end, as tar does.
            self._ended = True
        else:
            self._process_header(block)

    def _process_header(self, block: bytes) -> None:
        if not self.members and not self._said and block[:2] == b"\x1f\x8b":
            raise InvalidInput("the archive is compressed; send a plain tar")
        if _number(block[148:156]) != sum(block[:148]) + 8 * 32 + sum(block[156:]):
            raise InvalidInput("not a tar archive, or a damaged one; send a plain tar")
        kind = block[156:157]
        size = _number(block[124:136])
        if kind in _MORE or kind in (_PAX, _PAX_FOR_ALL):
            if not 0 < size <= MAX_NAMES:
                raise InvalidInput("the archive has a name that is too long")
            self._names, self._left = kind, size
            return
        self._check_member(kind, block, size)

    def _process_extension(self, kind: bytes, content: bytes) -> None:
        if kind in _MORE:
            self._said[_MORE[kind]] = _text(content)
            return
        fields = _pax_fields(content)
        if kind == _PAX_FOR_ALL:
            if fields.keys() & {"path", "linkpath", "size"}:
                raise InvalidInput(
                    "the archive has a global header with a name or a size; pack it without global headers"
                )
            return
        if any(name.startswith("GNU.sparse") for name in fields):
            raise InvalidInput("the archive has a sparse file; pack it without --sparse")
        self._said |= fields

    def _check_member(self, kind: bytes, block: bytes, size: int) -> None:
        said, self._said = self._said, {}
        name = said.get("path") or _name(block)
        link = said.get("linkpath") or _text(block[157:257])
        if "size" in said:
            if not said["size"].isascii() or not said["size"].isdigit() or len(said["size"]) > 18:
                raise InvalidInput("the archive has an invalid size")
            size = int(said["size"])
        shown = ascii(name[:200])
        self.members += 1
        if self.members > MOST_MEMBERS:
            raise InvalidInput(f"the archive has more than {MOST_MEMBERS} files")
        if len(name) > MAX_PATH or "\0" in name or not _stays_inside(name):
            raise InvalidInput(f"the archive's member {shown} leaves the directory it is unpacked in")
        if kind in _FILES:
            self.size += size
            self._skip = _padded(size)
        elif kind == _SYMBOLIC_LINK:
            if not link or not _stays_inside(posixpath.join(posixpath.dirname(name), link)) or link.startswith("/"):
                raise InvalidInput(f"the archive's link {shown} leaves the directory it is unpacked in")
        elif kind == _HARD_LINK:
            if not link or not _stays_inside(link):
                raise InvalidInput(f"the archive's link {shown} leaves the directory it is unpacked in")
        elif kind != _DIRECTORY:
            what = _KINDS.get(kind, "of an unknown kind")
            raise InvalidInput(
                f"the archive's member {shown} is {what}; only files, directories and links are accepted"
            )


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _number(field: bytes) -> int:
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


def _name(block: bytes) -> str:
    name = _text(block[:100])
    if block[257:263] == b"ustar\0" and (prefix := _text(block[345:500])):
        return f"{prefix}/{name}"
    return name


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode(errors="surrogateescape")


def _pax_fields(content: bytes) -> dict[str, str]:
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
