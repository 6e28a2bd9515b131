"""Chats in the console: the agent's terminal, what approvals say, the demo."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.e2e.browser import chromium, keep_screenshot
from tests.e2e.consoles import Visitor
from tests.e2e.rooms import COUNTER, LINES, composer, guest, new_chat, settings
from tests.serving import Server, serving

pytestmark = pytest.mark.slow
SOON = 20_000
READER = "localStorage.setItem('paddock.terminal.reader', 'true')"
"""With it the terminal's text is in the page; otherwise it is drawn."""
WATCH = """() => {
  window.seen = []
  const look = () => {
    const rows = [...document.querySelectorAll('.xterm-accessibility-tree > *')]
    const text = rows.map((row) => row.textContent).join('\\n')
    if (text !== window.seen.at(-1)) window.seen.push(text)
  }
  new MutationObserver(look).observe(document.body, {childList: true, subtree: true, characterData: true})
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("paddock")
    with serving(directory, settings(directory)) as running:
        yield running


@pytest.fixture(scope="module")
def browser(server: Server) -> Iterator[Browser]:
    with chromium() as made:
        yield made


def terminal(person: Visitor) -> Locator:
    return person.page.locator(".xterm-accessibility-tree")


def exit_code(person: Visitor) -> str:
    return person.t("computers.terminal.exitCode", code=3, seconds="").strip()


@pytest.mark.parametrize(("language", "width"), [("en", 1440), ("zh", 390)])
def test_a_command_is_seen_in_the_terminal_line_by_line(
    browser: Browser, server: Server, language: str, width: int
) -> None:
    session = new_chat(server, COUNTER)
    with guest(browser, server, language=language, width=width) as person, guest(browser, server) as other:
        for viewer in (person, other):
            viewer.page.add_init_script(READER)
            viewer.sign_in(f"/chats/{session}")
            viewer.page.evaluate(WATCH)
        composer(person, new=True).fill("Go ahead")
        person.page.keyboard.press("Enter")
        if width < 700:
            person.page.get_by_role("tab", name=person.t("chat.computers")).click()
        for viewer in (person, other):
            agent = viewer.page.get_by_role("tab", name=re.compile(f"^{viewer.t('computers.terminal.agent')}"))
            expect(agent).to_have_attribute("aria-selected", "true", timeout=SOON)
            over = exit_code(viewer)
            expect(terminal(viewer)).to_contain_text(over, timeout=SOON)
            states = [text for text in viewer.page.evaluate("window.seen") if "line 1" in text and over not in text]
            reached = {max(map(int, re.findall(r"^line (\d+)", text, re.MULTILINE))) for text in states}
            assert len(reached) >= 3, f"{LINES} lines were seen at once, and not as they came: {reached}"
        expect(terminal(person)).to_contain_text("$ for n in")
        person.check_access(f"the agent's terminal at {width}")
        keep_screenshot(person.page, f"agent-terminal-{language}-{width}")
        person.page.reload()
        if width < 700:
            person.page.get_by_role("tab", name=person.t("chat.computers")).click()
        expect(terminal(person)).to_contain_text(exit_code(person), timeout=SOON)
        expect(terminal(person)).to_contain_text(f"line {LINES}")
        person.page.get_by_role("tab", name=person.t("computers.terminal.you"), exact=True).click()
        expect(person.page.locator(".xterm-helper-textarea")).to_be_focused(timeout=SOON)
        person.is_content()
        other.is_content()
