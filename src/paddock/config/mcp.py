"""Settings of MCP servers outside sandboxes."""

from __future__ import annotations

from pydantic import field_validator

from paddock.config.network_targets import parse_allowed_target
from paddock.config.section import ConfigSection


class McpConfig(ConfigSection):
    """External MCP servers that tasks may use by address."""

    allow: tuple[str, ...] = ()
    """Servers in private networks or on this machine that tasks may use: host names, addresses or networks such as
    `10.1.0.0/16`, each with or without `:PORT`. Public addresses need no entry. The ports of Paddock and of its
    sandboxes are always refused."""

    @field_validator("allow")
    @classmethod
    def _are_targets(cls, allow: tuple[str, ...]) -> tuple[str, ...]:
        for entry in allow:
            parse_allowed_target(entry)
        return allow
