"""The network of a sandbox in the console: policy, live connections, and allowing a denied target."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.e2e.browser_pages import run_chromium, save_screenshot
from tests.e2e.console.console_servers import (
    console_server_settings,
    create_chat,
    create_key,
    sign_in_with_key,
    visit_console,
)
from tests.e2e.console.console_visitor import ConsoleVisitor
from tests.support.server import Server, run_in_sandbox, run_server

pytestmark = pytest.mark.slow
HOST = "example.test"
REPLY = b"Six times seven is 42.\n"


class _ReplyHandler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(REPLY)))
        self.end_headers()
        self.wfile.write(REPLY)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextmanager
def run_target() -> Iterator[int]:
    """Serve HTTP on this machine; yield the port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _ReplyHandler) as target:
        thread = threading.Thread(target=target.serve_forever, daemon=True)
        thread.start()
        yield target.server_port
        target.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def target() -> Iterator[int]:
    with run_target() as port:
        yield port


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("paddock")
    settings = console_server_settings(directory)
    settings["network"] = {"hosts": {HOST: "127.0.0.1"}, "private_targets": [HOST]}
    with run_server(directory, settings) as running:
        yield running


@pytest.fixture(scope="module")
def browser(server: Server) -> Iterator[Browser]:
    with run_chromium() as chromium:
        yield chromium


def fetch_in_sandbox(server: Server, sandbox: str, url: str) -> str:
    """Request an address with a program in the sandbox and return what the program printed."""
    program = f"import urllib.request; print(urllib.request.urlopen('{url}', timeout=20).read().decode())"
    with server.client() as client:
        return run_in_sandbox(client, sandbox, f'python3 -c "{program}"')[0]


def sandbox_policy(server: Server, sandbox: str) -> list[str]:
    with server.client() as client:
        policy: list[str] = client.get(f"/v1/sandboxes/{sandbox}/network").raise_for_status().json()["policy"]
    return policy


def region(person: ConsoleVisitor, key: str) -> Locator:
    return person.page.get_by_role("region", name=person.t(key), exact=True)


def connection_row(person: ConsoleVisitor, target: str, outcome: str) -> Locator:
    """Return the rows of connections to a target with an outcome."""
    rows = region(person, "network.connections").get_by_role("listitem").filter(has_text=target)
    badge = person.page.get_by_text(person.t(f"network.outcomes.{outcome}"), exact=True)
    return rows.filter(has=badge)


def choose_network(person: ConsoleVisitor, dialog: Locator, choice: str) -> None:
    dialog.get_by_label(person.t("network.title"), exact=True).select_option(choice)


def create_sandbox_with_rules(person: ConsoleVisitor, name: str) -> str:
    """Create a sandbox in the console: first with a wrong rule, then with the preset of package indexes."""
    person.button("sandboxes.new").first.click()
    dialog = person.page.get_by_role("dialog")
    dialog.get_by_label(person.t("sandboxes.create.name")).fill(name)
    choose_network(person, dialog, "own")
    rules = dialog.get_by_label(person.t("network.rulesField"))
    rules.fill("allow exa*mple.com")
    person.button("sandboxes.create.go", dialog).click()
    expect(rules).to_have_attribute("aria-invalid", "true")
    expect(dialog.get_by_text("*.example.com", exact=False)).to_be_visible()
    person.check_accessibility("a new sandbox with a wrong rule")
    save_screenshot(person.page, f"network-wrong-rule-{person.language}")
    choose_network(person, dialog, "packages")
    person.button("sandboxes.create.go", dialog).click()
    expect(dialog).to_have_count(0)
    heading = person.page.get_by_role("heading", name=name, exact=True)
    expect(heading).to_be_visible()
    return person.page.url.rpartition("/")[2]


