"""A real browser for pages that use what the server offers to browsers."""

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
MODULES = ROOT / "web/node_modules"
"""What the console is made of; its tests, and those of what it speaks to, use the same."""
SCREENSHOTS = ROOT / ".make/screenshots"


@contextmanager
def chromium() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None or not MODULES.exists():
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


def open_page(context: BrowserContext, origin: str, name: str, html: str) -> Page:
    """A page that comes from the server's own origin, with modules below `/modules/`."""

    def serve(route: Route) -> None:
        path = route.request.url.removeprefix(f"{origin}/modules/").partition("?")[0]
        kind = mimetypes.guess_type(path)[0] or "text/javascript"
        route.fulfill(body=(MODULES / path).read_bytes(), content_type=kind)

    page = context.new_page()
    page.set_default_timeout(20_000)
    page.route(f"{origin}/modules/**", serve)
    page.route(f"{origin}/{name}", lambda route: route.fulfill(body=html, content_type="text/html"))
    page.goto(f"{origin}/{name}")
    return page


def keep_screenshot(page: Page, name: str) -> Path:
    """A picture of the page for people to look at."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    path = SCREENSHOTS / f"{name}.png"
    page.screenshot(path=path)
    return path
