"""Untrusted text of agents, tools and files neither runs in the console nor leaves the server."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog, Page, Request, expect

from tests.e2e.browser_pages import run_chromium
from tests.e2e.console.console_servers import (
    chat_thread,
    console_server_settings,
    create_sandbox,
    key_field,
    message_field,
    sign_in_with_key,
    visit_console,
)
from tests.e2e.console.console_visitor import ConsoleVisitor
from tests.e2e.console.stored_chats import StoredChat, write_chats
from tests.support.server import Server, eventually, run_in_sandbox, run_server

pytestmark = pytest.mark.slow

HOSTILE_CHAT = "ses-00000000000000b1"
HOSTILE_TITLE = '<img src=x onerror="window.pwned=1">\u202etitle\u202c'
PAGES = (
    "/ /chats /tasks /tasks/new /runs /archive /sandboxes /screens /usage /status /settings/models /settings/keys "
    "/settings/policies /settings/appearance /settings/about /nowhere"
).split()
RECORD_VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""
BLOCKED_ERRORS = r"Content Security Policy|violates the following|sandboxed|ERR_BLOCKED"
"""Errors that the browser logs for blocked actions."""


class RequestWatcher:
    """A foreign server that must never receive a request."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                requests.append(self.path)
                self.send_response(204)
                self.end_headers()

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture(scope="module")
def stranger() -> Iterator[RequestWatcher]:
    watcher = RequestWatcher()
    yield watcher
    watcher.close()


def hostile_html(elsewhere: str) -> str:
    code = f"window.pwned=1;top.pwned=1;alert(1);new Image().src='{elsewhere}script'"
    return f"""<p>Harmless words</p><script>{code}</script><img src="{elsewhere}img" onerror="{code}">
<svg xmlns="http://www.w3.org/2000/svg" onload="{code}"><script>{code}</script><a href="javascript:{code}">s</a></svg>
<iframe src="{elsewhere}frame"></iframe><iframe src="javascript:{code}"></iframe>
<iframe srcdoc="<script>top.pwned=1</script>"></iframe><object data="{elsewhere}object"></object>
<embed src="{elsewhere}embed"><link rel="stylesheet" href="{elsewhere}css">
<style>@import url("{elsewhere}import")</style>
<meta http-equiv="refresh" content="0;url={elsewhere}refresh"><base href="{elsewhere}"><video src="{elsewhere}video">
</video><a href="javascript:{code}" ping="{elsewhere}ping">click</a><details open ontoggle="{code}">d</details>
<form action="{elsewhere}form"><button autofocus onfocus="{code}">b</button></form>"""


def hostile_markdown(elsewhere: str) -> str:
    return f"""Harmless words

[one](javascript:window.pwned=1) [two](JaVaScRiPt:window.pwned=1) [three](data:text/html,<script>top.pwned=1</script>)
[four](vbscript:window.pwned=1) [five](java&#10;script:window.pwned=1) <javascript:window.pwned=1>
![six]({elsewhere}picture) ![seven](data:image/svg+xml,<svg/onload=window.pwned=1>) ![eight](javascript:window.pwned=1)
![nine](/\\{elsewhere.removeprefix("http://")}slashed) ![ten](//{elsewhere.removeprefix("http://")}slashes)

{hostile_html(elsewhere)}

\u001b]0;owned\u0007\u001b[31mred\u001b[0m \u202eturned around\u202c \u2066isolated
"""


def hostile_files(elsewhere: str) -> dict[str, str]:
    page = hostile_html(elsewhere)
    picture = f'<svg xmlns="http://www.w3.org/2000/svg" width="90" height="90" onload="top.pwned=1">{page}</svg>'
    return {
        "page.html": page,
        "picture.svg": picture.split("<p>")[0] + f'<script>top.pwned=1</script><image href="{elsewhere}svg"/></svg>',
        "text.md": hostile_markdown(elsewhere),
        "table.csv": f'a,b\n"{hostile_html(elsewhere).replace(chr(34), chr(34) * 2)}",=cmd()\n',
        "data.json": json.dumps({"<script>window.pwned=1</script>": hostile_html(elsewhere)}),
        "<img src=x onerror=window.pwned=1>.txt": "Harmless words\n",
        "\u202egpj.exe": "Harmless words\n",
        "\u001b[31mred\u001b[0m.txt": "\u001b]0;owned\u0007",
    }


