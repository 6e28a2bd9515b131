"""Shared by all tests."""

from __future__ import annotations

import os
from hashlib import sha256

import pytest
from hypothesis import HealthCheck, settings

from paddock.config.provider_discovery import PROVIDER_VARIABLES
from paddock.store import database
from paddock.store.schema_migration import migrate_schema
from tests.support.forked_servers import cache_start_up_work

os.environ["PADDOCK_RUNS__WARM_SERVER"] = "0"  # No server stays behind a command.
for name in PROVIDER_VARIABLES:  # Developers may have provider keys; tests ignore them.
    os.environ.pop(name, None)

# How long it takes to think of an example says something of the machine, and nothing of what is tested.
settings.register_profile("paddock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("paddock")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Workers take whole files in this order: mixed, so that not all browsers are at work at the same time, and with
    the short ones last, so that none is left with a long one at the end."""

    def place(item: pytest.Item) -> tuple[bool, bytes]:
        file = item.nodeid.partition("::")[0]
        return file.startswith("tests/unit/"), sha256(file.encode()).digest()

    if hasattr(config, "workerinput"):
        items.sort(key=place)


@pytest.fixture(scope="session", autouse=True)
def _ready(tmp_path_factory: pytest.TempPathFactory) -> None:
    cache_start_up_work(tmp_path_factory.mktemp("ready"))


@pytest.fixture
def migrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """New databases are made by all migrations, one after the other, and are no copies."""
    monkeypatch.setattr(database, "migrate_schema", migrate_schema)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
