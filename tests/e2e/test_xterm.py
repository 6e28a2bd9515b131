"""xterm.js in a real browser: a shared terminal of a sandbox that survives a restart of the server."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page

from tests.e2e.browser_pages import open_page_on_origin, run_chromium, save_screenshot
from tests.support.server import Server, run_server

TERMINAL_PAGE = """<!doctype html><meta charset="utf-8"><title>Terminal</title>
<link rel="stylesheet" href="/modules/@xterm/xterm/css/xterm.css">
<style>body { margin: 0; background: #000 } #terminal { width: 100vw; height: 100vh }</style><div id="terminal"></div>
<script type="module">
import {Terminal} from "/modules/@xterm/xterm/lib/xterm.mjs";
import {FitAddon} from "/modules/@xterm/addon-fit/lib/addon-fit.mjs";
const terminal = window.terminal = new Terminal({allowProposedApi: true}), fit = new FitAddon();
terminal.loadAddon(fit);
terminal.open(document.getElementById("terminal"));
fit.fit();
window.events = [];
let position = 0, socket = null;
const encoder = new TextEncoder();
function size() { return {cols: terminal.cols, rows: terminal.rows}; }
terminal.onData(text => {
  const bytes = encoder.encode(text), frame = new Uint8Array(bytes.length + 1);
  frame.set(bytes, 1);
  if (socket.readyState == 1) socket.send(frame);
});
terminal.onResize(() => socket.send(JSON.stringify({type: "resize", ...size()})));
window.addEventListener("resize", () => fit.fit());
window.connect = async (sandbox, viewer) => {
  const path = "/v1/sandboxes/" + sandbox + "/terminal";
  const headers = {"Authorization": "Bearer " + window.key, "Content-Type": "application/json"};
  let ticket;
  try {
    const answer = await fetch("/v1/tickets", {method: "POST", headers, body: JSON.stringify({path})});
    ticket = (await answer.json()).ticket;
  } catch (error) {
    return setTimeout(() => connect(sandbox, viewer), 50);
  }
  const query = new URLSearchParams({viewer, ticket, since: position, ...size()});
  socket = new WebSocket("ws://" + location.host + path + "?" + query);
  socket.binaryType = "arraybuffer";
  let ended = false;
  socket.onmessage = message => {
    if (typeof message.data == "string") {
      const event = JSON.parse(message.data);
      events.push(event);
      ended = ended || event.type == "exit";
      return;
    }
    const view = new DataView(message.data), replay = view.getUint8(0) == 3;
    const data = new Uint8Array(message.data, replay ? 9 : 1);
    if (replay) {
      const first = Number(view.getBigUint64(1));
      if (first != position) terminal.reset();
      position = first;
    }
    position += data.length;
    terminal.write(data);
  };
  socket.onclose = () => { if (!ended) setTimeout(() => connect(sandbox, viewer), 50); };
};
window.screenText = () => {
  const buffer = terminal.buffer.active, lines = [];
  for (let row = 0; row < buffer.length; row++) lines.push(buffer.getLine(row).translateToString(true));
  return lines.join("\\n");
};
window.cells = (start, columns) => {
  const buffer = terminal.buffer.active;
  for (let row = 0; row < buffer.length; row++) {
    const line = buffer.getLine(row);
    if (line.translateToString(true).startsWith(start)) return columns.map(x => line.getCell(x).getChars());
  }
};
window.ready = true;
</script>"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with run_server(tmp_path_factory.mktemp("paddock"), {"sandboxes": {"min_free_disk": 0}}) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with run_chromium() as chromium:
        yield chromium


@pytest.fixture
def sandbox(server: Server) -> Iterator[str]:
    with server.client() as client:
        sandbox_id = str(client.post("/v1/sandboxes", json={}).json()["id"])
    yield sandbox_id
    with server.client() as client:
        client.delete(f"/v1/sandboxes/{sandbox_id}")


class TerminalViewer:
    """A viewer of a sandbox's terminal in a browser page."""

    def __init__(self, browser: Browser, server: Server, sandbox: str, name: str, width: int = 900) -> None:
        context = browser.new_context(viewport={"width": width, "height": 400})
        self.page: Page = open_page_on_origin(context, server.url, f"terminal-{name}.html", TERMINAL_PAGE)
        self.page.wait_for_function("window.ready")
        self.page.evaluate("key => { window.key = key }", server.key)
        self.page.evaluate("([sandbox, name]) => connect(sandbox, name)", [sandbox, name])
        self.wait_for_event("connected")

    def wait_for_event(self, kind: str) -> None:
        self.page.wait_for_function("kind => events.some(event => event.type == kind)", arg=kind)

    def type_line(self, text: str) -> None:
        self.page.evaluate("terminal.focus()")
        self.page.keyboard.insert_text(text)
        self.page.keyboard.press("Enter")

    def expect_text(self, text: str) -> None:
        self.page.wait_for_function("text => screenText().includes(text)", arg=text)

    def screen_text(self) -> str:
        return str(self.page.evaluate("screenText()"))


def test_two_people_share_a_terminal(server: Server, browser: Browser, sandbox: str) -> None:
    ada, bob = TerminalViewer(browser, server, sandbox, "ada"), TerminalViewer(browser, server, sandbox, "bob", 500)
    ada.expect_text("$ ")
    ada.type_line("printf '日本語 🦆 \\033[1;32mgrün\\033[0m ✓ %s\\n' sho''wn")
    for person in (ada, bob):
        person.expect_text("日本語 🦆 grün ✓ shown")
    # Wide characters take two columns, and the text after them is in the right column.
    columns = ada.page.evaluate("cells('日本語 🦆', [0, 2, 4, 7])")
    assert columns == ["日", "本", "語", "🦆"]
    ada.type_line("stty size")
    size = ada.page.evaluate("terminal.rows + ' ' + terminal.cols")
    ada.expect_text(f"\n{size}\n")
    save_screenshot(ada.page, "xterm-1-shared")
    save_screenshot(bob.page, "xterm-2-another-sees-the-same")

    with server.client() as client:
        client.post(f"/v1/sandboxes/{sandbox}/input", json={"viewer": "ada", "name": "Ada"})
        bob.type_line("echo bob-was-he''re")
        bob.wait_for_event("held")
        ada.type_line("echo ada-was-he''re")
        bob.expect_text("ada-was-here")
        assert "bob-was-here" not in ada.screen_text()
        client.delete(f"/v1/sandboxes/{sandbox}/input", params={"viewer": "ada"})


def test_full_screen_program_follows_window_size(server: Server, browser: Browser, sandbox: str) -> None:
    ada = TerminalViewer(browser, server, sandbox, "ada")
    ada.expect_text("$ ")
    trap = "trap 'tput cup 0 0; echo size is $(stty size)' WINCH"
    ada.type_line(f"clear; bash -c \"{trap}; echo wait''ing; while :; do sleep 0.05; done\"".replace("$", "\\$"))
    ada.expect_text("waiting")
    ada.page.set_viewport_size({"width": 700, "height": 300})
    ada.page.wait_for_function("screenText().includes(`size is ${terminal.rows} ${terminal.cols}`)")
    save_screenshot(ada.page, "xterm-3-another-size")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_terminal_reconnects_after_server_restart(tmp_path: Path, browser: Browser, number: signal.Signals) -> None:
    with run_server(tmp_path, {"sandboxes": {"min_free_disk": 0}}) as server:
        with server.client() as client:
            sandbox = str(client.post("/v1/sandboxes", json={}).json()["id"])
        ada = TerminalViewer(browser, server, sandbox, "ada")
        ada.expect_text("$ ")
        ada.type_line("answer=42; echo be''fore")
        ada.expect_text("before\n")
        server.stop(number)
        server.start(int(server.url.rpartition(":")[2]))
        ada.page.wait_for_function("events.filter(event => event.type == 'connected').length == 2")
        ada.type_line("echo the-answer=$answer")
        ada.expect_text("the-answer=42\n")
        assert ada.screen_text().count("before\n") == 1
        save_screenshot(ada.page, "xterm-4-after-a-restart")


def test_deleting_the_sandbox_closes_the_terminal(server: Server, browser: Browser, sandbox: str) -> None:
    ada = TerminalViewer(browser, server, sandbox, "ada")
    with server.client() as client:
        deleted: httpx.Response = client.delete(f"/v1/sandboxes/{sandbox}")
        assert deleted.status_code == 204
    ada.page.wait_for_function("events.some(event => ['closed', 'exit'].includes(event.type))")