@pytest.mark.parametrize(("language", "width", "dark"), [("en", 1440, False), ("zh", 1440, True), ("en", 390, False)])
def test_denied_connection_is_seen_live_and_allowed(
    browser: Browser, server: Server, target: int, language: str, width: int, dark: bool
) -> None:
    address = f"{HOST}:{target}"
    with visit_console(browser, server, "400", language=language, width=width, dark=dark) as person:
        person.sign_in("/sandboxes")
        sandbox = create_sandbox_with_rules(person, f"net-{language}-{width}")
        person.page.get_by_role("tab", name=person.t("sandboxPanel.views.network"), exact=True).click()
        policy, connections = region(person, "network.policy"), region(person, "network.connections")
        expect(policy.get_by_text(person.t("chat.networks.packages"), exact=True)).to_be_visible()
        expect(connections.get_by_role("heading", name=person.t("network.none"), exact=True)).to_be_visible()
        person.check_accessibility("a sandbox without connections")
        save_screenshot(person.page, f"network-empty-{language}-{width}")

        assert "403" in fetch_in_sandbox(server, sandbox, f"http://{HOST}/")
        expect(connection_row(person, f"{HOST}:80", "denied")).to_have_count(1)
        assert "403" in fetch_in_sandbox(server, sandbox, f"http://{address}/")
        denied = connection_row(person, address, "denied")
        expect(denied).to_have_count(1)
        person.button("network.allowTarget", denied, target=address).focus()
        person.page.keyboard.press("Enter")
        rule = policy.get_by_role("listitem").filter(has_text=f"allow {address}")
        expect(rule).to_be_visible()
        expect(denied.get_by_text(person.t("network.allowedNow"))).to_be_focused()
        assert sandbox_policy(server, sandbox) == [f"allow {address}", "allow packages"]
        assert REPLY.decode().strip() in fetch_in_sandbox(server, sandbox, f"http://{address}/")
        allowed = connection_row(person, address, "allowed")
        expect(allowed).to_contain_text(f"allow {address}")
        totals = region(person, "network.totals.title")
        if width < 1000:
            # In one column, they are folded so that the connections are in sight.
            totals.get_by_role("heading").click()
        expect(totals.get_by_role("listitem").filter(has_text=address)).to_be_visible()
        person.check_accessibility("a sandbox with connections")
        save_screenshot(person.page, f"network-{language}-{width}")

        person.button("common.undo").click()
        expect(rule).to_have_count(0)
        expect(person.button("network.allowTarget", denied, target=address)).to_be_visible()
        assert sandbox_policy(server, sandbox) == ["allow packages"]
        person.assert_no_errors()


def test_policy_is_replaced_and_connections_are_filtered(browser: Browser, server: Server) -> None:
    with server.client() as client:
        sandbox = client.post("/v1/sandboxes", json={"network": "none"}).raise_for_status().json()["id"]
    with visit_console(browser, server, "400") as person:
        person.sign_in(f"/sandboxes/{sandbox}/network")
        policy = region(person, "network.policy")
        person.button("network.change", policy).click()
        dialog = person.page.get_by_role("dialog")
        choose_network(person, dialog, "web")
        choose_network(person, dialog, "own")
        rules = dialog.get_by_label(person.t("network.rulesField"))
        expect(rules).to_have_value("allow web")
        rules.fill("deny *.example.test\nallow a.test:99999")
        person.button("common.save", dialog).click()
        expect(dialog.get_by_text("99999 is not a range of ports", exact=False)).to_be_visible()
        expect(rules).to_have_attribute("aria-invalid", "true")
        person.check_accessibility("a refused policy")
        rules.fill("deny *.example.test\nallow web")
        expect(rules).not_to_have_attribute("aria-invalid", "true")
        person.button("common.save", dialog).click()
        expect(dialog).to_have_count(0)
        expect(policy.get_by_role("listitem")).to_contain_text(["deny *.example.test", "allow web"])
        assert sandbox_policy(server, sandbox) == ["deny *.example.test", "allow web"]

        assert "403" in fetch_in_sandbox(server, sandbox, "http://www.example.test/")
        row = connection_row(person, "www.example.test:80", "denied")
        expect(row).to_contain_text("deny *.example.test")
        filters = person.page.get_by_label(person.t("network.filter"), exact=True)
        filters.select_option("open")
        expect(row).to_have_count(0)
        person.button("network.showAll").click()
        expect(row).to_have_count(1)

        # A policy that another client changed.
        with server.client() as client:
            client.put(f"/v1/sandboxes/{sandbox}/network", json={"policy": "git"}).raise_for_status()
        expect(policy.get_by_text(person.t("chat.networks.git"), exact=True)).to_be_visible()
        # The connections of a deleted sandbox remain.
        with server.client() as client:
            client.delete(f"/v1/sandboxes/{sandbox}").raise_for_status()
        person.expected_errors.append(re.compile("404"))
        person.open_path(f"/sandboxes/{sandbox}/network")
        expect(row).to_have_count(1)
        expect(person.button("network.allow", row)).to_have_count(0)
        person.check_accessibility("connections of a deleted sandbox")
        person.assert_no_errors()


