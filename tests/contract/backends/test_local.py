"""The local backend keeps the contract, for root and for an ordinary user."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator

import pytest
from tests.contract.backends.support import (
    UIDS_PER_DIRECTORY,
    NoOrdinaryUserError,
    assert_nothing_left,
    run_as_ordinary_user,
)

from paddock.sandbox.local.backend import LocalBackend, LocalBackendSettings
from paddock.testing.backends import BackendConformance


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBackendSettings]:
    data = tmp_path_factory.mktemp("data") / f"data-{secrets.token_hex(6)}"
    base = 1_300_000_000 + secrets.randbelow(1_000_000) * UIDS_PER_DIRECTORY
    made = LocalBackendSettings(data=data, uid_base=base, uid_count=UIDS_PER_DIRECTORY)
    yield made
    assert_nothing_left(made)


@pytest.fixture
def make_backend(settings: LocalBackendSettings) -> Callable[[], LocalBackend]:
    return lambda: LocalBackend(settings)


class TestLocal(BackendConformance):
    """As the user of the tests."""


CHECKS = [name for name in dir(BackendConformance) if name.startswith("test_")]


@pytest.mark.timeout(300)
@pytest.mark.skipif(os.geteuid() != 0, reason="already run as an ordinary user; root's half needs root")
def test_backend_of_unprivileged_user_meets_the_contract() -> None:
    try:
        tally = run_as_ordinary_user(__file__, "-k", "TestLocal")
    except NoOrdinaryUserError as reason:
        pytest.skip(str(reason))
    assert tally.failed == 0, tally.report
    # Once as the image's user, once in root mode.
    assert tally.passed + tally.skipped == 2 * len(CHECKS), tally.report
    assert tally.passed >= 2 * (len(CHECKS) - 3), tally.report