def write_files_command(contents: dict[str, str]) -> str:
    """Return a command that writes files into its working directory."""
    packed = base64.b64encode(json.dumps(contents).encode()).decode()
    return (
        "python3 -c 'import base64, json, pathlib; "
        f'[pathlib.Path(name).write_text(text) for name, text in json.loads(base64.b64decode("{packed}")).items()]\''
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, stranger: RequestWatcher) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("paddock")
    evil = StoredChat(HOSTILE_CHAT, HOSTILE_TITLE)
    words = hostile_markdown(stranger.url)
    evil.add_turn(
        words,
        words,
        results={words: words, hostile_html(stranger.url): hostile_html(stranger.url)},
        by="<b onclick=x>Eve",
    )
    write_chats(directory / "data", [evil])
    with run_server(directory, console_server_settings(directory)) as running:
        yield running


@pytest.fixture(scope="module")
def browser(server: Server) -> Iterator[Browser]:
    with run_chromium() as chromium:
        yield chromium


def assert_unharmed(person: ConsoleVisitor, stranger: RequestWatcher, dialogs: list[str]) -> None:
    page = person.page
    assert page.evaluate("window.pwned") is None
    assert dialogs == [] and stranger.requests == []
    risky = "a[href^='javascript:' i], a[href^='data:' i], a[href^='vbscript:' i], [onerror], [onload], [onclick]"
    assert page.locator(risky).count() == 0
    for frame in page.locator("iframe").all():
        assert frame.get_attribute("sandbox") == "", "a frame may do something"