def test_key_that_reads_cannot_change_the_policy(browser: Browser, server: Server) -> None:
    _, secret = create_key(server, "reader", "sandboxes:read", "tenant:all")
    with server.client() as client:
        sandbox = client.post("/v1/sandboxes", json={"network": "none"}).raise_for_status().json()["id"]
    fetch_in_sandbox(server, sandbox, f"http://{HOST}/")
    with visit_console(browser, server) as person:
        person.open_path(f"/sandboxes/{sandbox}/network")
        sign_in_with_key(person, secret)
        expect(connection_row(person, f"{HOST}:80", "denied")).to_have_count(1)
        expect(person.button("network.change")).to_have_count(0)
        expect(person.button("network.allowTarget", target=f"{HOST}:80")).to_have_count(0)
        person.assert_no_errors()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_new_chat_has_the_chosen_network(browser: Browser, server: Server, language: str) -> None:
    with visit_console(browser, server, "400", language=language) as person:
        person.sign_in("/chats")
        page = person.page
        page.get_by_role("button", name="code").first.click()
        dialog = page.get_by_role("dialog")
        default = person.t("network.defaultOf", policy=person.t("chat.networks.none"))
        network = dialog.get_by_label(person.t("network.title"), exact=True)
        expect(network.locator("option:checked")).to_have_text(default)
        choose_network(person, dialog, "own")
        rules = dialog.get_by_label(person.t("network.rulesField"))
        rules.fill("allow a b")
        person.check_accessibility("the network of a new chat")
        save_screenshot(page, f"network-new-chat-{language}")
        person.button("chat.done", dialog).click()
        message = page.get_by_role("textbox", name=person.t("chat.askAnything"), exact=True)
        message.fill("Hello?")
        message.press("Enter")
        # The server refuses the rule, so the dialog opens again.
        expect(rules).to_have_attribute("aria-invalid", "true")
        rules.fill("allow a.test:443")
        person.button("chat.done", dialog).click()
        message.press("Enter")
        page.wait_for_url("**/chats/ses-*")
        session = page.url.rpartition("/")[2].partition("?")[0]
        with server.client() as client:
            assert client.get(f"/v1/sessions/{session}").json()["network"] == ["allow a.test:443"]
        person.assert_no_errors()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_settings_of_a_chat_change_its_network_and_restore_the_default(
    browser: Browser, server: Server, language: str
) -> None:
    chat = create_chat(server)

    def choose(person: ConsoleVisitor, before: str, choice: str) -> None:
        person.button("chat.menu").click()
        person.page.get_by_role("menuitem", name=person.t("chat.settings"), exact=True).click()
        dialog = person.page.get_by_role("dialog")
        network = dialog.get_by_label(person.t("network.title"), exact=True)
        expect(network.locator("option:checked")).to_have_text(before)
        choose_network(person, dialog, choice)
        person.check_accessibility("the network of a chat")
        save_screenshot(person.page, f"network-chat-settings-{choice}-{language}")
        person.button("common.save", dialog).click()
        expect(dialog).to_have_count(0)

    with visit_console(browser, server, language=language) as person:
        person.sign_in(f"/chats/{chat}")
        default = person.t("network.defaultOf", policy=person.t("chat.networks.none"))
        choose(person, default, "git")
        with server.client() as client:
            assert client.get(f"/v1/sessions/{chat}").json()["network"] == ["allow git"]
        choose(person, person.t("chat.networks.git"), "default")
        with server.client() as client:
            assert client.get(f"/v1/sessions/{chat}").json().get("network") is None
        choose(person, default, "web")
        person.assert_no_errors()


@pytest.mark.parametrize(("language", "width"), [("en", 1440), ("zh", 390)])
def test_task_form_has_the_network(browser: Browser, server: Server, language: str, width: int) -> None:
    with visit_console(browser, server, "400", language=language, width=width) as person:
        person.sign_in("/tasks/new")
        form = person.page.get_by_role("form", name=person.t("runs.form.form"), exact=True)
        network = form.get_by_label(person.t("network.title"), exact=True)
        yaml = person.page.get_by_role("textbox", name=person.t("runs.form.yaml"), exact=True)
        expect(network).to_have_value("none")
        expect(form.get_by_text(person.t("runs.hint.network"), exact=True)).to_be_visible()
        choose_network(person, form, "packages")
        expect(yaml).to_have_value(re.compile("^network: packages$", re.MULTILINE))
        choose_network(person, form, "own")
        rules = form.get_by_label(person.t("network.rulesField"))
        expect(rules).to_have_value("allow packages")
        rules.fill("packages\nallow exa*mple.com")
        expect(rules).to_have_attribute("aria-invalid", "true")
        expect(form.get_by_text("*.example.com", exact=False)).to_be_visible()
        person.check_accessibility("a task with a wrong rule")
        save_screenshot(person.page, f"network-task-{language}-{width}")
        rules.fill("packages\nallow *.example.com:443")
        expect(rules).not_to_have_attribute("aria-invalid", "true")
        expect(yaml).to_have_value(
            re.compile(r"^network:\n +- packages\n +- allow \*\.example\.com:443$", re.MULTILINE)
        )
        # The form follows the text.
        yaml.fill("name: a\ngoal: b\nnetwork: {deny: [a.test, b.test], ports: 443}\n")
        expect(rules).to_have_value("deny a.test:443\ndeny b.test:443")
        yaml.fill("name: a\ngoal: b\n")
        expect(network).to_have_value("none")
        person.assert_no_errors()
