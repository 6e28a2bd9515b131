"""Screenshots of every page of the console in light, dark and Chinese: `make screenshots`.

All are written to `.make/screenshots/console`; those of the README and the docs also to `docs/images`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.e2e.browser_pages import SCREENSHOT_DIRECTORY, run_chromium
from tests.e2e.console.console_visitor import ROOT, open_visitor
from tests.e2e.console.test_console_story import ConsoleStory, console_server

OUTPUT_DIRECTORY = SCREENSHOT_DIRECTORY / "console"
DOCS_DIRECTORY = ROOT / "docs/images"
THEMES = {"light": ("en", False), "dark": ("en", True), "zh": ("zh", False)}
DOCS_SCREENSHOTS = {
    "welcome-light",
    "approval-light",
    "chat-light",
    "taken-over-dark",
    "agent-terminal-dark",
    "terminal-dark",
    "form-light",
    "run-light",
    "exchange-dark",
    "usage-light",
}
DOCS_SCREENSHOTS |= {f"{name.rpartition('-')[0]}-zh" for name in DOCS_SCREENSHOTS}
"""The Chinese pages show the same screens in Chinese."""


class ConsoleScreenshots(ConsoleStory):
    """The console story with screenshots instead of checks."""

    def check_page(self, where: str) -> None:
        # Wait for the end of animations, with the pointer away.
        self.page.mouse.move(0, 0)
        self.page.wait_for_timeout(500)
        name = f"{where}-{self.name}"
        self.page.screenshot(path=OUTPUT_DIRECTORY / f"{name}.png")
        if name in DOCS_SCREENSHOTS:
            self.page.screenshot(path=DOCS_DIRECTORY / f"{name}.png")


def main() -> None:
    OUTPUT_DIRECTORY.mkdir(parents=True, exist_ok=True)
    DOCS_DIRECTORY.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="paddock-shots-") as directory, run_chromium() as browser:
        for theme, (language, dark) in THEMES.items():
            directory_of_theme = Path(directory, theme)
            directory_of_theme.mkdir()
            with (
                console_server(directory_of_theme) as server,
                open_visitor(browser, server, language=language, dark=dark, width=1600, height=900) as person,
            ):
                ConsoleScreenshots(person, narrow=False, name=theme).run_all_steps(directory_of_theme)
            print(f"{theme}: {len(list(OUTPUT_DIRECTORY.glob(f'*-{theme}.png')))} pictures", flush=True)
    print(f"All are in {OUTPUT_DIRECTORY.relative_to(ROOT)}; those of the docs in {DOCS_DIRECTORY.relative_to(ROOT)}.")


if __name__ == "__main__":
    main()
