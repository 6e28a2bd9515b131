"""Hostile pages in a logged-in browser: one from a sandbox, one on another port of the same host.

Both are as close to the console as a page can be. Neither may read its cookie or use it.
"""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from playwright.sync_api import BrowserContext, Frame, Page

from tests.e2e.browser_pages import run_chromium
from tests.integration.api.conftest import create_sandbox
from tests.integration.api.sandboxes.test_port_proxy import upload_file
from tests.support.server import Server, eventually, run_in_sandbox

HOSTILE_PORT = 8123
HOSTILE_PAGE = """<!doctype html><title>hostile</title><body><script>
const target = "TARGET", results = {};
const attempt = async (name, work) => {
  try { results[name] = await work(); } catch (error) { results[name] = "failed: " + error.name; }
};
const body = JSON.stringify({});
const ask = (path, options) =>
  fetch(target + path, {credentials: "include", ...options}).then((r) => r.status + " " + r.type);
const form = (method, path, type) => {
  const form = document.createElement("form");
  form.method = method; form.action = target + path; form.enctype = type; form.target = "frame";
  const field = document.createElement("input");
  field.name = '{"x":"'; field.value = '"}'; form.append(field);
  document.body.append(form); form.submit();
};
const loaded = (tag, path) => new Promise((done) => {
  const element = document.createElement(tag);
  element.onload = () => done("loaded"); element.onerror = () => done("refused");
  element.src = target + path; document.body.append(element);
});
const socket = (path) => new Promise((done) => {
  const opened = new WebSocket(target.replace("http", "ws") + path);
  opened.onopen = () => done("opened"); opened.onerror = () => done("refused");
});
(async () => {
  await attempt("cookie", () => document.cookie);
  await attempt("storage", () => String(localStorage.getItem("paddock.proof")));
  await attempt("plain", () => ask("/v1/me"));
  await attempt("signed", () => ask("/v1/me", {headers: {"X-Paddock-Console": "1"}}));
  await attempt("blind", () => ask("/v1/keys", {mode: "no-cors"}));
  await attempt("write", () => ask("/v1/sandboxes", {method: "POST", mode: "no-cors", body}));
  await attempt("remove", () => ask("/v1/sandboxes/VICTIM", {method: "DELETE", headers: {"X-Paddock-Console": "1"}}));
  await attempt("command", () => ask("/v1/sandboxes/VICTIM/proxy/44772/command",
    {method: "POST", mode: "no-cors", body: JSON.stringify({command: "touch /tmp/harmed"})}));
  await attempt("script", () => loaded("script", "/v1/keys"));
  await attempt("picture", () => loaded("img", "/v1/sandboxes/VICTIM/proxy/44772/files/download?path=/etc/hostname"));
  await attempt("login", () => ask("/v1/login", {method: "POST", mode: "no-cors", body: JSON.stringify({key: "x"})}));
  await attempt("logout", () => ask("/v1/logout", {method: "POST", mode: "no-cors"}));
  await attempt("screens", () => socket("/v1/screens"));
  await attempt("terminal", () => socket("/v1/sandboxes/VICTIM/terminal"));
  await attempt("opener", () => String(window.opener && window.opener.document.title));
  await attempt("worker", () => navigator.serviceWorker.register("worker.js").then(() => "registered"));
  const frame = document.createElement("iframe"); frame.name = "frame"; document.body.append(frame);
  form("POST", "/v1/sandboxes", "text/plain");
  form("POST", "/v1/logout", "text/plain");
  form("GET", "/v1/keys", "application/x-www-form-urlencoded");
  await attempt("framed", () => new Promise((done) => { setTimeout(() => {
    try { done(frame.contentDocument.body.textContent); } catch (error) { done("failed: " + error.name); } }, 500); }));
  window.results = results;
})();
</script>"""
REFUSED_RESULTS = {"failed: TypeError", "failed: SecurityError", "refused", "0 opaque"}
"""A response that a page may not read is `0 opaque`; the server's log has its status."""


@pytest.fixture(scope="module")
def logged_in(server: Server) -> Iterator[BrowserContext]:
    with run_chromium() as browser:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{server.url}/")
        page.evaluate(
            "(key) => fetch('/v1/login', {method: 'POST', body: JSON.stringify({key}), headers: "
            "{'Content-Type': 'application/json', 'X-Paddock-Console': '1'}}).then((r) => r.json())"
            ".then((me) => { localStorage.setItem('paddock.proof', JSON.stringify(me.proof)); })",
            server.key,
        )
        yield context
        context.close()


