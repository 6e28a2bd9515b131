"""The commands of how-to pages with desktops, browsers and phones."""

from __future__ import annotations

import pytest

from tests.docs.conftest import RunPage

pytestmark = pytest.mark.timeout(400)


def test_keep_sandboxes_ready(run_page: RunPage) -> None:
    run_page("docs/how-to/keep-sandboxes-ready.md", "agent-base", "desktop")


def test_use_a_screen(run_page: RunPage) -> None:
    run_page("docs/how-to/use-a-screen.md", "desktop", "browser")


def test_drive_a_browser_or_a_phone(run_page: RunPage) -> None:
    run_page("docs/how-to/drive-a-browser-or-a-phone.md", "browser", "mobile")
