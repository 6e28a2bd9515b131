"""The agent's terminal outside of its chat: on the page of the sandbox and on the page of a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from playwright.sync_api import Browser, expect

from tests.e2e.browser_pages import chromium
from tests.e2e.console.console_servers import RUNNER, guest, new_chat, new_key, settings, sign_in_by_key
from tests.e2e.console.console_visitor import Visitor
from tests.support.server import Server, eventually, run_in_sandbox, run_server

pytestmark = pytest.mark.slow
SOON = 20_000
READER = "localStorage.setItem('paddock.terminal.reader', 'true')"
"""With it the terminal's text is in the page; otherwise it is drawn."""
AGENT = {
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
"""An agent program that tells of one command and waits for a file before its result, and for another before its end."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("paddock")
    (directory / "presets").mkdir()
    (directory / "presets/maker.yaml").write_text(yaml.safe_dump(AGENT))
    with run_server(directory, {**settings(directory), "runs": {"presets": [str(directory / "presets")]}}) as running:
        yield running


@pytest.fixture(scope="module")
def browser(server: Server) -> Iterator[Browser]:
    with chromium() as made:
        yield made


def sees(person: Visitor, text: str) -> None:
    expect(person.page.locator(".xterm-accessibility-tree")).to_contain_text(text, timeout=SOON)


def agent_tab_is_open(person: Visitor) -> None:
    tab = person.page.get_by_role("tab", name=re.compile(f"^{person.t('sandboxPanel.terminal.agent')}"))
    expect(tab).to_have_attribute("aria-selected", "true", timeout=SOON)


def sandbox_of(server: Server, name: str, value: str) -> str:
    """Return the id of the running sandbox with a label."""

    def find() -> list[dict[str, Any]]:
        with server.client() as client:
            items = client.get("/v1/sandboxes", params={"metadata": f"{name}={value}"}).json()["items"]
        return [each for each in items if each["status"]["state"] == "Running"]

    return str(eventually(find)[0]["id"])


def touch(server: Server, sandbox: str, file: str) -> None:
    with server.client() as client:
        assert run_in_sandbox(client, sandbox, f"touch /workspace/{file}")[1] == 0


def open_from_list(person: Visitor, server: Server, sandbox: str) -> None:
    """Open the terminal of a sandbox as a person does: list, sandbox, tab."""
    person.page.add_init_script(READER)
    person.sign_in("/sandboxes")
    person.page.get_by_role("link", name=sandbox).first.click()
    person.page.get_by_role("tab", name=person.t("sandboxPanel.views.terminal"), exact=True).click()


def test_commands_of_a_chat_are_seen_from_the_list_of_sandboxes(browser: Browser, server: Server) -> None:
    session = new_chat(server, RUNNER)
    with server.client() as client:
        client.post(f"/v1/sessions/{session}/messages", json={"text": "Go ahead"}).raise_for_status()
    sandbox = sandbox_of(server, "session", session)
    _, secret = new_key(server, "watcher", "sandboxes:read", "sandboxes:write", "tenant:all")
    with guest(browser, server) as person, guest(browser, server) as stranger:
        open_from_list(person, server, sandbox)
        agent_tab_is_open(person)
        sees(person, "the first")
        expect(person.page.locator(".xterm-accessibility-tree")).not_to_contain_text("exit code")
        touch(server, sandbox, "go")
        sees(person, "the last")
        person.page.get_by_role("tab", name=person.t("sandboxPanel.terminal.you"), exact=True).click()
        expect(person.page.locator(".xterm-helper-textarea")).to_be_focused(timeout=SOON)
        person.check_access("the agent's terminal on the sandbox's page")
        person.is_content()

        # A key that may not read chats has its own terminal only.
        stranger.page.add_init_script(READER)
        stranger.go(f"/sandboxes/{sandbox}/terminal")
        sign_in_by_key(stranger, secret)
        expect(stranger.page.locator(".xterm-helper-textarea")).to_be_focused(timeout=SOON)
        expect(stranger.page.get_by_role("tab", name=re.compile("^Agent"))).to_have_count(0)
        stranger.is_content()


@pytest.mark.parametrize("page", ["run", "sandbox"])
def test_commands_of_a_run_are_seen_as_they_run(browser: Browser, server: Server, page: str) -> None:
    task = {"name": "maker", "goal": "Make it.", "image": "host", "agent": "maker"}
    with server.client() as client:
        made = client.post("/v1/runs", json={"task": task}).raise_for_status().json()["runs"][0]["id"]
    sandbox = sandbox_of(server, "paddock.run", made)
    with guest(browser, server) as person:
        if page == "run":
            person.page.add_init_script(READER)
            person.sign_in(f"/runs/{made}")
            person.page.get_by_role("tab", name=person.t("runs.tab.sandbox"), exact=True).click()
            person.page.get_by_role("tab", name=person.t("sandboxPanel.views.terminal"), exact=True).click()
        else:
            open_from_list(person, server, sandbox)
        agent_tab_is_open(person)
        sees(person, "$ make all")
        expect(person.page.locator(".xterm-accessibility-tree")).not_to_contain_text("made it")
        touch(server, sandbox, "go")
        sees(person, "made it")
        person.check_access(f"the agent's terminal on the page of a {page}")
        touch(server, sandbox, "gone")
        person.is_content()


def test_a_run_without_an_agent_shows_its_entrypoint(browser: Browser, server: Server) -> None:
    command = "echo counting; until [ -e gone ]; do sleep 0.05; done"
    task = {"name": "plain", "goal": "Count.", "image": "host", "entrypoint": command}
    with server.client() as client:
        made = client.post("/v1/runs", json={"task": task}).raise_for_status().json()["runs"][0]["id"]
    sandbox = sandbox_of(server, "paddock.run", made)
    with guest(browser, server, language="zh", width=390) as person:
        person.page.add_init_script(READER)
        person.sign_in(f"/sandboxes/{sandbox}/terminal")
        agent_tab_is_open(person)
        sees(person, "$ echo counting; until")
        sees(person, "counting")
        touch(server, sandbox, "gone")
        person.is_content()
