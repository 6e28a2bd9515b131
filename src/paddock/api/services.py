"""The services that route modules receive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paddock.telemetry.event_loop_monitor import EventLoopMonitor
from paddock.telemetry.log_buffer import LogBuffer
from paddock.telemetry.prometheus import RequestMetrics

if TYPE_CHECKING:
    from paddock.agents.sessions.session_service import SessionService
    from paddock.auth.api_keys import ApiKeys
    from paddock.auth.logins import BrowserLogins
    from paddock.auth.preview_links import PreviewLinkSigner
    from paddock.config.schema import Config
    from paddock.events.event_log import EventLog
    from paddock.fleet.fleet import Fleet
    from paddock.fleet.port_previews import PortPreviews
    from paddock.live.services import LiveServices
    from paddock.llm.archive.archive import ExchangeArchive
    from paddock.llm.gateway.gateway import ModelGateway
    from paddock.llm.metering.budgets import KeyBudgets
    from paddock.llm.metering.usage_ledger import UsageLedger
    from paddock.mcp.gateway.services import McpServices
    from paddock.mcp.serving.http_edge import McpHttpEdge
    from paddock.network.connection_history import ConnectionHistory
    from paddock.network.sandbox_network_control import SandboxNetworkControl
    from paddock.network.vault.credential_vaults import CredentialVaults
    from paddock.runs.run_service import RunService
    from paddock.sandbox.images import ImageBuildJobs, ImageStore
    from paddock.store.model_exchanges.usage_series import UsageSeriesStore
    from paddock.store.object_counts import ObjectCounts


@dataclass(frozen=True)
class ApiServices:
    config: Config
    fleet: Fleet
    keys: ApiKeys
    logins: BrowserLogins
    images: ImageStore
    builds: ImageBuildJobs
    events: EventLog
    gateway: ModelGateway
    runs: RunService
    live: LiveServices
    sessions: SessionService
    networks: SandboxNetworkControl
    connections: ConnectionHistory
    vaults: CredentialVaults
    previews: PortPreviews
    preview_links: PreviewLinkSigner
    counts: ObjectCounts
    series: UsageSeriesStore
    mcp_edge: McpHttpEdge
    mcp_services: McpServices
    ready: Callable[[], Awaitable[None]]
    """Raises `Unavailable` while the database cannot be read and written."""
    log: LogBuffer = field(default_factory=LogBuffer)
    traffic: RequestMetrics = field(default_factory=RequestMetrics)
    loop: EventLoopMonitor = field(default_factory=EventLoopMonitor)

    @property
    def archive(self) -> ExchangeArchive:
        return self.gateway.archive

    @property
    def ledger(self) -> UsageLedger:
        return self.gateway.ledger

    @property
    def budgets(self) -> KeyBudgets:
        return self.gateway.budgets
