"""The tools of a box that is a phone: chromium as one, or a real Android device over ADB."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..context import Context
    from ..registry import Tool
    from .phone import Phone


def tools(context: Context) -> list[Tool]:
    """Offer the phone that there is."""
    from .gestures import tools as gestures

    return gestures(phone_of(context))


def phone_of(context: Context) -> Phone:
    """The device that PADDOCK_ADB names, or else the browser as a phone."""
    device = os.environ.get("PADDOCK_ADB", "").strip()
    if device:
        from .adb import AdbPhone

        return AdbPhone(device, os.environ.get("PADDOCK_DEVICE", "").strip())
    from .web import WebPhone

    return WebPhone(context)
