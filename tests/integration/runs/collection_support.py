"""Helpers to inspect collected deliverables."""

from __future__ import annotations

from typing import Any

from paddock.model.task import Deliverable
from paddock.runs.results.deliverable_collector import CollectedDeliverables
from paddock.runs.results.run_folder import RunFolder


def deliverables_for(*paths: str | dict[str, Any]) -> list[Deliverable]:
    return [Deliverable.model_validate(each) for each in paths]


def delivered_paths(collected: CollectedDeliverables) -> list[str]:
    return [each.path for each in collected.delivered]


def stored_paths(folder: RunFolder) -> list[str]:
    """Return the paths of all files in the run folder; deliverables without their directory."""
    found = (path.relative_to(folder.path) for path in folder.path.rglob("*") if not path.is_dir())
    return sorted(str(path).removeprefix("deliverables/") for path in found)


def missing_reason(collected: CollectedDeliverables) -> str:
    [missing] = collected.missing
    return missing.reason
