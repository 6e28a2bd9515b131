"""States of a server's model providers as the doctor reports them."""

from __future__ import annotations

from typing import Any

import pytest

from paddock.cli.doctor import _provider


@pytest.mark.parametrize(
    ("state", "detail", "fix"),
    [
        ({}, "OK at http://127.0.0.1:9", None),
        ({"keyRefusedAt": "2026-01-01T00:00:00Z"}, "key refused at http://127.0.0.1:9", "correct OPENAI_API_KEY"),
        ({"failing": True}, "not reached at http://127.0.0.1:9: requests kept failing", "check its address"),
        ({"listProblem": "refused"}, "no list of models at http://127.0.0.1:9: refused", "check its address"),
    ],
)
def test_the_state_of_a_provider_is_named_with_a_fix(state: dict[str, Any], detail: str, fix: str | None) -> None:
    found = {"name": "openai", "kind": "openai", "baseUrl": "http://127.0.0.1:9", "foundIn": "OPENAI_API_KEY"}
    finding = _provider({**found, **state})
    assert (finding.check, finding.ok, finding.detail) == ("provider openai", fix is None, detail)
    assert not finding.required
    assert fix is None or (finding.fix or "").startswith(fix)
