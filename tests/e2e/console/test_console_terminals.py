"""The agent's terminal outside its chat: on the pages of the sandbox and of the run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from playwright.sync_api import Browser, expect

from tests.e2e.browser_pages import run_chromium
from tests.e2e.console.console_servers import (
    RUNNER_MODEL,
    console_server_settings,
    create_chat,
    create_key,
    sign_in_with_key,
    visit_console,
)
from tests.e2e.console.console_visitor import ConsoleVisitor
from tests.support.server import Server, eventually, run_in_sandbox, run_server

pytestmark = pytest.mark.slow
TIMEOUT_MS = 20_000
SHOW_TERMINAL_TEXT = "localStorage.setItem('paddock.terminal.reader', 'true')"
"""Puts the terminal's text into the page; otherwise it is drawn on a canvas."""
AGENT_PRESET = {
    "command": [
        "sh",
        "-c",
        """echo '{"type": "call", "id": "1", "name": "Bash", "arguments": {"command": "make all"}}'
until [ -e go ]; do sleep 0.05; done
echo '{"type": "result", "id": "1", "text": "made it", "failed": false}'
until [ -e gone ]; do sleep 0.05; done""",
    ],
    "image": "host",
    "output": {
        "format": "json-lines",
        "rules": [
            {"when": {"type": "call"}, "emit": "tool_call", "id": "id", "name": "name", "arguments": "arguments"},
            {"when": {"type": "result"}, "emit": "tool_result", "id": "id", "text": "text", "failed": "failed"},
        ],
    },
}
"""An agent program that reports one command, and waits for files before its result and before its end."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("paddock")
    (directory / "presets").mkdir()
    (directory / "presets/maker.yaml").write_text(yaml.safe_dump(AGENT_PRESET))
    with run_server(
        directory, {**console_server_settings(directory), "runs": {"presets": [str(directory / "presets")]}}
    ) as running:
        yield running


@pytest.fixture(scope="module")
def browser(server: Server) -> Iterator[Browser]:
    with run_chromium() as chromium:
        yield chromium


def expect_terminal_text(person: ConsoleVisitor, text: str) -> None:
    expect(person.page.locator(".xterm-accessibility-tree")).to_contain_text(text, timeout=TIMEOUT_MS)


def expect_agent_tab(person: ConsoleVisitor) -> None:
    tab = person.page.get_by_role("tab", name=re.compile(f"^{person.t('sandboxPanel.terminal.agent')}"))
    expect(tab).to_have_attribute("aria-selected", "true", timeout=TIMEOUT_MS)


def find_sandbox(server: Server, name: str, value: str) -> str:
    """Return the id of the running sandbox with a label."""

    def find() -> list[dict[str, Any]]:
        with server.client() as client:
            items = client.get("/v1/sandboxes", params={"metadata": f"{name}={value}"}).json()["items"]
        return [each for each in items if each["status"]["state"] == "Running"]

    return str(eventually(find)[0]["id"])


def touch_file(server: Server, sandbox: str, file: str) -> None:
    with server.client() as client:
        assert run_in_sandbox(client, sandbox, f"touch /workspace/{file}")[1] == 0


def open_terminal_from_list(person: ConsoleVisitor, server: Server, sandbox: str) -> None:
    """Open the terminal of a sandbox through the list of sandboxes."""
    person.page.add_init_script(SHOW_TERMINAL_TEXT)
    person.sign_in("/sandboxes")
    person.page.get_by_role("link", name=sandbox).first.click()
    person.page.get_by_role("tab", name=person.t("sandboxPanel.views.terminal"), exact=True).click()


def test_chat_commands_are_visible_from_sandbox_list(browser: Browser, server: Server) -> None:
    session = create_chat(server, RUNNER_MODEL)
    with server.client() as client:
        client.post(f"/v1/sessions/{session}/messages", json={"text": "Go ahead"}).raise_for_status()
    sandbox = find_sandbox(server, "session", session)
    _, secret = create_key(server, "watcher", "sandboxes:read", "sandboxes:write", "tenant:all")
    with visit_console(browser, server) as person, visit_console(browser, server) as stranger:
        open_terminal_from_list(person, server, sandbox)
        expect_agent_tab(person)
        expect_terminal_text(person, "the first")
        expect(person.page.locator(".xterm-accessibility-tree")).not_to_contain_text("exit code")
        touch_file(server, sandbox, "go")
        expect_terminal_text(person, "the last")
        person.page.get_by_role("tab", name=person.t("sandboxPanel.terminal.you"), exact=True).click()
        expect(person.page.locator(".xterm-helper-textarea")).to_be_focused(timeout=TIMEOUT_MS)
        person.check_accessibility("the agent's terminal on the sandbox's page")
        person.assert_no_errors()

        # A key that may not read chats has its own terminal only.
        stranger.page.add_init_script(SHOW_TERMINAL_TEXT)
        stranger.open_path(f"/sandboxes/{sandbox}/terminal")
        sign_in_with_key(stranger, secret)
        expect(stranger.page.locator(".xterm-helper-textarea")).to_be_focused(timeout=TIMEOUT_MS)
        expect(stranger.page.get_by_role("tab", name=re.compile("^Agent"))).to_have_count(0)
        stranger.assert_no_errors()


@pytest.mark.parametrize("page", ["run", "sandbox"])
def test_run_commands_are_shown_live(browser: Browser, server: Server, page: str) -> None:
    task = {"name": "maker", "goal": "Make it.", "image": "host", "agent": "maker"}
    with server.client() as client:
        run_id = client.post("/v1/runs", json={"task": task}).raise_for_status().json()["runs"][0]["id"]
    sandbox = find_sandbox(server, "paddock.run", run_id)
    with visit_console(browser, server) as person:
        if page == "run":
            person.page.add_init_script(SHOW_TERMINAL_TEXT)
            person.sign_in(f"/runs/{run_id}")
            person.page.get_by_role("tab", name=person.t("runs.tab.sandbox"), exact=True).click()
            person.page.get_by_role("tab", name=person.t("sandboxPanel.views.terminal"), exact=True).click()
        else:
            open_terminal_from_list(person, server, sandbox)
        expect_agent_tab(person)
        expect_terminal_text(person, "$ make all")
        expect(person.page.locator(".xterm-accessibility-tree")).not_to_contain_text("made it")
        touch_file(server, sandbox, "go")
        expect_terminal_text(person, "made it")
        person.check_accessibility(f"the agent's terminal on the page of a {page}")
        touch_file(server, sandbox, "gone")
        person.assert_no_errors()


def test_run_without_agent_shows_its_entrypoint(browser: Browser, server: Server) -> None:
    command = "echo counting; until [ -e gone ]; do sleep 0.05; done"
    task = {"name": "plain", "goal": "Count.", "image": "host", "entrypoint": command}
    with server.client() as client:
        run_id = client.post("/v1/runs", json={"task": task}).raise_for_status().json()["runs"][0]["id"]
    sandbox = find_sandbox(server, "paddock.run", run_id)
    with visit_console(browser, server, language="zh", width=390) as person:
        person.page.add_init_script(SHOW_TERMINAL_TEXT)
        person.sign_in(f"/sandboxes/{sandbox}/terminal")
        expect_agent_tab(person)
        expect_terminal_text(person, "$ echo counting; until")
        expect_terminal_text(person, "counting")
        touch_file(server, sandbox, "gone")
        person.assert_no_errors()
