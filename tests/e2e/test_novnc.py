"""noVNC in a real browser: two viewers of a desktop, one of them in control."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page

from tests.e2e.browser_pages import open_page_on_origin, run_chromium, save_screenshot
from tests.support.screen_images import share_screen_images
from tests.support.server import Server, eventually, run_in_sandbox, run_server

IMAGE = "desktop"
VIEWER_PAGE = """<!doctype html><meta charset="utf-8"><title>Desktop</title>
<style>body { margin: 0; background: #223 } #screen { width: 100vw; height: 100vh }</style><div id="screen"></div>
<script type="module">
import RFB from "/modules/@novnc/novnc/core/rfb.js";
window.received = {connected: 0, closed: [], clipboard: []};
window.call = async (method, path, body) => {
  const headers = {"Authorization": "Bearer " + window.key, "Content-Type": "application/json"};
  const answer = await fetch(path, {method, headers, body: body && JSON.stringify(body)});
  return answer.status == 204 ? null : await answer.json();
};
window.connect = async (sandbox, viewer, viewOnly) => {
  const path = "/v1/sandboxes/" + sandbox + "/desktop";
  const {ticket} = await call("POST", "/v1/tickets", {path});
  const address = "ws://" + location.host + path + "?viewer=" + viewer + "&ticket=" + ticket;
  window.rfb = new RFB(document.getElementById("screen"), address, {wsProtocols: ["binary"]});
  rfb.viewOnly = viewOnly;
  rfb.addEventListener("connect", () => received.connected++);
  rfb.addEventListener("disconnect", event => received.closed.push(event.detail.clean));
  rfb.addEventListener("clipboard", event => received.clipboard.push(event.detail.text));
};
window.ready = true;
</script>"""

DARK_PANEL = (
    "Math.max(...document.querySelector('canvas').getContext('2d').getImageData(450, 585, 1, 1).data.slice(0, 3)) < 80"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("paddock")
    share_screen_images(directory / "data", IMAGE)
    with run_server(directory, {"sandboxes": {"min_free_disk": 0, "default_image": IMAGE}}) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as http_client:
        yield http_client


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with run_chromium() as chromium:
        yield chromium


@pytest.fixture
def sandbox(client: httpx.Client) -> Iterator[str]:
    response = client.post("/v1/sandboxes", json={})
    assert response.status_code == 202, response.text
    sandbox_id = str(response.json()["id"])
    yield sandbox_id
    client.delete(f"/v1/sandboxes/{sandbox_id}")


class DesktopViewer:
    """A viewer of a sandbox's desktop in a browser page."""

    def __init__(self, browser: Browser, server: Server, sandbox: str, name: str) -> None:
        self.name, self.sandbox = name, sandbox
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        self.page: Page = open_page_on_origin(context, server.url, "viewer.html", VIEWER_PAGE)
        self.page.wait_for_function("window.ready")
        self.page.evaluate("key => { window.key = key }", server.key)
        self.page.evaluate("([sandbox, name]) => connect(sandbox, name, false)", [sandbox, name])
        self.page.wait_for_function("received.connected == 1")

    def take_input(self) -> Any:
        body = {"viewer": self.name, "name": self.name.title(), "force": True}
        return self.page.evaluate("([path, body]) => call('POST', path, body)", [self._input_path, body])

    def type_line(self, text: str) -> None:
        self.page.evaluate("rfb.focus()")
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")

    @property
    def _input_path(self) -> str:
        return f"/v1/sandboxes/{self.sandbox}/input"


def file_exists(client: httpx.Client, sandbox: str, path: str) -> bool:
    return run_in_sandbox(client, sandbox, f"test -s {path}")[1] == 0


def test_input_of_a_desktop_moves_between_two_people(
    server: Server, client: httpx.Client, browser: Browser, sandbox: str
) -> None:
    ada, bob = (DesktopViewer(browser, server, sandbox, name) for name in ("ada", "bob"))
    assert ada.page.evaluate("[rfb._fbWidth, rfb._fbHeight]") == [1280, 800]
    # Wait for the desktop itself: a wallpaper, and a panel along the bottom.
    eventually(lambda: run_in_sandbox(client, sandbox, "pgrep -x lxpanel && pgrep -x pcmanfm")[1] == 0)
    run_in_sandbox(client, sandbox, "(setsid lxterminal --working-directory=/tmp >/dev/null 2>&1 &)")
    eventually(lambda: "agent@" in client.post(f"/v1/sandboxes/{sandbox}/tools/list_windows", json={}).text)
    save_screenshot(ada.page, "novnc-1-watching")

    # Bob does not hold the input, so his events are ignored.
    bob.page.mouse.click(500, 300)
    bob.type_line("echo bob >/tmp/bob")
    assert ada.take_input()["holder"]["name"] == "Ada"
    ada.page.mouse.click(500, 300)
    ada.type_line("echo ada >/tmp/ada")
    eventually(lambda: file_exists(client, sandbox, "/tmp/ada"))
    assert not file_exists(client, sandbox, "/tmp/bob")
    save_screenshot(ada.page, "novnc-2-touching")
    save_screenshot(bob.page, "novnc-3-another-sees-the-same")

    # Bob takes over; now Ada only watches.
    bob.take_input()
    ada.type_line("echo ada >/tmp/ada-again")
    bob.type_line("echo bob >/tmp/bob")
    eventually(lambda: file_exists(client, sandbox, "/tmp/bob"))
    assert not file_exists(client, sandbox, "/tmp/ada-again")


def test_clipboard_is_shared_with_the_input_holder(
    server: Server, client: httpx.Client, browser: Browser, sandbox: str
) -> None:
    ada, bob = (DesktopViewer(browser, server, sandbox, name) for name in ("ada", "bob"))
    ada.take_input()
    text = "from outside: 世界 🙂"

    def inside() -> str:
        response = client.post(f"/v1/sandboxes/{sandbox}/tools/get_clipboard", json={}).json()
        return str((response.get("structuredContent") or {}).get("text"))

    bob.page.evaluate("text => rfb.clipboardPasteFrom(text)", "Bob's")
    ada.page.evaluate("text => rfb.clipboardPasteFrom(text)", text)
    eventually(lambda: inside() == text)
    # The sandbox's clipboard goes only to the viewer in control.
    bob.take_input()
    copied = "from inside: 你好 🐧"
    response = client.post(f"/v1/sandboxes/{sandbox}/tools/set_clipboard", json={"text": copied})
    assert response.status_code == 200, response.text
    bob.page.wait_for_function("text => received.clipboard.includes(text)", arg=copied)
    assert copied not in ada.page.evaluate("received.clipboard")


def test_input_holder_resizes_the_screen(server: Server, client: httpx.Client, browser: Browser, sandbox: str) -> None:
    ada, bob = (DesktopViewer(browser, server, sandbox, name) for name in ("ada", "bob"))
    ada.take_input()
    ada.page.evaluate("rfb.resizeSession = true")
    ada.page.set_viewport_size({"width": 900, "height": 600})
    for person in (ada, bob):
        person.page.wait_for_function("rfb._fbWidth == 900 && rfb._fbHeight == 600")
        person.page.wait_for_function(DARK_PANEL)  # The desktop has followed.
    save_screenshot(bob.page, "novnc-4-another-size")


def test_deleting_the_sandbox_closes_the_viewer_cleanly(
    server: Server, client: httpx.Client, browser: Browser, sandbox: str
) -> None:
    ada = DesktopViewer(browser, server, sandbox, "ada")
    client.delete(f"/v1/sandboxes/{sandbox}")
    ada.page.wait_for_function("received.closed.length == 1")
    assert ada.page.evaluate("received.closed") == [True]
