"""Images that are not built yet are built from the console."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.e2e.browser_pages import chromium, keep_screenshot
from tests.e2e.console.console_servers import guest, new_key, settings, sign_in_by_key
from tests.e2e.console.console_visitor import Visitor
from tests.support.server import Server, run_server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("paddock")
    recipes = directory / "recipes"
    recipes.mkdir()
    (recipes / "orphan.yaml").write_text("description: Stands on nothing.\nbase: no-such-image\n")
    with socket.create_server(("127.0.0.1", 0)) as silence:
        # A mirror that takes every request and answers none.
        mirror = f"http://127.0.0.1:{silence.getsockname()[1]}/debian"
        chosen = settings(directory)
        chosen["images"] = {"recipes": [str(recipes)], "mirror": mirror}
        chosen["kinds"] |= {"linux": {"image": "code"}, "mobile": {"image": "orphan"}}
        with run_server(directory, chosen) as running:
            yield running


@pytest.fixture(scope="module")
def browser(server: Server) -> Iterator[Browser]:
    with chromium() as made:
        yield made


def new_sandbox(person: Visitor, kind: str) -> Locator:
    """The dialog for a new sandbox, with a kind chosen."""
    person.button("sandboxes.new").first.click()
    dialog = person.page.get_by_role("dialog")
    dialog.get_by_label(person.t("sandboxes.kind"), exact=True).select_option(kind)
    return dialog


def test_a_build_is_seen_stopped_and_begun_again(browser: Browser, server: Server) -> None:
    with guest(browser, server) as person:
        person.sign_in("/sandboxes")
        dialog = new_sandbox(person, "linux")
        expect(person.button("sandboxes.create.go", dialog)).to_be_disabled()
        person.button("sandboxes.build.go", dialog).click()
        progress = dialog.get_by_label(person.t("sandboxes.build.progress", image="code"))
        expect(progress).to_be_visible()
        expect(person.button("sandboxes.build.go", dialog)).to_have_count(0)
        person.check_access("a build")
        keep_screenshot(person.page, "image-build")
        # A later visit shows it too.
        person.go("/sandboxes")
        dialog = new_sandbox(person, "linux")
        person.button("sandboxes.build.stop", dialog).click()
        expect(person.button("sandboxes.build.go", dialog)).to_be_visible()
        with server.client() as client:
            assert [each["state"] for each in client.get("/v1/images/builds").json()["items"]] == ["cancelled"]
        # Another image needs no build.
        dialog.get_by_label(person.t("sandboxes.kind"), exact=True).select_option("code")
        expect(person.button("sandboxes.create.go", dialog)).to_be_enabled()
        person.is_content()


def test_why_a_build_failed_is_said(browser: Browser, server: Server) -> None:
    with guest(browser, server) as person:
        person.sign_in("/sandboxes")
        dialog = new_sandbox(person, "mobile")
        person.button("sandboxes.build.go", dialog).click()
        expect(dialog.get_by_role("alert")).to_contain_text("no-such-image")
        expect(person.button("sandboxes.build.go", dialog)).to_be_enabled()
        person.is_content()


def test_who_may_not_build_is_told_the_command(browser: Browser, server: Server) -> None:
    _, secret = new_key(server, "Ada", "sandboxes:write")
    with guest(browser, server) as person:
        person.go("/sandboxes")
        sign_in_by_key(person, secret)
        dialog = new_sandbox(person, "linux")
        expect(dialog.get_by_text("paddock image build code")).to_be_visible()
        expect(person.button("sandboxes.build.go", dialog)).to_have_count(0)
        person.is_content()
