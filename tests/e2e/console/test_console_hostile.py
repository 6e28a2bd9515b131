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

from tests.e2e.browser_pages import chromium
from tests.e2e.console.console_servers import composer, guest, key_field, new_sandbox, settings, sign_in_by_key, thread
from tests.e2e.console.console_visitor import Visitor
from tests.e2e.console.stored_chats import StoredChat, write
from tests.support.server import Server, eventually, run_in_sandbox, run_server

pytestmark = pytest.mark.slow

CHAT = "ses-00000000000000b1"
TITLE = '<img src=x onerror="window.pwned=1">\u202etitle\u202c'
PAGES = (
    "/ /chats /tasks /tasks/new /runs /archive /sandboxes /screens /usage /status /settings/models /settings/keys "
    "/settings/policies /settings/appearance /settings/about /nowhere"
).split()
GUARD = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""
BLOCKED = r"Content Security Policy|violates the following|sandboxed|ERR_BLOCKED"
"""What the browser says of what it was kept from doing."""


class RequestWatcher:
    """A foreign server that must never receive a request."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
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
    made = RequestWatcher()
    yield made
    made.close()


def html(elsewhere: str) -> str:
    deed = f"window.pwned=1;top.pwned=1;alert(1);new Image().src='{elsewhere}script'"
    return f"""<p>Harmless words</p><script>{deed}</script><img src="{elsewhere}img" onerror="{deed}">
<svg xmlns="http://www.w3.org/2000/svg" onload="{deed}"><script>{deed}</script><a href="javascript:{deed}">s</a></svg>
<iframe src="{elsewhere}frame"></iframe><iframe src="javascript:{deed}"></iframe>
<iframe srcdoc="<script>top.pwned=1</script>"></iframe><object data="{elsewhere}object"></object>
<embed src="{elsewhere}embed"><link rel="stylesheet" href="{elsewhere}css">
<style>@import url("{elsewhere}import")</style>
<meta http-equiv="refresh" content="0;url={elsewhere}refresh"><base href="{elsewhere}"><video src="{elsewhere}video">
</video><a href="javascript:{deed}" ping="{elsewhere}ping">click</a><details open ontoggle="{deed}">d</details>
<form action="{elsewhere}form"><button autofocus onfocus="{deed}">b</button></form>"""


def markdown(elsewhere: str) -> str:
    return f"""Harmless words

