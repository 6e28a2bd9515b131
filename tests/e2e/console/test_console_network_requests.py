"""An agent asks for a host in a chat, a person grants it on the card, and the turn goes on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.browser_pages import run_chromium, save_screenshot
from tests.e2e.console.console_servers import chat_thread, console_server_settings, create_chat, visit_console
from tests.e2e.console.test_console_network import HOST, REPLY, run_target
from tests.support.server import Server, run_server

pytestmark = pytest.mark.slow
MODEL = "downloader"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with run_target() as target:
        yield target


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("paddock")
    settings = console_server_settings(directory)
    fetch = f"import urllib.request as r; print(r.urlopen('http://{HOST}:{port}/').read().decode())"
    command = {"call": {"tool": "code_run_shell_command", "arguments": {"command": f'python3 -c "{fetch}"'}}}
    access = {"kind": "code", "host": HOST, "port": port, "reason": "to download the answer"}
    script = {
        "turns": [
            command,
            {"call": {"tool": "request_network_access", "arguments": access}},
            command,
            {"say": "It says: {{ tool.output }}"},
        ]
    }
    (directory / f"{MODEL}.yaml").write_text(json.dumps(script))
    settings["llm"]["providers"][MODEL] = {"kind": "script", "file": str(directory / f"{MODEL}.yaml")}
    settings["llm"]["models"][MODEL] = MODEL
    settings["network"] = {"hosts": {HOST: "127.0.0.1"}, "private_targets": [HOST]}
    with run_server(directory, settings) as running:
        yield running


@pytest.fixture(scope="module")
def browser(server: Server) -> Iterator[Browser]:
    with run_chromium() as chromium:
        yield chromium


@pytest.mark.parametrize("language", ["en", "zh"])
def test_host_is_granted_on_the_card_and_the_turn_goes_on(
    browser: Browser, server: Server, port: int, language: str
) -> None:
    # Commands need no approval in this chat; a new host does.
    session = create_chat(server, MODEL)
    with server.client() as client:
        body = {"content": [{"type": "text", "text": "Download the answer."}]}
        client.post(f"/v1/sessions/{session}/messages", json=body).raise_for_status()
    with visit_console(browser, server, language=language) as person:
        person.sign_in(f"/chats/{session}")
        summary = chat_thread(person).get_by_text(person.t("approvals.does.allow_network", host=f"{HOST}:{port}"))
        expect(summary.first).to_be_visible(timeout=30_000)
        expect(chat_thread(person).get_by_text("to download the answer", exact=True).first).to_be_visible()
        person.check_accessibility("a request for a host")
        save_screenshot(person.page, f"network-request-{language}")
        approve = re.compile(f"^{re.escape(person.t('chat.approve'))}")
        chat_thread(person).get_by_role("button", name=approve).first.click()
        expect(chat_thread(person).get_by_text(f"It says: {REPLY.decode().strip()}").first).to_be_visible(
            timeout=30_000
        )
    with server.client() as client:
        sandbox = client.get(f"/v1/sessions/{session}").json()["sandboxes"]["code"]
        assert client.get(f"/v1/sandboxes/{sandbox}/network").json()["policy"] == [f"allow {HOST}:{port}"]
        items = client.get(f"/v1/sandboxes/{sandbox}/connections").json()["items"]
        assert [item["decision"] for item in items] == ["allowed", "denied"]