def record_dialogs(page: Page) -> list[str]:
    """Record and dismiss the page's dialogs; there must be none."""
    dialogs: list[str] = []

    def record(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", record)
    return dialogs


def test_hostile_messages_and_results_are_inert(browser: Browser, server: Server, stranger: RequestWatcher) -> None:
    with visit_console(browser, server) as person:
        dialogs = record_dialogs(person.page)
        person.sign_in(f"/chats/{HOSTILE_CHAT}")
        expect(chat_thread(person).get_by_text("Harmless words").first).to_be_visible()
        folded = chat_thread(person).get_by_role("button", expanded=False)
        expect(folded).to_have_count(2)
        for _ in range(2):
            folded.first.click()
        expect(chat_thread(person).get_by_text("top.pwned=1").first).to_be_visible()
        expect(person.page.get_by_text(HOSTILE_TITLE).first).to_be_visible()
        for link in chat_thread(person).locator("a").all():
            assert link.get_attribute("rel") == "noopener noreferrer nofollow"
            assert not (link.get_attribute("href") or "").lower().startswith(("javascript", "data", "vbscript"))
        assert_unharmed(person, stranger, dialogs)
        assert person.page.locator("main iframe, main object, main embed, main form[action], main style").count() == 0
        person.assert_no_errors()


def test_hostile_sandbox_files_are_inert(browser: Browser, server: Server, stranger: RequestWatcher) -> None:
    sandbox = create_sandbox(server, "code")
    contents = hostile_files(stranger.url)
    with server.client() as client:
        assert run_in_sandbox(client, sandbox, f"cd /workspace && {write_files_command(contents)}")[1] == 0
    with visit_console(browser, server, BLOCKED_ERRORS, "request to a foreign server") as person:
        dialogs = record_dialogs(person.page)
        person.sign_in(f"/sandboxes/{sandbox}/files")
        entries = person.page.get_by_role("treeitem")
        expect(entries).to_have_count(len(contents))
        for number in range(len(contents)):
            entries.nth(number).click()
            expect(person.page.get_by_role("article").get_by_role("heading").locator("bdi")).to_have_text(
                entries.nth(number).locator("bdi").inner_text()
            )
            expect(person.page.get_by_role("status", name=person.t("common.loading"))).to_have_count(0)
            if person.page.locator("iframe").count():
                framed = person.page.frame_locator("iframe").get_by_text("Harmless words")
                expect(framed).to_be_visible()
            assert_unharmed(person, stranger, dialogs)
        names = [entry.inner_text() for entry in entries.all()]
        assert not any(re.search("[\u202e\u001b]", name) for name in names), names
        person.assert_no_errors()


def test_hostile_deliverables_are_inert(browser: Browser, server: Server, stranger: RequestWatcher) -> None:
    contents = hostile_files(stranger.url)
    task = {
        "name": "evil",
        "goal": "Do harm.",
        "image": "host",
        "entrypoint": write_files_command(contents),
        "deliverables": ["*"],
    }
    with server.client() as client:
        run_id = client.post("/v1/runs", json={"task": task}).raise_for_status().json()["runs"][0]["id"]
        eventually(lambda: client.get(f"/v1/runs/{run_id}").json()["state"] not in ("queued", "running"), 60)
        run = client.get(f"/v1/runs/{run_id}").json()
    paths = [each["path"] for each in run["result"]["deliverables"]]
    assert {"page.html", "picture.svg", "text.md"} <= set(paths), run
    with visit_console(browser, server, BLOCKED_ERRORS, "request to a foreign server") as person:
        dialogs = record_dialogs(person.page)
        person.sign_in(f"/runs/{run_id}")
        person.page.get_by_role("tab", name=re.compile(person.t("runs.tab.deliverables"))).click()
        buttons = person.page.locator("main li > button")
        expect(buttons).to_have_count(len(paths))
        for number in range(len(paths)):
            buttons.nth(number).click()
            expect(buttons.nth(number)).to_have_attribute("aria-current", "true")
            expect(person.page.get_by_role("status", name=person.t("common.loading"))).to_have_count(0)
            if person.page.locator("iframe").count():
                expect(person.page.frame_locator("iframe").get_by_text("Harmless words")).to_be_visible()
            assert_unharmed(person, stranger, dialogs)
        person.assert_no_errors()


def test_hostile_sandbox_label_is_rejected(server: Server) -> None:
    with server.client() as client:
        response = client.post("/v1/sandboxes", json={"metadata": {"name": "<img src=x onerror=alert(1)>"}})
    assert response.status_code == 400, response.text


def test_content_security_policy_is_strict_and_never_violated(browser: Browser, server: Server) -> None:
    with visit_console(browser, server, "404") as person:
        person.page.add_init_script(RECORD_VIOLATIONS)
        person.sign_in("/")
        for path in PAGES:
            response = person.page.goto(f"{server.url}{path}")
            assert response is not None
            policy = response.headers["content-security-policy"]
            rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
            assert rules["default-src"] == rules["base-uri"] == rules["frame-ancestors"] == "'none'"
            assert rules["script-src"] == rules["connect-src"] == rules["form-action"] == "'self'"
            expect(person.page.get_by_role("heading").first).to_be_visible()
            assert person.page.evaluate("window.violations") == [], path
        person.assert_no_errors()


def test_key_is_in_no_address_storage_or_log(browser: Browser, server: Server) -> None:
    addresses: list[str] = []

    def record_addresses(request: Request) -> None:
        addresses.extend([request.url, request.headers.get("referer", "")])

    with visit_console(browser, server) as person:
        person.page.on("request", record_addresses)
        person.page.on("websocket", lambda socket: addresses.append(socket.url))
        person.page.on("framenavigated", lambda frame: addresses.append(frame.url))
        person.open_path(f"/chats/{HOSTILE_CHAT}")
        sign_in_with_key(person, server.key)
        expect(message_field(person)).to_be_visible()
        with person.page.expect_websocket(lambda socket: "/ws?" in socket.url):
            person.page.reload()
        assert person.page.evaluate("JSON.stringify({...localStorage, ...sessionStorage})").count("pdk_") == 0
        assert person.page.evaluate("document.cookie") == ""
        assert not [each for each in addresses if server.key in each or "pdk_" in each]
        expect(key_field(person)).to_have_count(0)
        log = Path(server.data.parent / f"{server.data.name}.log").read_text()
        assert server.key not in log