@pytest.fixture(scope="module")
def victim(client: httpx.Client) -> str:
    return create_sandbox(client)


def hostile_page(target: str, victim: str) -> bytes:
    return HOSTILE_PAGE.replace("TARGET", target).replace("VICTIM", victim).encode()


def open_logged_in_page(context: BrowserContext, server: Server) -> Page:
    page = context.new_page()
    page.goto(f"{server.url}/")
    proof = "JSON.parse(localStorage.getItem('paddock.proof'))"
    script = f"fetch('/v1/me', {{headers: {{'X-Paddock-Console': {proof}}}}}).then((r) => r.status)"
    assert page.evaluate(script) == 200
    return page


def check_attack_results(
    page: Page | Frame, server: Server, client: httpx.Client, victim: str, before: set[str]
) -> dict[str, Any]:
    """Assert that a hostile page read nothing and changed nothing, and return its results."""
    page.wait_for_function(
        "window.results", timeout=30_000, polling=100
    )  # Frames out of view have no animation frames.
    results: dict[str, Any] = page.evaluate("window.results")
    cookie = results.pop("cookie")
    assert cookie in ("", "failed: SecurityError") or "paddock_session" not in cookie
    assert results.pop("storage") in ("null", "failed: SecurityError")
    assert results.pop("opener") in ("null", "failed: SecurityError")
    worker = results.pop("worker")
    assert worker.startswith("failed")
    framed = results.pop("framed")
    assert "pdk_" not in framed and "items" not in framed
    assert set(results.values()) <= REFUSED_RESULTS, results
    items = client.get("/v1/sandboxes").json()["items"]
    assert {item["id"] for item in items} == before and victim in before
    assert run_in_sandbox(client, victim, "test -e /tmp/harmed")[1] == 1
    return results


@contextmanager
def run_foreign_server(page: bytes) -> Iterator[tuple[str, list[str]]]:
    """Run a foreign server on this host; yields its address and the headers it received."""
    seen: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(str(self.headers))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: object) -> None:
            pass

    foreign_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=foreign_server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{foreign_server.server_port}", seen
    finally:
        foreign_server.shutdown()
        thread.join()
        foreign_server.server_close()


def test_hostile_page_on_another_port_is_harmless(
    server: Server, client: httpx.Client, logged_in: BrowserContext, victim: str
) -> None:
    before = {item["id"] for item in client.get("/v1/sandboxes").json()["items"]}
    with run_foreign_server(hostile_page(server.url, victim)) as (url, _):
        page = logged_in.new_page()
        page.goto(url)
        check_attack_results(page, server, client, victim, before)
        page.close()
    open_logged_in_page(logged_in, server).close()


@pytest.fixture(scope="module")
def hostile_address(server: Server, client: httpx.Client, victim: str) -> str:
    """Address of a hostile page that a sandbox serves under the server's own origin."""
    sandbox = create_sandbox(client)
    upload_file(client, sandbox, "/tmp/www/index.html", hostile_page(server.url, victim))
    run_in_sandbox(
        client, sandbox, f"cd /tmp/www && python3 -m http.server --bind 127.0.0.1 {HOSTILE_PORT}", background=True
    )
    address = f"{server.url}/v1/sandboxes/{sandbox}/proxy/{HOSTILE_PORT}/"
    eventually(lambda: client.get(address).status_code == 200)
    return address


def test_cookie_opens_no_page_of_a_sandbox(
    server: Server, logged_in: BrowserContext, victim: str, hostile_address: str
) -> None:
    """Neither a link nor a frame in the console opens it."""
    console = open_logged_in_page(logged_in, server)
    with logged_in.expect_page() as opened:
        console.evaluate("(address) => { window.open(address); }", hostile_address)
    opened.value.wait_for_load_state()
    assert "UNAUTHORIZED" in opened.value.content()
    opened.value.close()
    frame = open_frame(console, hostile_address)
    frame.wait_for_load_state()
    assert "hostile" not in frame.content()
    console.close()


