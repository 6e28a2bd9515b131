"""Previews: addresses under which a browser reaches a port of a sandbox."""

from __future__ import annotations

from pydantic import AwareDatetime, Field

from paddock.model.sandbox import FrozenModel


class SandboxPreview(FrozenModel):
    """Preview of one port; a sandbox has at most one per port."""

    id: str = Field(pattern=r"^[0-9a-f]{32}$")
    """Random and part of the address, so that addresses cannot be guessed."""
    sandbox: str
    tenant: str
    port: int = Field(ge=1, le=65535)
    public: bool = False
    """Whether the address suffices; otherwise a visitor needs the signed link."""
    created_by: str | None = None
    """Name of the key that opened it."""
    created_at: AwareDatetime
    expires_at: AwareDatetime
