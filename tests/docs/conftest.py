"""A directory, a data directory with the kept images, and a provider for each page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docs.fake_provider import fake_provider
from tests.docs.pages import ROOT
from tests.docs.runner import Page
from tests.integration.runs.agent_images import share_images
from tests.support.screen_images import build_screen_image

RunPage = Callable[..., None]
SCREENS = {"desktop", "browser", "windows", "mobile"}


@pytest.fixture
def run_page(tmp_path: Path) -> Iterator[RunPage]:
    """Run a page by its path, with these images at hand."""
    with ExitStack() as opened:

        def run(name: str, *images: str) -> None:
            data = tmp_path / "home/.paddock"
            for name_of_screen in SCREENS & set(images):
                build_screen_image(name_of_screen)
            share_images(data, [each for each in images if each not in SCREENS])
            page = Page(ROOT / name, tmp_path, opened.enter_context(fake_provider()))
            opened.callback(page.close)
            page.run()

        yield run