def test_sandbox_page_loaded_with_a_key_is_harmless(
    server: Server, client: httpx.Client, logged_in: BrowserContext, victim: str, hostile_address: str
) -> None:
    """A page loaded with a key added by a third party has this origin but none of its rights."""
    before = {item["id"] for item in client.get("/v1/sandboxes").json()["items"]}
    page = logged_in.new_page()
    key = {"Authorization": f"Bearer {server.key}"}
    page.route(hostile_address, lambda route: route.continue_(headers={**route.request.headers, **key}))
    page.goto(hostile_address)
    check_attack_results(page, server, client, victim, before)
    page.close()
    open_logged_in_page(logged_in, server).close()


@pytest.fixture(scope="module")
def preview_link(server: Server, client: httpx.Client, hostile_address: str) -> str:
    """Link to a preview of the hostile page, which needs neither key nor cookie."""
    sandbox = hostile_address.split("/")[5]
    preview = client.post(f"/v1/sandboxes/{sandbox}/previews", json={"port": HOSTILE_PORT}).raise_for_status().json()
    return f"{server.url}{preview['link']}"


def test_sandbox_page_in_a_preview_is_harmless(
    server: Server, client: httpx.Client, logged_in: BrowserContext, victim: str, preview_link: str
) -> None:
    before = {item["id"] for item in client.get("/v1/sandboxes").json()["items"]}
    page = logged_in.new_page()
    page.goto(preview_link)
    check_attack_results(page, server, client, victim, before)
    assert page.evaluate("origin") == "null"
    page.close()
    console = open_logged_in_page(logged_in, server)
    frame = open_frame(console, preview_link)
    check_attack_results(frame, server, client, victim, before)
    assert frame.evaluate("(() => { try { return parent.document.title } catch (error) { return error.name } })()") == (
        "SecurityError"
    )
    console.close()


def test_preview_page_reads_its_own_files_only(logged_in: BrowserContext, preview_link: str) -> None:
    """A page without an origin still works: its scripts and requests below its own address are allowed."""
    page = logged_in.new_page()
    page.goto(preview_link)
    own = "(path) => fetch(path, {headers: {'X-Own': '1'}}).then((r) => r.status, (error) => error.name)"
    assert page.evaluate(own, "index.html") == 200
    assert page.evaluate(own, "/v1/me") == "TypeError"
    assert page.evaluate(own, "/") == "TypeError"
    page.close()


def test_preview_is_framed_by_the_console_only(logged_in: BrowserContext, preview_link: str) -> None:
    with run_foreign_server(f'<iframe src="{preview_link}"></iframe>'.encode()) as (url, _):
        page = logged_in.new_page()
        page.goto(url)
        handle = page.wait_for_selector("iframe", state="attached")
        frame = handle.content_frame() if handle is not None else None
        assert frame is not None
        eventually(lambda: frame.url.startswith("chrome-error:") or frame.url == preview_link)
        assert "hostile" not in frame.content()
        page.close()


def test_console_runs_no_script_of_a_preview(server: Server, logged_in: BrowserContext, preview_link: str) -> None:
    """The console's content policy allows its own origin, so the server refuses such requests."""
    console = open_logged_in_page(logged_in, server)
    script = """(address) => new Promise((done) => {
        const script = document.createElement('script');
        script.onload = () => done('loaded'); script.onerror = () => done('refused');
        script.src = address; document.body.append(script);
    })"""
    assert console.evaluate(script, f"{preview_link}index.html") == "refused"
    worker = "(address) => navigator.serviceWorker.register(address).then(() => 'registered', (error) => error.name)"
    assert console.evaluate(worker, f"{preview_link}index.html") != "registered"
    console.close()


def open_frame(page: Page, address: str) -> Frame:
    page.evaluate(
        "(address) => { const f = document.createElement('iframe'); f.src = address; document.body.append(f); }",
        address,
    )
    handle = page.wait_for_selector("iframe", state="attached")
    frame = handle.content_frame() if handle is not None else None
    assert frame is not None
    return frame


def test_blind_requests_of_hostile_pages_were_refused(server: Server) -> None:
    """Pages cannot read some responses, so their statuses are read from the server's log."""
    statuses: dict[str, set[int]] = {}
    for line in server.log().splitlines():
        record = json.loads(line) if line.startswith("{") else {}
        if record.get("event") == "request":
            statuses.setdefault(record["path"], set()).add(record["status"])
    assert statuses["/v1/keys"] == {401} and statuses["/v1/logout"] == {401}
    assert statuses["/v1/screens"] <= {401, 403}
