"""The settings of runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field, SecretStr, field_validator

from paddock.config.base import Section
from paddock.config.units import Bytes, Seconds


class RunsConfig(Section):
    """How tasks are run."""

    parallel: int = Field(default=16, ge=1, le=10_000)
    """Runs at a time; others wait in the queue."""
    tenant_parallel: int | None = Field(default=None, ge=1)
    """Runs of one tenant at a time; `null` sets no bound."""
    lease: Seconds = Field(default=30, ge=1)
    """How long after a server has gone silent another one on the same database may go on with its runs."""
    grace: Seconds = Field(default=10, ge=0)
    """How long the agent of a run that is cancelled may take to end by itself."""
    secrets: Mapping[str, SecretStr] = {}
    """What tasks may ask for by name in `secrets`, best as `${NAME}` from the environment. Never stored or shown."""
    secrets_for: tuple[str, ...] = ("default",)
    """Tenants whose tasks may ask for `secrets`; `*` is all. What agents print of a secret is masked in logs, events
    and results; what they encode, or write into files, is not."""
    max_inputs: Bytes = Field(default=4 * 2**30, ge=2**20)
    """Largest bundle of inputs that a run may be sent."""
    presets: tuple[Path, ...] = ()
    """Directories with agents' presets of your own, searched before the ones Paddock brings."""
    tasks: Path | None = None
    """Directory with task files that the server offers by name; `null` offers none."""
    artifacts: str | None = Field(default=None, min_length=1)
    """Where deliverables are copied to besides the data directory: any address that fsspec knows."""
    warm_server: Seconds = Field(default=60, ge=0)
    """How long the server that `paddock run` starts for itself stays after its last use, ready for the next command;
    0 ends it with the command."""
    keep: Seconds | None = Field(default=None, gt=0)
    """How long runs that have ended are kept, with their folders; `null` is for ever."""

    @field_validator("secrets")
    @classmethod
    def _are_variables(cls, secrets: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
        for name in secrets:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(f"{name!r} is no name of a variable; use letters, digits and underscores")
        return secrets
