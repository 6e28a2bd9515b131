"""The commands of how-to pages without screens, and a bound on skipped blocks."""

from __future__ import annotations

import pytest

from tests.docs.conftest import RunPage
from tests.docs.page_reader import ROOT, read_blocks

pytestmark = pytest.mark.timeout(400)
SCREENS = {"drive-a-browser-or-a-phone", "use-a-screen", "keep-sandboxes-ready"}
"""Pages tested in `test_how_to_screens.py`."""
PAGES = sorted(page.stem for page in (ROOT / "docs/how-to").glob("*.md"))
MOST_SKIPPED = 12


@pytest.mark.parametrize("name", [name for name in PAGES if name not in SCREENS])
def test_page(run_page: RunPage, name: str) -> None:
    run_page(f"docs/how-to/{name}.md", "agent-base")


def test_few_blocks_are_skipped_and_each_has_a_reason() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("tutorial/*.md"), *(ROOT / "docs").glob("how-to/*.md")]
    reasons = [(page.name, block.skip) for page in pages for block in read_blocks(page) if block.skip is not None]
    assert [each for each in reasons if len(each[1].split()) < 3] == []
    assert len(reasons) <= MOST_SKIPPED, reasons


def test_every_tutorial_is_run() -> None:
    tests = "".join(path.read_text() for path in (ROOT / "tests/docs").glob("test_*.py"))
    for page in (ROOT / "docs/tutorial").glob("*.md"):
        assert f"docs/tutorial/{page.name}" in tests
