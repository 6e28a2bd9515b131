"""Helpers to inspect collected deliverables."""

from __future__ import annotations

from typing import Any

from paddock.model.task import Deliverable
from paddock.runs.results.deliverable_collector import CollectedDeliverables
from paddock.runs.results.run_folder import RunFolder


def wanted(*paths: str | dict[str, Any]) -> list[Deliverable]:
    return [Deliverable.model_validate(each) for each in paths]


def names(collected: CollectedDeliverables) -> list[str]:
    return [each.path for each in collected.delivered]


def on_disk(folder: RunFolder) -> list[str]:
    """Everything that is in the folder but its own directories, as a person would find it."""
    found = (path.relative_to(folder.path) for path in folder.path.rglob("*") if not path.is_dir())
    return sorted(str(path).removeprefix("deliverables/") for path in found)


def reason(collected: CollectedDeliverables) -> str:
    [missing] = collected.missing
    return missing.reason
