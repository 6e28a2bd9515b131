"""Dependencies of the run service: configuration, fleet, images, model gateway and storage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.config.schema import Config
from paddock.events.event_log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.mcp.declared_servers import referenced_secrets
from paddock.mcp.gateway.services import McpServices
from paddock.model.task import Task
from paddock.network.connection_history import ConnectionHistory
from paddock.runs.inputs.input_bundle_store import InputBundleStore
from paddock.runs.output.secret_masking import SecretMasker
from paddock.runs.presets import PresetLibrary
from paddock.runs.results.deliverable_uploader import DeliverableUploader
from paddock.runs.results.run_folder import RunFolder, mask_task_secrets
from paddock.sandbox.images import ImageStore

if TYPE_CHECKING:
    from paddock.llm.gateway.gateway import ModelGateway


@dataclass(frozen=True)
class RunServiceDependencies:
    """Shared services and settings that the run service, its stages and readiness checks use."""

    config: Config
    fleet: Fleet
    images: ImageStore
    gateway: ModelGateway
    events: EventLog
    connections: ConnectionHistory
    presets: PresetLibrary
    bundles: InputBundleStore
    deliverable_uploader: DeliverableUploader
    folders: Path
    """Parent directory of the run folders."""
    mcp: McpServices | None = None

    @classmethod
    def create(
        cls,
        config: Config,
        *,
        fleet: Fleet,
        images: ImageStore,
        gateway: ModelGateway,
        events: EventLog,
        connections: ConnectionHistory,
        mcp: McpServices | None = None,
    ) -> RunServiceDependencies:
        """Create from the configuration. Raises `ConfigError` for an unsupported address of `runs.artifacts`."""
        bundles = InputBundleStore(config.data / "bundles")
        bundles.open()
        deliverable_uploader = DeliverableUploader(config.runs.artifacts)
        deliverable_uploader.check_address()
        return cls(
            config=config,
            fleet=fleet,
            images=images,
            gateway=gateway,
            events=events,
            connections=connections,
            mcp=mcp,
            presets=PresetLibrary(config.runs.presets, owner="the server"),
            bundles=bundles,
            deliverable_uploader=deliverable_uploader,
            folders=config.data / "runs",
        )

    def run_folder(self, run_id: str) -> RunFolder:
        return RunFolder(self.folders, run_id)

    def secret_masker(self, task: Task) -> SecretMasker:
        """Return a masker for the secrets of a task."""
        secrets = self.config.runs.secrets
        named = {*task.secrets, *referenced_secrets(task.mcp)}
        return SecretMasker(secrets[name].get_secret_value() for name in named if name in secrets)

    def masked_task(self, task: Task) -> dict[str, Any]:
        """Return the task document with secrets masked."""
        return mask_task_secrets(task, self.secret_masker(task).mask_text)
