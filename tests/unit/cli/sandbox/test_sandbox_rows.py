"""Expiry of sandboxes in lists and details."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paddock.cli.sandbox.sandbox_commands import _sandbox_facts, _table_row


def sandbox(state: str) -> dict[str, Any]:
    end = datetime.now(UTC) + timedelta(minutes=57)
    return {"id": "sb-1", "status": {"state": state}, "image": {"uri": "host"}, "expiresAt": end.isoformat()}


def test_a_running_sandbox_shows_its_expiry() -> None:
    assert _table_row(sandbox("Running"), named=False)[-1] == "in 57m"
    assert "(in 57m)" in dict(_sandbox_facts(sandbox("Running")))["expires"]


@pytest.mark.parametrize("state", ["Failed", "Terminated"])
def test_an_ended_sandbox_shows_no_expiry(state: str) -> None:
    assert _table_row(sandbox(state), named=False)[-1] == ""
    assert dict(_sandbox_facts(sandbox(state)))["expires"].startswith("already ended")
