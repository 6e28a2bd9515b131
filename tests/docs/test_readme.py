"""The commands of the README."""

from __future__ import annotations

import pytest

from tests.docs.conftest import RunPage

pytestmark = pytest.mark.timeout(500)


def test_readme(run_page: RunPage) -> None:
    run_page("README.md", "agent-claude-code", "agent-codex", "desktop", "browser")
