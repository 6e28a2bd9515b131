"""Settings of task runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field, SecretStr, field_validator

from paddock.config.section import ConfigSection
from paddock.config.units import Bytes, Seconds


class RunsConfig(ConfigSection):
    """Execution of tasks."""

    parallel: int = Field(default=16, ge=1, le=10_000)
    """Maximum number of runs at the same time; further runs wait in the queue."""
    tenant_parallel: int | None = Field(default=None, ge=1)
    """Maximum number of runs at the same time per tenant; `null` means unlimited."""
    lease: Seconds = Field(default=30, ge=1)
    """Lease time of runs: after this time without a heartbeat, another server on the same database may take over."""
    grace: Seconds = Field(default=10, ge=0)
    """How long the agent of a cancelled run may take to exit before it is killed."""
    secrets: Mapping[str, SecretStr] = {}
    """Secrets that tasks can request by name. Take them from the environment with `${NAME}`. Never stored or shown."""
    secrets_for: tuple[str, ...] = ("default",)
    """Tenants whose tasks may use `secrets`; `*` means all. Secrets printed by agents are masked in logs, events and
    results; secrets that agents encode or write to files are not."""
    max_inputs: Bytes = Field(default=4 * 2**30, ge=2**20)
    """Maximum size of the input files of a run."""
    presets: tuple[Path, ...] = ()
    """Directories with your own agent presets, searched before the built-in ones."""
    tasks: Path | None = None
    """Directory with task files that clients can start by name; `null` offers none."""
    artifacts: str | None = Field(default=None, min_length=1)
    """Additional location to which deliverables are copied: any URL supported by fsspec."""
    warm_server: Seconds = Field(default=60, ge=0)
    """How long the server started by `paddock run` stays up after its last use, ready for the next command; 0 stops it
    with the command."""
    keep: Seconds | None = Field(default=None, gt=0)
    """How long ended runs and their directories are kept; `null` keeps them forever."""

    @field_validator("secrets")
    @classmethod
    def _are_variables(cls, secrets: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
        for name in secrets:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(f"{name!r} is not a valid variable name; use letters, digits and underscores")
        return secrets
