"""The console when things go wrong around it: no server, no key, no sandbox, no storage, hardly any network."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.browser_pages import chromium, keep_screenshot
from tests.e2e.console.console_servers import (
    ANSWER,
    AWAY,
    RUNNER,
    composer,
    guest,
    key_field,
    kill,
    new_chat,
    new_key,
    new_sandbox,
    said,
    settings,
    sign_in_by_key,
    tell,
    thread,
    throttle,
)
from tests.e2e.console.console_visitor import Visitor
from tests.e2e.console.stored_chats import StoredChat, long_chat, write
from tests.support.screen_images import share_screen_images
from tests.support.server import Server, eventually, run_server

pytestmark = pytest.mark.slow

LONG, LARGE, EMPTY = "ses-00000000000000a1", "ses-00000000000000a2", "ses-00000000000000a3"
MESSAGES = 5000
MEGABYTE = "".join(f"{number:07} of a program's output that goes on and on\n" for number in range(22_000))
MOST_ROWS = 60
"""Rows of a chat that are in the page at once: those that are seen, and a few around them."""
SOON = 15_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("paddock")
    share_screen_images(directory / "data", "desktop")
    large = StoredChat(LARGE, "A large result")
    large.turn("List everything, please.", "There it is.", results={"find /": MEGABYTE})
    empty = StoredChat(EMPTY, "A small result")
    empty.turn("List nothing, please.", "There it is.", results={"true": "Nothing.\n"})
    write(directory / "data", [long_chat(LONG, MESSAGES), large, empty])
    with run_server(directory, settings(directory)) as running:
        yield running


@pytest.fixture(scope="module")
def browser(server: Server) -> Iterator[Browser]:
    with chromium() as made:
        yield made


def test_the_server_goes_away_and_comes_back(browser: Browser, server: Server) -> None:
    session = new_chat(server)
    with guest(browser, server, AWAY) as person:
        person.sign_in(f"/chats/{session}")
        composer(person, new=True).fill("Before")
        person.page.keyboard.press("Enter")
        expect(thread(person).get_by_text(ANSWER)).to_have_count(1)
        server.stop()
        try:
            expect(person.page.get_by_text(person.t("chat.lost"))).to_be_visible(timeout=SOON)
            composer(person).fill("Meanwhile")
            person.page.keyboard.press("Enter")
            expect(thread(person).get_by_text(person.t("chat.sending"))).to_be_visible()
            composer(person).fill("A draft")
        finally:
            server.start(int(server.url.rsplit(":", 1)[1]))
        expect(thread(person).get_by_text(ANSWER)).to_have_count(2, timeout=SOON)
        expect(person.page.get_by_text(person.t("chat.lost"))).to_have_count(0)
        expect(person.page.get_by_text(person.t("shell.away.title"))).to_have_count(0)
        expect(thread(person).get_by_text("Before", exact=True)).to_have_count(1)
        expect(thread(person).get_by_text("Meanwhile", exact=True)).to_have_count(1)
        expect(composer(person)).to_have_value("A draft")
        assert said(server, session) == ["Before", "Meanwhile"]
        person.is_content()


def test_a_page_that_is_opened_while_the_server_is_away_goes_on_by_itself(browser: Browser, server: Server) -> None:
    with guest(browser, server, AWAY) as person:
        person.sign_in("/chats")
        expect(composer(person, new=True)).to_be_visible()
        server.stop()
        try:
            person.page.get_by_role("link", name=person.t("shell.places.runs"), exact=True).first.click()
            expect(person.page.get_by_text(person.t("shell.away.title"))).to_be_visible(timeout=SOON)
        finally:
            server.start(int(server.url.rsplit(":", 1)[1]))
        expect(person.page.get_by_text(person.t("runs.none"))).to_be_visible(timeout=SOON)
        expect(person.page.get_by_text(person.t("shell.away.title"))).to_have_count(0)
        person.is_content()


def test_a_key_is_revoked_while_somebody_writes(browser: Browser, server: Server) -> None:
    session = new_chat(server)
    number, secret = new_key(server, "short-lived")
    with guest(browser, server, "401") as person:
        person.go(f"/chats/{session}")
        sign_in_by_key(person, secret)
        composer(person, new=True).fill("What I was about to say")
        with server.client() as client:
            client.delete(f"/v1/keys/{number}").raise_for_status()
        person.page.get_by_role("searchbox", name=person.t("chat.search")).fill("anything")
        expect(person.page.get_by_role("heading", name=person.t("shell.signIn.againTitle"))).to_be_visible()
        assert person.page.url.partition("?")[0] == f"{server.url}/chats/{session}"
        sign_in_by_key(person, server.key)
        # What is looked for is in the address too, once it was looked for.
        assert person.page.url.partition("?")[0] == f"{server.url}/chats/{session}"
        expect(composer(person, new=True)).to_have_value("What I was about to say")
        composer(person, new=True).press("Enter")
        expect(thread(person).get_by_text(ANSWER)).to_be_visible()
        assert said(server, session) == ["What I was about to say"]
        person.is_content()


def test_who_is_not_known_after_a_restart_signs_in_and_goes_on(browser: Browser, server: Server) -> None:
    session = new_chat(server)
    with guest(browser, server, AWAY, "401") as person:
        person.go(f"/chats/{session}")
        sign_in_by_key(person, server.key)
        composer(person, new=True).fill("What I was about to say")
        person.page.context.clear_cookies()
        server.stop()
        server.start(int(server.url.rsplit(":", 1)[1]))
        expect(person.page.get_by_role("heading", name=person.t("shell.signIn.againTitle"))).to_be_visible(timeout=SOON)
        sign_in_by_key(person, server.key)
        expect(composer(person, new=True)).to_have_value("What I was about to say")
        composer(person, new=True).press("Enter")
        expect(thread(person).get_by_text(ANSWER)).to_be_visible()
        person.is_content()


@pytest.mark.parametrize(("kind", "view"), [("code", "terminal"), ("linux", "desktop")])
def test_a_sandbox_dies_while_it_is_looked_at(browser: Browser, server: Server, kind: str, view: str) -> None:
    sandbox = new_sandbox(server, kind)
    with guest(browser, server, "40[49]|50[0-9]|WebSocket") as person:
        person.sign_in(f"/sandboxes/{sandbox}/{view}")
        shown = person.page.locator("canvas" if view == "desktop" else ".xterm-helper-textarea").first
        expect(shown).to_be_attached(timeout=60_000)
        if view == "desktop":
            expect(person.button("sandboxPanel.input.take")).to_be_enabled(timeout=60_000)
        kill(server, sandbox)
        ends = [person.t("sandboxPanel.ended.gone"), person.t("sandboxPanel.ended.broken")]
        expect(person.page.get_by_text(re.compile("|".join(map(re.escape, ends)))).first).to_be_visible(timeout=SOON)
        expect(shown).to_have_count(0)
        for key in (
            "sandboxPanel.desktop.connecting",
            "sandboxPanel.terminal.connecting",
            "sandboxPanel.terminal.again",
        ):
            expect(person.page.get_by_text(person.t(key))).to_have_count(0)
        expect(person.page.get_by_role("status", name=person.t("common.loading"))).to_have_count(0)
        person.is_content()


def rows(page: Page) -> int:
    return page.locator("[data-row]").count()


def test_a_very_long_chat(browser: Browser, server: Server) -> None:
    with guest(browser, server) as person:
        person.sign_in(f"/chats/{LONG}")
        expect(person.page.get_by_text(f"Answer {MESSAGES}", exact=False)).to_be_visible(timeout=30_000)
        assert rows(person.page) <= MOST_ROWS
        thread(person).focus()
        first = person.page.get_by_text("Question 1 and more of it?", exact=True)

        def reached() -> bool:
            # Rows that come into sight get their real heights, so that the top may move away once more.
            thread(person).press("Home")
            return first.is_visible()

        eventually(reached)
        assert rows(person.page) <= MOST_ROWS
        person.button("chat.jump").click()
        expect(person.page.get_by_text(f"Answer {MESSAGES}", exact=False)).to_be_visible()
        person.is_content()


WATCH_TASKS = """
window.longest = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.longest = Math.max(window.longest, entry.duration);
}).observe({type: "longtask", buffered: true});
"""


def longest_task(browser: Browser, server: Server, session: str) -> float:
    """Milliseconds of the longest task while a chat is opened, its call unfolded, and all of the result asked for."""
    with guest(browser, server) as person:
        person.page.add_init_script(WATCH_TASKS)
        person.sign_in(f"/chats/{session}")
        card = person.page.get_by_role("article").get_by_role("button", expanded=False).last
        expect(person.page.get_by_text("There it is.")).to_be_visible()
        card.click()
        expect(person.page.get_by_text(person.t("chat.result"), exact=True)).to_be_visible()
        more = person.page.get_by_role("button", expanded=False).and_(person.page.locator("button:has-text('22')"))
        if session == LARGE:
            more.first.click()
            expect(person.page.get_by_text("0021999 of a program", exact=False)).to_have_count(1)
        composer(person).press_sequentially("Still here?")
        expect(composer(person)).to_have_value("Still here?")
        person.is_content()
        return float(person.page.evaluate("new Promise(done => setTimeout(() => done(window.longest), 100))"))


def test_a_megabyte_of_output_stops_nobody(browser: Browser, server: Server) -> None:
    empty = longest_task(browser, server, EMPTY)
    large = longest_task(browser, server, LARGE)
    tell(f"longest task: {empty:.0f} ms with a line of output, {large:.0f} ms with {len(MEGABYTE)} bytes of it")
    assert large <= max(3 * empty, 500)


def test_a_command_is_seen_while_it_runs(browser: Browser, server: Server) -> None:
    session = new_chat(server, RUNNER)
    with guest(browser, server) as person:
        person.sign_in(f"/chats/{session}")
        composer(person, new=True).fill("Go ahead")
        person.page.keyboard.press("Enter")
        card = thread(person).get_by_role("article")
        said = card.get_by_role("group", name=person.t("chat.outputSoFar"))
        expect(said).to_have_text("the first", timeout=SOON)
        head = card.get_by_role("button").first
        expect(head).to_have_attribute("aria-expanded", "false")
        person.check_access("a command that runs")
        keep_screenshot(person.page, "command-runs")
        with server.client() as client:
            sandbox = client.get(f"/v1/sessions/{session}").raise_for_status().json()["sandboxes"]["code"]
            go = {"path": "/workspace/go", "content": ""}
            client.post(f"/v1/sandboxes/{sandbox}/tools/write_file", json=go).raise_for_status()
        expect(thread(person).get_by_text(ANSWER)).to_be_visible(timeout=SOON)
        expect(said).to_have_count(0)
        expect(card.get_by_text(person.t("chat.status.done"), exact=True)).to_have_count(1)
        head.click()
        expect(card.get_by_text("the first\nthe last")).to_be_visible()
        person.is_content()


def test_on_a_slow_network_nothing_is_sent_twice(browser: Browser, server: Server) -> None:
    session = new_chat(server)
    with guest(browser, server) as person:
        person.sign_in("/settings/appearance")
        throttle(person.page, down=3_000_000, up=50_000, latency=300)
        person.page.goto(f"{server.url}/chats/{session}", wait_until="commit")
        expect(person.page.get_by_role("status", name=person.t("common.loading")).first).to_be_visible()
        field = composer(person, new=True)
        field.fill("Only once", timeout=30_000)
        field.press("Enter")
        field.press("Enter")
        expect(thread(person).get_by_text(person.t("chat.sending"))).to_be_visible()
        expect(field).to_have_value("")
        expect(thread(person).get_by_text(ANSWER)).to_be_visible(timeout=30_000)
        expect(thread(person).get_by_text("Only once", exact=True)).to_have_count(1)
        assert said(server, session) == ["Only once"]
        person.is_content()


def test_two_windows_and_two_people_at_one_desktop(browser: Browser, server: Server) -> None:
    sandbox = new_sandbox(server, "linux")
    _, secret = new_key(server, "Ada")
    with guest(browser, server, "409") as person, guest(browser, server, "409") as ada:
        person.sign_in(f"/sandboxes/{sandbox}/desktop")
        person.button("sandboxPanel.input.take").click(timeout=60_000)
        expect(person.button("sandboxPanel.input.handBack")).to_be_visible()
        second = Visitor(person.page.context.new_page(), server, expected=person.expected)
        second.go(f"/sandboxes/{sandbox}/desktop")
        expect(second.page.get_by_text(second.t("sandboxPanel.input.otherWindow"))).to_be_visible()
        second.button("sandboxPanel.input.takeHere").click()
        expect(second.button("sandboxPanel.input.handBack")).to_be_visible()
        person.page.bring_to_front()
        expect(person.button("sandboxPanel.input.takeHere")).to_be_visible()
        ada.go(f"/sandboxes/{sandbox}/desktop")
        sign_in_by_key(ada, secret)
        expect(ada.page.get_by_text(ada.t("sandboxPanel.input.other", name="local"))).to_be_visible()
        ada.button("sandboxPanel.input.take").click(timeout=60_000)
        ada.button("sandboxPanel.input.takeOver").click()
        expect(ada.button("sandboxPanel.input.handBack")).to_be_visible()
        second.page.bring_to_front()
        expect(second.page.get_by_text(second.t("sandboxPanel.input.wasTaken", name="Ada"))).to_be_visible()
        expect(second.button("sandboxPanel.input.handBack")).to_have_count(0)
        for each in (person, second, ada):
            each.is_content()


def test_a_sandbox_that_failed_is_deleted_by_its_name(browser: Browser, server: Server) -> None:
    with server.client() as client:
        sandbox = (
            client.post("/v1/sandboxes", json={"metadata": {"name": "broken_one"}}).raise_for_status().json()["id"]
        )
        kill(server, sandbox)
        eventually(lambda: client.get(f"/v1/sandboxes/{sandbox}").json()["status"]["state"] == "Failed")
        with guest(browser, server, rf"404 .*/v1/sandboxes/{sandbox}") as person:
            person.sign_in("/sandboxes?state=Failed")
            person.button("sandboxes.actions", name="broken_one").click()
            expect(person.page.get_by_role("menuitem", name=person.t("sandboxes.deeds.delete"))).to_be_visible()
            person.page.keyboard.press("Escape")
            person.page.get_by_role("link", name="broken_one", exact=True).click()
            expect(person.page.get_by_role("heading", name="broken_one", level=1)).to_be_visible()
            person.button("sandboxes.deeds.delete").click()
            eventually(lambda: client.get(f"/v1/sandboxes/{sandbox}").status_code == 404)
            person.is_content()


def test_a_key_is_offered_only_what_it_may_do(browser: Browser, server: Server) -> None:
    _, secret = new_key(server, "boxes", "sandboxes:write")
    with guest(browser, server, r"403 .*/v1/sessions") as person:
        person.go("/")
        sign_in_by_key(person, secret)
        expect(person.page.get_by_role("heading", name=person.t("welcome.sandbox.title"))).to_be_visible()
        for key in ("welcome.chat.title", "welcome.task.title"):
            expect(person.page.get_by_role("heading", name=person.t(key))).to_have_count(0)
        person.go("/chats")
        expect(person.page.get_by_role("alert")).to_contain_text("sessions:read")
        expect(composer(person, new=True)).to_have_count(0)
        person.is_content()


def test_a_browser_that_keeps_nothing(browser: Browser, server: Server, tmp_path: Path) -> None:
    """With cookies blocked Chromium denies all storage, too. The key is then held by the page alone."""
    preferences = tmp_path / "Default/Preferences"
    preferences.parent.mkdir()
    preferences.write_text(json.dumps({"profile": {"default_content_setting_values": {"cookies": 2}}}))
    session = new_chat(server)
    program = shutil.which("chromium")
    context = browser.browser_type.launch_persistent_context(
        tmp_path, executable_path=program, locale="en-GB", args=["--no-sandbox"] if os.getuid() == 0 else []
    )
    try:
        person = Visitor(context.new_page(), server)
        person.expected.append(re.compile("401"))
        person.go(f"/chats/{session}")
        assert person.page.evaluate("() => { try { localStorage; return false } catch { return true } }")
        sign_in_by_key(person, server.key)
        expect(person.page.get_by_text(person.t("shell.signIn.inMemory"))).to_be_visible()
        composer(person, new=True).fill("Hello")
        composer(person, new=True).press("Enter")
        expect(thread(person).get_by_text(ANSWER)).to_be_visible()
        assert context.cookies() == []
        person.page.reload()
        expect(key_field(person)).to_be_visible()
        person.is_content()
    finally:
        context.close()
