from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.sandbox.daemon.zipapp_builder import build_daemon_zipapp

from .daemon import Daemon, running_daemon


@pytest.fixture(scope="session")
def zipapp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_daemon_zipapp(tmp_path_factory.mktemp("zipapp"))


@pytest.fixture
def directory() -> Iterator[Path]:
    """A short path: Unix socket names are limited to 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="inside-") as name:
        yield Path(name)


@pytest.fixture
def daemon(zipapp: Path, directory: Path) -> Iterator[Daemon]:
    with running_daemon(zipapp, directory) as running:
        yield running
