"""What is said of a sandbox's end, in a list and by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paddock.cli.sandbox import _facts, _row


def sandbox(state: str) -> dict[str, Any]:
    end = datetime.now(UTC) + timedelta(minutes=57)
    return {"id": "sb-1", "status": {"state": state}, "image": {"uri": "host"}, "expiresAt": end.isoformat()}


def test_one_that_runs_ends_when_its_time_is_up() -> None:
    assert _row(sandbox("Running"), named=False)[-1] == "in 57m"
    assert "(in 57m)" in dict(_facts(sandbox("Running")))["expires"]


@pytest.mark.parametrize("state", ["Failed", "Terminated"])
def test_one_that_has_ended_has_no_time_left(state: str) -> None:
    assert _row(sandbox(state), named=False)[-1] == ""
    assert dict(_facts(sandbox(state)))["expires"].startswith("no more")
