"""Visitors of the console in a real browser, with language and screen width."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request

from tests.support.server import Server

ROOT = Path(__file__).parents[3]
TRANSLATIONS = ROOT / "web/src/i18n"
AXE = ROOT / "web/node_modules/axe-core/axe.min.js"
TIMEOUT_MS = 20_000


def load_translations(language: str) -> dict[str, Any]:
    """Return the translations of the console in a language, by file."""
    return {path.stem: json.loads(path.read_text()) for path in sorted((TRANSLATIONS / language).glob("*.json"))}


_HARMLESS_ERRORS = (r"401 \(Unauthorized\) \(\S+/v1/me\)", "GL Driver Message", "task queue exceeded allotted deadline")
"""Errors before sign-in, and warnings of a browser without a graphics card."""


@dataclass
class ConsoleVisitor:
    """A visitor with a browser. Console errors and requests to foreign servers are collected and fail the test."""

    page: Page
    server: Server
    language: str = "en"
    problems: list[str] = field(default_factory=list)
    expected_errors: list[re.Pattern[str]] = field(
        default_factory=lambda: [re.compile(each) for each in _HARMLESS_ERRORS]
    )
    """Patterns of allowed errors."""
    _words: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._words = load_translations(self.language)
        self.page.set_default_timeout(TIMEOUT_MS)
        self.page.on("console", self._record_console_message)
        self.page.on("pageerror", lambda error: self.problems.append(f"error in the page: {error}"))
        self.page.on("request", self._check_request)

    def t(self, key: str, **values: object) -> str:
        """Return a translation in the visitor's language."""
        value: Any = self._words
        for part in key.split("."):
            value = value[part]
        return re.sub(r"\{\{(\w+)\}\}", lambda match: str(values[match[1]]), str(value))

    def button(self, key: str, within: Locator | None = None, **values: object) -> Locator:
        return (within or self.page).get_by_role("button", name=self.t(key, **values), exact=True)

    def link(self, key: str, within: Locator | None = None) -> Locator:
        return (within or self.page).get_by_role("link", name=self.t(key), exact=True)

    def open_path(self, path: str) -> None:
        self.page.goto(f"{self.server.url}{path}")

    def sign_in(self, path: str = "/") -> None:
        """Sign in with a code, as `paddock console` does."""
        with self.server.client() as client:
            code = client.post("/v1/login/codes").raise_for_status().json()["code"]
        self.page.goto(f"{self.server.url}{path}#code={code}")
        self.page.wait_for_function("() => !location.hash")

    def check_accessibility(self, where: str) -> None:
        """Run axe on the page; violations are reported at the end."""
        self.page.evaluate(AXE.read_text())
        result = self.page.evaluate("() => axe.run({resultTypes: ['violations']})")
        self.problems += [
            f"{where}: {each['id']}: {each['help']}: " + "; ".join(node["html"][:200] for node in each["nodes"][:4])
            for each in result["violations"]
        ]

    def assert_no_errors(self) -> None:
        """Assert that the page had no unexpected errors."""
        unexpected = [each for each in self.problems if not any(known.search(each) for known in self.expected_errors)]
        assert not unexpected, "\n".join(unexpected)

    def _record_console_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text} ({message.location.get('url')})")

    def _check_request(self, request: Request) -> None:
        known = (self.server.url, "blob:", "data:", self.server.url.replace("http", "ws", 1))
        if not request.url.startswith(known):
            self.problems.append(f"request to a foreign server: {request.url}")


@contextmanager
def open_visitor(
    browser: Browser,
    server: Server,
    *,
    language: str = "en",
    width: int = 1440,
    height: int = 900,
    dark: bool = False,
    **more: Any,
) -> Iterator[ConsoleVisitor]:
    context = browser.new_context(
        viewport={"width": width, "height": height},
        locale={"en": "en-GB", "zh": "zh-CN"}[language],
        color_scheme="dark" if dark else "light",
        accept_downloads=True,
        permissions=["clipboard-read", "clipboard-write"],
        **more,
    )
    try:
        yield ConsoleVisitor(context.new_page(), server, language)
    finally:
        context.close()
