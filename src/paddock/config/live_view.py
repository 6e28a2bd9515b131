"""Settings of desktops, terminals, recordings and sandbox tools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, field_validator

from paddock.config.section import ConfigSection
from paddock.config.units import Bytes, Seconds


class LiveViewConfig(ConfigSection):
    """Live view and control of sandboxes, recordings and sandbox tools."""

    clipboard: Literal["both", "in", "out", "none"] = "both"
    """Allowed directions of clipboard text: `in` from viewers to the sandbox, `out` from the sandbox to viewers."""
    viewers: int = Field(default=64, ge=1, le=10_000)
    """Maximum number of viewers connected to the desktop of one sandbox."""
    input_wait: Seconds = Field(default=30, ge=0, le=3600)
    """How long an agent's mouse and keyboard tools wait while a person controls the desktop."""
    call_timeout: Seconds = Field(default=600, ge=1, le=86400)
    """Time limit of tool calls that do not set their own."""
    wall_rate: float = Field(default=5, gt=0, le=30)
    """Maximum frame rate per sandbox on the screen wall, in frames per second."""
    wall_size: int = Field(default=100, ge=1, le=1000)
    """Maximum number of sandboxes on one screen wall."""
    recording_rate: float = Field(default=10, gt=0, le=30)
    """Maximum frame rate of recordings, in frames per second."""
    recording_time: Seconds = Field(default=4 * 3600, ge=1)
    """Maximum length of a recording."""
    recording_size: Bytes = Field(default=2 * 2**30, ge=2**16)
    """Maximum size of a recording."""
    recordings_at_once: int = Field(default=8, ge=0)
    """Maximum number of recordings in progress per tenant."""
    recordings_total: Bytes = Field(default=20 * 2**30, ge=0)
    """Maximum total size of the recordings of one tenant; new recordings are refused when it is reached."""
    export_time: Seconds = Field(default=600, gt=0, le=86400)
    """Time limit for exporting a recording as a video."""
    devices: Mapping[str, str] = {}
    """Android devices and emulators that can be attached to sandboxes: name to `HOST:PORT` of the ADB connection."""
    devices_for: tuple[str, ...] = ("default",)
    """Tenants whose sandboxes may use `devices`; `*` means all. They can access a device's data and its network."""

    @field_validator("devices")
    @classmethod
    def _are_named_addresses(cls, devices: Mapping[str, str]) -> Mapping[str, str]:
        for name, address in devices.items():
            if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
                raise ValueError(
                    f"{name[:80]!r} is not a valid device name; use lowercase letters, digits and '-', "
                    "with a letter or digit at both ends"
                )
            found = re.fullmatch(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/@]+):([0-9]{1,5})", address)
            if found is None or not 0 < int(found[1]) < 65536:
                raise ValueError(
                    f"{name}: {address[:80]!r} is not an address; write HOST:PORT, such as 192.168.1.20:5555"
                )
        return devices
