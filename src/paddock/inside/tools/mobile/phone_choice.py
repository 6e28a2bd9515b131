"""Chooses the phone of a sandbox: chromium as a phone, or a real Android device over ADB."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..tool_context import ToolContext
    from .phone import Phone


def choose_phone(context: ToolContext) -> Phone:
    """Return the device that PADDOCK_ADB names, or else the sandbox's browser as a phone."""
    device = os.environ.get("PADDOCK_ADB", "").strip()
    if device:
        from .adb_phone import AdbPhone

        return AdbPhone(device, os.environ.get("PADDOCK_DEVICE", "").strip())
    from .web_phone import WebPhone

    return WebPhone(context)
