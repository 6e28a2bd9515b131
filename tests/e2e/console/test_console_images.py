"""Builds of missing images from the console."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.e2e.browser_pages import run_chromium, save_screenshot
from tests.e2e.console.console_servers import console_server_settings, create_key, sign_in_with_key, visit_console
from tests.e2e.console.console_visitor import ConsoleVisitor
from tests.support.server import Server, run_server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("paddock")
    recipes = directory / "recipes"
    recipes.mkdir()
    (recipes / "orphan.yaml").write_text("description: Stands on nothing.\nbase: no-such-image\n")
    with socket.create_server(("127.0.0.1", 0)) as silence:
        # A mirror that accepts every request and responds to none.
        mirror = f"http://127.0.0.1:{silence.getsockname()[1]}/debian"
        chosen = console_server_settings(directory)
        chosen["images"] = {"recipes": [str(recipes)], "mirror": mirror}
        chosen["kinds"] |= {"linux": {"image": "code"}, "mobile": {"image": "orphan"}}
        with run_server(directory, chosen) as running:
            yield running


@pytest.fixture(scope="module")
def browser(server: Server) -> Iterator[Browser]:
    with run_chromium() as chromium:
        yield chromium


def open_sandbox_dialog(person: ConsoleVisitor, kind: str) -> Locator:
    """Open the dialog for a new sandbox and select a kind."""
    person.button("sandboxes.new").first.click()
    dialog = person.page.get_by_role("dialog")
    dialog.get_by_label(person.t("sandboxes.kind"), exact=True).select_option(kind)
    return dialog


def test_image_build_is_shown_stopped_and_restarted(browser: Browser, server: Server) -> None:
    with visit_console(browser, server) as person:
        person.sign_in("/sandboxes")
        dialog = open_sandbox_dialog(person, "linux")
        expect(person.button("sandboxes.create.go", dialog)).to_be_disabled()
        person.button("sandboxes.build.go", dialog).click()
        progress = dialog.get_by_label(person.t("sandboxes.build.progress", image="code"))
        expect(progress).to_be_visible()
        expect(person.button("sandboxes.build.go", dialog)).to_have_count(0)
        person.check_accessibility("a build")
        save_screenshot(person.page, "image-build")
        # A later visit shows it too.
        person.open_path("/sandboxes")
        dialog = open_sandbox_dialog(person, "linux")
        person.button("sandboxes.build.stop", dialog).click()
        expect(person.button("sandboxes.build.go", dialog)).to_be_visible()
        with server.client() as client:
            assert [each["state"] for each in client.get("/v1/images/builds").json()["items"]] == ["cancelled"]
        # Another image needs no build.
        dialog.get_by_label(person.t("sandboxes.kind"), exact=True).select_option("code")
        expect(person.button("sandboxes.create.go", dialog)).to_be_enabled()
        person.assert_no_errors()


def test_failed_build_shows_its_reason(browser: Browser, server: Server) -> None:
    with visit_console(browser, server) as person:
        person.sign_in("/sandboxes")
        dialog = open_sandbox_dialog(person, "mobile")
        person.button("sandboxes.build.go", dialog).click()
        expect(dialog.get_by_role("alert")).to_contain_text("no-such-image")
        expect(person.button("sandboxes.build.go", dialog)).to_be_enabled()
        person.assert_no_errors()


def test_key_without_build_right_sees_build_command(browser: Browser, server: Server) -> None:
    _, secret = create_key(server, "Ada", "sandboxes:write")
    with visit_console(browser, server) as person:
        person.open_path("/sandboxes")
        sign_in_with_key(person, secret)
        dialog = open_sandbox_dialog(person, "linux")
        expect(dialog.get_by_text("paddock image build code")).to_be_visible()
        expect(person.button("sandboxes.build.go", dialog)).to_have_count(0)
        person.assert_no_errors()
