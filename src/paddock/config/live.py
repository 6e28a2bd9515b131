"""The settings of screens, terminals and tools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, field_validator

from paddock.config.base import Section
from paddock.config.units import Bytes, Seconds


class LiveConfig(Section):
    """What is shown of sandboxes, and who touches them."""

    clipboard: Literal["both", "in", "out", "none"] = "both"
    """Which ways copied text may go: `in` from viewers to the box, `out` from the box to viewers."""
    viewers: int = Field(default=64, ge=1, le=10_000)
    """Most connections that watch the desktop of one sandbox."""
    input_wait: Seconds = Field(default=30, ge=0, le=3600)
    """How long an agent's tool that uses mouse or keyboard waits while a person has them."""
    call_timeout: Seconds = Field(default=600, ge=1, le=86400)
    """How long a tool may take that sets itself no limit."""
    wall_rate: float = Field(default=5, gt=0, le=30)
    """Most pictures a second that a wall of screens is shown of one sandbox."""
    wall_size: int = Field(default=100, ge=1, le=1000)
    """Most sandboxes on one wall."""
    recording_rate: float = Field(default=10, gt=0, le=30)
    """Most pictures a second that a recording keeps."""
    recording_time: Seconds = Field(default=4 * 3600, ge=1)
    """Longest recording."""
    recording_size: Bytes = Field(default=2 * 2**30, ge=2**16)
    """Largest recording."""
    recordings_at_once: int = Field(default=8, ge=0)
    """Recordings that one tenant may have under way."""
    recordings_total: Bytes = Field(default=20 * 2**30, ge=0)
    """Size of all recordings of one tenant together; a new one is refused beyond it."""
    export_time: Seconds = Field(default=600, gt=0, le=86400)
    """How long turning a recording into a film may take."""
    devices: Mapping[str, str] = {}
    """Android devices and emulators that sandboxes may be given by name: `HOST:PORT` where each answers to ADB."""
    devices_for: tuple[str, ...] = ("default",)
    """Tenants whose sandboxes may have `devices`; `*` is all. They can use all that is on one, and its network, too."""

    @field_validator("devices")
    @classmethod
    def _are_named_addresses(cls, devices: Mapping[str, str]) -> Mapping[str, str]:
        for name, address in devices.items():
            if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
                raise ValueError(
                    f"{name[:80]!r} is no name of a device; use small letters, digits and '-', with a letter or digit "
                    "at both ends"
                )
            found = re.fullmatch(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/@]+):([0-9]{1,5})", address)
            if found is None or not 0 < int(found[1]) < 65536:
                raise ValueError(f"{name}: {address[:80]!r} is no address; write HOST:PORT, such as 192.168.1.20:5555")
        return devices
