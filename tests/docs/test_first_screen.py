"""The commands of the tutorial with a desktop."""

from __future__ import annotations

import pytest

from tests.docs.conftest import RunPage

pytestmark = pytest.mark.timeout(400)


def test_first_screen(run_page: RunPage) -> None:
    run_page("docs/tutorial/first-screen.md", "desktop")
