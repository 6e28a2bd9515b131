"""Strips the debugging sections from Wine's programs, three quarters of their size."""

from __future__ import annotations

import os
import struct
import sys

_HEADER = struct.Struct("<HHIIIHH")
_SECTION = struct.Struct("<8sIIIIIIHHI")


def _section_name(field: bytes, strings: bytes) -> bytes:
    """Return a section's name; a name too long for the field is a slash and its offset in the string table."""
    name = field.rstrip(b"\0")
    return strings[int(name[1:]) :].split(b"\0", 1)[0] if name.startswith(b"/") else name


def strip_debug_sections(path: str) -> int:
    """Cut off a program's debugging sections, which are its last ones; return the number of bytes saved."""
    with open(path, "r+b") as file:
        head = file.read(4096)
        if head[:2] != b"MZ":
            return 0
        header = struct.unpack_from("<I", head, 60)[0]
        if head[header : header + 4] != b"PE\0\0":
            return 0
        machine, count, stamp, symbols, names, optional, flags = _HEADER.unpack_from(head, header + 4)
        table = header + 24 + optional
        sections = [_SECTION.unpack_from(head, table + 40 * number) for number in range(count)]
        file.seek(symbols + 18 * names)
        strings = file.read() if symbols else b""
        kept = [section for section in sections if not _section_name(section[0], strings).startswith(b".debug")]
        if kept != sections[: len(kept)]:
            return 0
        end = max((offset + size for _, _, _, size, offset, *_ in kept), default=0)
        before = os.fstat(file.fileno()).st_size
        if not end or end >= before:
            return 0
        alignment = struct.unpack_from("<I", head, header + 24 + 32)[0]
        image_size = max(address + max(virtual, size) for _, virtual, address, size, *_ in kept)
        file.seek(header + 4)
        file.write(_HEADER.pack(machine, len(kept), stamp, 0, 0, optional, flags))
        file.seek(header + 24 + 56)
        file.write(struct.pack("<I", -(-image_size // alignment) * alignment))
        file.seek(table + 40 * len(kept))
        file.write(bytes(40 * (count - len(kept))))
        file.truncate(end)
        return before - end


if __name__ == "__main__":
    paths = [os.path.join(directory, name) for directory, _, names in os.walk(sys.argv[1]) for name in names]
    saved = sum(strip_debug_sections(path) for path in paths)
    print(f"{saved >> 20} MB of debugging sections removed")
