"""Writes a streamable Matroska file with JPEG pictures (MJPEG)."""

from __future__ import annotations

import struct

_UNKNOWN = b"\x01\xff\xff\xff\xff\xff\xff\xff"
_APPLICATION = b"paddock"


def matroska_header(width: int, height: int) -> bytes:
    """Return everything that precedes the pictures."""
    kind = b"".join(
        (
            _number(b"\x42\x86", 1),
            _number(b"\x42\xf7", 1),
            _number(b"\x42\xf2", 4),
            _number(b"\x42\xf3", 8),
            _element(b"\x42\x82", b"matroska"),
            _number(b"\x42\x87", 4),
            _number(b"\x42\x85", 2),
        )
    )
    # Times are in milliseconds.
    information = _number(b"\x2a\xd7\xb1", 1_000_000) + _element(b"\x4d\x80", _APPLICATION)
    information += _element(b"\x57\x41", _APPLICATION)
    video = _element(b"\xe0", _number(b"\xb0", width) + _number(b"\xba", height))
    track = _number(b"\xd7", 1) + _number(b"\x73\xc5", 1) + _number(b"\x83", 1)
    track += _element(b"\x86", b"V_MJPEG") + video
    return b"".join(
        (
            _element(b"\x1a\x45\xdf\xa3", kind),
            b"\x18\x53\x80\x67" + _UNKNOWN,
            _element(b"\x15\x49\xa9\x66", information),
            _element(b"\x16\x54\xae\x6b", _element(b"\xae", track)),
        )
    )


def matroska_picture(milliseconds: int, jpeg: bytes) -> bytes:
    """Return the cluster of one picture, shown from this time on."""
    block = _element(b"\xa3", b"\x81" + struct.pack(">h", 0) + b"\x80" + jpeg)
    return _element(b"\x1f\x43\xb6\x75", _number(b"\xe7", milliseconds) + block)


def _number(name: bytes, value: int) -> bytes:
    return _element(name, value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big"))


def _element(name: bytes, content: bytes) -> bytes:
    return name + struct.pack(">Q", len(content) | 1 << 56) + content
