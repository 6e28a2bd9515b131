"""What one box may use, as settings say it."""

from __future__ import annotations

from pydantic import Field

from paddock.config.base import Section
from paddock.config.units import Bytes, Cpus


class LimitsConfig(Section):
    """What one box may use."""

    cpu: Cpus | None = Field(default=None, gt=0)
    """CPUs, fractions allowed."""
    memory: Bytes | None = Field(default=None, ge=16 * 2**20)
    """Memory, counting what the box keeps in tmpfs and page cache."""
    pids: int | None = Field(default=None, ge=4)
    """Processes and threads."""
    disk: Bytes | None = Field(default=None, ge=2**20)
    """What the box may write to its own layer and workspace."""
    files: int | None = Field(default=None, ge=64)
    """Open files per process."""
