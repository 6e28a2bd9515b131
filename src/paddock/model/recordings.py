"""What is kept of a screen, and how much of it."""

from __future__ import annotations

from enum import StrEnum

from pydantic import AwareDatetime, Field

from paddock.model.owners import Visibility
from paddock.model.sandbox import Frozen


class RecordingState(StrEnum):
    RECORDING = "recording"
    STOPPED = "stopped"


class RecordingWish(Frozen):
    """How a screen is to be recorded. `None` means as much as the configuration allows."""

    fps: float = Field(default=5.0, ge=0.1, le=30)
    """Most pictures a second; a screen that does not change costs none."""
    quality: int = Field(default=75, ge=1, le=95)
    """Of the JPEGs."""
    max_time: float | None = Field(default=None, gt=0)
    """Seconds after which it stops by itself."""
    max_size: int | None = Field(default=None, ge=2**16)
    """Bytes after which it stops by itself."""


class Recording(Frozen):
    """One recording of one sandbox's screen."""

    id: str
    tenant: str
    sandbox_id: str
    subject: str | None = None
    """Owner of its sandbox."""
    visibility: Visibility = Visibility.TENANT
    """That of its sandbox when the recording began; what counts while the sandbox is there is the sandbox's."""
    state: RecordingState
    started_at: AwareDatetime
    stopped_at: AwareDatetime | None = None
    reason: str | None = None
    """Why it stopped: `stopped`, `time`, `size`, `disk`, `sandbox`, `server`."""
    fps: float
    quality: int
    frames: int = 0
    size: int = 0
    """Bytes."""
    width: int = 0
    height: int = 0
