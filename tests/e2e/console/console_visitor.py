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
WORDS = ROOT / "web/src/i18n"
AXE = ROOT / "web/node_modules/axe-core/axe.min.js"
PATIENCE = 20_000


def words(language: str) -> dict[str, Any]:
    """All words of the console in a language, by room."""
    return {path.stem: json.loads(path.read_text()) for path in sorted((WORDS / language).glob("*.json"))}


_KNOWN = (r"401 \(Unauthorized\) \(\S+/v1/me\)", "GL Driver Message", "task queue exceeded allotted deadline")
"""Who is not signed in yet is told so; and a browser without a graphics card draws terminals late, and complains."""


@dataclass
class Visitor:
    """A visitor with a browser. Console errors and failed requests are collected and fail the test."""

    page: Page
    server: Server
    language: str = "en"
    troubles: list[str] = field(default_factory=list)
    expected: list[re.Pattern[str]] = field(default_factory=lambda: [re.compile(each) for each in _KNOWN])
    """What may be complained about."""
    _words: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._words = words(self.language)
        self.page.set_default_timeout(PATIENCE)
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.troubles.append(f"error in the page: {error}"))
        self.page.on("request", self._watch)

    def t(self, key: str, **values: object) -> str:
        """The console's words for something, as this person reads them."""
        found: Any = self._words
        for part in key.split("."):
            found = found[part]
        return re.sub(r"\{\{(\w+)\}\}", lambda match: str(values[match[1]]), str(found))

    def button(self, key: str, within: Locator | None = None, **values: object) -> Locator:
        return (within or self.page).get_by_role("button", name=self.t(key, **values), exact=True)

    def link(self, key: str, within: Locator | None = None) -> Locator:
        return (within or self.page).get_by_role("link", name=self.t(key), exact=True)

    def go(self, path: str) -> None:
        self.page.goto(f"{self.server.url}{path}")

    def sign_in(self, path: str = "/") -> None:
        """By a code, as `paddock console` does."""
        with self.server.client() as client:
            code = client.post("/v1/login/codes").raise_for_status().json()["code"]
        self.page.goto(f"{self.server.url}{path}#code={code}")
        self.page.wait_for_function("() => !location.hash")

    def check_access(self, where: str) -> None:
        """Run axe on the page; violations are reported at the end."""
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("() => axe.run({resultTypes: ['violations']})")
        self.troubles += [
            f"{where}: {each['id']}: {each['help']}: " + "; ".join(node["html"][:200] for node in each["nodes"][:4])
            for each in found["violations"]
        ]

    def is_content(self) -> None:
        """Nothing went wrong unseen."""
        left = [each for each in self.troubles if not any(known.search(each) for known in self.expected)]
        assert not left, "\n".join(left)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.troubles.append(f"{message.type}: {message.text} ({message.location.get('url')})")

    def _watch(self, request: Request) -> None:
        known = (self.server.url, "blob:", "data:", self.server.url.replace("http", "ws", 1))
        if not request.url.startswith(known):
            self.troubles.append(f"asked somebody else: {request.url}")


@contextmanager
def visitor(
    browser: Browser,
    server: Server,
    *,
    language: str = "en",
    width: int = 1440,
    height: int = 900,
    dark: bool = False,
    **more: Any,
) -> Iterator[Visitor]:
    context = browser.new_context(
        viewport={"width": width, "height": height},
        locale={"en": "en-GB", "zh": "zh-CN"}[language],
        color_scheme="dark" if dark else "light",
        accept_downloads=True,
        permissions=["clipboard-read", "clipboard-write"],
        **more,
    )
    try:
        yield Visitor(context.new_page(), server, language)
    finally:
        context.close()
