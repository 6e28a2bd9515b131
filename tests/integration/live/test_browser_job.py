"""A browser sandbox does a real job, by tool calls only: a form is filled in and sent, and the answer read."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.integration.live.screen_sandboxes import Sandbox, data_of, read_png, sandbox_of, screens_server
from tests.integration.live.web_sites import DONE, FORM, GREEN, serve_site
from tests.support.server import Server, eventually, run_in_sandbox


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with screens_server(tmp_path_factory.mktemp("paddock"), "browser") as running:
        yield running


@pytest.fixture(scope="module")
def sandbox(client: httpx.Client) -> Iterator[Sandbox]:
    with sandbox_of(client, "browser") as made:
        yield made


@pytest.fixture(scope="module")
def site(sandbox: Sandbox) -> str:
    return serve_site(sandbox, form=FORM, done=DONE)


def test_form_is_submitted_and_its_result_read(sandbox: Sandbox, site: str) -> None:
    assert "Order" in sandbox.text("browser_navigate", url=f"{site}/form.html")
    assert "Amount" in sandbox.text("browser_snapshot")
    sandbox.call("browser_input", selector="[name=name]", value="李雷 🙂")
    sandbox.call("browser_input", selector="[name=amount]", value="12")
    sandbox.call("browser_select", selector="[name=colour]", options=["green"])
    sandbox.call("browser_click", text="Send it")
    sandbox.call("browser_wait_for", text="Thank you")
    assert "Thank you, 李雷 🙂: 12 in green" in sandbox.text("browser_get_text")
    result_text = sandbox.text("browser_evaluate", script="document.querySelector('#result').textContent")
    assert "12 in green" in result_text
    picture = read_png(data_of(sandbox.call("browser_screenshot", format="png", scale=0.1)))
    assert picture.share(GREEN) > 0.8, "the page does not show it"
    eventually(lambda: sandbox.screen(scale=0.1).share(GREEN) > 0.5)  # Chromium shows it a moment later.


def test_missing_element_is_reported(sandbox: Sandbox, site: str) -> None:
    sandbox.call("browser_navigate", url=f"{site}/form.html")
    assert "#nowhere" in sandbox.fails("browser_click", selector="#nowhere", timeout=0.5)


def test_unresponsive_page_times_out(sandbox: Sandbox) -> None:
    listen = "import socket, time; s = socket.create_server(('127.0.0.1', 8099)); time.sleep(60)"
    run_in_sandbox(sandbox.client, sandbox.id, f'nohup python3 -c "{listen}" >/dev/null 2>&1 </dev/null & sleep 0.3')
    answer = sandbox.post("browser_navigate", {"url": "http://127.0.0.1:8099/", "timeout": 1})
    assert answer.status_code == 200, answer.text
    assert answer.elapsed.total_seconds() < 8
    assert "8099" in json.dumps(answer.json()["content"])


def test_killed_chromium_restarts(sandbox: Sandbox, site: str) -> None:
    run_in_sandbox(sandbox.client, sandbox.id, "pkill -9 -x chromium; true")

    def is_usable() -> bool:
        answer = sandbox.post("browser_navigate", {"url": f"{site}/form.html"})
        return answer.status_code == 200 and not answer.json()["isError"]

    eventually(is_usable, 40)
    assert "Amount" in sandbox.text("browser_get_text")
