"""A real browser for tests of the console and of pages that use the server's API."""

from __future__ import annotations

import mimetypes
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, sync_playwright

ROOT = Path(__file__).parents[2]
NODE_MODULES = ROOT / "web/node_modules"
"""Node.js modules of the console; pages of tests load them as well."""
SCREENSHOT_DIRECTORY = ROOT / ".make/screenshots"


@contextmanager
def run_chromium() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None or not NODE_MODULES.exists():
        pytest.skip("there is no chromium, or no browser modules; scripts/setup test installs both")
    with sync_playwright() as playwright:
        # Pages supplied by the test have no address, so the browser treats them as a foreign origin.
        arguments = ["--disable-features=LocalNetworkAccessChecks,LocalNetworkAccessChecksWebSockets"]
        if os.getuid() == 0:
            arguments.append("--no-sandbox")
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


def open_page_on_origin(context: BrowserContext, origin: str, name: str, html: str) -> Page:
    """Open a page with the server's own origin, with Node.js modules below `/modules/`."""

    def serve(route: Route) -> None:
        path = route.request.url.removeprefix(f"{origin}/modules/").partition("?")[0]
        kind = mimetypes.guess_type(path)[0] or "text/javascript"
        route.fulfill(body=(NODE_MODULES / path).read_bytes(), content_type=kind)

    page = context.new_page()
    page.set_default_timeout(20_000)
    page.route(f"{origin}/modules/**", serve)
    page.route(f"{origin}/{name}", lambda route: route.fulfill(body=html, content_type="text/html"))
    page.goto(f"{origin}/{name}")
    return page


def save_screenshot(page: Page, name: str) -> Path:
    """Save a screenshot of the page for manual review."""
    SCREENSHOT_DIRECTORY.mkdir(parents=True, exist_ok=True)
    path = SCREENSHOT_DIRECTORY / f"{name}.png"
    page.screenshot(path=path)
    return path
