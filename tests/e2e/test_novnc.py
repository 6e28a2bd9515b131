"""noVNC in a real browser: two viewers of one desktop, one of them in control."""

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
PAGE = """<!doctype html><meta charset="utf-8"><title>Desktop</title>
<style>body { margin: 0; background: #223 } #screen { width: 100vw; height: 100vh }</style><div id="screen"></div>
<script type="module">
import RFB from "/modules/@novnc/novnc/core/rfb.js";
window.told = {connected: 0, closed: [], clipboard: []};
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
  rfb.addEventListener("connect", () => told.connected++);
  rfb.addEventListener("disconnect", event => told.closed.push(event.detail.clean));
  rfb.addEventListener("clipboard", event => told.clipboard.push(event.detail.text));
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
    answer = client.post("/v1/sandboxes", json={})
    assert answer.status_code == 202, answer.text
    made = str(answer.json()["id"])
    yield made
    client.delete(f"/v1/sandboxes/{made}")


class Person:
    """Someone with a browser, looking at a sandbox."""

    def __init__(self, browser: Browser, server: Server, sandbox: str, name: str) -> None:
        self.name, self.sandbox = name, sandbox
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        self.page: Page = open_page_on_origin(context, server.url, "viewer.html", PAGE)
        self.page.wait_for_function("window.ready")
        self.page.evaluate("key => { window.key = key }", server.key)
        self.page.evaluate("([sandbox, name]) => connect(sandbox, name, false)", [sandbox, name])
        self.page.wait_for_function("told.connected == 1")

    def take(self) -> Any:
        body = {"viewer": self.name, "name": self.name.title(), "force": True}
        return self.page.evaluate("([path, body]) => call('POST', path, body)", [self._input, body])

    def type(self, text: str) -> None:
        self.page.evaluate("rfb.focus()")
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")

    @property
    def _input(self) -> str:
        return f"/v1/sandboxes/{self.sandbox}/input"


def exists(client: httpx.Client, sandbox: str, path: str) -> bool:
    return run_in_sandbox(client, sandbox, f"test -s {path}")[1] == 0


def test_two_people_at_one_desktop(server: Server, client: httpx.Client, browser: Browser, sandbox: str) -> None:
    ada, bob = (Person(browser, server, sandbox, name) for name in ("ada", "bob"))
    assert ada.page.evaluate("[rfb._fbWidth, rfb._fbHeight]") == [1280, 800]
    # Wait for the desktop itself: a wallpaper, and a panel along the bottom.
    eventually(lambda: run_in_sandbox(client, sandbox, "pgrep -x lxpanel && pgrep -x pcmanfm")[1] == 0)
    run_in_sandbox(client, sandbox, "(setsid lxterminal --working-directory=/tmp >/dev/null 2>&1 &)")
    eventually(lambda: "agent@" in client.post(f"/v1/sandboxes/{sandbox}/tools/list_windows", json={}).text)
    save_screenshot(ada.page, "novnc-1-watching")

    # Without the input, nothing that Bob does arrives.
    bob.page.mouse.click(500, 300)
    bob.type("echo bob >/tmp/bob")
    assert ada.take()["holder"]["name"] == "Ada"
    ada.page.mouse.click(500, 300)
    ada.type("echo ada >/tmp/ada")
    eventually(lambda: exists(client, sandbox, "/tmp/ada"))
    assert not exists(client, sandbox, "/tmp/bob")
    save_screenshot(ada.page, "novnc-2-touching")
    save_screenshot(bob.page, "novnc-3-another-sees-the-same")

    # Bob takes over; now Ada only watches.
    bob.take()
    ada.type("echo ada >/tmp/ada-again")
    bob.type("echo bob >/tmp/bob")
    eventually(lambda: exists(client, sandbox, "/tmp/bob"))
    assert not exists(client, sandbox, "/tmp/ada-again")


def test_the_clipboard_goes_both_ways_for_the_holder(
    server: Server, client: httpx.Client, browser: Browser, sandbox: str
) -> None:
    ada, bob = (Person(browser, server, sandbox, name) for name in ("ada", "bob"))
    ada.take()
    text = "from outside: 世界 🙂"

    def inside() -> str:
        answer = client.post(f"/v1/sandboxes/{sandbox}/tools/get_clipboard", json={}).json()
        return str((answer.get("structuredContent") or {}).get("text"))

    bob.page.evaluate("text => rfb.clipboardPasteFrom(text)", "Bob's")
    ada.page.evaluate("text => rfb.clipboardPasteFrom(text)", text)
    eventually(lambda: inside() == text)
    # The sandbox's clipboard goes only to the viewer in control.
    bob.take()
    copied = "from inside: 你好 🐧"
    answer = client.post(f"/v1/sandboxes/{sandbox}/tools/set_clipboard", json={"text": copied})
    assert answer.status_code == 200, answer.text
    bob.page.wait_for_function("text => told.clipboard.includes(text)", arg=copied)
    assert copied not in ada.page.evaluate("told.clipboard")


def test_the_holder_sets_the_size_of_the_screen(
    server: Server, client: httpx.Client, browser: Browser, sandbox: str
) -> None:
    ada, bob = (Person(browser, server, sandbox, name) for name in ("ada", "bob"))
    ada.take()
    ada.page.evaluate("rfb.resizeSession = true")
    ada.page.set_viewport_size({"width": 900, "height": 600})
    for person in (ada, bob):
        person.page.wait_for_function("rfb._fbWidth == 900 && rfb._fbHeight == 600")
        person.page.wait_for_function(DARK_PANEL)  # The desktop has followed.
    save_screenshot(bob.page, "novnc-4-another-size")


def test_a_deleted_sandbox_ends_it_cleanly(
    server: Server, client: httpx.Client, browser: Browser, sandbox: str
) -> None:
    ada = Person(browser, server, sandbox, "ada")
    client.delete(f"/v1/sandboxes/{sandbox}")
    ada.page.wait_for_function("told.closed.length == 1")
    assert ada.page.evaluate("told.closed") == [True]
