"""Previews in the console: the tab opens by itself, shows the page in a frame without an origin, and shares it."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import expect

from tests.e2e.browser_pages import run_chromium, save_screenshot
from tests.e2e.console.console_servers import console_server_settings, create_key, sign_in_with_key, visit_console
from tests.support.server import run_in_sandbox, run_server

pytestmark = pytest.mark.slow
PORT = 8123
PAGE = (
    "<!doctype html><title>Tide table</title><h1>Tide table</h1><p id=state></p>"
    "<script src=app.js type=module></script>"
)
SCRIPT = """
const attempt = (work) => { try { return String(work()); } catch (error) { return error.name; } };
const attempts = [() => document.cookie, () => localStorage.length, () => parent.document.title];
document.querySelector("#state").textContent = [origin, ...attempts.map(attempt)].join(" ");
"""


def serve_page(client: httpx.Client, sandbox: str) -> None:
    command = (
        f"mkdir -p /tmp/site; cd /tmp/site; cat > index.html <<'END'\n{PAGE}\nEND\ncat > app.js <<'END'\n{SCRIPT}\nEND"
    )
    assert run_in_sandbox(client, sandbox, command)[1] == 0
    run_in_sandbox(client, sandbox, f"cd /tmp/site && exec python3 -m http.server {PORT}", background=True)


def test_preview_opens_by_itself_and_is_shared(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("paddock")
    with (
        run_server(directory, console_server_settings(directory)) as server,
        run_chromium() as browser,
        server.client() as client,
    ):
        for language, width, dark in (("en", 1440, False), ("zh", 1440, True), ("en", 390, False)):
            sandbox = client.post("/v1/sandboxes", json={}).raise_for_status().json()["id"]
            with visit_console(browser, server, language=language, width=width, dark=dark) as person:
                person.sign_in(f"/sandboxes/{sandbox}/preview")
                expect(person.page.get_by_role("heading", name=person.t("portPreview.none"))).to_be_visible()
                person.check_accessibility("a sandbox without a preview")
                person.open_path(f"/sandboxes/{sandbox}/output")
                tab = person.page.get_by_role("tab", name=person.t("sandboxPanel.views.preview"), exact=True)
                with person.page.expect_response(lambda response: response.url.endswith("/ports")):
                    expect(tab).to_have_attribute("aria-selected", "false")
                serve_page(client, sandbox)
                expect(tab).to_have_attribute("aria-selected", "true")
                frame = person.page.frame_locator("iframe")
                expect(frame.get_by_role("heading", name="Tide table")).to_be_visible()
                expect(frame.locator("#state")).to_have_text("null SecurityError SecurityError SecurityError")
                person.check_accessibility("a preview")
                save_screenshot(person.page, f"preview-{language}-{width}")

                address = person.page.get_by_label(person.t("portPreview.address")).input_value()
                assert "Tide table" in httpx.get(address, trust_env=False).text
                person.page.get_by_label(person.t("portPreview.access")).select_option("public")
                expect(person.page.get_by_label(person.t("portPreview.address"))).not_to_have_value(address)
                public = person.page.get_by_label(person.t("portPreview.address")).input_value()
                assert len(public) < len(address) and "Tide table" in httpx.get(public, trust_env=False).text
                person.button("portPreview.close").click()
                expect(person.button("portPreview.open", port=PORT)).to_be_visible()
                assert httpx.get(public, trust_env=False).status_code == 404
                person.assert_no_errors()

        _, secret = create_key(server, "reader", "sandboxes:read", "tenant:all")
        with visit_console(browser, server) as person:
            person.open_path(f"/sandboxes/{sandbox}/preview")
            sign_in_with_key(person, secret)
            expect(person.page.get_by_text(person.t("portPreview.readOnly"))).to_be_visible()
            expect(person.button("portPreview.open", port=PORT)).to_have_count(0)
            person.assert_no_errors()


def test_preview_with_a_name_of_its_own_has_an_origin(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("paddock")
    settings = console_server_settings(directory)
    settings.setdefault("server", {})["preview_host"] = "*.preview.localhost"
    with run_server(directory, settings) as server, run_chromium() as browser, server.client() as client:
        sandbox = client.post("/v1/sandboxes", json={}).raise_for_status().json()["id"]
        serve_page(client, sandbox)
        with visit_console(browser, server, rf"foreign server: http://{PORT}-{sandbox}.preview") as person:
            person.sign_in(f"/sandboxes/{sandbox}/preview")
            person.button("portPreview.open", port=PORT).click()
            frame = person.page.frame_locator("iframe")
            expect(frame.get_by_role("heading", name="Tide table")).to_be_visible()
            # Storage works, the console's page is out of reach, and the cookie of the link is hidden.
            name = f"{PORT}-{sandbox}.preview.localhost"
            expect(frame.locator("#state")).to_have_text(
                re.compile(rf"^http://{re.escape(name)}:\d+  0 SecurityError$")
            )
            person.assert_no_errors()
