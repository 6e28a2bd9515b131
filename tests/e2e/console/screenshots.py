"""Pictures of every page of the console, in light, dark and Chinese: `make screenshots`.

All of them are written below `.make/screenshots/console`; those that the README and the docs show, to `docs/images`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.e2e.browser_pages import SCREENSHOTS, chromium
from tests.e2e.console.console_visitor import ROOT, visitor
from tests.e2e.console.test_console_story import Story, console_server

PLACE = SCREENSHOTS / "console"
SHOWN = ROOT / "docs/images"
LOOKS = {"light": ("en", False), "dark": ("en", True), "zh": ("zh", False)}
IN_DOCS = {
    "welcome-light",
    "approval-light",
    "chat-light",
    "chat-zh",
    "taken-over-dark",
    "agent-terminal-dark",
    "terminal-dark",
    "form-light",
    "run-light",
    "exchange-dark",
    "usage-light",
}


class ConsoleScreenshots(Story):
    """The story, for its pictures."""

    def look(self, where: str) -> None:
        # What moves has come to rest, and nothing is pointed at.
        self.page.mouse.move(0, 0)
        self.page.wait_for_timeout(500)
        name = f"{where}-{self.name}"
        self.page.screenshot(path=PLACE / f"{name}.png")
        if name in IN_DOCS:
            self.page.screenshot(path=SHOWN / f"{name}.png")


def main() -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    SHOWN.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="paddock-shots-") as directory, chromium() as browser:
        for look, (language, dark) in LOOKS.items():
            place = Path(directory, look)
            place.mkdir()
            with (
                console_server(place) as server,
                visitor(browser, server, language=language, dark=dark, width=1600, height=900) as person,
            ):
                ConsoleScreenshots(person, narrow=False, name=look).tell(place)
            print(f"{look}: {len(list(PLACE.glob(f'*-{look}.png')))} pictures", flush=True)
    print(f"All are in {PLACE.relative_to(ROOT)}; those of the docs in {SHOWN.relative_to(ROOT)}.")


if __name__ == "__main__":
    main()
