"""Fixture that runs a page with its own directory, shared images and a fake provider."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docs.docs_provider import run_docs_provider
from tests.docs.page_reader import ROOT
from tests.docs.page_runner import PageRunner
from tests.integration.runs.agent_images import share_images
from tests.support.screen_images import build_screen_image

RunPage = Callable[..., None]
SCREENS = {"desktop", "browser", "windows", "mobile"}


@pytest.fixture
def run_page(tmp_path: Path) -> Iterator[RunPage]:
    """Return a function that runs a page by its path with some images available."""
    with ExitStack() as opened:

        def run(name: str, *images: str) -> None:
            data = tmp_path / "home/.paddock"
            for name_of_screen in SCREENS & set(images):
                build_screen_image(name_of_screen)
            share_images(data, [each for each in images if each not in SCREENS])
            page = PageRunner(ROOT / name, tmp_path, opened.enter_context(run_docs_provider()))
            opened.callback(page.close)
            page.run()

        yield run
