"""Resource limits of a sandbox."""

from __future__ import annotations

from pydantic import Field

from paddock.config.section import ConfigSection
from paddock.config.units import Bytes, Cpus


class SandboxLimitsConfig(ConfigSection):
    """Resource limits of a sandbox."""

    cpu: Cpus | None = Field(default=None, gt=0)
    """CPUs; fractions are allowed."""
    memory: Bytes | None = Field(default=None, ge=16 * 2**20)
    """Memory, including tmpfs and page cache."""
    pids: int | None = Field(default=None, ge=4)
    """Number of processes and threads."""
    disk: Bytes | None = Field(default=None, ge=2**20)
    """Disk space for the writable layer and the workspace."""
    files: int | None = Field(default=None, ge=64)
    """Number of open files per process."""
