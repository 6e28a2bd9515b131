"""Two people of one tenant in the console: each sees their own chats, and shared chats of others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.e2e.browser_pages import run_chromium, save_screenshot
from tests.e2e.console.console_servers import console_server_settings, create_key, sign_in_with_key, visit_console
from tests.e2e.console.console_visitor import ConsoleVisitor
from tests.support.server import Server, run_server

pytestmark = pytest.mark.slow
SCOPES = ("sessions:write", "sandboxes:write", "runs:write")
TIMEOUT_MS = 20_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("paddock")
    with run_server(directory, console_server_settings(directory)) as running:
        yield running


@pytest.fixture(scope="module")
def browser(server: Server) -> Iterator[Browser]:
    with run_chromium() as chromium:
        yield chromium


def menu_item(person: ConsoleVisitor, key: str) -> Locator:
    return person.page.get_by_role("menuitem", name=person.t(key), exact=True)


@pytest.mark.parametrize(("language", "width"), [("en", 1440), ("zh", 390)])
def test_chat_is_private_until_shared(browser: Browser, server: Server, language: str, width: int) -> None:
    _, ann = create_key(server, f"ann-{language}", *SCOPES)
    _, bob = create_key(server, f"bob-{language}", *SCOPES)
    title = f"Herons of {language}"
    with server.client(ann) as client:
        chat = client.post("/v1/sessions", json={"title": title}).raise_for_status().json()["id"]
        sandbox = client.post("/v1/sandboxes", json={"metadata": {"name": f"nest-{language}"}}).json()["id"]
    with (
        visit_console(browser, server, language=language, width=width) as first,
        visit_console(browser, server, "404", language=language, width=width) as other,
    ):
        first.open_path(f"/chats/{chat}")
        sign_in_with_key(first, ann)
        heading = first.page.get_by_role("heading", name=title, exact=True)
        expect(heading).to_be_visible(timeout=TIMEOUT_MS)
        other.open_path("/sandboxes")
        sign_in_with_key(other, bob)
        expect(other.page.get_by_role("searchbox")).to_be_visible(timeout=TIMEOUT_MS)
        expect(other.page.get_by_text(f"nest-{language}")).to_have_count(0)
        other.open_path(f"/chats/{chat}")
        expect(other.page.get_by_role("alert").get_by_role("heading")).to_be_visible(timeout=TIMEOUT_MS)
        expect(other.page.get_by_role("heading", name=title)).to_have_count(0)
        with server.client(bob) as client:
            sessions = client.get("/v1/sessions").raise_for_status().json()["items"]
        assert title not in {each["title"] for each in sessions}
        other.open_path("/chats")
        expect(other.page.get_by_placeholder(other.t("chat.askAnything"))).to_be_visible(timeout=TIMEOUT_MS)
        other.page.wait_for_load_state("networkidle")
        expect(other.page.get_by_text(title)).to_have_count(0)

        first.button("chat.menu").click()
        menu_item(first, "common.sharing.share").click()
        header = first.page.locator("header", has=heading)
        expect(header.get_by_text(first.t("common.sharing.shared"), exact=True)).to_be_visible(timeout=TIMEOUT_MS)
        first.check_accessibility("a shared chat")
        save_screenshot(first.page, f"shared-chat-{language}-{width}")
        other.open_path(f"/chats/{chat}")
        shared_heading = other.page.get_by_role("heading", name=title, exact=True)
        expect(shared_heading).to_be_visible(timeout=TIMEOUT_MS)
        by = other.t("common.sharing.sharedBy", name=f"ann-{language}")
        header = other.page.locator("header", has=shared_heading)
        expect(header.get_by_text(by, exact=True)).to_be_visible(timeout=TIMEOUT_MS)
        other.check_accessibility("a chat shared by another user")
        other.button("chat.menu").click()
        expect(menu_item(other, "chat.export")).to_be_visible()
        expect(menu_item(other, "common.sharing.unshare")).to_have_count(0)
        other.page.keyboard.press("Escape")
        expect(other.page.get_by_role("menu")).to_have_count(0)
        save_screenshot(other.page, f"shared-by-other-{language}-{width}")

        first.open_path(f"/sandboxes/{sandbox}")
        first.button("common.sharing.share").click()
        expect(first.page.get_by_text(first.t("common.sharing.shared"), exact=True)).to_be_visible(timeout=TIMEOUT_MS)
        other.open_path("/sandboxes")
        expect(other.page.get_by_text(by, exact=True)).to_be_visible(timeout=TIMEOUT_MS)
        save_screenshot(other.page, f"shared-sandboxes-{language}-{width}")
        first.assert_no_errors()
        other.assert_no_errors()
