"""Chats in the console: the agent's terminal, texts of approvals, the demo."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, expect

from paddock.llm.demo import DEMO_MODEL, DEMO_SCRIPT
from tests.e2e.browser_pages import run_chromium, save_screenshot
from tests.e2e.console.console_servers import (
    COUNTER_LINES,
    COUNTER_MODEL,
    chat_thread,
    console_server_settings,
    create_chat,
    create_sandbox,
    message_field,
    visit_console,
)
from tests.e2e.console.console_visitor import ConsoleVisitor
from tests.support.server import Server, run_server

pytestmark = pytest.mark.slow
TIMEOUT_MS = 20_000
SHOW_TERMINAL_TEXT = "localStorage.setItem('paddock.terminal.reader', 'true')"
"""Puts the terminal's text into the page; otherwise it is drawn on a canvas."""
RECORD_TERMINAL_TEXT = """() => {
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
    chosen = console_server_settings(directory)
    chosen["llm"]["providers"][DEMO_MODEL] = {"kind": "script", "file": str(DEMO_SCRIPT)}
    chosen["llm"]["models"][DEMO_MODEL] = DEMO_MODEL
    with run_server(directory, chosen) as running:
        yield running


@pytest.fixture(scope="module")
def browser(server: Server) -> Iterator[Browser]:
    with run_chromium() as chromium:
        yield chromium


UNUSED_TERMINAL_WIDTH = """(() => {
  const screen = document.querySelector(".xterm-screen");
  return screen.closest(".xterm").clientWidth - screen.clientWidth;
})()"""
"""Width in pixels beside the terminal's columns, including the scroll bar."""


def terminal_text(person: ConsoleVisitor) -> Locator:
    return person.page.locator(".xterm-accessibility-tree")


def exit_code_text(person: ConsoleVisitor) -> str:
    return person.t("sandboxPanel.terminal.exitCode", code=3, seconds="").strip()


def test_agent_command_output_appears_line_by_line(browser: Browser, server: Server) -> None:
    session = create_chat(server, COUNTER_MODEL)
    with (
        visit_console(browser, server) as person,
        visit_console(browser, server, language="zh", width=390) as other,
    ):
        for viewer in (person, other):
            viewer.page.add_init_script(SHOW_TERMINAL_TEXT)
            viewer.sign_in(f"/chats/{session}")
            viewer.page.evaluate(RECORD_TERMINAL_TEXT)
        message_field(person, new=True).fill("Go ahead")
        person.page.keyboard.press("Enter")
        other.page.get_by_role("tab", name=other.t("chat.sandboxes")).click()
        for viewer in (person, other):
            agent = viewer.page.get_by_role("tab", name=re.compile(f"^{viewer.t('sandboxPanel.terminal.agent')}"))
            expect(agent).to_have_attribute("aria-selected", "true", timeout=TIMEOUT_MS)
            over = exit_code_text(viewer)
            expect(terminal_text(viewer)).to_contain_text(over, timeout=TIMEOUT_MS)
            states = [text for text in viewer.page.evaluate("window.seen") if "line 1" in text and over not in text]
            reached = {max(map(int, re.findall(r"^line (\d+)", text, re.MULTILINE))) for text in states}
            assert len(reached) >= 3, f"{COUNTER_LINES} lines appeared at once instead of one by one: {reached}"
            expect(terminal_text(viewer)).to_contain_text("$ for n in")
            viewer.check_accessibility(f"the agent's terminal in {viewer.language}")
            save_screenshot(viewer.page, f"agent-terminal-{viewer.language}")
        person.page.reload()
        expect(terminal_text(person)).to_contain_text(exit_code_text(person), timeout=TIMEOUT_MS)
        expect(terminal_text(person)).to_contain_text(f"line {COUNTER_LINES}")
        person.page.get_by_role("tab", name=person.t("sandboxPanel.terminal.you"), exact=True).click()
        expect(person.page.locator(".xterm-helper-textarea")).to_be_focused(timeout=TIMEOUT_MS)
        expect(terminal_text(person)).to_contain_text("$", timeout=TIMEOUT_MS)
        assert person.page.evaluate(UNUSED_TERMINAL_WIDTH) < 30
        person.assert_no_errors()
        other.assert_no_errors()


def test_keyboard_shortcuts_open_chats_and_settings(browser: Browser, server: Server) -> None:
    older, newer = create_chat(server, title="older"), create_chat(server, title="newer")
    with visit_console(browser, server) as person:
        keyboard = person.page.keyboard
        person.sign_in(f"/chats/{newer}")
        expect(person.page.get_by_role("link", name=re.compile("^older"))).to_be_visible()
        for key, address in (("j", older), ("k", newer), ("k", newer)):
            keyboard.press(key)
            expect(person.page).to_have_url(re.compile(f"/chats/{address}$"))
        keyboard.press("n")
        expect(message_field(person, new=True)).to_be_focused()
        expect(person.page).to_have_url(re.compile("/chats$"))
        keyboard.type("jn")  # In a text field they are characters.
        expect(message_field(person, new=True)).to_have_value("jn")
        keyboard.press("Control+k")
        search = person.page.get_by_role("combobox", name=person.t("shell.palette.title"))
        search.fill("api keys")
        label = f"{person.t('shell.places.settings')} → {person.t('settings.keys.title')}"
        expect(person.page.get_by_role("option", name=label)).to_have_attribute("aria-selected", "true")
        keyboard.press("Enter")
        expect(person.page).to_have_url(re.compile("/settings/keys$"))
        person.assert_no_errors()


