"""Screen recordings."""

from __future__ import annotations

from enum import StrEnum

from pydantic import AwareDatetime, Field

from paddock.model.owners import Visibility
from paddock.model.sandbox import FrozenModel


class RecordingState(StrEnum):
    RECORDING = "recording"
    STOPPED = "stopped"


class RecordingOptions(FrozenModel):
    """Options of a recording. `None` means the maximum that the configuration allows."""

    fps: float = Field(default=5.0, ge=0.1, le=30)
    """Maximum frames per second; unchanged screens add no frames."""
    quality: int = Field(default=75, ge=1, le=95)
    """JPEG quality."""
    max_time: float | None = Field(default=None, gt=0)
    """Maximum duration in seconds."""
    max_size: int | None = Field(default=None, ge=2**16)
    """Maximum size in bytes."""


class Recording(FrozenModel):
    """One recording of one sandbox's screen."""

    id: str
    tenant: str
    sandbox_id: str
    subject: str | None = None
    """Owner of its sandbox."""
    visibility: Visibility = Visibility.TENANT
    """Visibility of the sandbox at the start; while the sandbox exists, its own visibility counts."""
    state: RecordingState
    started_at: AwareDatetime
    stopped_at: AwareDatetime | None = None
    reason: str | None = None
    """Reason for the end: `stopped`, `time`, `size`, `disk`, `sandbox`, `server`."""
    fps: float
    quality: int
    frames: int = 0
    size: int = 0
    """Bytes."""
    width: int = 0
    height: int = 0
