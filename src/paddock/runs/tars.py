"""Looks through a tar archive as it comes, without unpacking it, and refuses what could do harm.

Only what `tar` writes by itself is understood: plain headers, and the long names of GNU and POSIX. All is bounded,
because an archive is made by whoever sends it.
"""

from __future__ import annotations

import posixpath

from paddock.errors import InvalidInput

BLOCK = 512
MOST_MEMBERS = 200_000
MAX_NAMES = 64 * 1024
"""Bytes of a header that only says more about the member behind it."""
MAX_PATH = 4096
_FILES = b"0\0" + b"7"
_HARD_LINK, _SYMBOLIC_LINK, _DIRECTORY = b"1", b"2", b"5"
_MORE = {b"L": "path", b"K": "linkpath"}
_PAX, _PAX_FOR_ALL = b"x", b"g"
_KINDS = {b"3": "a device", b"4": "a device", b"6": "a named pipe", b"S": "a sparse file", b"M": "a part of a file"}
_ZEROS = bytes(BLOCK)


class TarCheck:
    """Feed it all of an archive, then `close` it. Both raise `InvalidInput` that says what is wrong."""

    def __init__(self) -> None:
        self.members = 0
        self.size = 0
        """Bytes of all files."""
        self._rest = bytearray()
        self._skip = 0
        self._names: bytes | None = None
        """The type of the header under way that says more about the next member."""
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
                self._block(block)

    def close(self) -> None:
        if self._skip or self._rest or self._names is not None:
            raise InvalidInput("the archive breaks off in the middle")
        if not self.members and not self._ended:
            raise InvalidInput("the archive is empty")

    def _block(self, block: bytes) -> None:
        if self._names is not None:
            kind, self._names = self._names, None
            self._more(kind, block[: self._left])
        elif self._ended or block == _ZEROS:
            # What follows the end is padding; tar does not look at it either.
            self._ended = True
        else:
            self._header(block)

    def _header(self, block: bytes) -> None:
        if not self.members and not self._said and block[:2] == b"\x1f\x8b":
            raise InvalidInput("the archive is compressed; send a plain tar")
        if _number(block[148:156]) != sum(block[:148]) + 8 * 32 + sum(block[156:]):
            raise InvalidInput("this is no tar archive, or a damaged one")
        kind = block[156:157]
        size = _number(block[124:136])
        if kind in _MORE or kind in (_PAX, _PAX_FOR_ALL):
            if not 0 < size <= MAX_NAMES:
                raise InvalidInput("the archive has a name that is too long")
            self._names, self._left = kind, size
            return
        self._member(kind, block, size)

    def _more(self, kind: bytes, content: bytes) -> None:
        if kind in _MORE:
            self._said[_MORE[kind]] = _text(content)
            return
        fields = _pax_fields(content)
        if kind == _PAX_FOR_ALL:
            if fields.keys() & {"path", "linkpath", "size"}:
                raise InvalidInput("the archive has a name or a size that is meant for all files")
            return
        if any(name.startswith("GNU.sparse") for name in fields):
            raise InvalidInput("the archive has a sparse file; pack it without --sparse")
        self._said |= fields

    def _member(self, kind: bytes, block: bytes, size: int) -> None:
        said, self._said = self._said, {}
        name = said.get("path") or _name(block)
        link = said.get("linkpath") or _text(block[157:257])
        if "size" in said:
            if not said["size"].isascii() or not said["size"].isdigit() or len(said["size"]) > 18:
                raise InvalidInput("the archive has a size that is no number")
            size = int(said["size"])
        shown = ascii(name[:200])
        self.members += 1
        if self.members > MOST_MEMBERS:
            raise InvalidInput(f"the archive has more than {MOST_MEMBERS} files")
        if len(name) > MAX_PATH or "\0" in name or not _stays(name):
            raise InvalidInput(f"the archive's member {shown} leads out of the directory it is unpacked in")
        if kind in _FILES:
            self.size += size
            self._skip = _padded(size)
        elif kind == _SYMBOLIC_LINK:
            if not link or not _stays(posixpath.join(posixpath.dirname(name), link)) or link.startswith("/"):
                raise InvalidInput(f"the archive's link {shown} leads out of the directory it is unpacked in")
        elif kind == _HARD_LINK:
            if not link or not _stays(link):
                raise InvalidInput(f"the archive's link {shown} leads out of the directory it is unpacked in")
        elif kind != _DIRECTORY:
            what = _KINDS.get(kind, "of an unknown kind")
            raise InvalidInput(f"the archive's member {shown} is {what}; only files, directories and links are taken")


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _number(field: bytes) -> int:
    if field[:1] == b"\x80":  # Large numbers are not in digits.
        value = int.from_bytes(field[1:], "big")
    else:
        digits = field.strip(b" \0")
        if digits.translate(None, b"01234567"):
            raise InvalidInput("this is no tar archive, or a damaged one")
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
    """Records of the form `LENGTH NAME=VALUE`, each with a line break at its end."""
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
            raise InvalidInput("the archive has a header that makes no sense")
        end = position + int(digits)
        name, equals, value = content[space + 1 : end - 1].partition(b"=")
        if not equals:
            raise InvalidInput("the archive has a header that makes no sense")
        fields[name.decode(errors="replace")] = value.decode(errors="surrogateescape")
        position = end
    return fields


def _stays(path: str) -> bool:
    if path.startswith("/"):
        return False
    normal = posixpath.normpath(path)
    return normal != ".." and not normal.startswith("../")
