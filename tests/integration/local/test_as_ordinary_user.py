"""The same attempts against sandboxes that an ordinary user runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.contract.backends.support import NoOrdinaryUserError, run_as_ordinary_user


@pytest.mark.timeout(600)
@pytest.mark.skipif(os.geteuid() != 0, reason="already run as an ordinary user; root's half needs root")
def test_attacks_fail_against_sandboxes_of_unprivileged_user() -> None:
    directory = Path(__file__).parent
    for_root = (f"--ignore={each}" for each in (__file__, directory / "test_owners.py"))
    try:
        tally = run_as_ordinary_user(str(directory), *for_root, timeout=540.0)
    except NoOrdinaryUserError as reason:
        pytest.skip(str(reason))
    assert tally.failed == 0, tally.report
    assert tally.passed >= 350, tally.report
    assert tally.skipped <= 36, tally.report
