"""Takes from Wine's programs the notes for debuggers, which are three quarters of their size."""

from __future__ import annotations

import os
import struct
import sys

_HEADER = struct.Struct("<HHIIIHH")
_SECTION = struct.Struct("<8sIIIIIIHHI")


def _name(field: bytes, strings: bytes) -> bytes:
    """A section's name; one too long for the field is a slash and its place among the strings."""
    name = field.rstrip(b"\0")
    return strings[int(name[1:]) :].split(b"\0", 1)[0] if name.startswith(b"/") else name


def slim(path: str) -> int:
    """Cut a program's debugging sections, which come last in it, and say how many bytes that saves."""
    with open(path, "r+b") as file:
        head = file.read(4096)
        if head[:2] != b"MZ":
            return 0
        at = struct.unpack_from("<I", head, 60)[0]
        if head[at : at + 4] != b"PE\0\0":
            return 0
        machine, count, stamp, symbols, names, optional, flags = _HEADER.unpack_from(head, at + 4)
        table = at + 24 + optional
        sections = [_SECTION.unpack_from(head, table + 40 * number) for number in range(count)]
        file.seek(symbols + 18 * names)
        strings = file.read() if symbols else b""
        kept = [section for section in sections if not _name(section[0], strings).startswith(b".debug")]
        if kept != sections[: len(kept)]:
            return 0
        end = max((place + size for _, _, _, size, place, *_ in kept), default=0)
        before = os.fstat(file.fileno()).st_size
        if not end or end >= before:
            return 0
        alignment = struct.unpack_from("<I", head, at + 24 + 32)[0]
        reach = max(address + max(virtual, size) for _, virtual, address, size, *_ in kept)
        file.seek(at + 4)
        file.write(_HEADER.pack(machine, len(kept), stamp, 0, 0, optional, flags))
        file.seek(at + 24 + 56)
        file.write(struct.pack("<I", -(-reach // alignment) * alignment))
        file.seek(table + 40 * len(kept))
        file.write(bytes(40 * (count - len(kept))))
        file.truncate(end)
        return before - end


if __name__ == "__main__":
    saved = sum(slim(os.path.join(place, name)) for place, _, names in os.walk(sys.argv[1]) for name in names)
    print(f"{saved >> 20} MB of notes for debuggers are gone")
