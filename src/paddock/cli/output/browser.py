"""Open links in a graphical browser."""

from __future__ import annotations

import sys


def open_in_browser(address: str) -> bool:
    """Open the link in a graphical browser; return whether that worked. Text browsers are not used."""
    import os
    import webbrowser

    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False
