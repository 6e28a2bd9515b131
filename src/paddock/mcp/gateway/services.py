"""The gateway and what manages it, for the packages above. Importing this module imports no HTTP client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from paddock.mcp.gateway.gateway import McpGateway
from paddock.mcp.gateway.management import McpServerManagement
from paddock.store.mcp_call_store import McpCallStore

if TYPE_CHECKING:
    from paddock.mcp.oauth.sign_ins import McpSignIns


@dataclass(frozen=True, slots=True)
class McpServices:
    """The gateway, and what manages it."""

    gateway: McpGateway
    management: McpServerManagement
    calls: McpCallStore
    sign_ins: McpSignIns
