"""Two people of one tenant at the console: each sees their own chats, and others' once they are shared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.e2e.browser_pages import chromium, keep_screenshot
from tests.e2e.console.console_servers import guest, new_key, settings, sign_in_by_key
from tests.e2e.console.console_visitor import Visitor
from tests.support.server import Server, run_server

pytestmark = pytest.mark.slow
SCOPES = ("sessions:write", "sandboxes:write", "runs:write")
SOON = 20_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("paddock")
    with run_server(directory, settings(directory)) as running:
        yield running


@pytest.fixture(scope="module")
def browser(server: Server) -> Iterator[Browser]:
    with chromium() as made:
        yield made


def item(person: Visitor, key: str) -> Locator:
    return person.page.get_by_role("menuitem", name=person.t(key), exact=True)


@pytest.mark.parametrize(("language", "width"), [("en", 1440), ("zh", 390)])
def test_a_chat_is_ones_own_until_it_is_shared(browser: Browser, server: Server, language: str, width: int) -> None:
    _, ann = new_key(server, f"ann-{language}", *SCOPES)
    _, bob = new_key(server, f"bob-{language}", *SCOPES)
    title = f"Herons of {language}"
    with server.client(ann) as client:
        chat = client.post("/v1/sessions", json={"title": title}).raise_for_status().json()["id"]
        sandbox = client.post("/v1/sandboxes", json={"metadata": {"name": f"nest-{language}"}}).json()["id"]
    with (
        guest(browser, server, language=language, width=width) as first,
        guest(browser, server, "404", language=language, width=width) as other,
    ):
        first.go(f"/chats/{chat}")
        sign_in_by_key(first, ann)
        heading = first.page.get_by_role("heading", name=title, exact=True)
        expect(heading).to_be_visible(timeout=SOON)
        other.go("/sandboxes")
        sign_in_by_key(other, bob)
        expect(other.page.get_by_role("searchbox")).to_be_visible(timeout=SOON)
        expect(other.page.get_by_text(f"nest-{language}")).to_have_count(0)
        other.go(f"/chats/{chat}")
        expect(other.page.get_by_role("alert").get_by_role("heading")).to_be_visible(timeout=SOON)
        expect(other.page.get_by_role("heading", name=title)).to_have_count(0)
        with server.client(bob) as client:
            listed = client.get("/v1/sessions").raise_for_status().json()["items"]
        assert title not in {each["title"] for each in listed}
        other.go("/chats")
        expect(other.page.get_by_placeholder(other.t("chat.askAnything"))).to_be_visible(timeout=SOON)
        other.page.wait_for_load_state("networkidle")
        expect(other.page.get_by_text(title)).to_have_count(0)

        first.button("chat.menu").click()
        item(first, "common.sharing.share").click()
        header = first.page.locator("header", has=heading)
        expect(header.get_by_text(first.t("common.sharing.shared"), exact=True)).to_be_visible(timeout=SOON)
        first.check_access("a shared chat")
        keep_screenshot(first.page, f"shared-chat-{language}-{width}")
        other.go(f"/chats/{chat}")
        theirs = other.page.get_by_role("heading", name=title, exact=True)
        expect(theirs).to_be_visible(timeout=SOON)
        by = other.t("common.sharing.sharedBy", name=f"ann-{language}")
        header = other.page.locator("header", has=theirs)
        expect(header.get_by_text(by, exact=True)).to_be_visible(timeout=SOON)
        other.check_access("a chat that somebody else shares")
        other.button("chat.menu").click()
        expect(item(other, "chat.export")).to_be_visible()
        expect(item(other, "common.sharing.unshare")).to_have_count(0)
        other.page.keyboard.press("Escape")
        expect(other.page.get_by_role("menu")).to_have_count(0)
        keep_screenshot(other.page, f"shared-by-other-{language}-{width}")

        first.go(f"/sandboxes/{sandbox}")
        first.button("common.sharing.share").click()
        expect(first.page.get_by_text(first.t("common.sharing.shared"), exact=True)).to_be_visible(timeout=SOON)
        other.go("/sandboxes")
        expect(other.page.get_by_text(by, exact=True)).to_be_visible(timeout=SOON)
        keep_screenshot(other.page, f"shared-sandboxes-{language}-{width}")
        first.is_content()
        other.is_content()
