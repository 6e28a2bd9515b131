"""Base class of all configuration sections."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class ConfigSection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, defer_build=True)