def create_demo(server: Server, language: str) -> str:
    with server.client() as client:
        body = {"language": language, "again": True}
        return str(client.post("/v1/demo", json=body).raise_for_status().json()["session"])


@pytest.mark.parametrize(
    ("language", "width", "dark", "line", "effects"),
    [
        ("en", 1440, False, "Run the Python script /workspace/chart.py in sandbox code.", ["runs", "writes"]),
        (
            "zh",
            390,
            True,
            "在沙箱 code 中运行 Python 脚本 /workspace/chart.py。写入 /workspace/chart.svg。",
            ["runs", "writes"],
        ),
    ],
)
def test_demo_explains_its_approval_and_shows_its_chart(
    browser: Browser, server: Server, language: str, width: int, dark: bool, line: str, effects: list[str]
) -> None:
    session = create_demo(server, language)
    name = f"demo-{language}"
    with visit_console(browser, server, language=language, width=width, dark=dark) as person:
        person.sign_in(f"/chats/{session}")
        summary = person.page.get_by_test_id("call-summary")
        expect(summary).to_contain_text(line, timeout=TIMEOUT_MS)
        for effect in effects:
            expect(summary.get_by_text(person.t(f"approvals.effect.{effect}"))).to_be_visible()
        person.check_accessibility(f"{name}: the approval")
        save_screenshot(person.page, f"{name}-approval")
        approve = re.compile(f"^{re.escape(person.t('chat.approve'))}")
        chat_thread(person).get_by_role("button", name=approve).first.click()
        picture = chat_thread(person).get_by_role("img")
        expect(picture).to_be_visible(timeout=TIMEOUT_MS)
        assert picture.evaluate("image => image.complete && image.naturalWidth") == 520
        report = chat_thread(person).get_by_role("button", name="report.md", exact=True)
        expect(report).to_be_visible(timeout=TIMEOUT_MS)
        person.check_accessibility(f"{name}: the answer")
        save_screenshot(person.page, f"{name}-answer")
        report.click()
        opened = person.page.get_by_role("tabpanel", name=person.t("sandboxPanel.views.files"))
        expect(opened.get_by_role("cell", name="+113%")).to_be_visible(timeout=TIMEOUT_MS)
        save_screenshot(person.page, f"{name}-file")
        person.assert_no_errors()


def test_rejected_demo_reports_skipped_work(browser: Browser, server: Server) -> None:
    session = create_demo(server, "en")
    with visit_console(browser, server) as person:
        person.sign_in("/settings/appearance")
        expect(person.page).to_have_title(
            re.compile(r"^\(\d+\) Approvals? needed · Settings · Paddock$"), timeout=TIMEOUT_MS
        )
        person.page.context.grant_permissions(["notifications"])
        person.page.reload()
        notify = person.page.get_by_role("switch", name=person.t("settings.appearance.notify"))
        expect(notify).not_to_be_checked()
        notify.click()
        expect(notify).to_be_checked()
        person.check_accessibility("notifications")
        save_screenshot(person.page, "notifications")
        person.open_path(f"/chats/{session}")
        reject = re.compile(f"^{re.escape(person.t('chat.reject'))}")
        chat_thread(person).get_by_role("button", name=reject).first.click()
        person.page.keyboard.press("Enter")
        answer = chat_thread(person).get_by_text("I did not run the script")
        expect(answer).to_be_visible(timeout=TIMEOUT_MS)
        expect(chat_thread(person).get_by_role("button", name="chart.py", exact=True)).to_be_visible(timeout=TIMEOUT_MS)
        expect(chat_thread(person)).not_to_contain_text("Do not simply repeat it")
        save_screenshot(person.page, "demo-rejected")
        person.assert_no_errors()


def test_file_editor_is_focused(browser: Browser, server: Server) -> None:
    sandbox = create_sandbox(server, "code")
    with server.client() as client:
        note = {"path": "/workspace/note.txt", "content": "old"}
        client.post(f"/v1/sandboxes/{sandbox}/tools/write_file", json=note).raise_for_status()
    with visit_console(browser, server) as person:
        person.sign_in(f"/sandboxes/{sandbox}/files?path=/workspace/note.txt")
        person.button("sandboxPanel.files.edit").click()
        person.page.keyboard.type("new ")
        field = person.page.get_by_role("textbox", name=person.t("sandboxPanel.files.textOf", name="note.txt"))
        expect(field).to_have_value("new old")
        person.assert_no_errors()
