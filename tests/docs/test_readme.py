"""The commands of the README, and their equality in the Chinese README."""

from __future__ import annotations

import re

import pytest

from tests.docs.conftest import RunPage
from tests.docs.page_reader import ROOT, PageBlock, read_blocks

pytestmark = pytest.mark.timeout(500)


def test_readme(run_page: RunPage) -> None:
    run_page("README.md", "agent-claude-code", "agent-codex", "desktop", "browser")


def test_chinese_readme_has_same_commands() -> None:
    english, chinese = (without_comments(read_blocks(ROOT / name)) for name in ("README.md", "README.zh-CN.md"))
    assert chinese == english


def without_comments(blocks: list[PageBlock]) -> list[tuple[object, ...]]:
    return [
        (
            block.language,
            [each.text for each in block.setup],
            block.file,
            block.typed,
            block.exit_code,
            block.skip,
            # Diagrams are translated.
            [re.sub(r"\s+#.*", "", line).strip() for line in block.lines if block.language != "text"],
        )
        for block in blocks
    ]
