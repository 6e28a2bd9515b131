"""Servers for console tests: scripted models, sandboxes and chats."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, CDPSession, Locator, Page, expect

from paddock.sandbox.local.backend import LocalBackend, LocalBackendSettings
from tests.e2e.console.console_visitor import ConsoleVisitor, open_visitor
from tests.support.server import Server

PLAIN_MODEL, DESKTOP_MODEL, RUNNER_MODEL, COUNTER_MODEL = "plain", "desk", "runner", "counter"
COUNTER_LINES = 15
REPLY = "Six times seven is 42."
TOKENS_PER_SECOND = 100
SCRIPTS: Mapping[str, Any] = {
    PLAIN_MODEL: {"each_prompt": True, "turns": [{"say": REPLY}]},
    RUNNER_MODEL: {
        "turns": [
            {
                "call": {
                    "tool": "code_run_shell_command",
                    "arguments": {"command": "echo the first; until [ -e go ]; do sleep 0.05; done; echo the last"},
                }
            },
            {"say": REPLY},
        ]
    },
    COUNTER_MODEL: {
        "turns": [
            {
                "call": {
                    "tool": "code_run_shell_command",
                    "arguments": {
                        "command": f'for n in $(seq {COUNTER_LINES}); do echo "line $n"; sleep 0.3; done; exit 3',
                    },
                }
            },
            {"say": REPLY},
        ]
    },
    DESKTOP_MODEL: {
        "pace": f"{1000 // TOKENS_PER_SECOND}ms",
        "each_prompt": True,
        "turns": [
            {"call": {"tool": "linux_screenshot"}},
            {"say": "Words come one by one, **some** of them `marked`.\n\n" * 1200},
        ],
    },
}
DISCONNECT_ERRORS = r"ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY|WebSocket connection"
"""Errors that the browser logs while the server does not respond."""


@contextmanager
def visit_console(browser: Browser, server: Server, *expected: str, **more: Any) -> Iterator[ConsoleVisitor]:
    """Open the console in a new browser context. `expected` are patterns of allowed browser errors."""
    with open_visitor(browser, server, **more) as person:
        person.expected_errors += map(re.compile, expected)
        yield person


def console_server_settings(directory: Path) -> dict[str, Any]:
    """Return settings of a server with scripted models and a kind `code` without an image."""
    providers = {}
    for name, script in SCRIPTS.items():
        path = directory / f"{name}.yaml"
        path.write_text(json.dumps(script))
        providers[name] = {"kind": "script", "file": str(path), "retries": 0}
    return {
        "sandboxes": {"min_free_disk": 0, "reconcile_every": 0.5},
        "kinds": {"code": {"image": "host"}},
        "llm": {"environment": False, "providers": providers, "models": {name: name for name in SCRIPTS}},
    }


def create_chat(server: Server, model: str = PLAIN_MODEL, **more: Any) -> str:
    body = {"model": model, "kinds": ["code"], "policy": {"allow_all": ["*"]}, **more}
    with server.client() as client:
        return str(client.post("/v1/sessions", json=body).raise_for_status().json()["id"])


def create_sandbox(server: Server, kind: str) -> str:
    body = {"extensions": {"paddock.kind": kind}}
    with server.client() as client:
        return str(client.post("/v1/sandboxes", json=body).raise_for_status().json()["id"])


def create_key(server: Server, name: str, *scopes: str) -> tuple[str, str]:
    """Create a key and return its id and secret."""
    with server.client() as client:
        key = client.post("/v1/keys", json={"name": name, "scopes": scopes or ["admin"]}).raise_for_status().json()
    return str(key["id"]), str(key["secret"])


def kill_sandbox(server: Server, sandbox: str) -> None:
    """Kill all processes of a sandbox from outside, as the host's kernel might."""
    identity = LocalBackend(LocalBackendSettings(data=server.data))._identity(sandbox)
    assert identity is not None
    os.kill(identity.pid, signal.SIGKILL)


def user_messages(server: Server, session: str) -> list[str]:
    """Return the user messages of a chat from the server."""
    with server.client() as client:
        items = client.get(f"/v1/sessions/{session}/messages", params={"pageSize": 100}).raise_for_status().json()
    return [each["content"][0]["text"] for each in items["items"] if each["role"] == "user"]


def key_field(person: ConsoleVisitor) -> Locator:
    return person.page.get_by_label(person.t("shell.signIn.key"), exact=True)


def sign_in_with_key(person: ConsoleVisitor, key: str) -> None:
    key_field(person).fill(key)
    person.button("shell.signIn.go").click()
    expect(key_field(person)).to_have_count(0)


def message_field(person: ConsoleVisitor, *, new: bool = False) -> Locator:
    """Return the message field; it has a different name in a new chat."""
    name = person.t("chat.askAnything" if new else "chat.reply")
    return person.page.get_by_role("textbox", name=name, exact=True)


def chat_thread(person: ConsoleVisitor) -> Locator:
    return person.page.get_by_role("region", name=person.t("chat.thread"), exact=True)


def throttle_network(page: Page, *, down: float, up: float, latency: float) -> CDPSession:
    """Limit the page's network: bits per second each way, and milliseconds of round-trip latency."""
    devtools = page.context.new_cdp_session(page)
    devtools.send("Network.enable")
    devtools.send(
        "Network.emulateNetworkConditions",
        {"offline": False, "downloadThroughput": down / 8, "uploadThroughput": up / 8, "latency": latency},
    )
    return devtools


def print_measurement(measured: str) -> None:
    """Print a measurement for runs with `-s`."""
    print(f"\n{measured}")  # noqa: T201
