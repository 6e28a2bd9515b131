"""The console under failures: no server, no key, no sandbox, no storage, a slow network."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.browser_pages import run_chromium, save_screenshot
from tests.e2e.console.console_servers import (
    DISCONNECT_ERRORS,
    REPLY,
    RUNNER_MODEL,
    chat_thread,
    console_server_settings,
    create_chat,
    create_key,
    create_sandbox,
    key_field,
    kill_sandbox,
    message_field,
    print_measurement,
    sign_in_with_key,
    throttle_network,
    user_messages,
    visit_console,
)
from tests.e2e.console.console_visitor import ConsoleVisitor
from tests.e2e.console.stored_chats import StoredChat, create_long_chat, write_chats
from tests.support.screen_images import share_screen_images
from tests.support.server import Server, eventually, run_server

pytestmark = pytest.mark.slow

LONG_CHAT, LARGE_CHAT, SMALL_CHAT = "ses-00000000000000a1", "ses-00000000000000a2", "ses-00000000000000a3"
MESSAGES = 5000
MEGABYTE_OUTPUT = "".join(f"{number:07} of a program's output that goes on and on\n" for number in range(22_000))
MAX_ROWS = 60
"""Rows of a chat that are in the page at once: the visible ones and some around them."""
TIMEOUT_MS = 15_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("paddock")
    share_screen_images(directory / "data", "desktop")
    large = StoredChat(LARGE_CHAT, "A large result")
    large.add_turn("List everything, please.", "There it is.", results={"find /": MEGABYTE_OUTPUT})
    empty = StoredChat(SMALL_CHAT, "A small result")
    empty.add_turn("List nothing, please.", "There it is.", results={"true": "Nothing.\n"})
    write_chats(directory / "data", [create_long_chat(LONG_CHAT, MESSAGES), large, empty])
    with run_server(directory, console_server_settings(directory)) as running:
        yield running


@pytest.fixture(scope="module")
def browser(server: Server) -> Iterator[Browser]:
    with run_chromium() as chromium:
        yield chromium


def test_chat_continues_after_server_outage(browser: Browser, server: Server) -> None:
    session = create_chat(server)
    with visit_console(browser, server, DISCONNECT_ERRORS) as person:
        person.sign_in(f"/chats/{session}")
        message_field(person, new=True).fill("Before")
        person.page.keyboard.press("Enter")
        expect(chat_thread(person).get_by_text(REPLY)).to_have_count(1)
        server.stop()
        try:
            expect(person.page.get_by_text(person.t("chat.lost"))).to_be_visible(timeout=TIMEOUT_MS)
            message_field(person).fill("Meanwhile")
            person.page.keyboard.press("Enter")
            expect(chat_thread(person).get_by_text(person.t("chat.sending"))).to_be_visible()
            message_field(person).fill("A draft")
        finally:
            server.start(int(server.url.rsplit(":", 1)[1]))
        expect(chat_thread(person).get_by_text(REPLY)).to_have_count(2, timeout=TIMEOUT_MS)
        expect(person.page.get_by_text(person.t("chat.lost"))).to_have_count(0)
        expect(person.page.get_by_text(person.t("shell.away.title"))).to_have_count(0)
        expect(chat_thread(person).get_by_text("Before", exact=True)).to_have_count(1)
        expect(chat_thread(person).get_by_text("Meanwhile", exact=True)).to_have_count(1)
        expect(message_field(person)).to_have_value("A draft")
        assert user_messages(server, session) == ["Before", "Meanwhile"]
        person.assert_no_errors()


def test_page_opened_during_server_outage_loads_afterwards(browser: Browser, server: Server) -> None:
    with visit_console(browser, server, DISCONNECT_ERRORS) as person:
        person.sign_in("/chats")
        expect(message_field(person, new=True)).to_be_visible()
        server.stop()
        try:
            person.page.get_by_role("link", name=person.t("shell.places.runs"), exact=True).first.click()
            expect(person.page.get_by_text(person.t("shell.away.title"))).to_be_visible(timeout=TIMEOUT_MS)
        finally:
            server.start(int(server.url.rsplit(":", 1)[1]))
        expect(person.page.get_by_text(person.t("runs.none"))).to_be_visible(timeout=TIMEOUT_MS)
        expect(person.page.get_by_text(person.t("shell.away.title"))).to_have_count(0)
        person.assert_no_errors()


def test_draft_survives_revocation_of_the_key(browser: Browser, server: Server) -> None:
    session = create_chat(server)
    number, secret = create_key(server, "short-lived")
    with visit_console(browser, server, "401") as person:
        person.open_path(f"/chats/{session}")
        sign_in_with_key(person, secret)
        message_field(person, new=True).fill("What I was about to say")
        with server.client() as client:
            client.delete(f"/v1/keys/{number}").raise_for_status()
        person.page.get_by_role("searchbox", name=person.t("chat.search")).fill("anything")
        expect(person.page.get_by_role("heading", name=person.t("shell.signIn.againTitle"))).to_be_visible()
        assert person.page.url.partition("?")[0] == f"{server.url}/chats/{session}"
        sign_in_with_key(person, server.key)
        # The address contains the search text once the search has run.
        assert person.page.url.partition("?")[0] == f"{server.url}/chats/{session}"
        expect(message_field(person, new=True)).to_have_value("What I was about to say")
        message_field(person, new=True).press("Enter")
        expect(chat_thread(person).get_by_text(REPLY)).to_be_visible()
        assert user_messages(server, session) == ["What I was about to say"]
        person.assert_no_errors()


def test_draft_survives_sign_in_after_server_restart(browser: Browser, server: Server) -> None:
    session = create_chat(server)
    with visit_console(browser, server, DISCONNECT_ERRORS, "401") as person:
        person.open_path(f"/chats/{session}")
        sign_in_with_key(person, server.key)
        message_field(person, new=True).fill("What I was about to say")
        person.page.context.clear_cookies()
        server.stop()
        server.start(int(server.url.rsplit(":", 1)[1]))
        expect(person.page.get_by_role("heading", name=person.t("shell.signIn.againTitle"))).to_be_visible(
            timeout=TIMEOUT_MS
        )
        sign_in_with_key(person, server.key)
        expect(message_field(person, new=True)).to_have_value("What I was about to say")
        message_field(person, new=True).press("Enter")
        expect(chat_thread(person).get_by_text(REPLY)).to_be_visible()
        person.assert_no_errors()


@pytest.mark.parametrize(("kind", "view"), [("code", "terminal"), ("linux", "desktop")])
def test_killed_sandbox_is_shown_as_ended(browser: Browser, server: Server, kind: str, view: str) -> None:
    sandbox = create_sandbox(server, kind)
    with visit_console(browser, server, "40[49]|50[0-9]|WebSocket") as person:
        person.sign_in(f"/sandboxes/{sandbox}/{view}")
        shown = person.page.locator("canvas" if view == "desktop" else ".xterm-helper-textarea").first
        expect(shown).to_be_attached(timeout=60_000)
        if view == "desktop":
            expect(person.button("sandboxPanel.input.take")).to_be_enabled(timeout=60_000)
        kill_sandbox(server, sandbox)
        ends = [person.t("sandboxPanel.ended.gone"), person.t("sandboxPanel.ended.broken")]
        expect(person.page.get_by_text(re.compile("|".join(map(re.escape, ends)))).first).to_be_visible(
            timeout=TIMEOUT_MS
        )
        expect(shown).to_have_count(0)
        for key in (
            "sandboxPanel.desktop.connecting",
            "sandboxPanel.terminal.connecting",
            "sandboxPanel.terminal.again",
        ):
            expect(person.page.get_by_text(person.t(key))).to_have_count(0)
        expect(person.page.get_by_role("status", name=person.t("common.loading"))).to_have_count(0)
        person.assert_no_errors()


def count_rows(page: Page) -> int:
    return page.locator("[data-row]").count()


def test_very_long_chat_renders_few_rows(browser: Browser, server: Server) -> None:
    with visit_console(browser, server) as person:
        person.sign_in(f"/chats/{LONG_CHAT}")
        expect(person.page.get_by_text(f"Answer {MESSAGES}", exact=False)).to_be_visible(timeout=30_000)
        assert count_rows(person.page) <= MAX_ROWS
        chat_thread(person).focus()
        first = person.page.get_by_text("Question 1 and more of it?", exact=True)

        def reached() -> bool:
            # Visible rows get their real heights, so that the top may move again.
            chat_thread(person).press("Home")
            return first.is_visible()

        eventually(reached)
        assert count_rows(person.page) <= MAX_ROWS
        person.button("chat.jump").click()
        expect(person.page.get_by_text(f"Answer {MESSAGES}", exact=False)).to_be_visible()
        person.assert_no_errors()


WATCH_TASKS = """
window.longest = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.longest = Math.max(window.longest, entry.duration);
}).observe({type: "longtask", buffered: true});
"""


def longest_task_ms(browser: Browser, server: Server, session: str) -> float:
    """Return milliseconds of the longest task while a chat is opened and its call and full result are expanded."""
    with visit_console(browser, server) as person:
        person.page.add_init_script(WATCH_TASKS)
        person.sign_in(f"/chats/{session}")
        card = person.page.get_by_role("article").get_by_role("button", expanded=False).last
        expect(person.page.get_by_text("There it is.")).to_be_visible()
        card.click()
        expect(person.page.get_by_text(person.t("chat.result"), exact=True)).to_be_visible()
        more = person.page.get_by_role("button", expanded=False).and_(person.page.locator("button:has-text('22')"))
        if session == LARGE_CHAT:
            more.first.click()
            expect(person.page.get_by_text("0021999 of a program", exact=False)).to_have_count(1)
        message_field(person).press_sequentially("Still here?")
        expect(message_field(person)).to_have_value("Still here?")
        person.assert_no_errors()
        return float(person.page.evaluate("new Promise(done => setTimeout(() => done(window.longest), 100))"))


def test_megabyte_of_output_causes_no_long_task(browser: Browser, server: Server) -> None:
    empty = longest_task_ms(browser, server, SMALL_CHAT)
    large = longest_task_ms(browser, server, LARGE_CHAT)
    print_measurement(
        f"longest task: {empty:.0f} ms with a line of output, {large:.0f} ms with {len(MEGABYTE_OUTPUT)} bytes of it"
    )
    assert large <= max(3 * empty, 500)


def test_running_command_shows_its_output(browser: Browser, server: Server) -> None:
    session = create_chat(server, RUNNER_MODEL)
    with visit_console(browser, server) as person:
        person.sign_in(f"/chats/{session}")
        message_field(person, new=True).fill("Go ahead")
        person.page.keyboard.press("Enter")
        card = chat_thread(person).get_by_role("article")
        output = card.get_by_role("group", name=person.t("chat.outputSoFar"))
        expect(output).to_have_text("the first", timeout=TIMEOUT_MS)
        head = card.get_by_role("button").first
        expect(head).to_have_attribute("aria-expanded", "false")
        person.check_accessibility("a command that runs")
        save_screenshot(person.page, "command-runs")
        with server.client() as client:
            sandbox = client.get(f"/v1/sessions/{session}").raise_for_status().json()["sandboxes"]["code"]
            go = {"path": "/workspace/go", "content": ""}
            client.post(f"/v1/sandboxes/{sandbox}/tools/write_file", json=go).raise_for_status()
        expect(chat_thread(person).get_by_text(REPLY)).to_be_visible(timeout=TIMEOUT_MS)
        expect(output).to_have_count(0)
        expect(card.get_by_text(person.t("chat.status.done"), exact=True)).to_have_count(1)
        head.click()
        expect(card.get_by_text("the first\nthe last")).to_be_visible()
        person.assert_no_errors()


def test_slow_network_sends_message_once(browser: Browser, server: Server) -> None:
    session = create_chat(server)
    with visit_console(browser, server) as person:
        person.sign_in("/settings/appearance")
        throttle_network(person.page, down=3_000_000, up=50_000, latency=300)
        person.page.goto(f"{server.url}/chats/{session}", wait_until="commit")
        expect(person.page.get_by_role("status", name=person.t("common.loading")).first).to_be_visible()
        field = message_field(person, new=True)
        field.fill("Only once", timeout=30_000)
        field.press("Enter")
        field.press("Enter")
        expect(chat_thread(person).get_by_text(person.t("chat.sending"))).to_be_visible()
        expect(field).to_have_value("")
        expect(chat_thread(person).get_by_text(REPLY)).to_be_visible(timeout=30_000)
        expect(chat_thread(person).get_by_text("Only once", exact=True)).to_have_count(1)
        assert user_messages(server, session) == ["Only once"]
        person.assert_no_errors()


def test_desktop_input_moves_between_windows_and_people(browser: Browser, server: Server) -> None:
    sandbox = create_sandbox(server, "linux")
    _, secret = create_key(server, "Ada")
    with visit_console(browser, server, "409") as person, visit_console(browser, server, "409") as ada:
        person.sign_in(f"/sandboxes/{sandbox}/desktop")
        person.button("sandboxPanel.input.take").click(timeout=60_000)
        expect(person.button("sandboxPanel.input.handBack")).to_be_visible()
        second = ConsoleVisitor(person.page.context.new_page(), server, expected_errors=person.expected_errors)
        second.open_path(f"/sandboxes/{sandbox}/desktop")
        expect(second.page.get_by_text(second.t("sandboxPanel.input.otherWindow"))).to_be_visible()
        second.button("sandboxPanel.input.takeHere").click()
        expect(second.button("sandboxPanel.input.handBack")).to_be_visible()
        person.page.bring_to_front()
        expect(person.button("sandboxPanel.input.takeHere")).to_be_visible()
        ada.open_path(f"/sandboxes/{sandbox}/desktop")
        sign_in_with_key(ada, secret)
        expect(ada.page.get_by_text(ada.t("sandboxPanel.input.other", name="local"))).to_be_visible()
        ada.button("sandboxPanel.input.take").click(timeout=60_000)
        ada.button("sandboxPanel.input.takeOver").click()
        expect(ada.button("sandboxPanel.input.handBack")).to_be_visible()
        second.page.bring_to_front()
        expect(second.page.get_by_text(second.t("sandboxPanel.input.wasTaken", name="Ada"))).to_be_visible()
        expect(second.button("sandboxPanel.input.handBack")).to_have_count(0)
        for each in (person, second, ada):
            each.assert_no_errors()


def test_failed_sandbox_is_deleted_by_name(browser: Browser, server: Server) -> None:
    with server.client() as client:
        sandbox = (
            client.post("/v1/sandboxes", json={"metadata": {"name": "broken_one"}}).raise_for_status().json()["id"]
        )
        kill_sandbox(server, sandbox)
        eventually(lambda: client.get(f"/v1/sandboxes/{sandbox}").json()["status"]["state"] == "Failed")
        with visit_console(browser, server, rf"404 .*/v1/sandboxes/{sandbox}") as person:
            person.sign_in("/sandboxes?state=Failed")
            person.button("sandboxes.actions", name="broken_one").click()
            expect(person.page.get_by_role("menuitem", name=person.t("sandboxes.deeds.delete"))).to_be_visible()
            person.page.keyboard.press("Escape")
            person.page.get_by_role("link", name="broken_one", exact=True).click()
            expect(person.page.get_by_role("heading", name="broken_one", level=1)).to_be_visible()
            person.button("sandboxes.deeds.delete").click()
            eventually(lambda: client.get(f"/v1/sandboxes/{sandbox}").status_code == 404)
            person.assert_no_errors()


def test_console_offers_only_actions_of_the_key(browser: Browser, server: Server) -> None:
    _, secret = create_key(server, "boxes", "sandboxes:write")
    with visit_console(browser, server, r"403 .*/v1/sessions") as person:
        person.open_path("/")
        sign_in_with_key(person, secret)
        expect(person.page.get_by_role("heading", name=person.t("welcome.sandbox.title"))).to_be_visible()
        for key in ("welcome.chat.title", "welcome.task.title"):
            expect(person.page.get_by_role("heading", name=person.t(key))).to_have_count(0)
        person.open_path("/chats")
        expect(person.page.get_by_role("alert")).to_contain_text("sessions:read")
        expect(message_field(person, new=True)).to_have_count(0)
        person.assert_no_errors()


def test_console_works_without_browser_storage(browser: Browser, server: Server, tmp_path: Path) -> None:
    """With blocked cookies Chromium denies all storage; only the page holds the key."""
    preferences = tmp_path / "Default/Preferences"
    preferences.parent.mkdir()
    preferences.write_text(json.dumps({"profile": {"default_content_setting_values": {"cookies": 2}}}))
    session = create_chat(server)
    program = shutil.which("chromium")
    context = browser.browser_type.launch_persistent_context(
        tmp_path, executable_path=program, locale="en-GB", args=["--no-sandbox"] if os.getuid() == 0 else []
    )
    try:
        person = ConsoleVisitor(context.new_page(), server)
        person.expected_errors.append(re.compile("401"))
        person.open_path(f"/chats/{session}")
        assert person.page.evaluate("() => { try { localStorage; return false } catch { return true } }")
        sign_in_with_key(person, server.key)
        expect(person.page.get_by_text(person.t("shell.signIn.inMemory"))).to_be_visible()
        message_field(person, new=True).fill("Hello")
        message_field(person, new=True).press("Enter")
        expect(chat_thread(person).get_by_text(REPLY)).to_be_visible()
        assert context.cookies() == []
        person.page.reload()
        expect(key_field(person)).to_be_visible()
        person.assert_no_errors()
    finally:
        context.close()
