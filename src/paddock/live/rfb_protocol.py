"""Numbers of the RFB protocol: client message types and flags of the extended clipboard."""

from __future__ import annotations

SET_PIXEL_FORMAT, SET_ENCODINGS, UPDATE_REQUEST, KEY, POINTER, CUT_TEXT = 0, 2, 3, 4, 5, 6
CONTINUOUS_UPDATES, FENCE, SET_DESKTOP_SIZE, QEMU = 150, 248, 251, 255

CLIPBOARD_TEXT_FORMAT = 1
CLIPBOARD_CAPS, CLIPBOARD_REQUEST, CLIPBOARD_PEEK, CLIPBOARD_NOTIFY, CLIPBOARD_PROVIDE = (
    1 << bit for bit in range(24, 29)
)