[one](javascript:window.pwned=1) [two](JaVaScRiPt:window.pwned=1) [three](data:text/html,<script>top.pwned=1</script>)
[four](vbscript:window.pwned=1) [five](java&#10;script:window.pwned=1) <javascript:window.pwned=1>
![six]({elsewhere}picture) ![seven](data:image/svg+xml,<svg/onload=window.pwned=1>) ![eight](javascript:window.pwned=1)
![nine](/\\{elsewhere.removeprefix("http://")}slashed) ![ten](//{elsewhere.removeprefix("http://")}slashes)

{html(elsewhere)}

\u001b]0;owned\u0007\u001b[31mred\u001b[0m \u202eturned around\u202c \u2066isolated
"""


def files(elsewhere: str) -> dict[str, str]:
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="90" height="90" onload="top.pwned=1">{html(elsewhere)}</svg>'
    )
    return {
        "page.html": html(elsewhere),
        "picture.svg": picture.split("<p>")[0] + f'<script>top.pwned=1</script><image href="{elsewhere}svg"/></svg>',
        "text.md": markdown(elsewhere),
        "table.csv": f'a,b\n"{html(elsewhere).replace(chr(34), chr(34) * 2)}",=cmd()\n',
        "data.json": json.dumps({"<script>window.pwned=1</script>": html(elsewhere)}),
        "<img src=x onerror=window.pwned=1>.txt": "Harmless words\n",
        "\u202egpj.exe": "Harmless words\n",
        "\u001b[31mred\u001b[0m.txt": "\u001b]0;owned\u0007",
    }


def writing(contents: dict[str, str]) -> str:
    """A command that writes files where it is run."""
    packed = base64.b64encode(json.dumps(contents).encode()).decode()
    return (
        "python3 -c 'import base64, json, pathlib; "
        f'[pathlib.Path(name).write_text(text) for name, text in json.loads(base64.b64decode("{packed}")).items()]\''
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, stranger: RequestWatcher) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("paddock")
    evil = StoredChat(CHAT, TITLE)
    words = markdown(stranger.url)
    evil.turn(words, words, results={words: words, html(stranger.url): html(stranger.url)}, by="<b onclick=x>Eve")
    write(directory / "data", [evil])
    with run_server(directory, settings(directory)) as running:
        yield running


@pytest.fixture(scope="module")
def browser(server: Server) -> Iterator[Browser]:
    with chromium() as made:
        yield made


def is_unharmed(person: Visitor, stranger: RequestWatcher, dialogs: list[str]) -> None:
    page = person.page
    assert page.evaluate("window.pwned") is None
    assert dialogs == [] and stranger.asked == []
    risky = "a[href^='javascript:' i], a[href^='data:' i], a[href^='vbscript:' i], [onerror], [onload], [onclick]"
    assert page.locator(risky).count() == 0
    for frame in page.locator("iframe").all():
        assert frame.get_attribute("sandbox") == "", "a frame may do something"


def watched(page: Page) -> list[str]:
    """The questions that the page puts before people, none of which should ever come."""
    dialogs: list[str] = []

    def hear(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", hear)
    return dialogs


def test_words_and_results(browser: Browser, server: Server, stranger: RequestWatcher) -> None:
    with guest(browser, server) as person:
        dialogs = watched(person.page)
        person.sign_in(f"/chats/{CHAT}")
        expect(thread(person).get_by_text("Harmless words").first).to_be_visible()
        folded = thread(person).get_by_role("button", expanded=False)
        expect(folded).to_have_count(2)
        for _ in range(2):
            folded.first.click()
        expect(thread(person).get_by_text("top.pwned=1").first).to_be_visible()
        expect(person.page.get_by_text(TITLE).first).to_be_visible()
        for link in thread(person).locator("a").all():
            assert link.get_attribute("rel") == "noopener noreferrer nofollow"
            assert not (link.get_attribute("href") or "").lower().startswith(("javascript", "data", "vbscript"))
        is_unharmed(person, stranger, dialogs)
        assert person.page.locator("main iframe, main object, main embed, main form[action], main style").count() == 0
        person.is_content()


def test_files_of_a_sandbox(browser: Browser, server: Server, stranger: RequestWatcher) -> None:
    sandbox = new_sandbox(server, "code")
    contents = files(stranger.url)
    with server.client() as client:
        assert run_in_sandbox(client, sandbox, f"cd /workspace && {writing(contents)}")[1] == 0
    with guest(browser, server, BLOCKED, "asked somebody else") as person:
        dialogs = watched(person.page)
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
            is_unharmed(person, stranger, dialogs)
        names = [entry.inner_text() for entry in entries.all()]
        assert not any(re.search("[\u202e\u001b]", name) for name in names), names
        person.is_content()


def test_deliverables_of_a_run(browser: Browser, server: Server, stranger: RequestWatcher) -> None:
    contents = files(stranger.url)
    task = {"name": "evil", "goal": "Do harm.", "image": "host", "entrypoint": writing(contents), "deliverables": ["*"]}
    with server.client() as client:
        made = client.post("/v1/runs", json={"task": task}).raise_for_status().json()["runs"][0]["id"]
        eventually(lambda: client.get(f"/v1/runs/{made}").json()["state"] not in ("queued", "running"), 60)
        ended = client.get(f"/v1/runs/{made}").json()
    paths = [each["path"] for each in ended["result"]["deliverables"]]
    assert {"page.html", "picture.svg", "text.md"} <= set(paths), ended
    with guest(browser, server, BLOCKED, "asked somebody else") as person:
        dialogs = watched(person.page)
        person.sign_in(f"/runs/{made}")
        person.page.get_by_role("tab", name=re.compile(person.t("runs.tab.deliverables"))).click()
        buttons = person.page.locator("main li > button")
        expect(buttons).to_have_count(len(paths))
        for number in range(len(paths)):
            buttons.nth(number).click()
            expect(buttons.nth(number)).to_have_attribute("aria-current", "true")
            expect(person.page.get_by_role("status", name=person.t("common.loading"))).to_have_count(0)
            if person.page.locator("iframe").count():
                expect(person.page.frame_locator("iframe").get_by_text("Harmless words")).to_be_visible()
            is_unharmed(person, stranger, dialogs)
        person.is_content()


def test_a_label_of_a_sandbox_cannot_be_hostile(server: Server) -> None:
    with server.client() as client:
        answer = client.post("/v1/sandboxes", json={"metadata": {"name": "<img src=x onerror=alert(1)>"}})
    assert answer.status_code == 400, answer.text


def test_the_policy_is_strict_and_no_page_breaks_it(browser: Browser, server: Server) -> None:
    with guest(browser, server, "404") as person:
        person.page.add_init_script(GUARD)
        person.sign_in("/")
        for path in PAGES:
            answer = person.page.goto(f"{server.url}{path}")
            assert answer is not None
            policy = answer.headers["content-security-policy"]
            rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
            assert rules["default-src"] == rules["base-uri"] == rules["frame-ancestors"] == "'none'"
            assert rules["script-src"] == rules["connect-src"] == rules["form-action"] == "'self'"
            expect(person.page.get_by_role("heading").first).to_be_visible()
            assert person.page.evaluate("window.violations") == [], path
        person.is_content()


def test_the_key_is_in_no_address(browser: Browser, server: Server) -> None:
    addresses: list[str] = []

    def note(request: Request) -> None:
        addresses.extend([request.url, request.headers.get("referer", "")])

    with guest(browser, server) as person:
        person.page.on("request", note)
        person.page.on("websocket", lambda socket: addresses.append(socket.url))
        person.page.on("framenavigated", lambda frame: addresses.append(frame.url))
        person.go(f"/chats/{CHAT}")
        sign_in_by_key(person, server.key)
        expect(composer(person)).to_be_visible()
        with person.page.expect_websocket(lambda socket: "/ws?" in socket.url):
            person.page.reload()
        assert person.page.evaluate("JSON.stringify({...localStorage, ...sessionStorage})").count("pdk_") == 0
        assert person.page.evaluate("document.cookie") == ""
        assert not [each for each in addresses if server.key in each or "pdk_" in each]
        expect(key_field(person)).to_have_count(0)
        log = Path(server.data.parent / f"{server.data.name}.log").read_text()
        assert server.key not in log
