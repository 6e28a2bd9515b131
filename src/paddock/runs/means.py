"""Dependencies of runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.config.schema import Config
from paddock.events.log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.mcp.declared import secrets_of
from paddock.model.task import Task
from paddock.runs.artifacts import Artifacts
from paddock.runs.bundles import Bundles
from paddock.runs.folder import RunFolder, readable
from paddock.runs.masking import Masker
from paddock.runs.presets import Presets
from paddock.sandbox.images import ImageStore

if TYPE_CHECKING:
    from paddock.llm.gateway import Gateway


@dataclass(frozen=True)
class Means:
    """What runs are done with."""

    config: Config
    fleet: Fleet
    images: ImageStore
    gateway: Gateway
    events: EventLog
    presets: Presets
    bundles: Bundles
    artifacts: Artifacts
    folders: Path
    """Where each run has its folder."""

    @classmethod
    def make(cls, config: Config, *, fleet: Fleet, images: ImageStore, gateway: Gateway, events: EventLog) -> Means:
        """As the configuration has it. Raises `ConfigError` for an address of artifacts that nothing understands."""
        bundles = Bundles(config.data / "bundles")
        bundles.open()
        artifacts = Artifacts(config.runs.artifacts)
        artifacts.check()
        return cls(
            config=config,
            fleet=fleet,
            images=images,
            gateway=gateway,
            events=events,
            presets=Presets(config.runs.presets, whose="the server"),
            bundles=bundles,
            artifacts=artifacts,
            folders=config.data / "runs",
        )

    def folder(self, run_id: str) -> RunFolder:
        return RunFolder(self.folders, run_id)

    def masker(self, task: Task) -> Masker:
        """Return what masks the secrets that a task names."""
        secrets = self.config.runs.secrets
        named = {*task.secrets, *secrets_of(task.mcp)}
        return Masker(secrets[name].get_secret_value() for name in named if name in secrets)

    def readable(self, task: Task) -> dict[str, Any]:
        """Return a task as its file would have it, with secrets hidden."""
        return readable(task, self.masker(task).text)
