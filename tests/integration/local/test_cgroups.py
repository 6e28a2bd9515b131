"""Control groups are made where they help, and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paddock.sandbox.local import cgroups

INSTANCE = "0123456789ab"


def parents() -> set[Path]:
    return {path / "paddock" for path, _, _ in cgroups._mounted() if (path / "paddock").is_dir()}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes groups without being given one")
def test_control_groups_are_removed_with_the_last_sandbox() -> None:
    before = parents()
    found = cgroups.find_cgroups(INSTANCE)
    assert all(hierarchy.path.is_dir() for hierarchy in found.hierarchies)
    assert parents() - before == {hierarchy.path.parent for hierarchy in found.hierarchies} - before
    found.dissolve()
    assert parents() == before
