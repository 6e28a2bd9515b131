"""xterm.js in a real browser: a terminal of a sandbox that two people see and that survives a restart of the server."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page

from tests.e2e.browser_pages import open_page_on_origin, run_chromium, save_screenshot
from tests.support.server import Server, run_server

PAGE = """<!doctype html><meta charset="utf-8"><title>Terminal</title>
<link rel="stylesheet" href="/modules/@xterm/xterm/css/xterm.css">
<style>body { margin: 0; background: #000 } #terminal { width: 100vw; height: 100vh }</style><div id="terminal"></div>
<script type="module">
import {Terminal} from "/modules/@xterm/xterm/lib/xterm.mjs";
import {FitAddon} from "/modules/@xterm/addon-fit/lib/addon-fit.mjs";
const terminal = window.terminal = new Terminal({allowProposedApi: true}), fit = new FitAddon();
terminal.loadAddon(fit);
terminal.open(document.getElementById("terminal"));
fit.fit();
window.told = [];
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
  socket.onmessage = event => {
    if (typeof event.data == "string") {
      const word = JSON.parse(event.data);
      told.push(word);
      ended = ended || word.type == "exit";
      return;
    }
    const view = new DataView(event.data), replay = view.getUint8(0) == 3;
    const data = new Uint8Array(event.data, replay ? 9 : 1);
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
window.shown = () => {
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
        made = str(client.post("/v1/sandboxes", json={}).json()["id"])
    yield made
    with server.client() as client:
        client.delete(f"/v1/sandboxes/{made}")


class Person:
    """Someone with a browser, at a terminal."""

    def __init__(self, browser: Browser, server: Server, sandbox: str, name: str, width: int = 900) -> None:
        context = browser.new_context(viewport={"width": width, "height": 400})
        self.page: Page = open_page_on_origin(context, server.url, f"terminal-{name}.html", PAGE)
        self.page.wait_for_function("window.ready")
        self.page.evaluate("key => { window.key = key }", server.key)
        self.page.evaluate("([sandbox, name]) => connect(sandbox, name)", [sandbox, name])
        self.told("connected")

    def told(self, kind: str) -> None:
        self.page.wait_for_function("kind => told.some(word => word.type == kind)", arg=kind)

    def type(self, text: str) -> None:
        self.page.evaluate("terminal.focus()")
        self.page.keyboard.insert_text(text)
        self.page.keyboard.press("Enter")

    def sees(self, text: str) -> None:
        self.page.wait_for_function("text => shown().includes(text)", arg=text)

    def shown(self) -> str:
        return str(self.page.evaluate("shown()"))


def test_two_people_at_one_terminal(server: Server, browser: Browser, sandbox: str) -> None:
    ada, bob = Person(browser, server, sandbox, "ada"), Person(browser, server, sandbox, "bob", 500)
    ada.sees("$ ")
    ada.type("printf '日本語 🦆 \\033[1;32mgrün\\033[0m ✓ %s\\n' sho''wn")
    for person in (ada, bob):
        person.sees("日本語 🦆 grün ✓ shown")
    # Wide characters take two places, and what follows them stands where it should.
    columns = ada.page.evaluate("cells('日本語 🦆', [0, 2, 4, 7])")
    assert columns == ["日", "本", "語", "🦆"]
    ada.type("stty size")
    size = ada.page.evaluate("terminal.rows + ' ' + terminal.cols")
    ada.sees(f"\n{size}\n")
    save_screenshot(ada.page, "xterm-1-shared")
    save_screenshot(bob.page, "xterm-2-another-sees-the-same")

    with server.client() as client:
        client.post(f"/v1/sandboxes/{sandbox}/input", json={"viewer": "ada", "name": "Ada"})
        bob.type("echo bob-was-he''re")
        bob.told("held")
        ada.type("echo ada-was-he''re")
        bob.sees("ada-was-here")
        assert "bob-was-here" not in ada.shown()
        client.delete(f"/v1/sandboxes/{sandbox}/input", params={"viewer": "ada"})


def test_a_full_screen_program_and_another_size(server: Server, browser: Browser, sandbox: str) -> None:
    ada = Person(browser, server, sandbox, "ada")
    ada.sees("$ ")
    trap = "trap 'tput cup 0 0; echo size is $(stty size)' WINCH"
    ada.type(f"clear; bash -c \"{trap}; echo wait''ing; while :; do sleep 0.05; done\"".replace("$", "\\$"))
    ada.sees("waiting")
    ada.page.set_viewport_size({"width": 700, "height": 300})
    ada.page.wait_for_function("shown().includes(`size is ${terminal.rows} ${terminal.cols}`)")
    save_screenshot(ada.page, "xterm-3-another-size")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_is_there_again_after_a_restart(tmp_path: Path, browser: Browser, number: signal.Signals) -> None:
    with run_server(tmp_path, {"sandboxes": {"min_free_disk": 0}}) as server:
        with server.client() as client:
            sandbox = str(client.post("/v1/sandboxes", json={}).json()["id"])
        ada = Person(browser, server, sandbox, "ada")
        ada.sees("$ ")
        ada.type("answer=42; echo be''fore")
        ada.sees("before\n")
        server.stop(number)
        server.start(int(server.url.rpartition(":")[2]))
        ada.page.wait_for_function("told.filter(word => word.type == 'connected').length == 2")
        ada.type("echo the-answer=$answer")
        ada.sees("the-answer=42\n")
        assert ada.shown().count("before\n") == 1
        save_screenshot(ada.page, "xterm-4-after-a-restart")


def test_a_deleted_sandbox_is_told(server: Server, browser: Browser, sandbox: str) -> None:
    ada = Person(browser, server, sandbox, "ada")
    with server.client() as client:
        deleted: httpx.Response = client.delete(f"/v1/sandboxes/{sandbox}")
        assert deleted.status_code == 204
    ada.page.wait_for_function("told.some(word => ['closed', 'exit'].includes(word.type))")
